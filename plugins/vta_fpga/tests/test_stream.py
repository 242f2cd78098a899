"""Scheduled loop programs as streams: results equal the interpreter's, and the checker finds nothing."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from inlaid.tensor import ir
from inlaid_vta_fpga.checker import Violation, check
from inlaid_vta_fpga.compiler.stream import Stream
from inlaid_vta_fpga.isa.config import Config
from inlaid_vta_fpga.isa.instructions import Load, Module

from .scheduled import Array, Region, Shape, Tiling, convolution, scheduled, static_shape


def arrays(region: Region, inputs: range, seed: int = 0) -> dict[int, Array]:
    """Random int8 of the numbered arrays."""
    random = np.random.default_rng(seed)
    shapes = {n: static_shape(b) for program, numbers in region.calls for b, n in zip(program.params, numbers, strict=True)}
    return {n: random.integers(-8, 8, shapes[n]).astype(np.int8) for n in inputs}


def violations(region: Region, stream: Stream) -> list[Violation]:
    return check(stream.instructions, region.image(stream, {})[0], region.config, stream.sources)


@st.composite
def convolutions(draw: st.DrawFn) -> tuple[Shape, Tiling]:
    kernel = draw(st.sampled_from([1, 3]))
    shape = Shape(
        ci=draw(st.integers(2, 4)),
        co=draw(st.integers(2, 4)),
        side=draw(st.integers(4, 8)),
        kernel=kernel,
        stride=draw(st.integers(1, 2)),
        pad=draw(st.integers(0, 1)) if kernel == 3 else 0,
    )
    tiles = [
        draw(st.sampled_from([n for n in range(1, extent + 1) if extent % n == 0])) for extent in (shape.co, shape.out, shape.ci)
    ]
    threads = draw(st.integers(1, 2))
    assume(shape.out > 1 and shape.co % (tiles[0] * threads) == 0 and tiles[2] < shape.ci)
    return shape, Tiling(*tiles, threads)


@settings(deadline=None, max_examples=40)
@given(convolutions(), st.integers(1, 3), st.booleans())
def test_convolutions_equal_the_interpreter(case: tuple[Shape, Tiling], slots: int, serial: bool) -> None:
    shape, tiling = case
    region = Region([(scheduled(shape, tiling), (0, 1, 2))])
    stream = region.lower(slots=slots, serial=serial)
    assert violations(region, stream) == []
    inputs = arrays(region, range(2))
    expected = region.expected(inputs, [convolution(shape)])
    np.testing.assert_array_equal(region.run(stream, inputs)[2], expected[2])


@pytest.mark.parametrize(
    "config",
    [
        Config(log_uop_buff=7),
        Config(log_inp_buff=11, log_wgt_buff=14, log_acc_buff=13),
        Config(log_block=3, log_uop_buff=8, log_inp_buff=13, log_wgt_buff=12, log_acc_buff=15),
        Config(log_block=5),
    ],
)
def test_other_cores(config: Config) -> None:
    """Small buffers, where micro-ops are evicted and tiles have one place, and other blocks."""
    shape = Shape(2, 4, 6, lanes=config.block)
    region = Region([(scheduled(shape, Tiling(2, 3)), (0, 1, 2)), (scheduled(shape, Tiling(1, 2, 1, 2)), (0, 1, 3))], config)
    stream = region.lower()
    assert violations(region, stream) == []
    inputs = arrays(region, range(2))
    expected = region.expected(inputs, [convolution(shape)] * 2)
    actual = region.run(stream, inputs)
    for number in (2, 3):
        np.testing.assert_array_equal(actual[number], expected[number])


def two_layers() -> tuple[Region, list[ir.LoopProgram]]:
    first, second = Shape(2, 4, 8), Shape(4, 2, 8, 3, 2)
    programs = [scheduled(first, Tiling(2, 2)), scheduled(second, Tiling(1, 2, 2, 2))]
    return Region([(programs[0], (0, 1, 2)), (programs[1], (2, 3, 4))]), [convolution(first), convolution(second)]


@pytest.mark.parametrize("serial", [False, True])
def test_layers_pass_activations_through_dram(serial: bool) -> None:
    """Loads of the second layer wait for stores of the first, through compute."""
    region, semantics = two_layers()
    stream = region.lower(serial=serial)
    assert violations(region, stream) == []
    inputs = arrays(region, range(2)) | {3: arrays(region, range(3, 4), 1)[3]}
    np.testing.assert_array_equal(region.run(stream, inputs)[4], region.expected(inputs, semantics)[4])
    assert stream.sources[0] == "layer0" and stream.sources[-1] == "layer1"


def test_weights_of_the_next_layer_load_before_the_last_store() -> None:
    """No drain between layers: a load of weights needs no token of the compute tasks that come last before it."""
    region, _ = two_layers()
    stream = region.lower()
    border = stream.sources.index("layer1")
    weights = next(n for n in range(border, len(stream.sources)) if _is_load_of_weights(stream, n))
    assert not stream.instructions[weights].flags.pop_next


def _is_load_of_weights(stream: Stream, number: int) -> bool:
    instruction = stream.instructions[number]
    return isinstance(instruction, Load) and instruction.memory.name == "WGT"


QUEUES = (
    (Module.LOAD, "push_next", Module.COMPUTE, "pop_prev"),
    (Module.COMPUTE, "push_prev", Module.LOAD, "pop_next"),
    (Module.COMPUTE, "push_next", Module.STORE, "pop_prev"),
    (Module.STORE, "push_prev", Module.COMPUTE, "pop_next"),
)


def test_tokens_are_needed() -> None:
    """Without any one token, its push and its pop, the checker finds a race; a relay may pass what another token implies."""
    region, _ = two_layers()
    stream = region.lower()
    rule_counts: Counter[str] = Counter()
    for pushes, push, pops, pop in QUEUES:
        ends = [
            [n for n, item in enumerate(stream.instructions) if item.module is module and getattr(item.flags, flag)]
            for module, flag in ((pushes, push), (pops, pop))
        ]
        for pushed, popped in zip(*ends, strict=True):
            changed = list(stream.instructions)
            for number, flag in ((pushed, push), (popped, pop)):
                item = changed[number]
                changed[number] = replace(item, flags=replace(item.flags, **{flag: False}))
            broken = violations(region, replace(stream, instructions=tuple(changed)))
            rule_counts[broken[0].rule.value if broken else "nothing"] += 1
    assert set(rule_counts) <= {"race", "before-finish", "nothing"}
    assert rule_counts["race"] > 50
    assert rule_counts["nothing"] <= 2


def test_the_last_stores_overlap_with_operations() -> None:
    """The last tile's operations and stores come in chunks; results stay what they are."""
    shape, tiling = Shape(2, 2, 8), Tiling(2, 8)
    region = Region([(scheduled(shape, tiling), (0, 1, 2))])
    stream = region.lower()
    kinds = "".join(type(item).__name__[0] for item in stream.instructions)
    assert kinds.endswith(("AAASAAASAAASLF", "AAASSAAASSLF")), kinds
    inputs = arrays(region, range(2))
    np.testing.assert_array_equal(region.run(stream, inputs)[2], region.expected(inputs, [convolution(shape)])[2])
