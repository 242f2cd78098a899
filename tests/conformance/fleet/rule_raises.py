"""Has a rule that cannot cope with sizes that are not known."""

from fleet.sound import *

PLUGIN_API_VERSION = 3


def judge_one_row(call):
    return Accept() if call.type.dims[0] == 1 else Reject("it has more than one row")


@hookimpl
def inlaid_op_rules(target):
    return [*rules(), OpRule("sin", "", judge_one_row)] if target.kind == KIND else []
