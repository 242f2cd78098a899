"""The canonical quantised form as patterns: what integer hardware runs whole, for the rules of targets.

A network in eight bits, whatever it came from, arrives at targets as integer products that give int32, a bias, `requantize`, and
bounds on the stored result; and as float32 arithmetic between `dequantize` and `quantize`. Each function here gives a pattern for
one such composite, with names for its parts.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from inlay.arith import Dim
from inlay.graph.ir import Call, Constant, Expr
from inlay.graph.pattern import Pattern, is_const, is_op, wildcard
from inlay.ops.quantised import dequantize, quantize, requantize
from inlay.types import DType, TensorType


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


def quantised_conv() -> Pattern:
    """An integer convolution of "x", which a constant "pad" may surround, by constant weights "w": "conv", plus a constant "bias",
    one for each output channel, requantised: "y", which "least" and "greatest" may bound."""
    padded = wildcard().named("x").optional(lambda x: is_op("pad")(x, _scalar()).has_attr(mode="constant").named("pad"))
    return _stored(is_op("conv")(padded, is_const().named("w")).named("conv"), 1)


def quantised_matmul() -> Pattern:
    """An integer product of "x" and a constant matrix "w": "matmul", plus a constant "bias", one for each column, requantised:
    "y", which "least" and "greatest" may bound."""
    return _stored(is_op("matmul")(wildcard().named("x"), is_const().has_rank(2).named("w")).named("matmul"), -1)


def quantised_mean() -> Pattern:
    """The sum of integers "x" over axes, less constant "centre" each: "sum", requantised: "y", which "least" and "greatest" may
    bound."""
    wide = is_op("cast")(wildcard().named("x"))
    centred = wide.optional(lambda it: is_op("sub")(it, _scalar().named("centre")))
    return _bounded(_requantised(is_op("reduce_sum")(centred).named("sum")))


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

    return _bounded(_requantised(product.optional(biased)))


def _requantised(total: Pattern) -> Pattern:
    return is_op("requantize")(total, is_const(), _scalar()).named("y")


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
