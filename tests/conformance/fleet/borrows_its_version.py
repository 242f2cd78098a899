"""Takes the version of whatever Inlaid it meets for its own."""

from fleet.sound import *
from inlaid.plugins.contract import PLUGIN_API_VERSION  # noqa: F401
