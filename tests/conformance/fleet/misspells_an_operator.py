"""Has a rule for an operator that there is not."""

from fleet.sound import *

PLUGIN_API_VERSION = 3


@hookimpl
def inlaid_op_rules(target):
    return [*rules(), OpRule("matmull")] if target.kind == KIND else []
