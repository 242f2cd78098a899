"""Gives its rules for every target."""

from fleet.sound import *

PLUGIN_API_VERSION = 1


@hookimpl
def inlaid_op_rules(target):
    return rules()
