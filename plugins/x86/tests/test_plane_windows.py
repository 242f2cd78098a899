"""Pools of planes that lie row by row, through the compiler, against the numpy reference: static and symbolic."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import inlaid
from inlaid import ops
from inlaid.graph.ir import Expr, function, var
from inlaid_runtime.arith import SizeVar
from inlaid_runtime.types import TensorType

RNG = np.random.default_rng(11)
SHAPE = (2, 3, 19, 37)
POOLS: dict[str, tuple[Any, dict[str, Any]]] = {
    "max 3x3 by 2": (ops.max_pool, {"kernel": (3, 3), "strides": (2, 2), "pads": (1, 1, 1, 1)}),
    "max 2x3 by 3": (ops.max_pool, {"kernel": (2, 3), "strides": (2, 3), "pads": (0, 0, 1, 2)}),
    "max 1x4 by 4": (ops.max_pool, {"kernel": (1, 4), "strides": (1, 4)}),
    "places of max 3x3 by 2": (ops.max_pool_indices, {"kernel": (3, 3), "strides": (2, 2), "pads": (1, 1, 1, 1)}),
    "places of max 2x3 by 3": (
        ops.max_pool_indices,
        {"kernel": (2, 3), "strides": (2, 3), "pads": (0, 0, 1, 2), "column_major": True},
    ),
    "mean 3x3": (ops.avg_pool, {"kernel": (3, 3), "strides": (1, 1), "pads": (1, 1, 1, 1)}),
    "mean 2x2 by 2": (ops.avg_pool, {"kernel": (2, 2), "strides": (2, 2), "count_include_pad": True}),
}


def pooled(pool: str, x: Expr) -> Expr:
    make, window = POOLS[pool]
    expr: Expr = make(x, **window)
    return expr


@pytest.mark.parametrize(("cpu", "threads"), [("native", 1), ("x86-64-v3", 2), ("x86-64-v2", 1)])
@pytest.mark.parametrize("pool", POOLS)
def test_static_and_symbolic_pools_agree_with_the_reference(pool: str, cpu: str, threads: int) -> None:
    target = f"x86:check=true,threads={threads},cpu={cpu}"
    free = TensorType((SizeVar("n"), 3, SizeVar("h", 3), SizeVar("w", 5)), "float32")
    symbolic = inlaid.compile(function([x := var("x", free)], pooled(pool, x)), [target])
    for shape in (SHAPE, (1, 3, 3, 5), (0, 3, 8, 70), (1, 3, 40, 64)):
        fixed = function([x := var("x", TensorType(shape, "float32"))], pooled(pool, x))
        data = RNG.standard_normal(shape).astype(np.float32)
        if data.size:
            data[0, 1, 2, 3], data[0, 2] = np.nan, -np.inf
        expected = inlaid.compile(fixed, ["reference"]).run({"x": data}).values()
        for package in [symbolic, inlaid.compile(fixed, [target])] if shape == SHAPE else [symbolic]:
            for actual, other in zip(package.run({"x": data}).values(), expected, strict=True):
                np.testing.assert_allclose(actual, other, rtol=1e-6, atol=1e-6)
