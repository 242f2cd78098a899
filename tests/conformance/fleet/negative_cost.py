"""Predicts that an operator gives time back."""

from fleet.sound import *

PLUGIN_API_VERSION = 3


def gainful(call):
    return Accept(-1e-6) if call.type.dtype.name == "float32" else Reject("it computes in float32 alone")


@hookimpl
def inlaid_op_rules(target):
    return [OpRule("relu", "", gainful), *rules()] if target.kind == KIND else []
