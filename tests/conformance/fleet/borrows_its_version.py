"""Takes the version of whatever Inlaid it meets for its own."""

from fleet.sound import *
from inlaid_runtime.plugins.target import PLUGIN_API_VERSION  # noqa: F401
