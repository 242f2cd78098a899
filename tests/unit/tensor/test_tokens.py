"""Dependence tokens between stages: the pass that makes them, the check that finds what is wrong, and every legal order."""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable
from dataclasses import replace

import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import given, settings

from inlaid.tensor import ir
from inlaid.tensor.analysis.stages import Stage
from inlaid.tensor.analysis.tokens import check_tokens
from inlaid.tensor.interp import run
from inlaid.tensor.parse import parse
from inlaid.tensor.primitives import TensorIntrin
from inlaid.tensor.text import show
from inlaid.tensor.transform.rewrite import Rewriter
from inlaid.tensor.transform.tokens import insert_tokens
from inlaid.tensor.transform.vthread import lower_vthreads
from inlaid_runtime.errors import VerifyError
from inlaid_runtime.types import MemoryScope

STAGES = (Stage("load", ("inp", "wgt")), Stage("compute", ("acc",)), Stage("store", ("",)))
SEEDS = range(6)

TILES = """
program tiles(x: int32[4, 3, 2]) -> (y: int32[4, 2]):
  for i in 2:
    for t in 2, vthread:
      alloc inp: int32[2] in "inp"
      alloc acc: int32[2] in "acc"
      for j in 2:
        acc[j] = int32(0)
      for k in 3, "tasks" = true:
        for j in 2:
          inp[j] = x[((i * 2) + t), k, j]
        for j in 2:
          acc[j] = (acc[j] + (inp[j] * 2))
      for j in 2:
        y[((i * 2) + t), j] = acc[j]
"""
RING = """
program ring(x: int32[n, 2]) -> (y: int32[n, 2]):
  size n: 0..
  alloc inp: int32[2, 2] in "inp"
  for i in n:
    alloc acc: int32[2] in "acc"
    for j in 2:
      inp[(i % 2), j] = x[i, j]
    for j in 2:
      acc[j] = (inp[(i % 2), j] * 2)
    for j in 2:
      y[i, j] = acc[j]
"""


def staged(text: str) -> ir.LoopProgram:
    return insert_tokens(lower_vthreads(parse(text)), STAGES)


def make_inputs(program: ir.LoopProgram, n: int) -> list[np.ndarray]:
    random = np.random.default_rng(0)
    shapes = [tuple(dim if isinstance(dim, int) else n for dim in buffer.shape) for buffer in program.inputs]
    return [random.integers(-9, 9, shape).astype(np.int32) for shape in shapes]


def is_order_independent(program: ir.LoopProgram, plain: ir.LoopProgram, n: int = 5, seeds: range = SEEDS) -> bool:
    """Whether all orders that the tokens allow give what the program gives without stages."""
    arrays = make_inputs(plain, n)
    (expected,) = run(plain, arrays)
    return all(np.array_equal(run(program, arrays, seed=seed, stages=STAGES)[0], expected) for seed in seeds)


def token_names(program: ir.LoopProgram) -> list[str]:
    return [stmt.name for stmt in ir.walk_stmts(program.body) if isinstance(stmt, ir.Intrinsic)]


# --- what is made -----------------------------------------------------------------------------------------------------


def test_tokens_of_two_virtual_threads(golden: Callable[[str, str], None]) -> None:
    """Loads of one thread overlap products of the other: two tokens let the load stage run ahead."""
    program = staged(TILES)
    golden("tokens/virtual_threads.txt", f"{show(parse(TILES))}\n\n{show(program)}")
    assert show(parse(show(program))) == show(program)
    assert is_order_independent(program, lower_vthreads(parse(TILES)))


def test_rings_let_a_stage_run_as_far_ahead_as_they_hold() -> None:
    assert token_names(staged(RING))[:3] == ["push.compute.load", "push.compute.load", "push.store.compute"]
    single = staged(RING.replace("(i % 2)", "0"))
    assert token_names(single)[:2] == ["push.compute.load", "push.store.compute"]
    for n in range(5):
        assert is_order_independent(staged(RING), parse(RING), n)


def test_intrinsics_belong_to_the_stage_that_writes() -> None:
    """A load by an intrinsic waits as one by a loop does, by its marks of access."""
    copy = TensorIntrin("dma", parse("program dma(a: int32[2]) -> (c: int32[2]):\n  for j in 2:\n    c[j] = a[j]"))
    loop_text = "    for j in 2:\n      inp[(i % 2), j] = x[i, j]\n"
    call = '    intrinsic "dma" on read x[i +: 1, 0 +: 2], write inp[(i % 2) +: 1, 0 +: 2]\n'
    program = staged(RING.replace(loop_text, call))
    assert [name for name in token_names(program) if name != "dma"] == token_names(staged(RING))
    x = np.arange(10, dtype=np.int32).reshape(5, 2)
    for seed in SEEDS:
        np.testing.assert_array_equal(run(program, [x], intrinsics={"dma": copy.semantics}, seed=seed, stages=STAGES)[0], x * 2)


BYTES = """
program shared(x: int32[2, 2]) -> (y: int32[2]):
  alloc acc: int32[2] in "acc"
  alloc one: int32[2] in "inp"
  for j in 2:
    one[j] = x[0, j]
  for j in 2:
    acc[j] = one[j]
  alloc two: int32[2] in "inp"
  for j in 2:
    two[j] = x[1, j]
  for j in 2:
    acc[j] = (acc[j] + two[j])
  for j in 2:
    y[j] = acc[j]
"""


def test_buffers_that_share_bytes_count_as_one() -> None:
    """The second load overwrites the first, where one buffer takes the place of another."""
    small = MemoryScope("inp", "device", 64)
    assert "push.compute.load" not in token_names(insert_tokens(parse(BYTES), STAGES))
    program = insert_tokens(parse(BYTES), STAGES, (small,))
    assert "push.compute.load" in token_names(program)
    check_tokens(program, STAGES, (small,))
    with pytest.raises(VerifyError, match="load writes two without waiting until compute has read one"):
        check_tokens(insert_tokens(parse(BYTES), STAGES), STAGES, (small,))


def under(condition: str) -> ir.LoopProgram:
    """The ring with a condition around an iteration, which does the same on both sides."""
    lines = RING.splitlines()
    body = ["  " + line for line in lines[6:]]
    return parse("\n".join([*lines[:6], f"    if {condition}:", *body, "    else:", *body]))


@pytest.mark.parametrize("condition", ["index(bool, ((i * 2) < 3))", "index(bool, ((i * 2) < n))"])
def test_conditions_around_several_stages(condition: str) -> None:
    assert is_order_independent(insert_tokens(under(condition), STAGES), under(condition))


def test_order_that_data_decides_cannot_run() -> None:
    program = insert_tokens(under("(x[i, 0] < 0)"), STAGES)
    with pytest.raises(VerifyError, match="control around tasks must depend only on sizes, got data"):
        run(program, make_inputs(program, 2), stages=STAGES)


def test_sides_of_a_condition_push_alike() -> None:
    program = insert_tokens(under("index(bool, (i < 3))"), STAGES)
    side = next(stmt.otherwise for stmt in ir.walk_stmts(program.body) if isinstance(stmt, ir.If))
    assert side is not None
    first = next(stmt for stmt in ir.walk_stmts(side) if isinstance(stmt, ir.Intrinsic) and stmt.name.startswith("push"))
    with pytest.raises(VerifyError, match="in both branches"):
        check_tokens(changed(program, {first: ir.Seq((first, replace(first)))}), STAGES)


# --- what is refused --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("old", "new", "problem"),
    [
        ('in "inp"', 'in "sram"', "a stage must write the scope of inp, got scope 'sram'"),
        (
            "for i in n:",
            "for i in n, parallel:",
            "expected serial loops around tasks of several stages, found For",
        ),
        ("for i in n:", 'for i in n:\n    intrinsic "push.load.compute"', "expected serial loops"),
        ("for i in n:", 'for i in n:\n    intrinsic "nop"', "got nop"),
        ('alloc inp: int32[2, 2] in "inp"\n  for i in n:', 'for i in n:\n    alloc inp: int32[2, (i + 2)] in "inp"', "one size"),
        # Load waits for the store of the iteration before, and nothing in between orders them.
        ("= x[i, j]", "= y[0, j]", "load reads y without waiting until store has written y"),
    ],
)
def test_what_has_no_tokens(old: str, new: str, problem: str) -> None:
    assert old in RING
    with pytest.raises(VerifyError, match=re.escape(problem)):
        staged(RING.replace(old, new))


# --- mutations --------------------------------------------------------------------------------------------------------


def changed(program: ir.LoopProgram, new: dict[ir.Stmt, ir.Stmt]) -> ir.LoopProgram:
    return replace(program, body=Rewriter(stmt=lambda stmt: new.get(stmt)).stmt(program.body))


def statements(program: ir.LoopProgram) -> list[ir.Intrinsic]:
    return [stmt for stmt in ir.walk_stmts(program.body) if isinstance(stmt, ir.Intrinsic)]


@pytest.mark.parametrize("text", [TILES, RING, RING.replace("in n:", "in 4:")], ids=["tiles", "ring", "constant"])
def test_every_push_or_pop_more_or_less_is_found(text: str) -> None:
    program = staged(text)
    for token in statements(program):
        with pytest.raises(VerifyError, match=r"tokens? from"):
            check_tokens(changed(program, {token: ir.Seq(())}), STAGES)
        with pytest.raises(VerifyError, match=r"tokens? from"):
            check_tokens(changed(program, {token: ir.Seq((token, replace(token)))}), STAGES)


def test_dropped_tokens_are_found_and_show() -> None:
    """Without a queue of tokens the check fails, and so does some order; so do tokens that are pushed too early, or popped late."""
    plain = lower_vthreads(parse(TILES))
    program = staged(TILES)
    for queue in sorted({name.partition(".")[2] for name in token_names(program)}):
        dropped = changed(program, {item: ir.Seq(()) for item in statements(program) if item.name.partition(".")[2] == queue})
        with pytest.raises(VerifyError, match="without waiting until"):
            check_tokens(dropped, STAGES)
        assert not is_order_independent(dropped, plain)


@pytest.mark.parametrize("copies", [2, 6, 8])
def test_rings_of_any_length_are_overwritten_after_their_use(copies: int) -> None:
    program = staged(RING.replace("% 2)", f"% {copies})").replace("[2, 2]", f"[{copies}, 2]"))
    assert token_names(program)[: copies + 1] == ["push.compute.load"] * copies + ["push.store.compute"]
    dropped = {item: ir.Seq(()) for item in statements(program) if item.name.endswith("compute.load")}
    with pytest.raises(VerifyError, match="load writes inp without waiting until compute has read inp"):
        check_tokens(changed(program, dropped), STAGES)


@pytest.mark.parametrize("text", [TILES, RING], ids=["tiles", "ring"])
def test_swapped_statements_are_found_or_harmless(text: str) -> None:
    """Each token takes the place of a neighbor, and of each other token: most are found, and those that are not are right."""
    program, plain = staged(text), lower_vthreads(parse(text))
    tokens = statements(program)
    swapped = [changed(program, {a: replace(b), b: replace(a)}) for a, b in itertools.combinations(tokens, 2) if a.name != b.name]
    for seq in (stmt for stmt in ir.walk_stmts(program.body) if isinstance(stmt, ir.Seq)):
        for position, (a, b) in enumerate(itertools.pairwise(seq.stmts)):
            if not {a, b}.isdisjoint(tokens):
                swapped.append(changed(program, {seq: ir.Seq((*seq.stmts[:position], b, a, *seq.stmts[position + 2 :]))}))
    harmless = []
    for mutant in swapped:
        try:
            check_tokens(mutant, STAGES)
        except VerifyError:
            continue
        harmless.append(mutant)
        assert is_order_independent(mutant, plain), show(mutant)
    assert len(harmless) < len(swapped) / 4


def test_stages_that_wait_for_ever() -> None:
    program = staged(RING)
    first = statements(program)[0]
    stuck = changed(program, {first: ir.Seq(()), statements(program)[1]: ir.Seq(())})
    with pytest.raises(VerifyError, match="expected a token for load, found all stages waiting"):
        run(stuck, make_inputs(stuck, 3), stages=STAGES)


# --- random programs --------------------------------------------------------------------------------------------------


@st.composite
def programs(draw: st.DrawFn) -> str:
    """Tiles of sums over steps, with 1 to 3 virtual threads, rings of 1 to 3 copies, loads, stores and further loops in several
    places, and loads that are used behind a loop."""
    threads, steps, ring = (draw(st.integers(1, 3)) for _ in range(3))
    tiles, rounds = draw(st.sampled_from(["n", "1", "3"])), draw(st.sampled_from([str(steps), "n"]))
    slot = f"({draw(st.sampled_from(['k', f'((i * {steps}) + k)']))} % {ring})" if ring > 1 else "0"
    weights = draw(st.sampled_from(["", "program", "tile", "step"]))
    late, again, stores, limit = (draw(st.booleans()) for _ in range(4))
    marked = draw(st.sampled_from("kt-"))
    added = f"(inp[{slot}, j] + wgt[j])" if weights and not late else f"inp[{slot}, j]"
    load = f"wgt[j] = w[{'k' if weights == 'step' else '0'}, j]"

    def nest(indent: int, *statements: str, when: bool = True) -> list[str]:
        return ["  " * indent + "for j in 2:", *("  " * (indent + 1) + item for item in statements)] if when else []

    def mark(loop: str) -> str:
        return ', "tasks" = true:' if marked == loop else ":"

    loop = [
        f"      for k in {rounds}{mark('k')}",
        *nest(4, load, when=weights == "step"),
        *nest(4, f"inp[{slot}, j] = x[i, t, k, j]"),
        *nest(4, f"acc[j] = ((acc[j] * 3) + {added})"),
        *nest(4, "y[i, t, j] = acc[j]", when=not stores),
    ]
    return "\n".join(
        [
            f"program random(x: int32[3, {threads}, 3, 2], w: int32[3, 2], z: int32[n]) -> (y: int32[3, {threads}, 2]):",
            "  size n: 0..3",
            '  alloc wgt: int32[2] in "wgt"',
            *nest(1, load, when=weights == "program"),
            f"  for i in {tiles}:",
            f"    for t in {threads}, vthread{mark('t')}",
            f'      alloc inp: int32[{ring}, 2] in "inp"',
            '      alloc acc: int32[2] in "acc"',
            *nest(3, load, when=weights == "tile"),
            *nest(3, "acc[j] = int32(1)"),
            *loop,
            *nest(3, "acc[j] = (acc[j] + wgt[j])", when=late and weights in ("program", "tile")),
            *(loop if again else []),
            *nest(3, "acc[j] = max(acc[j], 0)", when=limit),
            *nest(3, "y[i, t, j] = acc[j]", when=stores),
        ]
    )


@settings(max_examples=30, deadline=None)
@given(programs(), st.integers(0, 3))
def test_any_order_of_random_programs_is_right(text: str, n: int) -> None:
    plain = lower_vthreads(parse(text))
    program = insert_tokens(plain, STAGES)
    assert is_order_independent(program, plain, n, range(4))
