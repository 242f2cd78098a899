"""The canonical quantised form as patterns: what integer hardware runs whole, for the rules of targets.

A network in eight bits, whatever it came from, arrives at targets as integer products that give int32, a bias, `requantize`, and
bounds on the stored result; and as float32 arithmetic between `dequantize` and `quantize`. Each function here gives a pattern for
one such composite, with names for its parts.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from inlaid.arith import Dim
from inlaid.graph.ir import Call, Constant, Expr
from inlaid.graph.pattern import Pattern, is_const, is_op, wildcard
from inlaid.ops.quantised import dequantize, quantize, requantize
from inlaid.types import DType, TensorType

Parts = Mapping[str, Expr]
"""What the named parts of a pattern matched: `captures` of a `Match`, `parts` of a `Step`."""


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
class OutputStage:
    """How sums in int32 become stored integers: clip(round((sum + bias) * scale) + zero_point, least, greatest). `bias` is int32
    and `scale` float32, 1-d, with one element for each output channel or one in all; the product is float32, halves go to even."""

    bias: np.ndarray[Any, Any]
    scale: np.ndarray[Any, Any]
    zero_point: int
    least: int
    greatest: int


def output_stage(parts: Parts) -> OutputStage:
    """What follows the sums of a `quantised_conv`, `quantised_matmul` or `quantised_mean`."""
    root, data = parts["y"], parts["x"]
    assert isinstance(root, Call) and isinstance(data.type, TensorType)
    stored = quantisation(root)
    assert stored is not None
    bias = np.zeros(1, np.int32)
    if "sum" in parts:
        total = parts["sum"]
        assert isinstance(total, Call)
        count = math.prod(int(data.type.shape[axis]) for axis in total.attrs.axes)
        bias = bias - np.int32(count) * _constant(parts, "centre", 0).astype(np.int32)
    elif "bias" in parts:
        bias = _constant(parts, "bias", 0).reshape(-1)
    channels = max(bias.size, stored.scale.size)
    low, high = stored.dtype.limits
    return OutputStage(
        np.broadcast_to(bias, channels).copy(),
        np.broadcast_to(stored.scale.reshape(-1), channels).copy(),
        int(stored.zero_point),
        max(int(low), int(_constant(parts, "least", low))),
        min(int(high), int(_constant(parts, "greatest", high))),
    )


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
    x, w = wildcard().named("x"), is_const().named("w")
    padded = is_op("pad")(x, _scalar()).where(_of_space, "it pads more than space, or less").named("pad")
    once = is_op("conv")(padded, w).where(_pads_nothing, "it pads what is padded")
    return _stored((once | is_op("conv")(x, w)).named("conv"), 1)


def quantised_matmul() -> Pattern:
    """An integer product of "x" and a constant matrix "w": "matmul", plus a constant "bias", one for each column, requantised, all
    alike or by column: "y", which "least" and "greatest" may bound."""
    return _stored(is_op("matmul")(wildcard().named("x"), is_const().has_rank(2).named("w")).named("matmul"), -1)


def quantised_mean() -> Pattern:
    """The sum of integers "x" over axes, less constant "centre" each: "sum", requantised, all alike: "y", which "least" and
    "greatest" may bound."""
    wide = is_op("cast")(wildcard().named("x"))
    centred = wide.optional(lambda it: is_op("sub")(it, _scalar().named("centre")))
    return _bounded(is_op("requantize")(is_op("reduce_sum")(centred).named("sum"), _scalar(), _scalar()).named("y"))


def quantised_binary(*operators: str) -> Pattern:
    """One of several operators, in float32, between dequantisations of "a" and "b" ("real_a" and "real_b") and a quantisation: "y".
    The "operator" may be followed by "relu"."""
    sides = (_scaled("dequantize", wildcard().named(name)).named(f"real_{name}") for name in ("a", "b"))
    real = is_op(*operators)(*sides).named("operator")
    return _scaled("quantize", real.optional(lambda it: is_op("relu")(it).named("relu"))).named("y")


def _stored(product: Pattern, axis: int) -> Pattern:
    def biased(total: Pattern) -> Pattern:
        whole = is_op("add")(total, is_const().named("bias"))
        return whole.where(lambda expr: _by_channel(expr, axis), "the bias is not one number for each output channel")

    stored = is_op("requantize")(product.optional(biased), is_const(), _scalar())
    return _bounded(
        stored.where(lambda expr: _scaled_by_channel(expr, axis), "the scale is not one for each output channel").named("y")
    )


def _bounded(stored: Pattern) -> Pattern:
    above = stored.optional(lambda it: is_op("maximum")(it, _scalar().named("least")))
    return above.optional(lambda it: is_op("minimum")(it, _scalar().named("greatest")))


def _scaled(operator: str, data: Pattern) -> Pattern:
    """A quantisation or dequantisation by one constant scale, and zero point."""
    scaled = is_op(operator)(data, _scalar()) | is_op(operator)(data, _scalar(), _scalar())
    return scaled.has_attr(block_size=0)


def _scalar() -> Pattern:
    return is_const().has_rank(0)


def _by_channel(total: Expr, axis: int) -> bool:
    """Whether the constant in a sum has one element for each index along an axis of the sum."""
    assert isinstance(total, Call) and isinstance(total.type, TensorType)
    wanted: list[Dim] = [1] * total.type.rank
    wanted[axis] = total.type.shape[axis]
    biases = [arg for arg in total.args if isinstance(arg, Constant)]
    shapes = [(*(1,) * (len(wanted) - bias.data.ndim), *bias.data.shape) for bias in biases]
    return shapes == [tuple(wanted)]


def _scaled_by_channel(stored: Expr, axis: int) -> bool:
    """Whether a requantisation has one scale, or one for each index along an axis."""
    assert isinstance(stored, Call) and isinstance(stored.type, TensorType)
    scale = stored.args[1].type
    assert isinstance(scale, TensorType)
    return scale.rank == 0 or stored.attrs.axis == axis % stored.type.rank


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
