"""Scratch buffers of steps, in the arena and in memory scopes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import combinations
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from inlaid import ops
from inlaid.graph import ir
from inlaid.lowering.steps import Step, StepProgram, convert_to_steps
from inlaid.plugins import MemoryScope, OpRule, Scratch
from inlaid_runtime import arith
from inlaid_runtime.arith import SizeVar
from inlaid_runtime.artifact import ALIGNMENT
from inlaid_runtime.errors import PluginError, Unsupported
from inlaid_runtime.types import TensorType

SRAM = MemoryScope("sram", "device", 1000, alignment=32)
TILES = MemoryScope("tiles", "device", 1024, count=8)
N = SizeVar("n", 1, 9)
M = SizeVar("m", 1)


def make_program(
    body: ir.Expr, scratch: Callable[[Step], Sequence[Scratch]], scopes: Sequence[MemoryScope] = (SRAM, TILES)
) -> StepProgram:
    params = [expr for expr in ir.post_order(body) if isinstance(expr, ir.Var)]
    return convert_to_steps("region0", ir.function(params, ir.tuple_([body])), [OpRule("*")], scratch=scratch, scopes=scopes)


def chain(length: int, *shape: Any) -> ir.Expr:
    """Each step reads the two steps before it."""
    before: ir.Expr = ir.var("x", TensorType(shape, "float32"))
    value = ops.relu(before, span=ir.Span("m", "node0"))
    for number in range(1, length):
        before, value = value, ops.add(before, value, span=ir.Span("m", f"node{number}"))
    return value


def lives(program: StepProgram, scratch: Sequence[Sequence[Scratch]]) -> dict[int, tuple[int, int]]:
    """The first and the last step in which each buffer of the region's own is in use."""
    intervals: dict[int, tuple[int, int]] = {}
    for number, step in enumerate(program.steps):
        for buffer in (*step.inputs, *step.outputs):
            intervals[buffer] = intervals.get(buffer, (number,))[0], number
        for buffer, item in zip(step.scratch, scratch[number], strict=True):
            intervals[buffer] = max(number - item.early, 0), number
    return {buffer: life for buffer, life in intervals.items() if program.buffers[buffer].storage in ("arena", "scope")}


buffers = st.builds(Scratch, st.integers(0, 120), st.sampled_from(["", "sram"]), st.integers(0, 3))


@settings(max_examples=60, deadline=None)
@given(st.lists(st.lists(buffers, max_size=2), min_size=1, max_size=7))
def test_buffers_in_use_at_once_share_no_byte(scratch: list[list[Scratch]]) -> None:
    program = make_program(chain(len(scratch), 5, 7), lambda step: scratch[int(step.nodes[0].removeprefix("node"))])
    alive = lives(program, scratch)
    for number in alive:
        buffer = program.buffers[number]
        begin, size = arith.evaluate(buffer.offset, {}), arith.evaluate(arith.product(buffer.shape), {}) * buffer.dtype.bytes
        in_scope = buffer.storage == "scope"
        assert begin % (SRAM.alignment if in_scope else ALIGNMENT) == 0
        assert begin + size <= (program.scopes["sram"] if in_scope else arith.evaluate(program.workspace, {}))
    assert program.scopes.get("sram", 0) <= SRAM.capacity
    for one, other in combinations(alive, 2):
        a, b = program.buffers[one], program.buffers[other]
        if a.storage == b.storage and alive[one][0] <= alive[other][1] and alive[other][0] <= alive[one][1]:
            ends = [
                arith.evaluate(each.offset, {}) + arith.evaluate(arith.product(each.shape), {}) * each.dtype.bytes
                for each in (a, b)
            ]
            assert ends[0] <= arith.evaluate(b.offset, {}) or ends[1] <= arith.evaluate(a.offset, {})


def test_scratch_shares_memory_over_time() -> None:
    """Two tiles of a double buffer are disjoint; those of the next step use the same bytes, unless they are in use already."""
    program = make_program(chain(3, 4), lambda step: [Scratch(400, "sram")] * 2)
    offsets = [[program.buffers[number].offset for number in step.scratch] for step in program.steps]
    assert offsets == [[0, 416]] * 3 and program.scopes == {"sram": 816}
    early = make_program(chain(3, 4), lambda step: [Scratch(400, "sram", early=1)])
    first, second, third = (early.buffers[number].offset for step in early.steps for number in step.scratch)
    assert first == third != second


def test_symbolic_sizes() -> None:
    """The arena has scratch of symbolic sizes; a scope plans for the upper bound."""
    program = make_program(chain(2, N, 16), lambda step: [Scratch(N * 64), Scratch(N * 100, "sram")])
    assert arith.evaluate(program.workspace, {N: 3}) == 3 * 64 * 2  # one value between steps, and the scratch of a step
    assert program.scopes == {"sram": 900} and program.buffers[program.steps[0].scratch[0]].shape == (N * 64,)


@pytest.mark.parametrize(
    ("scratch", "error", "message"),
    [
        (Scratch(600, "sram"), Unsupported, "at most 1000 bytes in scope 'sram', got 1208: step 1 needs buffers of 600, 600 bytes"),
        (Scratch(N * 63, "sram"), Unsupported, "step 1 needs buffers of 567, 567 bytes"),
        (Scratch(M, "sram"), Unsupported, "must have a size with an upper bound, got m"),
        (Scratch(8, "dram"), PluginError, r"a scope that the target declares \('sram', 'tiles'\), got 'dram'"),
        (Scratch(8, "tiles"), PluginError, "'tiles' consists of registers"),
        (Scratch(SizeVar("k", 1)), PluginError, "a size over the dimensions of the region, got k"),
        (Scratch(-8), PluginError, "a size of at least 0 bytes, got -8"),
        (Scratch(N - 2), PluginError, "a size of at least 0 bytes"),
        (Scratch(8, early=-1), PluginError, "early >= 0, got -1"),
        (Scratch(np.int64(8)), PluginError, "an integer or a dimension as size"),  # type: ignore[arg-type]
    ],
)
def test_what_cannot_be_planned(scratch: Scratch, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message) as caught:
        make_program(chain(3, N, M), lambda step: [scratch] * (2 if step.nodes == ("node1",) else 1))
    assert "node" in str(caught.value) and ("relu" in str(caught.value) or "add" in str(caught.value))
