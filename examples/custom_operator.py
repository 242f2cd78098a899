"""Define an operator outside the core by a tensor expression, and use it in a model built in Python.

    python examples/custom_operator.py

The operator is Hard Swish with a configurable bound: x * clip(x + shift, 0, bound) / bound.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

import inlaid
from inlaid.tensor import te


@dataclass(frozen=True)
class SwishAttrs(inlaid.Attrs):
    """Typed attributes, passed as keywords of the call."""

    shift: float = 3.0
    bound: float = 6.0


def infer(attrs, x):
    """Infer the result type, which is the input's. A ValueError is reported with the operator and its inputs. (Relations between
    sizes are stated by `inlaid.conditions`, which also checks sizes that are known only at run time.)"""
    if not x.dtype.is_float:
        raise ValueError(f"expected a float input, found {x.dtype}")
    return x


def reference(attrs, x):
    """Compute the operator in numpy: the reference for all targets."""
    return (x * np.clip(x + attrs.shift, 0, attrs.bound) / attrs.bound).astype(x.dtype)


def compute(attrs, x):
    """Define the operator as a tensor expression, which targets such as x86 compile to native code."""
    zero, shift, bound = (te.const(value, x.dtype) for value in (0.0, attrs.shift, attrs.bound))
    return te.compute(x.shape, lambda *i: x[i] * te.minimum(te.maximum(x[i] + shift, zero), bound) / bound, "my_swish")


swish = inlaid.Operator(
    "my.swish",
    infer,
    SwishAttrs,
    reference=reference,
    compute=compute,
    fusion=inlaid.FusionKind.INJECTIVE,  # each element of the result reads one element of the input,
    elementwise=True,  # at the same index, so it can be fused into the loops of its producer
    arity=(1, 1),
    inputs=("x",),
)

# matmul + bias, then our operator. Types are inferred while the graph is built; a type error raises here.
generator = np.random.default_rng(0)
weights = generator.standard_normal((16, 8)).astype(np.float32)
bias = generator.standard_normal(8).astype(np.float32)
x = inlaid.var("x", inlaid.TensorType((4, 16), "float32"))
y = inlaid.ops.add(inlaid.ops.matmul(x, inlaid.constant(weights)), inlaid.constant(bias))
module = inlaid.Module({"main": inlaid.function([x], swish(y, bound=5.0))})

executable = inlaid.compile(module, targets=["x86"])
print(executable)
data = generator.standard_normal((4, 16)).astype(np.float32)
(result,) = executable.run({"x": data}).values()
expected = reference(SwishAttrs(bound=5.0), data @ weights + bias)
np.testing.assert_allclose(result, expected, rtol=1e-4, atol=1e-5)
print(f"largest difference from numpy: {np.abs(result - expected).max():.1e}")

# The operator was fused: one kernel computes product, bias and our operator.
print(executable.profile({"x": data}).table())
