"""Takes the version of whatever Inlay it meets for its own."""

from fleet.sound import *
from inlay.plugins.contract import PLUGIN_API_VERSION  # noqa: F401
