"""Vectors that the end of a row cuts off: what is summed in them stays in registers, and masks come before loops."""

from __future__ import annotations

import re

import numpy as np
import pytest

from inlaid import ops
from inlaid.graph.ir import var
from inlaid.lowering.kernels.finish import finish
from inlaid.lowering.kernels.kernel import KernelSource, build
from inlaid.plugins import Capabilities
from inlaid.schedules.matmul import MatmulRule
from inlaid.tensor import ir
from inlaid.tensor.scheduling.rule import InputInfo, KernelContext
from inlaid.tensor.transform.lower_blocks import truth
from inlaid_runtime import arith
from inlaid_runtime.arith import SizeVar, Var
from inlaid_runtime.types import ROW_MAJOR, TensorType, dtype
from inlaid_x86.llvm.region import Dialect, print_kernel
from inlaid_x86.machine import TRIPLE, data_layout
from inlaid_x86_runtime.options import X86Options

from .native import Native, check

MACHINES = {"x86-64-v4": (512, 32), "x86-64-v3": (256, 16), "x86-64-v2": (128, 16)}


def product(rows: int, depth: int, columns: int, cpu: str) -> ir.LoopProgram:
    a, b = var("a", TensorType((rows, depth), "float32")), var("b", TensorType((depth, columns), "float32"))
    program = build(KernelSource("product", (a, b), ops.relu(ops.matmul(a, b))))
    bits, registers = MACHINES[cpu]
    capabilities = Capabilities(dtypes=("float32",), vector_bits=bits, vector_registers=registers)
    offer = MatmulRule().offer(program, KernelContext(capabilities), (InputInfo(ROW_MAJOR),) * 2)
    assert offer is not None
    return offer.schedule(program)


@pytest.mark.parametrize("cpu", MACHINES)
@pytest.mark.parametrize("shape", [(13, 5, 19), (1, 7, 21), (30, 4, 9), (5, 3, 39)])
def test_products_of_rows_that_fill_no_vectors(shape: tuple[int, int, int], cpu: str) -> None:
    rows, depth, columns = shape
    rng = np.random.default_rng(5)
    a, b = (rng.integers(-4, 5, size).astype(np.float32) for size in ((rows, depth), (depth, columns)))
    (actual,) = Native([product(rows, depth, columns, cpu)], X86Options(threads=1, cpu=cpu)).run([a, b])
    np.testing.assert_array_equal(actual, np.maximum(a @ b, 0))


@pytest.mark.parametrize(("rows", "columns"), [(13, 19), (1, 21), (30, 9)])
def test_sums_are_stored_whole(rows: int, columns: int) -> None:
    """LLVM leaves what is stored under a mask in memory; only the result may be."""
    text = print_kernel(finish(product(rows, 6, columns, "x86-64-v4")), "kernel", Dialect(TRIPLE, data_layout(), ""))
    masked = re.findall(r"call void @llvm\.masked\.store\S*\(<16 x float> %\S+ ptr align 4 (%\S+),", text)
    assert masked and not [pointer for pointer in masked if re.search(rf"{re.escape(pointer)} = getelementptr .*%local", text)]
    assert not any(pointer.startswith("%local") for pointer in masked)


def copy(op: str, by_row: bool) -> ir.LoopProgram:
    """y[i, j] = x[i, j] where j + i compares to n, or n - 5, in the first sixteen columns of rows; 0 elsewhere."""
    rows, n = SizeVar("rows"), SizeVar("n")
    x, y = (ir.Buffer(name, (rows, 16), dtype("float32")) for name in "xy")
    size = ir.Buffer("size", (n,), dtype("float32"))
    i, j = Var("i"), Var("j")
    position, end = j + (i if by_row else 3), n - 5 if by_row else n
    condition = arith.compare(op, position, end) if by_row else arith.compare(op, end, position)
    value = ir.Select(x.dtype, truth(condition), ir.load(x, (i, j)), ir.const(0, x.dtype))
    row = ir.For(j, arith.Const(16), ir.Store(y, (i, j), value), ir.ForKind.VECTORIZED)
    return ir.LoopProgram("copy", (x, size), (y,), ir.For(i, arith.wrap(rows), row))


@pytest.mark.parametrize("cpu", MACHINES)
@pytest.mark.parametrize("by_row", [False, True])
@pytest.mark.parametrize("op", ["<", "<=", "==", "!="])
def test_comparisons_of_lanes_with_sizes(op: str, by_row: bool, cpu: str) -> None:
    for n in (0, 1, 3, 7, 18, 19, 25):
        feeds = [np.ones((6, 16), np.float32), np.zeros(n, np.float32)]
        check([copy(op, by_row)], feeds, X86Options(threads=1, cpu=cpu))


def test_masks_come_before_loops() -> None:
    """As comparisons of 32-bit numbers of lanes, where the loop does not change them."""
    text = print_kernel(copy("<", False), "kernel", Dialect(TRIPLE, data_layout(), ""))
    before, _, inside = text.partition("\nloop.")
    assert "icmp sge <16 x i32>" in before and "x i64>" not in inside
