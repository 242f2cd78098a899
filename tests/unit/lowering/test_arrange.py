"""Regions that have scarce memory to themselves: calls in the order that takes least, results over what they are computed from."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from inlaid import ops
from inlaid.graph.interp import evaluate
from inlaid.graph.ir import Expr, Function, constant, function, tuple_, var
from inlaid.lowering.region import RegionSource, lower_region
from inlaid.passes.fuse import fuse
from inlaid.plugins import Capabilities, StaticMemory
from inlaid.tensor import interp
from inlaid.tensor.region import RegionProgram
from inlaid.tensor.scheduling.rule import KernelContext
from inlaid_runtime.types import TensorType

Array = np.ndarray[Any, Any]
SCARCE = Capabilities(("int8", "int32"), memory=StaticMemory())


def lowered(unit: Function) -> RegionProgram:
    return lower_region(RegionSource("region", fuse(unit, frugal=True)), (), KernelContext(SCARCE))


def run(region: RegionProgram, inputs: Sequence[Array]) -> list[Array]:
    """The outputs, of kernels run one after the other over one arena, in which inputs and outputs lie as well."""
    assert isinstance(region.workspace, int)
    arena = np.full(region.workspace, 0xA5, np.uint8)
    constants = list(region.constants.values())

    def buffer_view(number: int) -> Array:
        buffer = region.buffers[number]
        if buffer.storage == "constant":
            return constants[buffer.index].reshape(buffer.shape)
        assert isinstance(buffer.offset, int)
        size = int(np.prod(buffer.shape)) * buffer.dtype.bytes
        return arena[buffer.offset : buffer.offset + size].view(buffer.dtype.numpy).reshape(buffer.shape)

    for number, buffer in enumerate(region.buffers):
        if buffer.storage == "input":
            buffer_view(number)[...] = inputs[buffer.index].reshape(buffer_view(number).shape)
    for call in region.calls:
        flags = [(bool(buffer_view(item.condition)), item.holds) for item in call.predicates if isinstance(item.condition, int)]
        if any(actual is not expected for actual, expected in flags):
            continue
        kernel = region.kernels[call.kernel]
        kernel_inputs = [np.array(buffer_view(n)).reshape(p.shape) for n, p in zip(call.inputs, kernel.inputs, strict=True)]
        for number, actual in zip(call.outputs, interp.run(kernel, kernel_inputs), strict=True):
            buffer_view(number)[...] = actual.reshape(buffer_view(number).shape)
    # Parts of outputs are marked as outputs, too.
    output_buffers = {
        buffer.index: n
        for n, buffer in sorted(enumerate(region.buffers), key=lambda item: np.prod(item[1].shape))
        if buffer.storage == "output"
    }
    return [np.array(buffer_view(output_buffers[index])).reshape(spec.shape) for index, spec in enumerate(region.signature.outputs)]


def image(channels: int = 2, size: int = 4) -> Expr:
    return var("x", TensorType((1, channels, size, size), "int8"))


def mixed(x: Expr, outputs: int, seed: int, taps: int = 1) -> Expr:
    """A convolution that keeps the extents of images, in int8."""
    rng = np.random.default_rng(seed)
    weights = constant(rng.integers(-2, 3, (outputs, x.type.shape[1], taps, taps)).astype(np.int8))  # type: ignore[attr-defined]
    total = ops.conv(x, weights, pads=(taps // 2,) * 4, out_dtype="int32")
    return ops.cast(ops.clip(total, minimum=-128.0, maximum=127.0), dtype="int8")


def checked(unit: Function) -> RegionProgram:
    region = lowered(unit)
    rng = np.random.default_rng(0)
    inputs = [rng.integers(-128, 128, p.type.shape).astype(np.int8) for p in unit.params]  # type: ignore[attr-defined]
    expected_outputs = evaluate(unit, inputs)
    for actual, expected in zip(run(region, inputs), expected_outputs, strict=True):
        np.testing.assert_array_equal(actual, expected)
    return region


def test_a_chain_of_images_takes_little_more_than_the_largest() -> None:
    x = image(4, 8)
    value = x
    for seed in range(5):
        value = ops.relu(mixed(value, 4, seed))
    region = checked(function([x], tuple_([value])))
    assert isinstance(region.workspace, int) and region.workspace < 2 * 256


def test_the_branch_that_shrinks_runs_first() -> None:
    """Written last, it would run while all of the other branch lives."""
    x = image(2, 8)
    small = mixed(mixed(x, 9, 1), 1, 2)
    region = checked(function([x], tuple_([ops.add(mixed(x, 8, 0), small)])))
    assert isinstance(region.workspace, int) and region.workspace < (8 + 9) * 64
    order = [region.kernels[call.kernel].outputs[0].shape for call in region.calls]
    assert order.index((1, 9, 8, 8)) < order.index((1, 8, 8, 8))


@settings(max_examples=20, deadline=None)
@given(
    st.lists(
        st.tuples(st.sampled_from(["conv", "window", "add", "join", "flip"]), st.integers(0, 99), st.integers(0, 99)), max_size=7
    )
)
def test_random_graphs(layers: list[tuple[str, int, int]]) -> None:
    x = image()
    values: list[Expr] = [x]
    for seed, (kind, one, other) in enumerate(layers):
        a, b = values[one % len(values)], values[other % len(values)]
        if kind == "add" and a.type == b.type:
            values.append(ops.add(a, b))
        elif kind == "join":
            values.append(ops.concat(a, b, axis=1))
        elif kind == "flip":
            values.append(ops.relu(ops.transpose(a, perm=(0, 1, 3, 2))))
        else:
            values.append(mixed(a, 1 + other % 3, seed, 3 if kind == "window" else 1))
    checked(function([x], tuple_([values[-1], ops.relu(values[len(values) // 2])])))


def test_of_a_wide_image_between_two_kernels_a_window_is_kept() -> None:
    """16 x 16 sums of four bytes between images of bytes: rows of them."""
    x = image(1, 16)
    weights = constant(np.ones((1, 1, 3, 3), np.int8))
    sums = ops.conv(x, weights, pads=(1, 1, 1, 1), out_dtype="int32")
    rows = ops.conv(sums, constant(np.array([1, -2, 1], np.int32).reshape(1, 1, 3, 1)), pads=(1, 0, 1, 0))
    region = checked(function([x], tuple_([ops.cast(ops.clip(rows, minimum=-128.0, maximum=127.0), dtype="int8")])))
    assert isinstance(region.workspace, int) and region.workspace < 2 * 256 + 6 * 16 * 4
    assert len(region.calls) == len(region.kernels) == 1


def test_what_is_read_elsewhere_stays_whole() -> None:
    x = image(1, 16)
    wide = ops.conv(x, constant(np.ones((1, 1, 3, 3), np.int8)), pads=(1, 1, 1, 1), out_dtype="int32")
    narrow = ops.cast(ops.clip(wide, minimum=-128.0, maximum=127.0), dtype="int8")
    region = checked(function([x], tuple_([narrow, wide])))
    assert isinstance(region.workspace, int) and region.workspace >= 1024 + 256
