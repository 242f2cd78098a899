"""Declares a tolerance that no int8 exceeds."""

from fleet.sound import *
from inlaid.plugins import Conformance, Tolerance

PLUGIN_API_VERSION = 3


@hookimpl
def inlaid_conformance(target):
    return Conformance(tolerances=(Tolerance("int8", steps=255),))
