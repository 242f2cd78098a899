"""Declares a tolerance that nothing exceeds."""

from fleet.sound import *
from inlaid.plugins import Conformance, Tolerance

PLUGIN_API_VERSION = 3


@hookimpl
def inlaid_conformance(target):
    return Conformance(tolerances=(Tolerance("float32", 100.0),))
