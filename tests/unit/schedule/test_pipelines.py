"""Pipelines of loops whose statements an intrinsic does already."""

from __future__ import annotations

import numpy as np
import pytest

from inlaid.tensor import interp, ir, te
from inlaid.tensor.build import Builder
from inlaid.tensor.lower import lower
from inlaid.tensor.primitives import TensorIntrin
from inlaid.tensor.schedule import Schedule
from inlaid_runtime.errors import ScheduleError
from inlaid_runtime.types import dtype


def doubled() -> TensorIntrin:
    """d[j] = s[j] + s[j] for four elements."""
    source, target = (ir.Buffer(name, (4,), dtype("int32")) for name in "sd")
    builder = Builder()
    with builder.loop(4, "j") as j:
        builder.store(target, j, source[j] + source[j])
    return TensorIntrin("doubled", ir.LoopProgram("doubled", (source,), (target,), builder.finish()))


def rows(count: int, width: int) -> ir.LoopProgram:
    """c = 2 (a + 1)."""
    a = te.placeholder((count, width), "int32", "a")
    b = te.compute((count, width), lambda i, j: a[i, j] + 1, "b")
    return lower([te.compute((count, width), lambda i, j: b[i, j] + b[i, j], "c")], [a], "rows")


def test_boxes_of_intrinsics_move_to_the_ring() -> None:
    program = rows(6, 4)
    s = Schedule(program, (doubled(),))
    i, j = s.loops("c")
    s.compute_at("b", i)
    s.tensorize(j, "doubled")
    s.software_pipeline(i, (0, 1))
    inputs = [np.arange(24, dtype=np.int32).reshape(6, 4)]
    (expected,), (actual,) = interp.run(program, inputs), interp.run(s.program, inputs, {}, s.semantics)
    np.testing.assert_array_equal(actual, expected)
    rings = [stmt.buffer.shape for stmt in ir.walk_stmts(s.program.body) if isinstance(stmt, ir.Alloc)]
    assert rings == [(2, 1, 4)]


def test_boxes_that_may_wrap_round_are_refused() -> None:
    s = Schedule(rows(2, 24), (doubled(),))
    _, j = s.loops("c")
    outer, inner = s.split(j, (None, 4))
    s.compute_at("b", outer)
    s.tensorize(inner, "doubled")
    with pytest.raises(ScheduleError, match="apply this before tensorize"):
        s.software_pipeline(outer, (0, 1))
