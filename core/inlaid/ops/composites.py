"""The canonical quantised form as patterns: what integer hardware runs whole, for the rules of targets.

A network in eight bits arrives at targets as integer products that give int32, a bias, a requantisation, and bounds on the stored
result; and as arithmetic on operands that are brought to one scale. Where it comes from ONNX, `requantize`, `dequantize` and
`quantize` scale in float32; `inlaid.quantize` and TensorFlow Lite scale in integers alone, by `multiply_fixed` or shifts. Each
pattern here matches all of these forms, with names for its parts; `decode_layer` and `decode_binary` give the numbers, whatever the
form.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from inlaid.arith import Dim
from inlaid.graph.ir import Call, Constant, Expr
from inlaid.graph.operator import Operator
from inlaid.graph.pattern import Pattern, Wanted, is_const, is_op, wildcard
from inlaid.ops.elementwise import shift_right
from inlaid.ops.fixed_point import fixed_points
from inlaid.ops.quantised import dequantize, quantize, requantize
from inlaid.ops.requantisation import Factor, Parts, factor
from inlaid.plugins.contract import HALF_EVEN, ONCE
from inlaid.types import DType, TensorType

STORED = ("int8", "uint8", "int16")
"""Element types of stored values that sums are requantised to in integers alone."""
LARGEST_SHIFT = 30
LARGEST_ADDED = 1 << 30
CLAMPED = Wanted(attrs={"minimum": 0.0, "maximum": 127.0})


@dataclass(frozen=True)
class Quantised:
    """How integers stand for real numbers: real = (integer - zero point) * scale. Of a `requantize`, how an accumulator becomes
    such integers: integer = round(accumulator * scale) + zero point. `scale` is of floats and `zero_point` of the stored type, 0-d
    or one for each index along `axis`."""

    scale: np.ndarray[Any, Any]
    zero_point: np.ndarray[Any, Any]
    axis: int
    dtype: DType


def quantisation(call: Call) -> Quantised | None:
    """The parameters of a `quantize`, `dequantize` or `requantize`; None for any other call, and where they are no constants."""
    if call.callee not in (quantize, dequantize, requantize):
        return None
    stored = (call.args[0] if call.callee is dequantize else call).type
    assert isinstance(stored, TensorType)
    parameters = [arg.data for arg in call.args[1:] if isinstance(arg, Constant)]
    if len(parameters) < len(call.args) - 1:
        return None
    zero_point = parameters[1] if len(parameters) == 2 else np.zeros((), stored.dtype.numpy)
    return Quantised(parameters[0], zero_point, call.attrs.axis, stored.dtype)


@dataclass(frozen=True)
class Output:
    """How scaled numbers are stored: clip(scaled + zero_point, least, greatest), as integers of a type."""

    zero_point: int
    least: int
    greatest: int
    dtype: DType


@dataclass(frozen=True)
class Layer:
    """The numbers of a `quantised_conv`, `quantised_matmul` or `quantised_mean`, whatever model it came from. What is stored is
    clip(rounded((sum + bias) * factor) + zero_point, least, greatest), with sums over stored data and `weights` as they are: the
    zero point of the data is in the bias, and padding has its value (`Window.fill`); that of weights is 0.

    `weights` are as in the graph, O I H W of a convolution, inputs by outputs of a product, None for a mean. `bias` is 1-d, and it
    and `factor` have one element for each output channel or one for all; it has the type of the sums."""

    weights: np.ndarray[Any, Any] | None
    bias: np.ndarray[Any, Any]
    factor: Factor
    output: Output


@dataclass(frozen=True)
class Operand:
    """One side of a `quantised_binary`: rounded(((stored - zero_point) * 2^left) * factor), in int32. A factor of 1, with rounding
    "once", changes nothing."""

    zero_point: int
    left: int
    factor: Factor
    dtype: DType


@dataclass(frozen=True)
class Binary:
    """The numbers of a `quantised_binary`, whatever model it came from. What is stored is clip(rounded(((a operator b) + bias) *
    factor) + zero_point, least, greatest) with the operands `a` and `b` in int32.

    Where the model computes in float32, as ONNX's QDQ form does, `step` is the scale of the result, and else None: operands are
    (stored - zero_point) * factor in float32, not rounded, and rounded((a operator b) / step) is stored; `factor` is then 1 / step
    as nearly as a multiplier has it, which may give the next integer at a tie."""

    operator: str
    a: Operand
    b: Operand
    bias: int
    factor: Factor
    output: Output
    step: np.float32 | None


def decode_layer(parts: Parts) -> Layer:
    """The weights, bias, multipliers, shifts, zero point and bounds of a layer, from the parts of its pattern."""
    scaled, data = parts["scaled"], parts["x"]
    found = factor(scaled)
    assert found is not None and isinstance(data.type, TensorType) and isinstance(scaled, Call)
    total = parts.get("sum", parts.get("conv", parts.get("matmul")))
    assert isinstance(total, Call) and isinstance(total.type, TensorType)
    bias = _bias(parts, total.type.dtype.numpy)
    if "sum" in parts:
        count = math.prod(int(data.type.shape[axis]) for axis in total.attrs.axes)
        bias = bias - bias.dtype.type(count) * _constant(parts, "centre", 0).astype(bias.dtype)
    channels = max(bias.size, found.shifts.size)
    return Layer(
        _constant(parts, "w", 0) if "w" in parts else None,
        np.resize(bias, channels),
        Factor(np.resize(found.multipliers, channels), np.resize(found.shifts, channels), found.rounding),
        _output(parts),
    )


def decode_binary(parts: Parts) -> Binary:
    """The operator, both operands, multipliers, shifts, zero points and bounds of a sum, difference or product of two tensors, from
    the parts of its pattern."""
    operator = parts["operator"]
    assert isinstance(operator, Call) and isinstance(operator.callee, Operator)
    name, a, b = operator.callee.name, _operand(parts, "a"), _operand(parts, "b")
    root = parts["y"]
    stored = quantisation(root) if isinstance(root, Call) and root.callee is quantize else None
    if stored is not None:
        step = np.float32(stored.scale)
        return Binary(name, a, b, 0, Factor(*fixed_points([1 / float(step)]), HALF_EVEN), _output(parts), step)
    found = factor(parts["scaled"]) if "scaled" in parts else _one()
    assert found is not None
    return Binary(name, a, b, int(_bias(parts, np.dtype(np.int32)).item()), found, _output(parts), None)


def _one() -> Factor:
    """The factor that changes nothing."""
    return Factor(np.full(1, 1 << 30, np.int32), np.ones(1, np.int32), ONCE)


def _operand(parts: Parts, name: str) -> Operand:
    data = parts[name].type
    assert isinstance(data, TensorType)
    real = parts.get(f"real_{name}")
    if isinstance(real, Call):
        found = quantisation(real)
        assert found is not None
        scale = Factor(*fixed_points(found.scale.reshape(-1).tolist()), HALF_EVEN)
        return Operand(int(found.zero_point), 0, scale, data.dtype)
    scaled = factor(parts.get(f"scaled_{name}")) or _one()
    return Operand(int(_constant(parts, f"zero_{name}", 0)), int(_constant(parts, f"left_{name}", 0)), scaled, data.dtype)


def _bias(parts: Parts, dtype: np.dtype[Any]) -> np.ndarray[Any, Any]:
    """What is added to sums before they are scaled, 1-d. Before a shift to the right it has the half that rounds to nearest, which
    is the rounding's and no bias."""
    added = [_constant(parts, name, 0).astype(dtype).reshape(-1) for name in ("bias", "halves")]
    shifted = parts.get("scaled")
    if isinstance(shifted, Call) and shifted.callee is shift_right:
        (places,) = (arg.data.reshape(-1).astype(dtype) for arg in shifted.args[1:] if isinstance(arg, Constant))
        added.append(-((np.ones(1, dtype) << places) >> 1))
    with np.errstate(over="ignore"):
        return np.asarray(sum(added[1:], added[0]))


def _output(parts: Parts) -> Output:
    """The zero point, and all bounds on what is stored, the type's among them."""
    root = parts["y"]
    assert isinstance(root, Call) and isinstance(root.type, TensorType)
    stored = quantisation(root)
    zero_point = _constant(parts, "point", 0) if stored is None else stored.zero_point
    least, greatest = map(int, root.type.dtype.limits)
    if isinstance(parts.get("relu"), Call):
        least = int(zero_point)
    bounds = [(_constant(parts, "least", least), _constant(parts, "greatest", greatest))]
    for clip_ in (parts.get("clamp"), parts.get("clip")):
        if isinstance(clip_, Call):
            bounds.append((np.asarray(clip_.attrs.minimum), np.asarray(clip_.attrs.maximum)))
    for low, high in bounds:
        # Bounds of floats may lie between integers.
        greatest = min(greatest, math.floor(high)) if np.isfinite(high) else greatest
        least = max(least, math.ceil(low)) if np.isfinite(low) else least
    return Output(int(zero_point), min(least, greatest), greatest, root.type.dtype)


def _constant(parts: Parts, name: str, default: float) -> np.ndarray[Any, Any]:
    found = parts.get(name)
    return found.data if isinstance(found, Constant) else np.asarray(default)


@dataclass(frozen=True)
class Window:
    """How a convolution or a pool slides over its data: a number for each spatial axis. `before` and `after` count elements of
    value `fill` around the data."""

    kernel: tuple[int, ...]
    strides: tuple[int, ...]
    dilations: tuple[int, ...]
    before: tuple[int, ...]
    after: tuple[int, ...]
    fill: float


def window(parts: Parts) -> Window:
    """The window of a "conv" of static shape, with a "pad" of its data counted in, or of a max_pool named "pool", whose padding
    never wins."""
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


def quantised_conv() -> Pattern:
    """An integer convolution of "x", whose space a constant "pad" may surround in place of padding of its own, by constant weights
    "w": "conv", plus a constant "bias", one for each output channel, requantised, all alike or by output channel: "y", which
    "least" and "greatest" may bound."""
    return requantised(padded_conv() | conv(), 1)


def conv() -> Pattern:
    """A convolution "conv" of "x" by constant weights "w"."""
    return is_op("conv")(wildcard().named("x"), is_const().named("w")).named("conv")


def padded_conv() -> Pattern:
    """A convolution "conv" without padding of a constant "pad" of the space of "x", by constant weights "w"."""
    padded = is_op("pad")(wildcard().named("x"), _scalar()).where(_of_space, "it pads more than space, or less").named("pad")
    return is_op("conv")(padded, is_const().named("w")).where(_pads_nothing, "it pads what is padded").named("conv")


def biased(product: Pattern, axis: int) -> Pattern:
    """A product in int32, plus a constant "bias" where there is one: one number for each index along an axis, or one for all."""

    def added(total: Pattern) -> Pattern:
        whole = is_op("add")(total, is_const().named("bias"))
        return whole.where(lambda expr: _by_channel(expr, axis), "the bias is not one number for each output channel")

    return product.optional(added)


def requantised(product: Pattern, axis: int) -> Pattern:
    """A product, `biased`, requantised, all alike or by the index along an axis: "y", which "least" and "greatest" may bound."""
    return _requantised(biased(product, axis), lambda expr: _by_channel(expr, axis))


def quantised_matmul() -> Pattern:
    """An integer product of "x" and a constant matrix "w": "matmul", plus a constant "bias", one for each column, requantised, all
    alike or by column: "y", which "least" and "greatest" may bound."""
    return requantised(matmul(), -1)


def matmul() -> Pattern:
    """A product "matmul" of "x" and a constant matrix "w"."""
    return is_op("matmul")(wildcard().named("x"), is_const().has_rank(2).named("w")).named("matmul")


def quantised_mean() -> Pattern:
    """The sum of integers "x" over axes, less constant "centre" each: "sum", requantised, all alike: "y", which "least" and
    "greatest" may bound."""
    wide = is_op("cast")(wildcard().named("x"))
    centred = wide.optional(lambda it: is_op("sub")(it, _scalar().named("centre")))
    return _requantised(is_op("reduce_sum")(centred).named("sum"), _one_in_all)


def quantised_binary(*operators: str) -> Pattern:
    """One of several operators between "a" and "b", brought to one scale: "operator", and a quantisation: "y", which "least" and
    "greatest" may bound. Either in float32 between dequantisations ("real_a" and "real_b"), with "relu" perhaps, or in integers."""
    sides = (_scaled("dequantize", wildcard().named(name)).named(f"real_{name}") for name in ("a", "b"))
    real = is_op(*operators)(*sides).named("operator")
    stored = _bounded(_scaled("quantize", real.optional(lambda it: is_op("relu")(it).named("relu"))).named("y"))
    total = is_op(*operators)(_raised("a"), _raised("b")).has_dtype("int32").named("operator")
    return stored | _requantised(total, _one_in_all)


def exact_binary(*operators: str) -> Pattern:
    """One of several operators between "a" and "b" in integers, "operator", whose result has their scale: it is limited and stored
    as "y" without a requantisation."""
    total = is_op(*operators)(_raised("a"), _raised("b")).has_dtype("int32").named("operator")
    return _bounded(_narrowed(total))


def _raised(name: str) -> Pattern:
    """A stored operand in int32, less its zero point, shifted to the left and scaled."""
    wide = is_op("cast")(wildcard().has_dtype(*STORED).named(name)).has_dtype("int32")
    centred = wide.optional(lambda it: is_op("sub")(it, _scalar().named(f"zero_{name}")))
    raised = centred.optional(lambda it: is_op("shift_left")(it, _places().has_rank(0).named(f"left_{name}")))
    return raised.optional(lambda it: is_op("multiply_fixed")(it, _scalar(), _scalar()).named(f"scaled_{name}"))


def _requantised(total: Pattern, spread: Callable[[Expr], bool]) -> Pattern:
    """Sums as stored integers "y": by a `requantize`, or in integers alone, by a `multiply_fixed` or shifts, a zero point "point"
    and a "clamp". The call that scales is "scaled". `spread` says of a call whether its constants go with the channels."""
    reason = "its constants are not one for all, or one for each output channel"
    real = is_op("requantize")(total, is_const(), _scalar()).where(spread, reason).where(_is_known, "the scale is not finite")
    fixed = is_op("multiply_fixed")(total, is_const(), is_const()).where(spread, reason)
    halved = total.optional(lambda it: is_op("add")(it, is_const().named("halves")).where(spread, reason))
    shifted = is_op("shift_right")(halved, _places()).where(spread, reason)
    shifted = shifted.where(_leaves_room, "what is added to sums leaves int32 no room to round them")
    integer = (fixed | shifted).named("scaled").optional(lambda it: is_op("add")(it, _scalar().named("point")))
    return _bounded(real.named("scaled").named("y") | _narrowed(integer))


def _narrowed(integer: Pattern) -> Pattern:
    """Integers of 32 bits, clipped and stored as "y"."""
    clamp = is_op("clip")(integer).where(_is_bounded, "its bounds are not integers of 8 bits", CLAMPED).named("clamp")
    return is_op("cast")(clamp).has_dtype(*STORED).where(_keeps, "the bounds are beyond its type").named("y")


def _bounded(stored: Pattern) -> Pattern:
    above = stored.optional(lambda it: is_op("maximum")(it, _scalar().named("least")))
    return above.optional(lambda it: is_op("minimum")(it, _scalar().named("greatest"))) | is_op("clip")(stored).named("clip")


def _scaled(operator: str, data: Pattern) -> Pattern:
    """A quantisation or dequantisation by one constant scale, and zero point."""
    scaled = is_op(operator)(data, _scalar()) | is_op(operator)(data, _scalar(), _scalar())
    return scaled.has_attr(block_size=0)


def _scalar() -> Pattern:
    return is_const().has_rank(0)


def _leaves_room(shifted: Expr) -> bool:
    """Whether constants that are added before a shift are at most 2^30: the half that rounds is added in int32, which would wrap
    where no half is added to a product of 64 bits."""
    assert isinstance(shifted, Call)
    total, most = shifted.args[0], 0
    while isinstance(total, Call) and isinstance(total.callee, Operator) and total.callee.name == "add":
        constants = [arg for arg in total.args if isinstance(arg, Constant)]
        others = [arg for arg in total.args if not isinstance(arg, Constant)]
        if len(constants) != 1 or len(others) != 1:
            break
        most += int(np.abs(constants[0].data.astype(np.int64)).max(initial=0))
        (total,) = others
    return most <= LARGEST_ADDED


def _places() -> Pattern:
    """By how many places integers are shifted."""
    return is_const().where(_are_places, "it does not shift by 0 to 30 places", Wanted(value=3))


def _are_places(expr: Expr) -> bool:
    return isinstance(expr, Constant) and bool(np.all((expr.data >= 0) & (expr.data <= LARGEST_SHIFT)))


def _is_known(stored: Expr) -> bool:
    return factor(stored) is not None


def _is_bounded(clip_: Expr) -> bool:
    assert isinstance(clip_, Call)
    return math.isfinite(clip_.attrs.minimum) and math.isfinite(clip_.attrs.maximum)


def _keeps(narrow: Expr) -> bool:
    """Whether a cast keeps what a clip lets through."""
    assert isinstance(narrow, Call) and isinstance(narrow.args[0], Call) and isinstance(narrow.type, TensorType)
    bounds, (low, high) = narrow.args[0].attrs, narrow.type.dtype.limits
    return bool(low <= bounds.minimum and bounds.maximum <= high)


def _one_in_all(call: Expr) -> bool:
    """Whether the constants that a call reads have one element each."""
    assert isinstance(call, Call)
    return all(arg.data.size == 1 for arg in call.args if isinstance(arg, Constant))


def _by_channel(call: Expr, axis: int) -> bool:
    """Whether the constants that a call reads have one element, or one for each index along an axis of its result: as its attribute
    `axis` says, or by broadcasting."""
    assert isinstance(call, Call) and isinstance(call.type, TensorType)
    rank, count = call.type.rank, call.type.shape[axis]
    wanted: list[Dim] = [1] * rank
    wanted[axis] = count
    for constant in (arg.data for arg in call.args if isinstance(arg, Constant)):
        shape = (*(1,) * (rank - constant.ndim), *constant.shape)
        if constant.size == 1 and constant.ndim <= rank:
            continue
        if hasattr(call.attrs, "axis"):
            if constant.shape != (count,) or call.attrs.axis != axis % rank:
                return False
        elif shape != tuple(wanted):
            return False
    return True


def _of_space(pad: Expr) -> bool:
    """Whether elements are added around the spatial axes alone."""
    assert isinstance(pad, Call)
    pads = pad.attrs.pads
    rank = len(pads) // 2
    grows = all(isinstance(count, int) and count >= 0 for count in pads)
    return grows and not any((*pads[:2], *pads[rank : rank + 2]))


def _pads_nothing(conv: Expr) -> bool:
    assert isinstance(conv, Call)
    return not any(conv.attrs.pads)
