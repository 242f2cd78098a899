"""Has a composite without a name."""

from fleet.sound import *

PLUGIN_API_VERSION = 3


@hookimpl
def inlaid_op_rules(target):
    from inlaid.graph.pattern import is_op, wildcard

    return [*rules(), OpRule(is_op("exp")(is_op("neg")(wildcard())))] if target.kind == KIND else []
