"""Index arithmetic of sizes is printed before the loops that do not change it."""

from __future__ import annotations

import re

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from inlaid.tensor import ir
from inlaid.tensor.build import Builder
from inlaid_runtime import arith
from inlaid_runtime.types import dtype
from inlaid_x86.llvm.region import Dialect, print_kernel
from inlaid_x86.machine import TRIPLE, data_layout
from inlaid_x86_runtime.options import X86Options

from .native import Native, run_reference

I64 = "int64"
TWO = X86Options(threads=2, cpu="x86-64-v2")


def gather(kind: ir.ForKind) -> ir.LoopProgram:
    """What is read depends on sizes and on loops around, below a condition and a let."""
    rows, columns, depth = (arith.SizeVar(name) for name in "nmd")
    a = ir.Buffer("a", (columns, 2, depth), dtype(I64))
    out = ir.Buffer("out", (rows, columns, depth), dtype(I64))
    b = Builder()
    with b.loop(rows, "i", kind) as i, b.loop(columns, "j") as j:
        half = b.let(ir.as_expr(i // 2, dtype(I64)), "half")
        with b.loop(depth, "k") as k:
            b.store(out, (i, j, k), ir.as_expr(half * depth + columns, dtype(I64)))
        with b.if_(ir.as_expr(arith.compare("<", half, j + 2), dtype("bool"))), b.loop(depth, "k") as k:
            b.store(out, (i, j, k), a[j, arith.maximum(i + columns, 3) % 2, k] + ir.as_expr(half * depth, dtype(I64)))
    return ir.LoopProgram("gather", (a,), (out,), b.finish())


PROGRAMS = {kind: [gather(kind)] for kind in (ir.ForKind.SERIAL, ir.ForKind.PARALLEL)}
KERNELS = {kind: Native(programs, TWO) for kind, programs in PROGRAMS.items()}


@pytest.mark.parametrize("kind", PROGRAMS)
@settings(max_examples=20, deadline=None)
@given(st.integers(0, 9), st.integers(0, 9), st.integers(0, 5))
def test_hoisted_indices_are_those_of_the_loop(kind: ir.ForKind, rows: int, columns: int, depth: int) -> None:
    a = np.random.default_rng(0).integers(-5, 5, (columns, 2, depth))
    actual = KERNELS[kind].run([a], {"n": rows})
    for one, other in zip(actual, run_reference(PROGRAMS[kind], [a], {"n": rows}), strict=True):
        np.testing.assert_array_equal(one, other)


def test_inner_loops_neither_multiply_nor_choose() -> None:
    """LLVM runs few passes over scheduled code, none of which moves anything out of a loop."""
    (program,) = PROGRAMS[ir.ForKind.SERIAL]
    text = print_kernel(program, "kernel", Dialect(TRIPLE, data_layout(), "", {}, {}, {}, False))
    inner = re.findall(r"^(?:body\S*:)((?:(?!^\S+:).)*?)br label %latch", text, re.MULTILINE | re.DOTALL)
    assert len(inner) == 2
    assert not any("mul" in body or "smax" in body for body in inner)


def last_vectors() -> ir.LoopProgram:
    """The last vector of a row, whose number is bound in the loop over rows, and vectors that are masked on both sides."""
    rows, columns = arith.SizeVar("n"), arith.SizeVar("m")
    a, out = (ir.Buffer(name, (rows, columns), dtype(I64)) for name in ("a", "out"))
    b = Builder()

    def copy(i: arith.Expr, j: arith.Expr, inside: arith.Expr) -> None:
        with b.if_(ir.as_expr(inside, dtype("bool"))):
            b.store(out, (i, j), a[i, j] + ir.as_expr(j, dtype(I64)))

    with b.loop(arith.ceildiv(columns, 4), "t") as t, b.loop(rows, "i") as i, b.loop(4, "lane", ir.ForKind.VECTORIZED) as lane:
        column = t * 4 + lane
        copy(i, column, arith.logical_and(arith.compare("<", 0, column), arith.compare("<", column, columns)))
    with b.loop(rows, "i") as i:
        last = b.let(ir.as_expr((columns - 1) // 4, dtype(I64)), "last")
        with b.loop(4, "lane", ir.ForKind.VECTORIZED) as lane:
            column = last * 4 + lane
            copy(i, column, arith.logical_and(arith.compare("<=", 0, column), arith.compare("<", column, columns)))
    return ir.LoopProgram("last_vectors", (a,), (out,), b.finish())


LAST = Native([last_vectors()], X86Options(threads=1, cpu="x86-64-v3"))


@pytest.mark.parametrize("rows", [0, 1, 3])
@pytest.mark.parametrize("columns", [1, 2, 3, 4, 5, 8, 11])
def test_hoisted_masks_are_those_of_the_loop(rows: int, columns: int) -> None:
    a = np.arange(rows * columns).reshape(rows, columns)
    (actual,) = LAST.run([a], {})
    (expected,) = run_reference([last_vectors()], [a], {})
    written = np.ones((rows, columns), bool)
    written[:, 0] = columns <= 4
    np.testing.assert_array_equal(actual[written], expected[written])
