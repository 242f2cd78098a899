"""Small programs to schedule, and the check that a schedule keeps their answer."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from inlaid.tensor import interp, ir, te
from inlaid.tensor.lower import lower
from inlaid_runtime import arith

Check = Callable[[ir.LoopProgram, ir.LoopProgram], None]


def _make_inputs(program: ir.LoopProgram) -> list[np.ndarray]:
    rng = np.random.default_rng(0)
    return [rng.integers(-4, 5, buffer.shape).astype(buffer.dtype.numpy) for buffer in program.inputs]


def assert_equal(program: ir.LoopProgram, other: ir.LoopProgram) -> None:
    """Both programs give the same answer, bit for bit; the second also once lowered to plain loops."""
    arrays = _make_inputs(program)
    for expected, actual in zip(interp.run(program, arrays), interp.run(other, arrays), strict=True):
        np.testing.assert_array_equal(actual, expected)


def conv_relu() -> ir.LoopProgram:
    """A padded 3x3 convolution with a relu behind it: 1x4x5x5 to 1x6x5x5."""
    x = te.placeholder((1, 4, 5, 5), "int32", "x")
    w = te.placeholder((6, 4, 3, 3), "int32", "w")

    def inside(h: arith.Expr, q: arith.Expr) -> arith.Expr:
        rows = arith.logical_and(arith.compare("<=", 1, h), arith.compare("<", h, 6))
        return arith.logical_and(rows, arith.logical_and(arith.compare("<=", 1, q), arith.compare("<", q, 6)))

    padded = te.compute((1, 4, 7, 7), lambda n, c, h, q: te.select(inside(h, q), x[n, c, h - 1, q - 1], 0), "padded")
    c, r, s = (te.reduce_axis(extent, name) for extent, name in ((4, "c"), (3, "r"), (3, "s")))
    conv = te.compute((1, 6, 5, 5), lambda n, o, h, q: te.sum_(padded[n, c, h + r, q + s] * w[o, c, r, s], (c, r, s)), "conv")
    relu = te.compute((1, 6, 5, 5), lambda n, o, h, q: te.maximum(conv[n, o, h, q], 0), "relu")
    return lower([relu], [x, w], "conv_relu")


def matmul(n: int = 8, m: int = 12, k: int = 10) -> ir.LoopProgram:
    """c = a b + 1."""
    a = te.placeholder((n, k), "int32", "a")
    b = te.placeholder((k, m), "int32", "b")
    r = te.reduce_axis(k, "k")
    product = te.compute((n, m), lambda i, j: te.sum_(a[i, r] * b[r, j], r), "product")
    c = te.compute((n, m), lambda i, j: product[i, j] + 1, "c")
    return lower([c], [a, b], "matmul")


def chain(extent: int = 16) -> ir.LoopProgram:
    """Three element-wise blocks in a row, the last a stencil."""
    a = te.placeholder((extent,), "int32", "a")
    b = te.compute((extent,), lambda i: a[i] * 3, "b")
    c = te.compute((extent,), lambda i: b[i] - 1, "c")
    d = te.compute((extent - 2,), lambda i: c[i] + c[i + 1] * c[i + 2], "d")
    return lower([d], [a], "chain")


@pytest.fixture
def conv_program() -> ir.LoopProgram:
    return conv_relu()


@pytest.fixture
def matmul_program() -> ir.LoopProgram:
    return matmul()


@pytest.fixture
def chain_program() -> ir.LoopProgram:
    return chain()


@pytest.fixture
def check_equal() -> Check:
    return assert_equal
