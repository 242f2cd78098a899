"""Has two composites of one name."""

from fleet.sound import *

PLUGIN_API_VERSION = 3


@hookimpl
def inlaid_op_rules(target):
    return [*rules(), *rules()] if target.kind == KIND else []
