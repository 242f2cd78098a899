"""Operator rules: whole quantised layers on int8 data of rank 1 to 4, with windows of up to 7 by 7."""

from inlaid.graph.pattern import is_op, wildcard
from inlaid.ops.composites import quantised_binary, quantised_conv, quantised_matmul, quantised_mean, window
from inlaid.plugins import Accept, OpRule, Reject

LARGEST = 7


def rules():
    pool = is_op("max_pool")(wildcard().named("x")).named("pool")
    return (
        OpRule(quantised_conv(), "conv", _windowed),
        OpRule(quantised_matmul(), "matmul", _stored),
        OpRule(quantised_mean(), "mean", _mean),
        OpRule(quantised_binary("add"), "add", _added),
        OpRule(pool, "max_pool", _windowed),
        OpRule(is_op("reshape")(wildcard().named("x")), "reshape", _stored),
    )


def _stored(found):
    for part in (found.root, *(found[name] for name in "abxw" if name in found)):
        if part.type.dtype.name != "int8" or not 1 <= part.type.rank <= 4:
            return Reject(f"expected int8 of rank 1 to 4, found {part.type!r}")
    return Accept()


def _added(found):
    return _stored(found) if "real_a" in found else Reject("expected operands that are added in float32, found an integer addition")


def _windowed(found):
    geometry = window(found.captures)
    if len(geometry.kernel) != 2 or max(geometry.kernel) > LARGEST:
        return Reject(f"expected a 2-D window of at most {LARGEST} by {LARGEST}, found {geometry.kernel}")
    return _stored(found) if geometry.dilations == (1, 1) else Reject("expected no dilation, found a dilated window")


def _mean(found):
    attrs = found.attrs("sum")
    return _stored(found) if attrs.axes == (2, 3) and attrs.keepdims else Reject("expected a mean over whole images")
