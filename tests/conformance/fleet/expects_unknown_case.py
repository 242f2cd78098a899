"""Expects a case to fail that there is not."""

from fleet.sound import *
from inlaid.plugins import Conformance, ExpectedFailure

PLUGIN_API_VERSION = 3


@hookimpl
def inlaid_conformance(target):
    return Conformance(expected_failures=(ExpectedFailure("operators/agrees[frobnicate-float32]", "it is hard"),))
