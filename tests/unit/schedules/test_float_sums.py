"""Windows of bytes that are summed in float32, and data that is padded in bands of rows."""

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
from inlaid.schedules.float_sums import float_sums
from inlaid.schedules.window import WindowRule
from inlaid.tensor import interp, ir
from inlaid.tensor.primitives import SEMANTICS
from inlaid.tensor.scheduling.rule import InputInfo, KernelContext, Offer
from inlaid_runtime.types import ROW_MAJOR, TensorType, dtype

CHANNELS = 8


def depthwise(dtype_name: str, image: tuple[int, ...], window: tuple[int, ...], pad: int = 1, **attrs: Any) -> ir.LoopProgram:
    """A depthwise convolution of bytes with an epilogue, padded by its zero point."""
    x = graph.var("x", TensorType((1, CHANNELS, *image), dtype_name))
    w = graph.var("w", TensorType((CHANNELS, 1, *window), "int8"))
    b = graph.var("b", TensorType((CHANNELS, 1, 1), "int32"))
    around = (0, 0, pad, pad, 0, 0, pad, pad)
    padded = ops.pad(x, graph.constant(np.asarray(7, dtype_name)), pads=around) if pad else x
    y = ops.maximum(ops.add(ops.conv(padded, w, groups=CHANNELS, out_dtype="int32", **attrs), b), graph.constant(np.int32(-100)))
    return build(KernelSource("kernel", (x, w, b), y))


def offered(program: ir.LoopProgram, threads: int = 1, stack: int = 1 << 16) -> Offer:
    able = Capabilities(dtypes=("float32", "int8"), vector_bits=256, vector_registers=16, masks=True, thread_stack_bytes=stack)
    offers = WindowRule().offer(program, KernelContext(able, threads), (InputInfo(ROW_MAJOR),) * len(program.inputs))
    return offers[0]


def run(program: ir.LoopProgram, arrays: list[np.ndarray[Any, Any]]) -> np.ndarray[Any, Any]:
    return interp.run(program, arrays)[0]


def make_arrays(program: ir.LoopProgram, extreme: bool) -> list[np.ndarray[Any, Any]]:
    """Inputs of the whole range of their types, or of the numbers of largest magnitude alone."""
    generator = np.random.default_rng(3)
    arrays = []
    for buffer in program.inputs:
        low, high = buffer.dtype.limits if buffer.dtype.bits == 8 else (-5000, 5000)
        ends = [high if buffer.dtype.kind == "uint" else low]
        shape = tuple(int(dim) for dim in buffer.shape)  # type: ignore[arg-type]
        values = generator.choice(ends, shape) if extreme else generator.integers(low, high + 1, shape)
        arrays.append(values.astype(buffer.dtype.numpy))
    return arrays


@settings(max_examples=30, deadline=None)
@given(
    st.sampled_from(["int8", "uint8"]), st.tuples(st.integers(3, 12), st.integers(3, 9)), st.integers(1, 2),
    st.sampled_from([(3, 3), (2, 1), (3, 2)]), st.sampled_from([1, 2, 3, 0]), st.sampled_from([1 << 16, 2000, 200]), st.booleans(),
)  # fmt: skip
def test_sums_are_exact(
    dtype_name: str, image: tuple[int, ...], stride: int, window: tuple[int, ...], threads: int, stack: int, extreme: bool
) -> None:
    program = depthwise(dtype_name, image, window, strides=(stride, stride))
    arrays = make_arrays(program, extreme)
    expected = run(program, arrays)
    np.testing.assert_array_equal(run(float_sums(program), arrays), expected)
    offer = offered(program, threads, stack)
    scheduled = finish(offer.schedule(program))
    packed = [
        layout.pack(array).reshape(buffer.shape)
        for layout, array, buffer in zip(offer.layouts, arrays, scheduled.inputs, strict=False)
    ]
    actual = interp.run(scheduled, packed, intrinsics=SEMANTICS)[0]
    np.testing.assert_array_equal(actual.ravel(), offer.layouts[len(arrays)].pack(expected).ravel())


@pytest.mark.parametrize("why", ["no copy", "long window", "wide data"])
def test_what_stays(why: str) -> None:
    if why == "no copy":
        program = depthwise("uint8", (5, 5), (3, 3), pad=0)
    elif why == "long window":  # 12 * 12 * 255 * 128 exceeds the limit
        program = depthwise("uint8", (16, 16), (12, 12))
    else:
        program = depthwise("int16", (5, 5), (3, 3))
    assert float_sums(program) is program


@pytest.mark.parametrize(("height", "stack", "inside"), [(16, 1 << 16, True), (7, 1 << 16, True), (16, 500, False)])
def test_threads_pad_their_own_rows(height: int, stack: int, inside: bool) -> None:
    program = depthwise("uint8", (height, 9), (3, 3))
    scheduled = offered(program, 2, stack).schedule(program)
    loops = [stmt for stmt in ir.walk_stmts(scheduled.body) if isinstance(stmt, ir.For) and stmt.kind is ir.ForKind.PARALLEL]
    copies = [stmt for loop in loops for stmt in ir.walk_stmts(loop.body) if isinstance(stmt, ir.Alloc) and not stmt.buffer.scope]
    assert bool(copies) is inside and len(loops) == (1 if inside else 2)
    assert all(stmt.buffer.dtype is dtype("float32") for stmt in copies)
