"""Convolutions in groups of few channels: what the schedule computes, and what it declines."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from inlaid import ops
from inlaid.graph import ir as graph
from inlaid.lowering.kernels.finish import finish
from inlaid.lowering.kernels.kernel import KernelSource, build
from inlaid.plugins import Capabilities
from inlaid.schedules.default import SHARED_TRANSFORMS
from inlaid.schedules.groups import GroupsRule
from inlaid.tensor import interp, ir
from inlaid.tensor.schedule import Schedule, replay
from inlaid.tensor.scheduling.rule import InputInfo, KernelContext, Offer
from inlaid_runtime import arith
from inlaid_runtime.arith import SizeVar
from inlaid_runtime.types import ROW_MAJOR, TensorType

RULE = GroupsRule()


def convolved(
    shape: tuple[Any, ...], window: tuple[int, ...], outputs: int, after: bool, dtype: str, inputs: int = 1, **attrs: Any
) -> ir.LoopProgram:
    """A kernel with `inputs` data channels and `outputs` result channels per group."""
    groups, rank = shape[1] // inputs, len(window)
    x = graph.var("x", TensorType(shape, dtype))
    w = graph.var("w", TensorType((groups * outputs, inputs, *window), dtype))
    total = "int32" if dtype == "int8" else dtype
    y = ops.conv(x, w, groups=groups, out_dtype=total, **attrs)
    params = [x, w]
    if after:
        params.append(graph.var("b", TensorType((groups * outputs, *(1,) * rank), total)))
        y = ops.maximum(ops.add(y, params[-1]), graph.constant(np.zeros((), total)))
    return build(KernelSource("kernel", tuple(params), y))


def offered(program: ir.LoopProgram, bits: int = 256, threads: int = 1, stack_bytes: int = 1 << 16) -> Offer | None:
    dtypes = ("float32", "int8", "int32")
    capabilities = Capabilities(
        dtypes=dtypes, vector_bits=bits, vector_registers=16, masks=bits >= 256, thread_stack_bytes=stack_bytes
    )
    return RULE.offer(program, KernelContext(capabilities, threads), (InputInfo(ROW_MAJOR),) * len(program.inputs))


def check(program: ir.LoopProgram, offer: Offer, sizes: dict[Any, int]) -> None:
    """Compare the scheduled kernel with the unscheduled one on small integers, for which sums are exact."""
    scheduled = finish(offer.schedule(program))
    generator = np.random.default_rng(5)
    shapes = [[arith.evaluate(arith.wrap(dim), sizes) for dim in buffer.shape] for buffer in program.inputs]
    arrays = [generator.integers(-4, 5, shape).astype(item.dtype.numpy) for shape, item in zip(shapes, program.inputs, strict=True)]
    np.testing.assert_array_equal(interp.run(scheduled, arrays, sizes)[0], interp.run(program, arrays, sizes)[0])


AXIS = st.tuples(st.integers(1, 4), st.integers(1, 3), st.integers(1, 2), st.integers(0, 2), st.integers(0, 2), st.integers(0, 9))
"""Window, stride, dilation, pad before and after, and elements beyond the window's extent."""


@settings(max_examples=40, deadline=None)
@given(
    st.lists(AXIS, min_size=1, max_size=2), st.integers(1, 2), st.integers(2, 3), st.integers(1, 3),
    st.sampled_from([1, 2, 3, 4, 6, 9]), st.booleans(), st.booleans(), st.sampled_from(["float32", "int8"]),
    st.sampled_from([1, 2]),
)  # fmt: skip
def test_every_window_computes_the_same(
    axes: list[tuple[int, ...]],
    n: int,
    groups: int,
    inputs: int,
    outputs: int,
    after: bool,
    symbolic: bool,
    dtype: str,
    threads: int,
) -> None:
    window, strides, dilations, before, end, more = zip(*axes, strict=True)
    image = tuple((size - 1) * dilation + 1 + extra for size, dilation, extra in zip(window, dilations, more, strict=True))
    names = [SizeVar("n"), *(SizeVar(f"s{number}", least) for number, least in enumerate(image))]
    shape = (names[0], groups * inputs, *names[1:]) if symbolic else (n, groups * inputs, *image)
    steps = {"strides": strides, "dilations": dilations, "pads": (*before, *end)}
    program = convolved(shape, window, outputs, after, dtype, inputs, **steps)
    offer = offered(program, threads=threads)
    if offer is None:
        assert all(size == 1 for size in program.outputs[0].shape[2:]) or (inputs > 1 and set(window) == {1})
        return
    check(program, offer, dict(zip(names, (n, *image), strict=True)) if symbolic else {})


@pytest.mark.parametrize("image", [(5, 4, 6), (1, 1, 1)])
def test_solids(image: tuple[int, ...]) -> None:
    program = convolved((1, 2, *image), (1, 2, 3) if image[0] > 1 else (1, 1, 1), 2, True, "float32", pads=(0, 1, 1, 1, 0, 1))
    offer = offered(program)
    assert offer is not None
    check(program, offer, {})


@pytest.mark.parametrize("inputs", [1, 2])
@pytest.mark.parametrize(("size", "stack_bytes"), [(17, 1 << 16), (90, 1 << 16), (17, 64)])
def test_threads_share_groups_and_the_trace_replays(size: int, stack_bytes: int, inputs: int) -> None:
    """A stack of 64 bytes holds no lines, so that these are computed in parallel loops before."""
    program = convolved((2, 3 * inputs, 9, size), (2, 2), 4, True, "float32", inputs, pads=(1, 1, 1, 1))
    offer = offered(program, threads=2, stack_bytes=stack_bytes)
    assert offer is not None
    check(program, offer, {})
    schedule = offer.schedule.make()  # type: ignore[attr-defined]
    assert isinstance(schedule, Schedule)
    assert any(isinstance(stmt, ir.For) and stmt.kind is ir.ForKind.PARALLEL for stmt in ir.walk_stmts(schedule.program.body))
    again = replay(program, str(schedule.trace), transforms=SHARED_TRANSFORMS)
    assert str(again) == str(schedule)


def test_other_kernels_are_declined() -> None:
    x, w = graph.var("x", TensorType((1, 4, 8, 8), "float32")), graph.var("w", TensorType((8, 4, 3, 3), "float32"))
    assert offered(build(KernelSource("kernel", (x, w), ops.conv(x, w)))) is None  # a single group
    assert offered(convolved((1, 4, 8, 8), (1, 1), 2, False, "float32", 2)) is None  # matrix products
    assert offered(convolved((1, 2, 8, 8), (3, 3), 2, False, "float32"), bits=128) is None  # no masks
    assert offered(build(KernelSource("kernel", (x,), ops.relu(x)))) is None
