"""Expects a case to fail that passes."""

from fleet.sound import *
from inlay.plugins import Conformance, ExpectedFailure

PLUGIN_API_VERSION = 1


@hookimpl
def inlay_conformance(target):
    return Conformance(expected_failures=(ExpectedFailure("operators/agrees[add-float32]", "it was wrong once"),))
