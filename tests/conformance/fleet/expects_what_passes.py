"""Expects a case to fail that passes."""

from fleet.sound import *
from inlaid.plugins import Conformance, ExpectedFailure

PLUGIN_API_VERSION = 3


@hookimpl
def inlaid_conformance(target):
    return Conformance(expected_failures=(ExpectedFailure("operators/agrees[add-float32]", "it was wrong once"),))
