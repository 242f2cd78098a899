"""Activation functions that hardware often implements. Frontends decompose other activations into elementary operators."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from inlaid.graph.operator import Attrs, Traits
from inlaid.ops.define import FLOAT, NUMERIC, Array, elementwise, elementwise_with, make_family
from inlaid.ops.elementwise import erf
from inlaid.tensor import ir, te
from inlaid_runtime.records import dataclass

relu = elementwise(
    "relu",
    lambda x: te.maximum(x, 0),
    lambda x: np.maximum(x, 0),
    kinds=NUMERIC,
    traits=Traits(monotone=True, idempotent=True),
    doc="Rectified linear unit: max(x, 0). NaN-propagating.",
)


def _sigmoid(x: Array) -> Any:
    small = np.exp(-np.abs(x))
    return np.where(x < 0, small, 1) / (1 + small)


sigmoid = elementwise(
    "sigmoid",
    lambda x: te.math("sigmoid", x),
    _sigmoid,
    kinds=FLOAT,
    traits=Traits(expensive=True),
    doc="Logistic function: 1 / (1 + exp(-x)).",
)


@dataclass(frozen=True)
class GeluAttrs(Attrs):
    """`approximate`: use the tanh approximation instead of erf (Hendrycks and Gimpel, 2016)."""

    approximate: bool = False


_CUBIC = 0.044715
_SQRT_2_OVER_PI = math.sqrt(2 / math.pi)


def _gelu(attrs: GeluAttrs, x: Array) -> Any:
    if attrs.approximate:
        return x * _sigmoid(2 * _SQRT_2_OVER_PI * (x + _CUBIC * x * x * x))
    assert erf.reference is not None
    return 0.5 * x * (1 + erf.reference(Attrs(), x * math.sqrt(0.5)))


def _gelu_value(attrs: GeluAttrs, x: ir.Expr) -> ir.Expr:
    if attrs.approximate:
        # 1 + tanh(u) = 2 sigmoid(2 u), which avoids cancellation for negative u.
        return x * te.math("sigmoid", 2 * _SQRT_2_OVER_PI * (x + _CUBIC * x * x * x))
    return 0.5 * x * (1.0 + te.math("erf", x * math.sqrt(0.5)))


gelu = elementwise_with(
    "gelu", GeluAttrs, _gelu_value, _gelu, kinds=FLOAT, doc="Gaussian error linear unit: x * P(X <= x) for a standard normal X."
)

OPERATORS = make_family(relu, sigmoid, gelu)
