"""Symbolic sizes on grids of threads: one package, several sizes, interpreted launch by launch."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from inlaid import ops
from inlaid.driver.compile import compile_module
from inlaid.graph import ir
from inlaid.graph.interp import evaluate
from inlaid_runtime.arith import SizeVar
from inlaid_runtime.types import TensorType

from .grid_target import CLASSES, KIND, Grid

RNG = np.random.default_rng(0)
N, M = SizeVar("n"), SizeVar("m")


def tensor(name: str, *shape: Any, dtype: str = "float32") -> ir.Var:
    return ir.var(name, TensorType(shape, dtype))


def weights(*shape: int) -> ir.Constant:
    return ir.constant(RNG.integers(-3, 4, shape).astype(np.float32))


def product() -> ir.Function:
    x = tensor("x", N, 24)
    return ir.function([x], ops.relu(ops.matmul(x, weights(24, 40))))


def single_head_attention() -> ir.Function:
    x, y = tensor("x", 2, N, 8), tensor("y", 2, M, 8)
    scores = ops.softmax(ops.matmul(x, ops.transpose(y, perm=(0, 2, 1))), axis=2)
    return ir.function([x, y], ops.matmul(scores, y))


def images() -> ir.Function:
    x = tensor("x", 1, 3, N, M)
    y = ops.relu(ops.conv(x, weights(4, 3, 3, 3), pads=(1, 1, 1, 1)))
    return ir.function([x], ops.max_pool(y, kernel=(2, 2), strides=(2, 2)))


def sums() -> ir.Function:
    x = tensor("x", N, M)
    total = ops.reduce_sum(x, axes=(0,))
    return ir.function([x], ir.tuple_([total, ops.reduce_max(x, axes=(1,)), ops.transpose(x, perm=(1, 0))]))


@pytest.mark.parametrize("make", [product, single_head_attention, images, sums])
@pytest.mark.parametrize("kind", CLASSES)
def test_one_package_for_all_sizes(kind, make) -> None:
    function, target = make(), Grid(CLASSES[kind])
    executable = compile_module(ir.Module({"main": function}), [KIND], target.registry(), keep=False)
    for n, m in ((1, 1), (2, 7), (17, 5), (33, 20)):
        if make is images and min(n, m) < 2:
            continue
        sizes = {N: n, M: m}
        inputs = [
            RNG.integers(-3, 4, [sizes.get(dim, dim) for dim in param.type.shape]).astype(np.float32) for param in function.params
        ]
        results = executable.run({param.name: array for param, array in zip(function.params, inputs, strict=True)})
        expected = evaluate(function, inputs)
        for a, b in zip(results.values(), expected if isinstance(expected, tuple) else (expected,), strict=True):
            np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-5)
    assert target.launched


def test_versions_by_size_are_launched_where_they_hold() -> None:
    """A product of one row has a separate kernel, which is not launched for other sizes."""
    function, target = product(), Grid(CLASSES["vectors"])
    executable = compile_module(ir.Module({"main": function}), [KIND], target.registry(), keep=False)
    launched = []
    for rows in (1, 40):
        target.launched.clear()
        executable.run({"x": np.zeros((rows, 24), np.float32)})
        launched.append(set(target.launched))
    assert launched[0] != launched[1]
