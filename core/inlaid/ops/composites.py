"""Patterns of the canonical quantized form, for targets with integer hardware.

An 8-bit network reaches targets as integer products with int32 accumulators, a bias, a requantization and a clamp, and as
element-wise arithmetic on operands rescaled to a common scale. Models from ONNX scale in float32, by `requantize`, `dequantize` and
`quantize`; `inlaid.quantize` and TensorFlow Lite scale in integers, by `multiply_fixed` or shifts. Each pattern matches all of
these forms and captures their parts by name. `decode_layer` and `decode_binary` return uniform parameters, `decode_average_pool`
those of an average pool.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from inlaid.graph.ir import Call, Constant, Expr
from inlaid.graph.operator import Operator
from inlaid.graph.pattern import Pattern, Requirements, is_const, is_op, is_scalar, wildcard
from inlaid.ops.convolution import conv as convolution
from inlaid.ops.elementwise import shift_right
from inlaid.ops.fixed_point import fixed_points
from inlaid.ops.quantized import dequantize, quantize, requantize
from inlaid.ops.reduce import reduce_sum
from inlaid.ops.requantization import Array, Factor, Parts, factor
from inlaid.ops.window import WindowAxis, inner_taps
from inlaid.plugins.contract import HALF_EVEN, ONCE
from inlaid_runtime.arith import Dim
from inlaid_runtime.records import dataclass
from inlaid_runtime.types import DType, TensorType

STORED = ("int8", "uint8", "int16")
"""Dtypes of results of integer-only requantization."""
LARGEST_SHIFT = 30
LARGEST_ADDED = 1 << 30
CLAMPED = Requirements(attrs={"minimum": 0.0, "maximum": 127.0})


@dataclass(frozen=True)
class Quantized:
    """Quantization parameters: real = (integer - zero_point) * scale; for a `requantize`, integer = round(accumulator * scale) +
    zero_point. `scale` is float, `zero_point` has the stored dtype; both are 0-d or have one element per index of `axis`."""

    scale: np.ndarray[Any, Any]
    zero_point: np.ndarray[Any, Any]
    axis: int
    dtype: DType


def quantization(call: Call) -> Quantized | None:
    """Return the parameters of a `quantize`, `dequantize` or `requantize`; None for other calls and for non-constant parameters."""
    if call.callee not in (quantize, dequantize, requantize):
        return None
    stored_type = (call.args[0] if call.callee is dequantize else call).type
    assert isinstance(stored_type, TensorType)
    parameters = [arg.data for arg in call.args[1:] if isinstance(arg, Constant)]
    if len(parameters) < len(call.args) - 1:
        return None
    zero_point = parameters[1] if len(parameters) == 2 else np.zeros((), stored_type.dtype.numpy)
    return Quantized(parameters[0], zero_point, call.attrs.axis, stored_type.dtype)


@dataclass(frozen=True)
class Output:
    """The last step of a quantized operator: clip(scaled + zero_point, least, greatest), cast to a dtype."""

    zero_point: int
    least: int
    greatest: int
    dtype: DType


@dataclass(frozen=True)
class Layer:
    """Parameters of a `quantized_conv`, `quantized_matmul` or `quantized_mean`, independent of the source format. The stored result
    is clip(rounded((sum + bias) * factor) + zero_point, least, greatest). The sum is over the stored data times `weights`. The zero
    point of the data is folded into `bias` and fills the padding (`Window.fill`). The zero point of the weights is 0.

    `weights` have the layout of the graph: O I H W for a convolution, (inputs, outputs) for a matrix product, None for a mean.
    `bias` has the dtype of the sums. `bias` and `factor` are 1-d, with one element per output channel or one for all.
    """

    weights: np.ndarray[Any, Any] | None
    bias: np.ndarray[Any, Any]
    factor: Factor
    output: Output


@dataclass(frozen=True)
class Operand:
    """An operand of a `quantized_binary`: rounded(((stored - zero_point) * 2^left) * factor), in int32. A factor of 1 with rounding
    "once" is the identity."""

    zero_point: int
    left: int
    factor: Factor
    dtype: DType


@dataclass(frozen=True)
class QuantizedBinary:
    """Parameters of a `quantized_binary`, independent of the source format. The stored result is clip(rounded(((a operator b) +
    bias) * factor) + zero_point, least, greatest), with the operands `a` and `b` in int32.

    If the model computes in float32, as ONNX's QDQ form does, `step` is the scale of the result, else None. With a step, the
    operands are (stored - zero_point) * factor in float32, unrounded, and rounded((a operator b) / step) is stored. `factor`
    approximates 1 / step by a fixed-point multiplier, which may round a tie differently."""

    operator: str
    a: Operand
    b: Operand
    bias: int
    factor: Factor
    output: Output
    step: np.float32 | None


def decode_layer(parts: Parts) -> Layer:
    """Extract the parameters of a layer from the parts of its pattern."""
    scaled, data = parts["scaled"], parts["x"]
    scaling = factor(scaled)
    assert scaling is not None and isinstance(data.type, TensorType) and isinstance(scaled, Call)
    total = parts.get("sum", parts.get("conv", parts.get("matmul")))
    assert isinstance(total, Call) and isinstance(total.type, TensorType)
    bias = _bias(parts, total.type.dtype.numpy)
    if "sum" in parts:
        count = math.prod(int(data.type.shape[axis]) for axis in total.attrs.axes)
        bias = bias - bias.dtype.type(count) * _constant(parts, "center", 0).astype(bias.dtype)
    channels = max(bias.size, scaling.shifts.size)
    return Layer(
        _constant(parts, "w", 0) if "w" in parts else None,
        np.resize(bias, channels),
        Factor(np.resize(scaling.multipliers, channels), np.resize(scaling.shifts, channels), scaling.rounding),
        _output(parts),
    )


def decode_binary(parts: Parts) -> QuantizedBinary:
    """Extract the operator and the parameters of an element-wise sum, difference or product from the parts of its pattern."""
    operator = parts["operator"]
    assert isinstance(operator, Call) and isinstance(operator.callee, Operator)
    name, a, b = operator.callee.name, _operand(parts, "a"), _operand(parts, "b")
    root = parts["y"]
    parameters = quantization(root) if isinstance(root, Call) and root.callee is quantize else None
    if parameters is not None:
        step = np.float32(parameters.scale)
        return QuantizedBinary(name, a, b, 0, Factor(*fixed_points([1 / float(step)]), HALF_EVEN), _output(parts), step)
    scaling = factor(parts["scaled"]) if "scaled" in parts else _one()
    assert scaling is not None
    return QuantizedBinary(name, a, b, int(_bias(parts, np.dtype(np.int32)).item()), scaling, _output(parts), None)


def _one() -> Factor:
    """Return the identity factor."""
    return Factor(np.full(1, 1 << 30, np.int32), np.ones(1, np.int32), ONCE)


def _operand(parts: Parts, name: str) -> Operand:
    data = parts[name].type
    assert isinstance(data, TensorType)
    real = parts.get(f"real_{name}")
    if isinstance(real, Call):
        parameters = quantization(real)
        assert parameters is not None
        scale = Factor(*fixed_points(parameters.scale.reshape(-1).tolist()), HALF_EVEN)
        return Operand(int(parameters.zero_point), 0, scale, data.dtype)
    scaled = factor(parts.get(f"scaled_{name}")) or _one()
    return Operand(int(_constant(parts, f"zero_{name}", 0)), int(_constant(parts, f"left_{name}", 0)), scaled, data.dtype)


def _bias(parts: Parts, dtype: np.dtype[Any]) -> np.ndarray[Any, Any]:
    """Return the 1-d bias that is added to sums before scaling. It excludes the half that a rounding right shift adds."""
    addends = [_constant(parts, name, 0).astype(dtype).reshape(-1) for name in ("bias", "halves")]
    scaling = parts.get("scaled")
    if isinstance(scaling, Call) and scaling.callee is shift_right:
        (shift_counts,) = (arg.data.reshape(-1).astype(dtype) for arg in scaling.args[1:] if isinstance(arg, Constant))
        addends.append(-((np.ones(1, dtype) << shift_counts) >> 1))
    with np.errstate(over="ignore"):
        return np.asarray(sum(addends[1:], addends[0]))


def _output(parts: Parts) -> Output:
    """Return the zero point and the tightest bounds on the stored result, including the limits of its dtype."""
    root = parts["y"]
    assert isinstance(root, Call) and isinstance(root.type, TensorType)
    parameters = quantization(root)
    zero_point = _constant(parts, "point", 0) if parameters is None else parameters.zero_point
    least, greatest = map(int, root.type.dtype.limits)
    if isinstance(parts.get("relu"), Call):
        least = int(zero_point)
    bounds = [(_constant(parts, "least", least), _constant(parts, "greatest", greatest))]
    for clip_ in (parts.get("clamp"), parts.get("clip")):
        if isinstance(clip_, Call):
            bounds.append((np.asarray(clip_.attrs.minimum), np.asarray(clip_.attrs.maximum)))
    for low, high in bounds:
        # Float bounds may be fractional.
        greatest = min(greatest, math.floor(high)) if np.isfinite(high) else greatest
        least = max(least, math.ceil(low)) if np.isfinite(low) else least
    return Output(int(zero_point), min(least, greatest), greatest, root.type.dtype)


def _constant(parts: Parts, name: str, default: float) -> np.ndarray[Any, Any]:
    part = parts.get(name)
    return part.data if isinstance(part, Constant) else np.asarray(default)


@dataclass(frozen=True)
class Window:
    """The window of a convolution or pool. Each tuple has one number per spatial axis. The data is padded with `fill`: `before`
    elements before each axis, `after` elements after it."""

    kernel: tuple[int, ...]
    strides: tuple[int, ...]
    dilations: tuple[int, ...]
    before: tuple[int, ...]
    after: tuple[int, ...]
    fill: float


def window(parts: Parts) -> Window:
    """Return the window of the convolution captured as "conv" or the max_pool captured as "pool", of static shape. It includes the
    padding of the convolution and of the call captured as "pad", but not the padding of the max_pool."""
    call = parts["conv"] if "conv" in parts else parts["pool"]
    assert isinstance(call, Call) and isinstance(call.type, TensorType)
    attrs, pad = call.attrs, parts.get("pad")
    fill: float = 0
    if "conv" in parts:
        weights = call.args[1].type
        assert isinstance(weights, TensorType)
        kernel = weights.shape[2:]
    else:
        kernel, fill = attrs.kernel, -math.inf if call.type.dtype.is_float else call.type.dtype.limits[0]
    rank = len(kernel)
    pads = attrs.pads or (0,) * (2 * rank)
    if isinstance(pad, Call) and isinstance(pad.args[1], Constant):
        pads, fill = (*pad.attrs.pads[2 : 2 + rank], *pad.attrs.pads[4 + rank :]), pad.args[1].data.item()
    sizes = (kernel, attrs.strides or (1,) * rank, attrs.dilations or (1,) * rank, pads[:rank], pads[rank:])
    kernel, strides, dilations, before, after = (tuple(map(int, each)) for each in sizes)
    return Window(kernel, strides, dilations, before, after, fill)


@dataclass(frozen=True)
class AveragePool:
    """Parameters of a `quantized_average_pool`. With the sum s in int32 of the stored elements in a window, and their number d, the
    stored result is clip(q, least, greatest), where q is s / d rounded half away from 0: (|s| + d // 2) // d, negated if s < 0.
    Padding is neither summed nor counted. Data and result have one scale and one zero point, which take no part in this.

    `divisors` are the numbers d: int32, with one element per output position in the spatial axes, or one for all. `window` has the
    extents of the image as its kernel if a window covers it.
    """

    window: Window
    divisors: Array
    output: Output


def decode_average_pool(parts: Parts) -> AveragePool:
    """Extract the parameters of an average pool from the parts of its pattern."""
    total = parts["sum"] if "sum" in parts else parts["conv"]
    divisors = _divisors(total)
    assert divisors is not None and isinstance(total, Call)
    if "conv" in parts:
        return AveragePool(window(parts), divisors, _output(parts))
    ones, zeros = (1,) * divisors.ndim, (0,) * divisors.ndim
    return AveragePool(Window(_spatial_extents(total), ones, ones, zeros, zeros, 0), divisors, _output(parts))


def quantized_conv() -> Pattern:
    """Match a quantized convolution: "conv" of "x" by constant weights "w", plus an optional constant "bias" per output channel,
    requantized per tensor or per channel to "y", with optional clamps "least" and "greatest". A constant "pad" of the spatial axes
    may precede a convolution without padding."""
    return requantized(padded_conv() | conv(), 1)


def conv() -> Pattern:
    """Match a convolution "conv" of "x" by constant weights "w"."""
    return is_op("conv")(wildcard().named("x"), is_const().named("w")).named("conv")


def padded_conv() -> Pattern:
    """Match a convolution "conv" without padding, of a constant spatial "pad" of "x", by constant weights "w"."""
    padded = (
        is_op("pad")(wildcard().named("x"), _scalar()).where(_pads_spatial_axes, "expected pads of spatial axes only").named("pad")
    )
    return is_op("conv")(padded, is_const().named("w")).where(_pads_nothing, "expected no padding after a pad").named("conv")


def biased(product: Pattern, axis: int) -> Pattern:
    """Match an int32 product, plus an optional constant "bias" with one element per index of an axis, or one for all."""

    def added(total: Pattern) -> Pattern:
        pattern = is_op("add")(total, is_const().named("bias"))
        return pattern.where(lambda expr: _by_channel(expr, axis), "expected a bias with one element per output channel")

    return product.optional(added)


def requantized(product: Pattern, axis: int) -> Pattern:
    """Match a product with an optional bias (see `biased`), requantized per tensor or per index of an axis to "y", with optional
    clamps "least" and "greatest"."""
    return _requantized(biased(product, axis), lambda expr: _by_channel(expr, axis))


def quantized_matmul() -> Pattern:
    """Match a quantized matrix product: "matmul" of "x" by a constant matrix "w", plus an optional constant "bias" per column,
    requantized per tensor or per column to "y", with optional clamps "least" and "greatest"."""
    return requantized(matmul(), -1)


def matmul() -> Pattern:
    """Match a product "matmul" of "x" by a constant matrix "w"."""
    return is_op("matmul")(wildcard().named("x"), is_const().has_rank(2).named("w")).named("matmul")


def quantized_mean() -> Pattern:
    """Match a quantized mean: the "sum" over axes, in int32 or int64, of integers "x" minus an optional constant "center",
    requantized per tensor to "y", with optional clamps "least" and "greatest"."""
    wide = is_op("cast")(wildcard().named("x")).has_dtype("int32", "int64")
    centered = wide.optional(lambda it: is_op("sub")(it, _scalar().named("center")))
    return _requantized(is_op("reduce_sum")(centered).named("sum"), _has_scalar_constants)


def quantized_average_pool() -> Pattern:
    """Match an average pool of integers "x" as TensorFlow Lite defines it: the sum of each window, a "conv" by ones or a "sum" over
    whole images, is divided by the number of elements that are not padding, rounded half away from 0, and clipped ("clamp") to "y".
    The average is in the scale of the data: it has no requantization."""
    x = wildcard().has_dtype(*STORED).named("x")
    ones = is_const().has_rank(3, 4, 5).where(_are_ones, "expected weights of 1", Requirements(value=1.0, ranks=(4,)))
    windows = is_op("conv")(x, ones).where(_is_depthwise, "expected one window per channel").named("conv")
    wide = is_op("cast")(x).has_dtype("int32")
    over_image = Requirements(attrs={"axes": (2, 3), "keepdims": True})
    images = is_op("reduce_sum")(wide).where(_sums_whole_images, "expected a sum over the spatial axes", over_image).named("sum")
    total = (windows | images).has_dtype("int32")
    minus, plus, zero = (is_scalar(value).has_dtype("int32") for value in (-1, 1, 0))
    sign = is_op("where")(is_op("less")(total, zero), minus, plus)
    dividend = is_op("add")(is_op("mul")(sign, total), is_const())
    dividend = dividend.where(lambda it: _second_is(it, _halves), "expected half of the divisors", Requirements(second=_halves))
    quotient = is_op("div")(dividend, is_const())
    reason = "expected the number of elements in each window as divisors, at least 1"
    quotient = quotient.where(lambda it: _second_is(it, _divisors), reason, Requirements(second=_divisors))
    return _narrowed(is_op("mul")(sign, quotient))


def quantized_binary(*operators: str) -> Pattern:
    """Match a quantized element-wise "operator", one of `operators`, of "a" and "b" rescaled to a common scale, and its
    requantization to "y", with optional clamps "least" and "greatest". The operator is computed in integers, or in float32 on
    dequantized operands ("real_a" and "real_b") with an optional "relu"."""
    sides = (_scaled("dequantize", wildcard().named(name)).named(f"real_{name}") for name in ("a", "b"))
    real = is_op(*operators)(*sides).named("operator")
    stored = _bounded(_scaled("quantize", real.optional(lambda it: is_op("relu")(it).named("relu"))).named("y"))
    total = is_op(*operators)(_rescaled_operand("a"), _rescaled_operand("b")).has_dtype("int32").named("operator")
    return stored | _requantized(total, _has_scalar_constants)


def exact_binary(*operators: str) -> Pattern:
    """Match an integer element-wise "operator", one of `operators`, of "a" and "b", whose result has the scale of the operands. The
    result is clamped and stored as "y" without a requantization."""
    total = is_op(*operators)(_rescaled_operand("a"), _rescaled_operand("b")).has_dtype("int32").named("operator")
    return _bounded(_narrowed(total))


def _rescaled_operand(name: str) -> Pattern:
    """Match a stored operand cast to int32, minus an optional zero point, optionally shifted left and scaled."""
    wide = is_op("cast")(wildcard().has_dtype(*STORED).named(name)).has_dtype("int32")
    centered = wide.optional(lambda it: is_op("sub")(it, _scalar().named(f"zero_{name}")))
    shifted = centered.optional(lambda it: is_op("shift_left")(it, _shift_counts().has_rank(0).named(f"left_{name}")))
    return shifted.optional(lambda it: is_op("multiply_fixed")(it, _scalar(), _scalar()).named(f"scaled_{name}"))


def _requantized(total: Pattern, accepts_constants: Callable[[Expr], bool]) -> Pattern:
    """Match the conversion of sums to stored integers "y": a `requantize`, or a `multiply_fixed` or shifts in integers, followed by
    an optional zero point "point" and a "clamp". The call that scales is captured as "scaled". `accepts_constants` tests whether
    the constants of a call have an accepted number of elements."""
    reason = "expected constants with one element, or one per output channel"
    real = (
        is_op("requantize")(total, is_const(), _scalar())
        .where(accepts_constants, reason)
        .where(_has_finite_scale, "the scale is not finite")
    )
    fixed = is_op("multiply_fixed")(total, is_const(), is_const()).where(accepts_constants, reason)
    halved = total.optional(lambda it: is_op("add")(it, is_const().named("halves")).where(accepts_constants, reason))
    shifted = is_op("shift_right")(halved, _shift_counts()).where(accepts_constants, reason)
    shifted = shifted.where(_leaves_room, "expected constants <= 2^30 before a rounding shift, which could overflow")
    integer = (fixed | shifted).named("scaled").optional(lambda it: is_op("add")(it, _scalar().named("point")))
    return _bounded(real.named("scaled").named("y") | _narrowed(integer))


def _narrowed(integer: Pattern) -> Pattern:
    """Match int32 values, clipped and cast to "y"."""
    clamp = is_op("clip")(integer).where(_is_bounded, "expected bounds that are 8-bit integers", CLAMPED).named("clamp")
    return (
        is_op("cast")(clamp).has_dtype(*STORED).where(_cast_preserves, "expected bounds within the range of its dtype").named("y")
    )


def _bounded(stored: Pattern) -> Pattern:
    """Match `stored` with optional bounds: a maximum with "least", a minimum with "greatest", or both in a "clip"."""
    above = stored.optional(lambda it: is_op("maximum")(it, _scalar().named("least")))
    return above.optional(lambda it: is_op("minimum")(it, _scalar().named("greatest"))) | is_op("clip")(stored).named("clip")


def _scaled(operator: str, data: Pattern) -> Pattern:
    """Match a quantization or dequantization with a constant scalar scale and zero point."""
    scaled = is_op(operator)(data, _scalar()) | is_op(operator)(data, _scalar(), _scalar())
    return scaled.has_attr(block_size=0)


def _scalar() -> Pattern:
    return is_const().has_rank(0)


def _leaves_room(shifted: Expr) -> bool:
    """Test whether the constants added before a right shift sum to at most 2^30. The shift adds its rounding half in int32, which a
    larger sum could overflow."""
    assert isinstance(shifted, Call)
    total, bound = shifted.args[0], 0
    while isinstance(total, Call) and isinstance(total.callee, Operator) and total.callee.name == "add":
        constants = [arg for arg in total.args if isinstance(arg, Constant)]
        non_constants = [arg for arg in total.args if not isinstance(arg, Constant)]
        if len(constants) != 1 or len(non_constants) != 1:
            break
        bound += int(np.abs(constants[0].data.astype(np.int64)).max(initial=0))
        (total,) = non_constants
    return bound <= LARGEST_ADDED


def _shift_counts() -> Pattern:
    """Match constant shift counts."""
    return is_const().where(_are_shift_counts, "expected shift counts from 0 to 30", Requirements(value=3))


def _are_shift_counts(expr: Expr) -> bool:
    return isinstance(expr, Constant) and bool(np.all((expr.data >= 0) & (expr.data <= LARGEST_SHIFT)))


def _has_finite_scale(stored: Expr) -> bool:
    return factor(stored) is not None


def _is_bounded(clip_: Expr) -> bool:
    assert isinstance(clip_, Call)
    return math.isfinite(clip_.attrs.minimum) and math.isfinite(clip_.attrs.maximum)


def _cast_preserves(narrow: Expr) -> bool:
    """Test whether a cast preserves all values within the bounds of the preceding clip."""
    assert isinstance(narrow, Call) and isinstance(narrow.args[0], Call) and isinstance(narrow.type, TensorType)
    bounds, (low, high) = narrow.args[0].attrs, narrow.type.dtype.limits
    return bool(low <= bounds.minimum and bounds.maximum <= high)


def _has_scalar_constants(call: Expr) -> bool:
    """Test whether the constant operands of a call have one element each."""
    assert isinstance(call, Call)
    return all(arg.data.size == 1 for arg in call.args if isinstance(arg, Constant))


def _keeps_shape(call: Call) -> bool:
    """Test whether a call has the shape of its operands, apart from constants: a constant may broadcast one channel to several."""
    shapes = (arg.type.shape for arg in (call, *call.args) if isinstance(arg.type, TensorType) and not isinstance(arg, Constant))
    return len(set(shapes)) == 1


def _by_channel(call: Expr, axis: int) -> bool:
    """Test whether the constant operands of a call have one element, or one per index of an axis of the result. The call's
    attribute `axis` or broadcasting selects this axis."""
    assert isinstance(call, Call) and isinstance(call.type, TensorType)
    rank = call.type.rank
    if not -rank <= axis < rank or not _keeps_shape(call):
        return False
    count = call.type.shape[axis]
    channel_shape: list[Dim] = [1] * rank
    channel_shape[axis] = count
    for constant in (arg.data for arg in call.args if isinstance(arg, Constant)):
        shape = (*(1,) * (rank - constant.ndim), *constant.shape)
        if constant.size == 1 and constant.ndim <= rank:
            continue
        if hasattr(call.attrs, "axis"):
            if constant.shape != (count,) or call.attrs.axis != axis % rank:
                return False
        elif shape != tuple(channel_shape):
            return False
    return True


def _pads_spatial_axes(pad: Expr) -> bool:
    """Test whether a pad adds elements to spatial axes only, and removes no elements."""
    assert isinstance(pad, Call)
    pads = pad.attrs.pads
    rank = len(pads) // 2
    adds_only = all(isinstance(count, int) and count >= 0 for count in pads)
    return adds_only and not any((*pads[:2], *pads[rank : rank + 2]))


def _pads_nothing(conv: Expr) -> bool:
    assert isinstance(conv, Call)
    return not any(conv.attrs.pads)


def _are_ones(weights: Expr) -> bool:
    return isinstance(weights, Constant) and weights.data.size > 0 and bool(np.all(weights.data == 1))


def _is_depthwise(conv: Expr) -> bool:
    """Test whether a convolution is depthwise, with one result per channel of the data, and has static padding."""
    assert isinstance(conv, Call)
    data, weights = conv.args[0].type, conv.args[1].type
    assert isinstance(data, TensorType) and isinstance(weights, TensorType)
    has_static_padding = all(isinstance(pad, int) for pad in conv.attrs.pads)
    return bool(has_static_padding and conv.attrs.groups == data.shape[1] == weights.shape[0])


def _sums_whole_images(total: Expr) -> bool:
    """Test whether a sum reduces the spatial axes, of static extents, to extents of 1."""
    assert isinstance(total, Call) and isinstance(total.type, TensorType)
    rank = total.type.rank
    return bool(rank > 2 and total.attrs.keepdims and total.attrs.axes == tuple(range(2, rank)) and all(_spatial_extents(total)))


def _spatial_extents(total: Call) -> tuple[int, ...]:
    """Return the spatial extents of summed data, 0 for symbolic ones."""
    data = total.args[0].type
    assert isinstance(data, TensorType)
    return tuple(extent if isinstance(extent, int) else 0 for extent in data.shape[2:])


def _divisors(expr: Expr) -> Array | None:
    """Return the number of elements in each window of an average pool, without padding: one per position, or one for all. `expr` is
    the sum of the pool, or is computed from it. Returns None if a window is empty, or if padded data have symbolic extents."""
    total = expr
    while isinstance(total, Call) and total.callee not in (convolution, reduce_sum):
        total = next(arg for arg in total.args if isinstance(arg, Call))
    assert isinstance(total, Call)
    image = _spatial_extents(total)
    if total.callee is reduce_sum:
        return np.full((1,) * len(image), math.prod(image), np.int32)
    geometry = window({"conv": total})
    if not any((*geometry.before, *geometry.after)):
        return np.full((1,) * len(image), math.prod(geometry.kernel), np.int32)
    sizes = (geometry.kernel, geometry.strides, geometry.dilations, geometry.before, geometry.after)
    counts = inner_taps([WindowAxis(*each) for each in zip(*sizes, strict=True)], image) if all(image) else np.zeros((), np.int32)
    return counts if counts.min(initial=1) > 0 else None


def _halves(expr: Expr) -> Array | None:
    divisors = _divisors(expr)
    return None if divisors is None else divisors // 2


def _second_is(call: Expr, value: Callable[[Expr], Array | None]) -> bool:
    """Test whether the constant operand of a call equals `value(other operand)` and does not broadcast the other operand."""
    assert isinstance(call, Call)
    constant, other = (call.args[0], call.args[1]) if isinstance(call.args[0], Constant) else call.args[::-1]
    expected = value(other)
    assert isinstance(constant, Constant)
    if expected is None or call.type != other.type:
        return False
    return constant.data.ndim <= expected.ndim and bool(np.all(constant.data == expected))
