"""Operator rules for the int8 operators that VTA supports: convolutions, matrix products by constant weights, sums of two tensors.

A composite includes the requantization if it is a shift ("conv", "dense"). Otherwise it ends with the int32 sums ("conv_sums",
"dense_sums") and another target requantizes. LOAD pads only with 0, so a `pad` with any other value is not part of the composite
("conv_outside").
"""

from __future__ import annotations

from collections.abc import Callable
from math import prod

import numpy as np

from inlaid.graph.ir import Call, Constant, Expr
from inlaid.graph.pattern import Match
from inlaid.ops import composites
from inlaid.ops.composites import Window, decode_binary, decode_layer, window
from inlaid.ops.shape import pad
from inlaid.plugins import Accept, OpRule, Reject, Verdict
from inlaid_runtime.types import TensorType
from inlaid_vta_fpga.compiler.legalize import LARGEST_LEFT, LIMIT, bound, places, static_shape
from inlaid_vta_fpga.options import CLOCK_HZ, VtaOptions

LARGEST_PAD = 15
"""Largest padding of a side. The field of LOAD has 4 bits."""
LARGEST_KERNEL = 11
LARGEST_POINT = 1 << 15
"""Bound of a zero point that the ALU adds: its immediates have 16 bits. A larger one would take an instruction per 2^15."""
LEAST_CHANNELS = 8
"""Minimum input channels of a convolution. Fewer channels use less than half of a block of 16."""


def rules(options: VtaOptions) -> tuple[OpRule, ...]:
    """Return the operator rules, most specific first."""
    padded, matmul = composites.padded_conv(), composites.matmul()
    conv = composites.conv().where(lambda expr: not _pads_with_zeros(expr), "LOAD pads with 0, as part of the convolution")
    block = options.config.block

    def rule(pattern: object, name: str, check: Callable[[Match, int], Verdict]) -> OpRule:
        return OpRule(pattern, name, lambda match: check(match, block))  # type: ignore[arg-type]

    return (
        rule(composites.requantized(padded, 1), "conv", _convolution),
        rule(composites.requantized(conv, 1), "conv_outside", _convolution),
        rule(composites.requantized(matmul, -1), "dense", _product),
        rule(composites.quantized_binary("add"), "add", _sum),
        rule(composites.exact_binary("add"), "add_exact", _sum),
        rule(composites.biased(padded, 1), "conv_sums", _convolution),
        rule(composites.biased(conv, 1), "conv_sums_outside", _convolution),
        rule(composites.biased(matmul, -1), "dense_sums", _product),
    )


def _pads_with_zeros(conv: Expr) -> bool:
    """Test whether the data of a convolution is a `pad` with 0. If so, the convolution belongs to another composite."""
    assert isinstance(conv, Call)
    data = conv.args[0]
    return isinstance(data, Call) and data.callee is pad and isinstance(data.args[1], Constant) and not data.args[1].data.any()


def _tensor(match: Match, name: str = "") -> TensorType:
    type_ = (match[name] if name else match.root).type
    assert isinstance(type_, TensorType)
    return type_


def _operands(match: Match, rank: int) -> str | None:
    """Return why the types of the operands or of the result are unsupported; None if all are supported."""
    for name in (part for part in "xwab" if part in match):
        type_ = _tensor(match, name)
        if type_.dtype.name != "int8" or type_.rank != rank:
            return f"expected int8 operands of rank {rank}, found {type_!r}"
    for type_ in (_tensor(match), *(_tensor(match, name) for name in "xab" if name in match)):
        if not all(isinstance(dim, int) and dim > 0 for dim in type_.shape):
            return f"expected static sizes >= 1, found {type_!r}"
    if any(isinstance(match[name], Constant) for name in "xab" if name in match):
        return "expected computed operands, found a constant"
    if "y" in match and _tensor(match).dtype.name != "int8":
        return f"expected an int8 result, which STORE writes, found {_tensor(match).dtype}"
    return None


def _convolution(match: Match, block: int) -> Verdict:
    reason = _operands(match, 4)
    if reason is not None:
        return Reject(reason)
    attrs = match.attrs("conv")
    geometry = window(match.captures)
    channels = int(match.constant("w").shape[1])
    if attrs.groups != 1:
        return Reject(f"expected 1 group, since GEMM sums over all input channels, found {attrs.groups}")
    if channels < LEAST_CHANNELS:
        return Reject(f"expected at least {LEAST_CHANNELS} input channels to fill the {block} lanes of a block, found {channels}")
    reason = _geometry(geometry) or _scaled(match, 0) or _padding(match, block)
    if reason is not None:
        return Reject(reason)
    inputs, taps = -(-channels // block), geometry.kernel[0] * geometry.kernel[1]
    return Accept(_elements(match, block) * (inputs * taps + 5) / CLOCK_HZ)


def _geometry(geometry: Window) -> str | None:
    if geometry.dilations != (1, 1):
        return f"expected no dilation, found dilations {geometry.dilations}"
    if max(geometry.kernel) > LARGEST_KERNEL:
        return f"expected a window of at most {LARGEST_KERNEL} by {LARGEST_KERNEL}, found {geometry.kernel}"
    padding = max(*geometry.before, *geometry.after)
    if padding and geometry.fill != 0:
        return f"expected padding with 0, as LOAD pads, found {geometry.fill:g}"
    if padding > LARGEST_PAD:
        return f"expected padding of at most {LARGEST_PAD} on a side, found {padding}"
    sides = zip(geometry.before, geometry.after, geometry.kernel, strict=True)
    if any(max(before, after) >= extent for before, after, extent in sides):
        return f"expected elements of the image in each window, since LOAD needs one, found a window {geometry.kernel} in padding"
    return None


def _padding(match: Match, block: int) -> str | None:
    """Return why the result's padding of channels to whole blocks would not be 0; None if it would be 0."""
    channels = _tensor(match).shape[1]
    assert isinstance(channels, int)
    if "y" not in match or not channels % block:
        return None
    is_layer = "w" in match
    output = decode_layer(match.captures).output if is_layer else decode_binary(match.captures).output
    if output.least <= 0 <= output.greatest:
        return None
    return (
        f"expected bounds around 0, the padding of {channels} channels to {block} lanes, found {output.least} to {output.greatest}"
    )


def _scaled(match: Match, outputs: int) -> str | None:
    """Return why VTA cannot requantize the sums; None if it can, or if the result is the sums. outputs: output axis of the
    weights."""
    if "y" not in match:
        return None
    numbers = decode_layer(match.captures)
    shift = places(numbers.factor)
    if shift is None:
        return "expected requantization by one right shift for all channels, found another factor"
    weights = match.constant("w").swapaxes(0, outputs)
    largest = bound(weights, np.resize(numbers.bias, len(weights))) + ((1 << shift) >> 1)
    if largest >= LIMIT:
        return f"expected sums that fit int32 after rounding, found up to {largest}"
    point = numbers.output.zero_point
    if largest + abs(point << shift) >= LIMIT and not -LARGEST_POINT <= point < LARGEST_POINT:
        return f"expected a zero point that fits a 16-bit immediate or can be added to the bias, found {point}"
    return None


def _product(match: Match, block: int) -> Verdict:
    reason = _operands(match, 2) or _scaled(match, 1) or _padding(match, block)
    if reason is not None:
        return Reject(reason)
    depth = int(match.constant("w").shape[0])
    return Accept(_elements(match, block) * (-(-depth // block) + 5) / CLOCK_HZ)


def _sum(match: Match, block: int) -> Verdict:
    a, b = _tensor(match, "a"), _tensor(match, "b")
    if a.shape != b.shape or a.rank not in (2, 4):
        return Reject(f"expected two tensors of equal shape and rank 2 or 4, found {a!r} and {b!r}")
    reason = _operands(match, a.rank)
    if reason is not None:
        return Reject(reason)
    addition = decode_binary(match.captures)
    if addition.step is not None:
        return Reject("expected an integer addition, found one in float32")
    shift = places(addition.factor)
    if shift is None:
        return Reject("expected requantization by a right shift, found another factor")
    for side in (addition.a, addition.b):
        if side.left > LARGEST_LEFT:
            return Reject(f"expected operands shifted left by at most {LARGEST_LEFT} bits, found {side.left}")
        if side.factor.scale.tolist() != [1.0]:
            return Reject(f"expected operands scaled by powers of two, found a factor of {side.factor.scale.tolist()}")
    largest_sum = sum((128 + abs(side.zero_point)) << side.left for side in (addition.a, addition.b))
    largest = largest_sum + abs(addition.bias) + ((1 << shift) >> 1) + (abs(addition.output.zero_point) << shift)
    if largest >= LIMIT:
        return Reject(f"expected sums that fit int32 with the zero point of the result, found up to {largest}")
    reason = _padding(match, block)
    if reason is not None:
        return Reject(reason)
    return Accept(_elements(match, block) * 7 / CLOCK_HZ)


def _elements(match: Match, block: int) -> int:
    """Return the number of ACC elements (blocks of channels) of a result."""
    count, channels, *space = static_shape(match.root.type)
    return count * -(-channels // block) * prod(space)
