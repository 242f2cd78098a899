"""Local buffers that nothing reads go, and what was worked out for them; checks of indices stay."""

from __future__ import annotations

import numpy as np
import pytest

from inlaid.codegen.c_kernel import print_kernel
from inlaid.tensor import interp, ir
from inlaid.tensor.analysis.ranges import narrow
from inlaid.tensor.build import Builder
from inlaid.tensor.transform.unread import remove_unread_buffers
from inlaid_runtime import arith
from inlaid_runtime.errors import KernelFault
from inlaid_runtime.types import dtype


def summing(index: bool = False) -> ir.LoopProgram:
    """The sum of three numbers into each of four, times a factor; one that is not read besides."""
    b = Builder()
    x, w = ir.Buffer("x", (3,), dtype("int32")), ir.Buffer("w", (1,), dtype("int32"))
    y = ir.Buffer("y", (4,), dtype("int32"))
    with b.loop(4, "i") as i:
        total = b.alloc((1,), "int32", "total")
        b.store(total, (0,), ir.const(0, "int32"))
        with b.loop(3, "k") as k:
            at = ir.checked(x[k], arith.wrap(0), arith.wrap(2)) if index else k
            b.store(total, (0,), total[0] + x[at])
        b.store(y, (i,), total[0] * w[0] + 7)
    return ir.LoopProgram("summing", (x, w), (y,), b.finish())


def test_sums_that_ranges_make_idle_go_with_their_loops() -> None:
    program = summing()
    idle = narrow(program, {program.inputs[1]: (0, 0)})
    assert not any(isinstance(stmt, ir.Alloc) for stmt in ir.walk_stmts(idle.body))
    assert [type(stmt) for stmt in ir.walk_stmts(idle.body)] == [ir.For, ir.Store]
    arrays = [np.arange(3, dtype=np.int32), np.zeros(1, np.int32)]
    np.testing.assert_array_equal(interp.run(idle, arrays)[0], interp.run(program, arrays)[0])
    # GCC warns of a variable that is set but not used.
    assert "total" not in print_kernel(program, "idle", ranges={1: (0, 0)}).text


def test_what_is_read_stays_the_same_object() -> None:
    program = summing()
    assert remove_unread_buffers(program) is program


def test_buffers_that_only_such_buffers_read_go_as_well() -> None:
    b = Builder()
    x, y = ir.Buffer("x", (2,), dtype("int32")), ir.Buffer("y", (2,), dtype("int32"))
    with b.loop(2, "i") as i:
        first, second = b.alloc((1,), "int32", "first"), b.alloc((1,), "int32", "second")
        b.store(first, (0,), x[i])
        b.store(second, (0,), first[0] + 1)
        b.store(y, (i,), x[i])
    left = remove_unread_buffers(ir.LoopProgram("chain", (x,), (y,), b.finish()))
    assert [type(stmt) for stmt in ir.walk_stmts(left.body)] == [ir.For, ir.Store]


def test_checks_of_indices_stay() -> None:
    program = summing(index=True)
    idle = narrow(program, {program.inputs[1]: (0, 0)})
    with pytest.raises(KernelFault):
        interp.run(idle, [np.array([0, 5, 1], np.int32), np.zeros(1, np.int32)])
