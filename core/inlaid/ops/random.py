"""Random number generation. The operators are pure: they take a generator state, a 0-d uint64, and return the next state.

The generator is SplitMix64 (Steele, Lea and Flood, "Fast splittable pseudorandom number generators", OOPSLA 2014): element n
is a bit mix of state + (n + 1) * GAMMA, so the elements can be computed independently and in any order.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from inlaid.graph.operator import Attrs, FusionKind, Operator
from inlaid.ops.define import Array, make_family, quiet, tensor_type, working_dtype
from inlaid.tensor import ir, te
from inlaid_runtime import arith
from inlaid_runtime.arith import Dim
from inlaid_runtime.records import dataclass
from inlaid_runtime.types import DType, TensorType, TupleType, Type, dtype

GAMMA = 0x9E3779B97F4A7C15
_MIX = ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB))
_LAST_SHIFT = 31

_SIGNIFICANT_BITS = {"float64": 53, "float32": 24, "float16": 11, "bfloat16": 8}


@dataclass(frozen=True)
class RandomAttrs(Attrs):
    """`shape`: the shape of the values. `dtype`: their dtype: float64, float32, float16 or bfloat16."""

    shape: tuple[Dim, ...]
    dtype: str = "float32"


def _mixed(bits: Any) -> Any:
    """Apply the output function of SplitMix64 to a uint64 array or value expression."""
    for shift, factor in _MIX:
        bits = (bits ^ (bits >> shift)) * factor
    return bits ^ (bits >> _LAST_SHIFT)


def _fraction(bits: Any, element_dtype: DType, to_float: Callable[[Any], Any]) -> Any:
    """Convert the leading bits to a number in [0, 1), exact in the dtype."""
    significant_bits = _SIGNIFICANT_BITS[element_dtype.name]
    return to_float(bits >> (64 - significant_bits)) * 2.0**-significant_bits


def _random(
    name: str,
    draws: int,
    value: Callable[[list[ir.Expr], DType], ir.Expr],
    numpy: Callable[[list[Array], DType], Array],
    doc: str,
) -> Operator:
    """Make a random operator. `value` and `numpy` compute an element, in the working dtype, from `draws` random 64-bit numbers."""

    def infer(attrs: RandomAttrs, state: Type) -> Type:
        if tensor_type(state, what="the state") != TensorType((), "uint64"):
            raise ValueError(f"the state must be a 0-d uint64, got {state!r}")
        if attrs.dtype not in _SIGNIFICANT_BITS:
            raise ValueError(f"dtype must be one of {', '.join(_SIGNIFICANT_BITS)}, got {attrs.dtype}")
        return TupleType((TensorType(attrs.shape, attrs.dtype), TensorType((), "uint64")))

    @quiet
    def reference(attrs: RandomAttrs, state: Array) -> tuple[Array, Array]:
        element_dtype = dtype(attrs.dtype)
        shape = [arith.evaluate(dim, {}) for dim in attrs.shape]
        count = math.prod(shape)
        first = np.arange(count, dtype=np.uint64).reshape(shape) * np.uint64(draws)
        bits = [_mixed(state + (first + np.uint64(draw + 1)) * np.uint64(GAMMA)) for draw in range(draws)]
        return numpy(bits, element_dtype).astype(element_dtype.numpy), np.asarray(
            state + np.uint64(GAMMA * draws * count & (1 << 64) - 1)
        )

    def compute(attrs: RandomAttrs, state: te.Tensor) -> tuple[te.Tensor, te.Tensor]:
        element_dtype = dtype(attrs.dtype)

        def element(*indices: arith.Var) -> ir.Expr:
            position: arith.Expr = arith.ZERO
            for dim, index in zip(attrs.shape, indices, strict=True):
                position = position * dim + index
            first = ir.Index(dtype("uint64"), position * draws)
            bits = [_mixed(state[()] + (first + (draw + 1)) * GAMMA) for draw in range(draws)]
            return te.cast(value(bits, element_dtype), element_dtype)

        total = ir.Index(dtype("uint64"), arith.wrap(arith.product(attrs.shape)) * draws)
        values: te.Tensor = te.compute(attrs.shape, element, name)
        next_state: te.Tensor = te.compute((), lambda: state[()] + total * GAMMA, f"{name}_state")
        return values, next_state

    return Operator(
        name,
        infer,
        RandomAttrs,
        reference=reference,
        compute=compute,
        fusion=FusionKind.OPAQUE,
        inputs=("state",),
        doc=doc,
    )


def _uniform_value(bits: list[ir.Expr], element_dtype: DType) -> ir.Expr:
    result: ir.Expr = _fraction(bits[0], element_dtype, lambda leading_bits: te.cast(leading_bits, working_dtype(element_dtype)))
    return result


def _uniform_array(bits: list[Array], element_dtype: DType) -> Array:
    result: Array = _fraction(bits[0], element_dtype, lambda leading_bits: leading_bits.astype(working_dtype(element_dtype).numpy))
    return result


def _normal_value(bits: list[ir.Expr], element_dtype: DType) -> ir.Expr:
    # Box and Muller, 1958. 1 - fraction is in (0, 1], so its logarithm is finite.
    working = working_dtype(element_dtype)
    radius, angle = (_fraction(part, working, lambda leading_bits: te.cast(leading_bits, working)) for part in bits)
    return te.unary("sqrt", te.math("log", 1.0 - radius) * -2.0) * te.math("cos", angle * (2 * math.pi))


def _normal_array(bits: list[Array], element_dtype: DType) -> Array:
    working = working_dtype(element_dtype)
    radius, angle = (_fraction(part, working, lambda leading_bits: leading_bits.astype(working.numpy)) for part in bits)
    return np.asarray(np.sqrt(np.log(1 - radius) * -2) * np.cos(angle * working.numpy.type(2 * math.pi)))


random_uniform = _random(
    "random_uniform",
    1,
    _uniform_value,
    _uniform_array,
    doc="""Random numbers from the uniform distribution on [0, 1).
Operand: state, 0-d uint64. Results: values, shape `shape`, dtype `dtype`; the next state, 0-d uint64. The generator is
SplitMix64.""",
)
random_normal = _random(
    "random_normal",
    2,
    _normal_value,
    _normal_array,
    doc="""Random numbers from the standard normal distribution.
Operand: state, 0-d uint64. Results: values, shape `shape`, dtype `dtype`; the next state, 0-d uint64. The generator is
SplitMix64.""",
)

OPERATORS = make_family(random_uniform, random_normal)
