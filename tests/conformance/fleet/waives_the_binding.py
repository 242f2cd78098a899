"""Expects to fail where no plugin may."""

from fleet.sound import *
from inlaid.plugins import Conformance, ExpectedFailure

PLUGIN_API_VERSION = 3


@hookimpl
def inlaid_conformance(target):
    return Conformance(expected_failures=(ExpectedFailure("codegen/gives-the-same-again", "it is late"),))
