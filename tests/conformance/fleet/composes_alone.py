"""Keeps the contract, and takes nothing but a composite that none of the suite's models has."""

from fleet.sound import *

PLUGIN_API_VERSION = 3


def composites():
    from inlaid.graph.pattern import is_op, wildcard

    product = is_op("mul")(wildcard().named("x"), wildcard().named("w"))
    return [OpRule(is_op("add")(product, wildcard().named("b")), "scaled", judge_floats)]


@hookimpl
def inlaid_op_rules(target):
    return composites() if target.kind == KIND else []
