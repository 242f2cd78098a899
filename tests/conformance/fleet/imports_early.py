"""Imports a library where it is loaded."""

import onnx  # noqa: F401

from fleet.sound import *

PLUGIN_API_VERSION = 3
