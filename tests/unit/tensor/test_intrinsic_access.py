"""What intrinsics read and write: taken from their semantics, kept on the statement, used by analyses."""

from __future__ import annotations

import numpy as np
import pytest

from inlaid.tensor import ir
from inlaid.tensor.analysis.accesses import accesses
from inlaid.tensor.analysis.footprint import full_region, reads, semantic_access, touched, writes
from inlaid.tensor.analysis.in_place import head_start
from inlaid.tensor.analysis.verify import verify
from inlaid.tensor.interp import run
from inlaid.tensor.parse import parse
from inlaid.tensor.primitives import TensorIntrin
from inlaid.tensor.schedule import Schedule
from inlaid.tensor.text import show
from inlaid.tensor.transform.unread import remove_unread_buffers
from inlaid_runtime.errors import ScheduleError, VerifyError

HINT, READ, WRITE, UPDATE = ir.AccessMode.HINT, ir.AccessMode.READ, ir.AccessMode.WRITE, ir.AccessMode.UPDATE

COPY = TensorIntrin(
    "copy",
    parse("""
program copy(a: int32[4]) -> (c: int32[4]):
  for i in 4:
    c[i] = a[i]
"""),
)
ADD = TensorIntrin(
    "add",
    parse("""
program add(a: int32[4], near: int32[], step: int32[]) -> (c: int32[4]):
  for i in 4:
    c[i] = (c[i] + (a[i] * step[]))
"""),
)
CLIP = TensorIntrin(
    "clip",
    parse("""
program clip(a: int32[4]) -> (c: int32[4]):
  for i in 4:
    if (a[i] < 0):
      c[i] = int32(0)
"""),
)
CALLS = """
program calls(x: int32[8, 4]) -> (y: int32[8, 4]):
  for i in 8:
    alloc t: int32[4]
    intrinsic "copy" on read x[i +: 1, 0 +: 4], write t[0 +: 4]
    intrinsic "copy" on read t[0 +: 4], write y[i +: 1, 0 +: 4]
"""


def test_access_follows_from_semantics() -> None:
    assert semantic_access(COPY.semantics) == (READ, WRITE)
    assert semantic_access(ADD.semantics) == (READ, HINT, READ, UPDATE)
    assert semantic_access(CLIP.semantics) == (READ, UPDATE)
    a, c = ADD.semantics.inputs[0], ADD.semantics.outputs[0]
    hint_region = ir.BufferRegion(ADD.semantics.inputs[1], ())
    assert ADD.on(full_region(a), hint_region, full_region(c), args=(ir.const(2, "int32"),)).access == (READ, HINT, UPDATE)


def test_access_of_nested_intrinsics() -> None:
    nested = parse(CALLS)
    assert semantic_access(nested) == (READ, WRITE)
    updating = parse(CALLS.replace("write y", "update y"))
    assert semantic_access(updating) == (READ, UPDATE)


def test_footprints_know_intrinsics() -> None:
    program = parse(CALLS)
    (x,), (y,) = program.inputs, program.outputs
    assert [region.buffer for region in reads(program.body)] == [x]
    assert [region.buffer for region in writes(program.body)] == [y]
    (box,) = (region.ranges for region in writes(program.body))
    assert str(box) == "((0, 8), (0, 4))"
    assert [len(side) for side in touched(program.body, x)] == [1, 0]
    assert [len(side) for side in touched(program.body, y)] == [0, 1]
    assert len(list(accesses(program.body, y, reads=True))) == 0
    assert len(list(accesses(program.body, y, reads=False))) == 1


def test_what_is_updated_is_read() -> None:
    """An output that an intrinsic writes whole may lie over its input; one that it updates needs what lay there."""
    program = parse(CALLS)
    assert head_start(program, 0, 0) == 0
    updating = parse(CALLS.replace("write y", "update y"))
    assert len(list(accesses(updating.body, updating.outputs[0], reads=True))) == 1


def test_intrinsics_that_write_what_nobody_reads_go() -> None:
    unread = parse(CALLS.replace("read t", "read x").replace("read x[0 +: 4]", "read x[i +: 1, 0 +: 4]"))
    assert "alloc" not in show(remove_unread_buffers(unread)) and show(remove_unread_buffers(unread)).count("intrinsic") == 1
    assert show(remove_unread_buffers(parse(CALLS))) == show(parse(CALLS))
    summed = parse("""
program summed(x: int32[4]) -> (y: int32[4]):
  alloc t: int32[4]
  intrinsic "add" on read x[0 +: 4], hint x[0 +: 1], update t[0 +: 4] with int32(2)
  intrinsic "copy" on read x[0 +: 4], write y[0 +: 4]
""")
    assert "add" not in show(remove_unread_buffers(summed))


@pytest.mark.parametrize(
    ("old", "new", "problem"),
    [
        ("read x", "hint x", "expected regions marked read, write as its semantics say, found hint, write"),
        ("write t", "update t", "found read, update"),
        ("read x[i +: 1, 0 +: 4], write t", "read x[i +: 1, 0 +: 4], write x[i +: 1, 0 +: 4], write t", "found read, write, write"),
        ("write y", "read y", "found read, read"),
    ],
)
def test_verify_holds_access_to_semantics(old: str, new: str, problem: str) -> None:
    intrinsics = {"copy": COPY.semantics}
    verify(parse(CALLS), intrinsics)
    with pytest.raises(VerifyError, match=problem):
        verify(parse(CALLS.replace(old, new)), intrinsics)


def test_verify_uses_access() -> None:
    with pytest.raises(VerifyError, match="output y must be written"):
        verify(parse(CALLS.replace("write y", "read y")))
    with pytest.raises(VerifyError, match="input x must not be written"):
        verify(parse(CALLS.replace("read x", "update x")))
    with pytest.raises(VerifyError, match="expected marks of access for 1 regions, found 0"):
        verify(ir.LoopProgram("f", (), COPY.semantics.outputs, ir.Intrinsic("copy", (full_region(COPY.semantics.outputs[0]),))))


PHASES = """
program phases(x: int32[4]) -> (y: int32[4]):
  alloc s: int32[4] in "shared"
  for t in 4, thread, "threadIdx.x":
    s[t] = x[t]
  intrinsic "reverse" over "threadIdx.x" on update s[0 +: 4]
  for t in 4, thread, "threadIdx.x":
    y[t] = s[t]
"""
REVERSE = TensorIntrin(
    "reverse",
    parse("""
program reverse() -> (s: int32[4]):
  alloc kept: int32[4]
  for i in 4:
    kept[i] = s[i]
  for i in 4:
    s[i] = kept[(3 + (i * -1))]
"""),
    ("threadIdx.x",),
)


def test_collective_intrinsics_act_once_for_a_phase() -> None:
    x = np.arange(4, dtype=np.int32)
    for seed in range(4):
        (y,) = run(parse(PHASES), [x], intrinsics={"reverse": REVERSE.semantics}, seed=seed)
        np.testing.assert_array_equal(y, x[::-1])


def test_collective_intrinsics_stand_where_all_threads_meet() -> None:
    """Beside the loops over these threads, or in one perfect nest of them all."""
    inside = PHASES.replace("    s[t] = x[t]\n  intrinsic", "    s[t] = x[t]\n    intrinsic")
    for axis in "xy":
        verify(parse(inside.replace('threadIdx.x":\n    s', f'threadIdx.{axis}":\n    s')))
    both = inside.replace('over "threadIdx.x"', 'over "threadIdx.x", "threadIdx.y"')
    with pytest.raises(VerifyError, match=r"reverse is collective over threadIdx\.x, threadIdx\.y: expected loops over all"):
        verify(parse(both))
    with pytest.raises(VerifyError, match="expected one perfect nest of loops bound to threads around it"):
        verify(parse(both.replace("    intrinsic", '    for u in 1, thread, "threadIdx.y":\n      intrinsic')))


def test_threads_meet_in_a_collective_intrinsic() -> None:
    """Each of them runs it, once for all, whatever their order."""
    program = parse(PHASES.replace("  intrinsic", "    intrinsic").replace('  for t in 4, thread, "threadIdx.x":\n    y', "    y"))
    x = np.arange(4, dtype=np.int32)
    for seed in range(4):
        (y,) = run(program, [x], intrinsics={"reverse": REVERSE.semantics}, seed=seed)
        np.testing.assert_array_equal(y, x[::-1])


def test_tensorize_refuses_a_collective_intrinsic_in_a_loop_over_threads() -> None:
    block = """
program adds(a: int32[8, 4]) -> (c: int32[8, 4]):
  for i in 8:
    for j in 4:
      block c:
        iter vi = i in 8
        iter vj = j in 4
        reads a[vi +: 1, vj +: 1]
        writes c[vi +: 1, vj +: 1]
        c[vi, vj] = a[vi, vj]
"""
    for axis, refused in (("threadIdx.x", True), ("threadIdx.y", False)):
        wide = TensorIntrin("copy", COPY.semantics, ("threadIdx.x",))
        schedule = Schedule(parse(block), (wide,))
        i, j = schedule.loops("c")
        schedule.bind(i, axis)
        if refused:
            with pytest.raises(ScheduleError, match=r"copy, collective over threadIdx\.x, must not be in loop i"):
                schedule.tensorize(j, "copy")
        else:
            schedule.tensorize(j, "copy")
            assert 'intrinsic "copy" over "threadIdx.x" on read a' in show(schedule.program)
            verify(schedule.program, {"copy": COPY.semantics})
