"""Has a composite of an operator that there is not."""

from fleet.sound import *

PLUGIN_API_VERSION = 3


@hookimpl
def inlaid_op_rules(target):
    from inlaid.graph.pattern import is_op, wildcard

    pattern = is_op("add")(is_op("rellu")(wildcard()), wildcard())
    return [*rules(), OpRule(pattern, "rectified")] if target.kind == KIND else []
