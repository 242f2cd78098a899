"""SPMD kernels do what their fork-join programs do, in any order of threads, with the barriers that this takes and no more."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from inlaid.tensor import ir
from inlaid.tensor.analysis.keys import structural_key
from inlaid.tensor.analysis.memory_scopes import SUBGROUP, check_scopes, places
from inlaid.tensor.analysis.races import Races, check_races
from inlaid.tensor.analysis.verify import verify
from inlaid.tensor.interp import run
from inlaid.tensor.parse import parse
from inlaid.tensor.text import show
from inlaid.tensor.transform.barriers import to_spmd
from inlaid.tensor.transform.rewrite import Rewriter
from inlaid_runtime.errors import ScheduleError, VerifyError

from .fork_join import NAMED, SCOPES, SHARED, find_barriers, named_case, programs, races, without

SEEDS = range(4)
ROWS = np.arange(32, dtype=np.float32).reshape(4, 8)


@pytest.mark.parametrize("name", NAMED)
def test_named_programs(name: str) -> None:
    """Equal in any order of threads; each barrier is missed by the verifier and by some order."""
    program, inputs, right, count = named_case(name)
    offsets = places(program, SHARED)
    kernel = to_spmd(program, SCOPES, offsets)
    check_races(kernel, offsets)
    check_scopes(kernel, SCOPES)
    assert structural_key(parse(show(kernel))) == structural_key(kernel)
    for seed in SEEDS:
        np.testing.assert_array_equal(run(program, inputs, seed=seed)[0], right)
        np.testing.assert_array_equal(run(kernel, inputs, seed=seed)[0], right)
    assert len(find_barriers(kernel)) == count
    for barrier in find_barriers(kernel):
        dropped = without(kernel, barrier)
        with pytest.raises(ScheduleError, match="race for"):
            check_races(dropped, offsets)
        assert any(not np.array_equal(run(dropped, inputs, seed=seed)[0], right) for seed in SEEDS)


@settings(deadline=None, max_examples=25)
@given(programs())
def test_random_programs(program: ir.LoopProgram) -> None:
    """Barriers of race-free programs suffice, and each of them is needed: also for a detector that runs every thread."""
    offsets = places(program, SHARED)
    kernel = to_spmd(program, SCOPES, offsets)
    checker = Races(kernel, offsets)
    racy = races(kernel, offsets)
    assert bool(checker.hazards()) == racy
    if not racy:
        x = np.arange(8, dtype=np.int32) * 7
        for seed in (0, 1):
            np.testing.assert_array_equal(run(kernel, [x], seed=seed)[0], run(program, [x], seed=seed + 1)[0])
        for barrier in find_barriers(kernel):
            assert checker.hazards([barrier]) and Races(without(kernel, barrier), offsets).hazards()
            assert races(without(kernel, barrier), offsets)


@settings(deadline=None, max_examples=25)
@given(programs(), st.sampled_from(["a", "b", "ab"]))
def test_random_programs_of_subgroups(program: ir.LoopProgram, registers: str) -> None:
    """The same with buffers that are registers of a subgroup: a barrier is one of the block where other memory needs it."""
    local = [stmt.buffer for stmt in ir.walk_stmts(program.body) if isinstance(stmt, ir.Alloc)]
    moved = {item: ir.Buffer(item.name, item.shape, item.dtype, SUBGROUP) for item in local if item.name in registers}
    program = Rewriter(buffers=moved).program(program)
    kernel = to_spmd(program, SCOPES, subgroup=8)
    checker, racy = Races(kernel), races(kernel, {})
    assert bool(checker.hazards()) == racy
    assert structural_key(parse(show(kernel))) == structural_key(kernel)
    if not racy:
        x = np.arange(8, dtype=np.int32) * 7
        for seed in (0, 1):
            np.testing.assert_array_equal(run(kernel, [x], seed=seed)[0], run(program, [x], seed=seed + 1)[0])
        for barrier in find_barriers(kernel):
            assert checker.hazards([barrier]) and races(without(kernel, barrier), {})
            assert isinstance(barrier, ir.Barrier)
            # Of loops whose barriers are all of subgroups, the verifier knows less than the detector does.
            assert barrier.over or checker.hazards(lane_barriers=[barrier])


SUBGROUPS = """
program f(x: int32[4, 8]) -> (y: int32[4, 8]):
  alloc p: int32[4, 8] in "subgroup"
  alloc s: int32[4, 8] in "shared"
  for r in 4, thread, "threadIdx.y":
    for t in 8, thread, "threadIdx.x":
      p[r, t] = x[r, t]
      s[r, t] = x[r, t]
      barrier over "threadIdx.x"
      y[r, t] = BODY
"""


def test_registers_of_a_subgroup() -> None:
    """Its threads alone read them, after any barrier; a barrier of theirs orders nothing else."""
    kernel_text = SUBGROUPS.replace("BODY", "p[r, (7 + (t * -1))]")
    check_races(parse(kernel_text))
    verify(parse(kernel_text))
    x = np.arange(32, dtype=np.int32).reshape(4, 8)
    for seed in SEEDS:
        np.testing.assert_array_equal(run(parse(kernel_text), [x], seed=seed)[0], x[:, ::-1])
    mutants = {
        "race for p": [
            kernel_text.replace('      barrier over "threadIdx.x"\n', ""),
            kernel_text.replace("p[r, (7", "p[(3 + (r * -1)), (7"),
            kernel_text.replace("p[r, (7", "p[(3 + (r * -1)), (7").replace('barrier over "threadIdx.x"', "barrier"),
            kernel_text.replace("p[r, t] = x", "p[(r // 2), t] = x"),
        ],
        "race for s": [SUBGROUPS.replace("BODY", "s[r, (7 + (t * -1))]")],
        "expected all threads to reach a barrier": [
            kernel_text.replace(
                '      barrier over "threadIdx.x"', '      if index(bool, (r < 2)):\n        barrier over "threadIdx.x"'
            )
        ],
    }
    for message, texts in mutants.items():
        for text in texts:
            with pytest.raises(ScheduleError, match=message):
                check_races(parse(text))
    with pytest.raises(VerifyError, match=r"a barrier over threadIdx.z: expected loops over all around it"):
        verify(parse(kernel_text.replace('over "threadIdx.x"', 'over "threadIdx.z"')))


def make_kernel(body: str, head: str = "x: float32[4, 8]) -> (y: float32[4, 8]") -> ir.LoopProgram:
    """A kernel over buffers x and y, and s and r in the memories of block and threads."""
    lines = [f"program kernel({head}):", '  alloc s: float32[8] in "shared"', '  alloc r: float32[8, 2] in "local"']
    return to_spmd(parse("\n".join([*lines, *(f"  {line}" for line in body.splitlines() if line.strip())])), SCOPES)


def phase(var: str, *stores: str) -> str:
    return "\n".join([f'for {var} in 8, thread, "threadIdx.x":', *(f"  {store}" for store in stores)])


@pytest.mark.parametrize(
    ("phases", "count"),
    [
        ([phase("t", "s[t] = x[0, t]"), phase("u", "y[0, u] = s[u]")], 0),
        ([phase("t", "s[t] = x[0, t]"), phase("u", "y[0, u] = s[(7 + (u * -1))]")], 1),
        ([phase("t", "s[t] = x[0, t]"), phase("u", "y[0, u] = x[0, u]"), phase("v", "y[1, v] = s[(v // 2)]")], 1),
        ([phase("t", "s[t] = x[0, t]"), "y[0, 0] = s[0]", phase("v", "y[1, v] = s[v]")], 0),
        ([phase("t", "s[t] = x[0, t]"), "s[1] = x[1, 1]", phase("v", "y[1, v] = s[v]")], 2),
        ([phase("t", "r[t, 0] = x[0, t]"), phase("u", "r[u, 1] = r[u, 0]"), phase("v", "y[0, v] = r[v, 1]")], 0),
    ],
    ids=["own", "others", "between", "one reads", "one writes", "local"],
)
def test_barriers_between_phases(phases: list[str], count: int) -> None:
    """As many as are needed, where each thread uses what it has itself, or what others have."""
    kernel = make_kernel("\n".join(phases))
    assert len(find_barriers(kernel)) == count
    check_races(kernel)


LOOP = """
for k in 4:
  for t in 8, thread, "threadIdx.x":
    s[t] = x[k, t]
  for u in 8, thread, "threadIdx.x":
    y[k, u] = s[{}]
"""


@pytest.mark.parametrize(("index", "count"), [("u", 0), ("(7 + (u * -1))", 2)])
def test_barriers_in_loops(index: str, count: int) -> None:
    kernel = make_kernel(LOOP.format(index))
    assert len(find_barriers(kernel)) == count
    for seed in SEEDS:
        np.testing.assert_array_equal(run(kernel, [ROWS], seed=seed)[0], ROWS[:, ::-1] if count else ROWS)


def test_the_innermost_barrier_goes_first() -> None:
    """Of two that would do, the one that runs more often."""
    loop = LOOP.replace("s[t] = x[k, t]", "y[k, t] = x[k, t]").replace("y[k, u] = s[{}]", "r[u, 0] = s[(7 + (u * -1))]")
    kernel = make_kernel(f"{phase('a', 's[a] = x[0, a]')}{loop}{phase('b', 'y[0, b] = r[b, 0]')}")
    (barrier,) = find_barriers(kernel)
    assert not any(
        barrier in ir.walk_stmts(stmt) for stmt in ir.walk_stmts(kernel.body) if isinstance(stmt, ir.For) and not stmt.thread
    )


def test_buffers_that_share_bytes_need_the_barrier_between_them() -> None:
    text = """
program shares(x: float32[8]) -> (y: float32[8]):
  alloc s: float32[8] in "shared"
  alloc u: float32[9] in "shared"
  for t in 8, thread, "threadIdx.x":
    s[t] = x[t]
  for v in 8, thread, "threadIdx.x":
    y[v] = s[(7 + (v * -1))]
  for w in 8, thread, "threadIdx.x":
    u[w] = x[w]
  for z in 8, thread, "threadIdx.x":
    y[z] = (y[z] + u[(z + {})])
"""
    for step, apart, together in ((0, 1, 2), (1, 2, 3)):
        program = parse(text.format(step))
        offsets = places(program, SHARED)
        assert len(set(offsets.values())) == 1
        assert len(find_barriers(to_spmd(program, SCOPES))) == apart
        kernel = to_spmd(program, SCOPES, offsets)
        assert len(find_barriers(kernel)) == together
        for barrier in find_barriers(kernel):
            with pytest.raises(ScheduleError, match="race for"):
                check_races(without(kernel, barrier), offsets)


def test_narrower_phases_are_guarded() -> None:
    kernel = make_kernel(f'{phase("t", "y[0, t] = x[0, t]")}\nfor u in 3, thread, "threadIdx.x":\n  y[1, u] = x[1, u]')
    assert "if index(bool, (threadIdx_x < 3)):" in show(kernel) and not find_barriers(kernel)


def test_axes_have_the_extent_of_their_longest_loop() -> None:
    """Also where the extent differs from step to step, or is symbolic."""
    kernel = to_spmd(
        parse("""
program triangle(x: float32[n]) -> (y: float32[8, n]):
  size n: 1..16
  for k in 8:
    for t in (k + 1), thread, "threadIdx.y":
      for u in n, thread, "threadIdx.x":
        y[t, u] = x[u]
"""),
        SCOPES,
    )
    head, count = show(kernel).splitlines()[2:4], len(find_barriers(kernel))
    assert (
        head == ['  for threadIdx_y in 8, thread, "threadIdx.y":', '    for threadIdx_x in n, thread, "threadIdx.x":'] and not count
    )
    x = np.arange(5, dtype=np.float32)
    np.testing.assert_array_equal(run(kernel, [x])[0], np.tile(x, (8, 1)))


WHILE = """
program shift(x: int32[8]) -> (y: int32[8], steps: int32[]):
  alloc s: int32[2, 8] in "shared"
  steps[] = int32(0)
  for t in 8, thread, "threadIdx.x":
    s[0, t] = x[t]
  while (s[0, 0] < 3):
    let n = s[0, 0] in 0..7
    for u in 8, thread, "threadIdx.x":
      s[1, u] = s[0, ((u + n) % 8)]
    if (steps[] < 5):
      for v in 8, thread, "threadIdx.x":
        s[0, (7 + (v * -1))] = (s[1, v] + 1)
    steps[] = (steps[] + 1)
  for w in 8, thread, "threadIdx.x":
    y[w] = s[0, w]
"""


def test_control_by_data_is_the_same_for_all_threads() -> None:
    program = parse(WHILE)
    kernel = to_spmd(program, SCOPES)
    check_races(kernel)
    x = np.array([1, 2, 0, 1, 0, 2, 1, 0], np.int32)
    for seed in SEEDS:
        for left, right in zip(run(program, [x], seed=0), run(kernel, [x], seed=seed), strict=True):
            np.testing.assert_array_equal(left, right)
    for barrier in find_barriers(kernel):
        with pytest.raises(ScheduleError, match="race for"):
            check_races(without(kernel, barrier))


def refused(text: str, message: str) -> None:
    with pytest.raises(ScheduleError) as caught:
        to_spmd(parse(text), SCOPES)
    assert message in str(caught.value)


HEAD = "program f(x: float32[8]) -> (y: float32[8]):\n"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            '  alloc r: float32[4] in "local"\n  for t in 8, thread, "threadIdx.x":\n    r[(t % 4)] = x[t]\n'
            '  for u in 8, thread, "threadIdx.x":\n    y[u] = r[(u % 4)]\n',
            "each thread must use distinct elements, but threads of threadIdx.x share some",
        ),
        (
            '  alloc r: float32[9] in "local"\n  for t in 8, thread, "threadIdx.x":\n    r[t] = x[t]\n'
            '  for u in 8, thread, "threadIdx.x":\n    y[u] = r[u]\n    y[u] = r[0]\n',
            "buffer r: all accesses of a thread must be in one part of it",
        ),
        (
            '  alloc s: float32[8]\n  for t in 8, thread, "threadIdx.x":\n    s[t] = x[t]\n',
            "must be allocated outside the kernel; give it a scope that a block or a thread owns",
        ),
        ('  alloc s: float32[8] in "sram"\n  y[0] = x[0]\n', "buffer s: the target does not declare scope 'sram'"),
        (
            '  for t in 2, thread, "threadIdx.x":\n    for u in 4, thread, "threadIdx.x":\n      y[((t * 4) + u)] = x[u]\n',
            "loop u: expected an axis without an enclosing loop, found threadIdx.x",
        ),
        (
            '  for t in 8, thread, "threadIdx.x":\n    y[t] = x[t]\n  for b in 2, thread, "blockIdx.x":\n    y[b] = x[b]\n',
            "loop b over blockIdx.x must be around all statements of its kernel",
        ),
        (
            '  for t in 8, thread, "threadIdx.y":\n    for k in (t + 1):\n      for u in 8, thread, "threadIdx.x":\n'
            "        y[((u + t) % 8)] = x[k]\n",
            "expected all threads to reach a barrier, found it under conditions or loops that depend on threadIdx.y",
        ),
        (
            '  for k in 2, parallel:\n    for t in 4, thread, "threadIdx.x":\n      y[((k * 4) + t)] = x[t]\n',
            "loop k: expected a serial loop around thread loops, found parallel",
        ),
    ],
)
def test_what_is_no_kernel(text: str, message: str) -> None:
    refused(HEAD + text, message)


BARRIER = """
program meet(x: int32[4]) -> (y: int32[4]):
  alloc s: int32[4] in "shared"
  for t in 4, thread, "threadIdx.x":
    {0}
    {1}barrier
    y[t] = x[t]
"""


def test_barriers_have_a_text_and_a_place() -> None:
    verify(parse(BARRIER.format("s[t] = x[t]", "")))
    with pytest.raises(VerifyError, match="a barrier: expected one perfect nest of loops bound to threads"):
        verify(parse("program f() -> (y: int32[1]):\n  y[0] = int32(0)\n  barrier\n"))
    with pytest.raises(VerifyError, match="a barrier: expected serial loops around it, found loop k, which is vectorized"):
        verify(parse(BARRIER.format("for k in 4, vectorized:", "  ")))
    with pytest.raises(VerifyError, match="expected one perfect nest"):
        verify(parse(BARRIER.format('s[t] = x[t]\n    for u in 2, thread, "threadIdx.y":', "  ")))


def test_threads_that_wait_for_ever() -> None:
    divergent = parse(BARRIER.format("if index(bool, (t < 3)):", "  "))
    with pytest.raises(AssertionError, match="some threads wait at a barrier that others never reach"):
        run(divergent, [np.zeros(4, np.int32)])


def test_barriers_in_deep_loops() -> None:
    """Deeper than a function of the interpreter may nest."""
    loops = "".join(f"{'  ' * (k + 2)}for k{k} in {2 if k == 11 else 1}:\n" for k in range(12))
    indent = "  " * 14
    text = f"""
program deep(x: int32[4]) -> (y: int32[4]):
  alloc s: int32[4] in "shared"
  for t in 4, thread, "threadIdx.x":
{loops}{indent}s[t] = x[t]
{indent}barrier
{indent}y[t] = s[(3 + (t * -1))]
{indent}barrier
"""
    program = parse(text)
    check_races(program)
    x = np.arange(4, dtype=np.int32)
    np.testing.assert_array_equal(run(program, [x])[0], x[::-1])
