"""Gives its rules for every target."""

from fleet.sound import *

PLUGIN_API_VERSION = 3


@hookimpl
def inlaid_op_rules(target):
    return rules()
