"""Operator rules: products of float32 matrices, with an optional bias per column and an optional relu."""

import math

from inlaid.graph.pattern import is_op, wildcard
from inlaid.plugins import Accept, OpRule, Reject

LARGEST = 2**31 - 1


def rules():
    product = is_op("matmul")(wildcard().named("a"), wildcard().named("b")).named("matmul")
    biased = product.optional(lambda total: is_op("add")(total, wildcard().has_rank(1).named("bias")))
    return (OpRule(biased.optional(lambda total: is_op("relu")(total).named("relu")), "product", _judge),)


def _judge(match):
    a, b, result = match["a"].type, match["b"].type, match.root.type
    if a.rank < 2 or b.rank < 2:
        return Reject("expected matrices, found a vector")
    if b.rank > 2 and a.shape[:-2] != b.shape[:-2]:
        return Reject(f"expected operands without broadcasting, found {a!r} and {b!r}")
    if "bias" in match and match["bias"].type.shape != match["matmul"].type.shape[-1:]:
        return Reject("expected a bias with one number per column, found another shape")
    if not all(0 < math.prod(type_.shape) <= LARGEST for type_ in (a, b, result)):
        return Reject("expected matrix sizes from 1 to the library's limit, found another size")
    return Accept()
