"""Layers that Acme runs: on int8 images and matrices, exact, with any number of tiles. Reasons of rejections are for users."""

from inlaid.graph.pattern import is_op, wildcard
from inlaid.ops.composites import (
    quantized_average_pool,
    quantized_binary,
    quantized_conv,
    quantized_matmul,
    quantized_mean,
)
from inlaid.plugins import Accept, OpRule, Reject
from inlaid_acme.hardware import LANES, SCRATCH
from inlaid_acme.layer import make_layer

LARGEST = 15


def rules():
    pool = is_op("max_pool")(wildcard().named("x")).named("pool").named("y")
    flat = is_op("reshape")(wildcard().named("x")).named("y")
    return (
        OpRule(quantized_conv(), "conv", judge_conv),
        OpRule(quantized_matmul(), "matmul", judge_layer("matmul", 2)),
        OpRule(quantized_binary("add"), "add", judge_add),
        OpRule(quantized_mean(), "mean", judge_mean),
        OpRule(quantized_average_pool(), "average_pool", judge_layer("average_pool", 4)),
        OpRule(pool, "max_pool", judge_layer("max_pool", 4)),
        OpRule(flat, "flatten", judge_flatten),
    )


def judge_layer(name, *ranks):
    """Return the predicate of a layer: its data must be int8 of these ranks, its window and a tile must fit the hardware."""

    def judge(match):
        for type_ in (match.root.type, *(match[part].type for part in "abx" if part in match)):
            if type_.dtype.name != "int8" or type_.rank not in ranks or 0 in type_.shape:
                return Reject(f"data must be int8 of rank {' or '.join(map(str, ranks))} with elements, got {type_!r}")
        layer = make_layer(name, match.captures)
        if max(layer.window.kernel) > LARGEST:
            return Reject(f"windows must be at most {LARGEST} by {LARGEST}, got {layer.window.kernel}")
        if layer.tile() is None:
            return Reject(f"operands of one row of {LANES} channels must fit into {SCRATCH} bytes of on-chip memory")
        return Accept()

    return judge


def judge_conv(match):
    groups, channels = match.attrs("conv").groups, match["x"].type.shape[1]
    if groups not in (1, channels) or (groups > 1 and match.root.type.shape[1] != groups):
        return Reject(f"convolutions must have 1 group, or one per channel of data and result, got {groups} groups")
    return judge_layer("conv", 4)(match)


def judge_add(match):
    if match["a"].type.shape != match["b"].type.shape:
        return Reject(f"operands must have equal shapes, got {match['a'].type!r} and {match['b'].type!r}")
    return judge_layer("add", 2, 4)(match)


def judge_mean(match):
    sum_ = match.attrs("sum")
    if match["x"].type.rank != 4 or tuple(sum_.axes) != (2, 3) or not sum_.keepdims:
        return Reject("means must be over the rows and columns of images, and keep these dimensions")
    return judge_layer("mean", 4)(match)


def judge_flatten(match):
    """Accept a reshape that keeps the stored bytes: of one pixel, from N C 1 1 to N C or back."""
    shapes = [match["x"].type.shape, match.root.type.shape]
    if sorted(map(len, shapes)) != [2, 4] or any(shape[2:] not in ((), (1, 1)) for shape in shapes):
        return Reject(f"reshapes must be between N C 1 1 and N C, got {shapes[0]} to {shapes[1]}")
    if shapes[0][:2] != shapes[1][:2]:
        return Reject(f"reshapes must keep the number of channels, got {shapes[0]} to {shapes[1]}")
    return judge_layer("flatten", 2, 4)(match)
