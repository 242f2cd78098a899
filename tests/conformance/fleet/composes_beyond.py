"""Takes a composite alone, and writes to the byte behind its output."""

from fleet import writes_beyond
from fleet.composes_alone import *

PLUGIN_API_VERSION = 3

inlaid_runtime = writes_beyond.inlaid_runtime
