"""Has a composite that its own rule never accepts."""

from fleet.sound import *

PLUGIN_API_VERSION = 3


def never(pattern_match):
    return Reject("the wind is wrong")


@hookimpl
def inlaid_op_rules(target):
    from inlaid.graph.pattern import is_op, wildcard

    return [*rules(), OpRule(is_op("relu")(is_op("mul")(wildcard(), wildcard())), "gated", never)] if target.kind == KIND else []
