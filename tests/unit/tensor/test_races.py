"""The verifier finds races and divergent barriers, and no others: it is held to a detector that runs every thread."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from inlaid.tensor import ir
from inlaid.tensor.analysis.memory_scopes import places
from inlaid.tensor.analysis.races import Races, check_races
from inlaid.tensor.parse import parse
from inlaid.tensor.transform.barriers import to_spmd
from inlaid.tensor.transform.rewrite import Rewriter
from inlaid_runtime import arith
from inlaid_runtime.errors import ScheduleError

from .fork_join import NAMED, SCOPES, SHARED, find_barriers, named_case, programs, races, without

CHANGES = (
    ("off by one", lambda index, threads: index + 1),
    ("other thread", lambda index, threads: arith.substitute(index, threads)),
    ("two threads", lambda index, threads: index // 2),
)
MATMUL_SIZE = {arith.SizeVar("n"): 11}


def mutants(program: ir.LoopProgram) -> Iterator[tuple[str, ir.LoopProgram]]:
    """The program with a barrier or a guard dropped, or an index into shared memory changed: by one, to that of another thread, or
    to one that two threads have."""
    for barrier in find_barriers(program):
        yield "barrier", without(program, barrier)
    threads = {
        loop.var: loop.extent - 1 - loop.var for loop in ir.walk_stmts(program.body) if isinstance(loop, ir.For) and loop.thread
    }
    for stmt in ir.walk_stmts(program.body):
        if isinstance(stmt, ir.If):
            yield "guard", _changed(program, stmt, stmt.then)
        if isinstance(stmt, ir.Store):
            loads = [node for node in ir.walk_exprs(stmt.value) if isinstance(node, ir.Load) and node.buffer.scope == "shared"]
            for what, change in CHANGES:
                for axis, index in enumerate(stmt.indices if stmt.buffer.scope == "shared" else ()):
                    indices = (*stmt.indices[:axis], change(index, threads), *stmt.indices[axis + 1 :])
                    yield what, _changed(program, stmt, replace(stmt, indices=indices))
                for load in loads:
                    for axis, index in enumerate(load.indices):
                        indices = (*load.indices[:axis], change(index, threads), *load.indices[axis + 1 :])
                        yield what, _changed(program, stmt, replace(stmt, value=_reloaded(stmt.value, load, indices)))


def _reloaded(value: ir.Expr, load: ir.Load, indices: tuple[arith.Expr, ...]) -> ir.Expr:
    return Rewriter(expr=lambda node: replace(load, indices=indices) if node is load else None).expr(value)


def _changed(program: ir.LoopProgram, old: ir.Stmt, new: ir.Stmt) -> ir.LoopProgram:
    def visit(stmt: ir.Stmt) -> ir.Stmt:
        match stmt:
            case _ if stmt is old:
                return new
            case ir.For(body=body) | ir.Alloc(body=body):
                return replace(stmt, body=visit(body))
            case ir.If(then=then):
                return replace(stmt, then=visit(then))
            case ir.Seq(stmts=stmts):
                return ir.Seq(tuple(map(visit, stmts)))
        return stmt

    return replace(program, body=visit(program.body))


@pytest.mark.parametrize(("name", "race_count"), [("matmul", 3), ("tree", 25), ("stages", 8), ("conv", 2), ("transpose", 3)])
def test_mutants(name: str, race_count: int) -> None:
    """All that race are found, and none besides, unless the verifier says that it cannot prove it."""
    program, *_ = named_case(name)
    offsets = places(program, SHARED)
    count = 0
    for what, mutant in mutants(to_spmd(program, SCOPES, offsets)):
        racy = races(mutant, offsets, MATMUL_SIZE)
        hazards = Races(mutant, offsets).hazards()
        assert bool(hazards) >= racy, what
        assert racy or all("cannot prove" in problem.text for problem in hazards), what
        count += racy
    assert count == race_count


@settings(deadline=None, max_examples=25)
@given(programs(), st.data())
def test_random_mutants(program: ir.LoopProgram, data: st.DataObject) -> None:
    offsets = places(program, SHARED)
    kernel = to_spmd(program, SCOPES, offsets)
    every = [mutant for _, mutant in mutants(kernel)]
    if every:
        mutant = data.draw(st.sampled_from(every))
        hazards = Races(mutant, offsets).hazards()
        racy = races(mutant, offsets)
        assert bool(hazards) >= racy
        assert racy or all("cannot prove" in problem.text for problem in hazards)


def refused(text: str, *messages: str) -> None:
    with pytest.raises(ScheduleError) as caught:
        check_races(parse(text))
    for message in messages:
        assert message in str(caught.value)


ROTATE = """
program rotate(x: float32[8, 32], n: int64[]) -> (y: float32[8, 32]):
  for b in 2, thread, "blockIdx.x":
    alloc s: float32[2, 32] in "shared"
    for t in 32, thread, "threadIdx.x":
      for k in 4:
        s[{stage}, {write}] = x[((b * 4) + k), t]
        barrier
        y[((b * 4) + k), t] = s[{stage}, ((t + 1) % 32)]
"""


def rotate(stage: str = "(k % 2)", write: str = "t") -> str:
    return ROTATE.format(stage=stage, write=write)


def test_an_error_tells_all() -> None:
    check_races(parse(rotate()))
    refused(
        rotate("0"),
        "rotate: threads (threadIdx.x=31) and (threadIdx.x=0) race for s: `y[((b * 4) + k), t] = s[0, ((t + 1) % 32)]` (read) and "
        "`s[0, t] = x[((b * 4) + k), t]` (write), carried by loop k; put a barrier between them, or change an index",
        "        s[0, t] = x[((b * 4) + k), t]\n        #^^^^^^^^^^",
    )
    refused(
        rotate(write="(t // 2)"),
        "threads (threadIdx.x=0) and (threadIdx.x=1) race for s:",
        "; give each thread elements of its own",
    )


def test_stages_of_symbolic_loops() -> None:
    """Whether two iterations use one stage is decided modulo the number of stages."""
    text = rotate().replace("n: int64[]) ->", "z: float32[m]) ->").replace("in 4:", "in m:").replace("(b * 4) + k", "k % 8")
    text = text.replace("  for b", "  size m: 1..\n  for b", 1)
    check_races(parse(text))
    check_races(parse(text.replace("k % 2", "k % 3").replace("[2, 32]", "[3, 32]")))
    refused(text.replace("s[(k % 2), t]", "s[((k + 1) % 2), t]"), "race for s", "(write), carried by loop k")


def test_blocks_do_not_meet() -> None:
    """Every block has its own shared memory, and threads of different blocks meet at no barrier."""
    check_races(parse(rotate().replace("y[((b * 4) + k), t]", "y[k, t]")))


DIVERGENT = [
    ("if index(bool, (t < 4)):\n          barrier", "depend on t"),
    ("for j in (t + 1):\n          barrier", "depend on t"),
    ("while (x[0, t] < 2.0):\n          barrier", "depend on t"),
    ("let m = cast(int64, x[0, t]) in 0..4:\n          for j in m:\n            barrier", "depend on m"),
    ("alloc r: bool[1]:\n          r[0] = bool(true)\n          if r[0]:\n            barrier", "depend on data of its own"),
]


@pytest.mark.parametrize(("barrier", "message"), DIVERGENT)
def test_divergent_barriers(barrier: str, message: str) -> None:
    refused(rotate().replace("barrier", barrier), "expected all threads to reach a barrier, found it under", message)


@pytest.mark.parametrize(
    "barrier",
    [
        "if (n[] < 2):\n          {}\n        else:\n          {}",
        "let m = n[] in 1..4:\n          if index(bool, (m < k)):\n            {}\n          else:\n            {}",
    ],
)
def test_control_that_all_threads_share(barrier: str) -> None:
    check_races(parse(rotate().replace("barrier", barrier.format("barrier", "barrier"))))
    refused(
        rotate().replace("barrier", barrier.partition("\n        else")[0].partition("\n          else")[0].format("barrier")),
        "race for s",
    )


WHILE = """
program turns(x: int32[8]) -> (y: int32[8]):
  alloc s: int32[32] in "shared"
  alloc n: int32[] in "shared"
  for t in 8, thread, "threadIdx.x":
    if index(bool, (t == 0)):
      n[] = int32(0)
    barrier
    while (n[] < 3):
      let place = n[] in 0..3
      s[((place * {0}) + t)] = x[t]
      barrier
      y[t] = s[((place * {0}) + ((t + 1) % 8))]
      if index(bool, (t == 0)):
        n[] = (n[] + 1)
      barrier
"""


def test_what_data_says_differs_from_turn_to_turn() -> None:
    """A value read again may be another: elements of two turns are apart if they are for all values of the index."""
    check_races(parse(WHILE.format(8)))
    last = "        n[] = (n[] + 1)\n      barrier\n"
    refused(
        WHILE.format(8).replace(last, "        n[] = (n[] + 1)\n"),
        "race for n: `n[] = (n[] + 1)` (write) and `while (n[] < 3):` (read)",
    )
    unordered = WHILE.format(4).replace(f"      if index(bool, (t == 0)):\n{last}", "")
    refused(unordered, "cannot prove that no two threads race for s", "carried by loop while")


def test_collective_intrinsics() -> None:
    """All threads reach them; what they touch, they touch for their whole group."""
    text = """
program collects(x: float32[64]) -> (y: float32[64]):
  alloc s: float32[64] in "shared"
  for w in 2, thread, "threadIdx.y":
    for t in 32, thread, "threadIdx.x":
      s[((w * 32) + t)] = x[((w * 32) + t)]
      barrier
      intrinsic "sum" over "threadIdx.x" on update s[(w * 32) +: 32]
      barrier
      y[((w * 32) + t)] = s[((w * 32) + t)]
"""
    check_races(parse(text))
    guard = 'if index(bool, ({} < 1)):\n        intrinsic "sum"'
    check_races(parse(text.replace('intrinsic "sum"', guard.format("w"))))
    refused(text.replace('intrinsic "sum"', guard.format("t")), "expected all threads to reach collective intrinsic sum")
    for barrier in find_barriers(parse(text)):
        assert barrier is not None
    refused(text.replace("barrier\n      intrinsic", "intrinsic"), "race for s")
    refused(text.replace("      barrier\n      y", "      y"), "race for s")
    refused(text.replace("s[(w * 32) +: 32]", "s[0 +: 32]"), "race for s")


@pytest.mark.parametrize(
    ("text", "doubt"),
    [
        (rotate(write="checked(n[], 0, 31)"), "is not affine in the threads alone"),
        (rotate().replace("s[(k % 2), t] =", "if (n[] < 2):\n          s[(k % 2), (t // 2)] ="), "this depends on data"),
        (
            rotate()
            .replace("t in 32", "t in m")
            .replace("n: int64[]", "z: float32[m]")
            .replace("  for b", "  size m: 1..\n  for b", 1)
            .replace("s[(k % 2), t] =", "s[(k % 2), (t // 2)] ="),
            "",
        ),
    ],
)
def test_what_cannot_be_proved(text: str, doubt: str) -> None:
    refused(text, "cannot prove that no two threads race for s" if doubt else "the number of threads has no constant bound", doubt)


def test_own_elements_need_no_bound() -> None:
    """A fused and split nest of symbolic sizes."""
    check_races(
        parse("""
program fused(x: float32[n, m]) -> (y: float32[n, m]):
  size n: 1..
  size m: 1..
  for b in (((n * m) + 255) // 256), thread, "blockIdx.x":
    for t in 256, thread, "threadIdx.x":
      if index(bool, (((b * 256) + t) < (n * m))):
        y[(((b * 256) + t) // m), (((b * 256) + t) % m)] = x[(((b * 256) + t) // m), (((b * 256) + t) % m)]
""")
    )


def test_strided_loops_of_any_length() -> None:
    """Elements that differ modulo the stride differ."""
    text = """
program strided(x: float32[n]) -> (y: float32[n]):
  size n: 1..
  for t in 32, thread, "threadIdx.x":
    for j in ((n + 31) // 32):
      if index(bool, (((j * 32) + t) < n)):
        y[((j * 32) + t)] = x[((j * 32) + t)]
    for i in ((n + 31) // 32):
      if index(bool, (((i * 32) + t) < n)):
        y[((i * 32) + t)] = (y[((i * {}) + t)] * 2.0)
"""
    check_races(parse(text.format(32)))
    refused(text.format(16), "cannot prove that no two threads race for y")


def test_threads_stand_in_one_nest() -> None:
    text = rotate().replace(
        "        barrier\n", '        for u in 2, thread, "threadIdx.y":\n          y[((b * 4) + k), t] = float32(0.0)\n'
    )
    refused(text, "expected one perfect nest of loops over threads, found loop u inside")


def test_all_named_programs_are_clean() -> None:
    for name in NAMED:
        program, *_ = named_case(name)
        check_races(program, places(program, SHARED))
