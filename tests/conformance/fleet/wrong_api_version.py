"""Is written for another version of the contract."""

from fleet.sound import *

PLUGIN_API_VERSION = 4
