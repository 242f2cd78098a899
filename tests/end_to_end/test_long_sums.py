"""Sums of many float32 numbers on every target: the error stays that of one block (ADR 108)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

import inlaid
from inlaid import ops
from inlaid.graph import ir
from inlaid.plugins.registry import default_registry
from inlaid_runtime.arith import SizeVar
from inlaid_runtime.types import TensorType

Array = np.ndarray[Any, Any]
COUNT, CHANNELS = 400_000, 16_384
TOLERANCE = 4e-6
"""Relative error of a sum of random numbers from 0 to 1. One accumulator has 1e-5 to 1e-4."""
WEIGHTS = np.random.default_rng(1).random((COUNT, 5), np.float32)
KERNEL = np.random.default_rng(2).random((2, CHANNELS, 5, 5), np.float32)


def target(name: str) -> str:
    """Skip the test if a target cannot run here."""
    registry = default_registry()
    if name.partition(":")[0] not in registry.kinds():
        pytest.skip(f'the plugin is not installed: pip install "inlaid[{name.partition(":")[0]}]"')
    status = registry.probe(registry.target(name))
    if not status.available:
        pytest.skip(status.detail)
    return name


@dataclass(frozen=True)
class Model:
    """A model of one input, and its value in float64. `symbolic` is the axis whose size may be symbolic."""

    shape: tuple[int, ...]
    symbolic: int | None
    body: Callable[[ir.Expr], ir.Expr]
    value: Callable[[Array], Array]


MODELS = {
    "product by constants": Model((3, COUNT), None, lambda x: ops.matmul(x, ir.constant(WEIGHTS)), lambda x: x @ WEIGHTS),
    "product": Model((3, COUNT), 1, lambda x: ops.matmul(x, ops.transpose(x, perm=(1, 0))), lambda x: x @ x.T),
    "sum of rows": Model((3, COUNT), 1, lambda x: ops.reduce_sum(x, axes=(1,), keepdims=False), lambda x: x.sum(1)),
    "sum of columns": Model((COUNT, 3), 0, lambda x: ops.reduce_sum(x, axes=(0,), keepdims=False), lambda x: x.sum(0)),
    "sum of images": Model(
        (2, 3, 400, 500), 2, lambda x: ops.reduce_sum(x, axes=(0, 2, 3), keepdims=False), lambda x: x.sum((0, 2, 3))
    ),
    "convolution": Model(
        (1, CHANNELS, 5, 5),
        2,
        lambda x: ops.conv(x, ir.constant(KERNEL), pads=(0, 0, 0, 0), strides=(1, 1)),
        lambda x: np.einsum("nchw,ochw->no", x, KERNEL)[..., None, None],
    ),
}


@pytest.mark.parametrize(
    ("model", "symbolic"),
    [(name, kind) for name in MODELS for kind in (False, True) if not kind or MODELS[name].symbolic is not None],
)
@pytest.mark.parametrize("name", ["reference", "x86", "opencl", "cuda:arch=host"])
def test_errors_do_not_grow(model: str, name: str, symbolic: bool) -> None:
    case = MODELS[model]
    dims = tuple(SizeVar("n", 5) if symbolic and axis == case.symbolic else size for axis, size in enumerate(case.shape))
    x = ir.var("x", TensorType(dims, "float32"))
    compiled = inlaid.compile(ir.function([x], case.body(x)), targets=[target(name), "reference"])
    value = np.random.default_rng(0).random(case.shape, np.float32)
    (result,) = compiled.run({"x": value}).values()
    assert isinstance(result, np.ndarray)
    np.testing.assert_allclose(result, case.value(value.astype(np.float64)), rtol=TOLERANCE)
