"""Convolutions over flat images: any sizes, ranks, strides and dilations compute the same as the unscheduled kernel."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from inlaid import ops
from inlaid.graph import ir as graph
from inlaid.lowering.kernels.finish import finish
from inlaid.lowering.kernels.kernel import KernelSource, build
from inlaid.plugins import Capabilities
from inlaid.schedules.conv import ConvRule
from inlaid.schedules.direct_conv import find_conv
from inlaid.schedules.flat_conv import flat_axes
from inlaid.tensor import interp, ir
from inlaid.tensor.primitives import SEMANTICS
from inlaid.tensor.scheduling.rule import InputInfo, KernelContext
from inlaid_runtime import arith
from inlaid_runtime.types import ROW_MAJOR, Layout, TensorType

CAPABILITIES = Capabilities(dtypes=("float32",), vector_bits=128, vector_registers=16)
BLOCKED = Layout(((1, 4),))


def convolution(shape, outputs, kernel, stride, pad, dilation, groups=1, after=True):
    rank = len(kernel)
    x = graph.var("x", TensorType(shape, "float32"))
    w = graph.var("w", TensorType((outputs, shape[1] // groups, *kernel), "float32"))
    b = graph.var("b", TensorType((outputs, *(1,) * rank), "float32"))
    y = ops.conv(x, w, strides=(stride,) * rank, pads=(pad,) * 2 * rank, dilations=(dilation,) * rank, groups=groups)
    if not after:
        return build(KernelSource("kernel", (x, w), y))
    r = graph.var("r", y.type)
    return build(KernelSource("kernel", (x, w, b, r), ops.relu(ops.add(ops.add(y, b), r))))


def scheduled(program, threads=1, layout=ROW_MAJOR):
    offers = ConvRule().offer(program, KernelContext(CAPABILITIES, threads), (InputInfo(layout),) * len(program.inputs))
    return offers[0], finish(offers[0].schedule(program))


@pytest.mark.parametrize(
    ("channels", "outputs", "kernel", "stride", "pad", "dilation", "groups", "threads", "layout", "after"),
    [
        (4, 8, (3, 3), 1, 1, 1, 1, 1, BLOCKED, True),
        (8, 6, (3, 3), 1, 1, 1, 1, 2, ROW_MAJOR, True),
        (3, 8, (3, 2), 1, 0, 1, 1, 1, ROW_MAJOR, False),
        (4, 2, (3, 3), 1, 1, 1, 1, 1, BLOCKED, True),
        (3, 2, (3,), 1, 1, 1, 1, 1, ROW_MAJOR, True),
        (1, 8, (3, 3), 1, 1, 1, 1, 2, ROW_MAJOR, True),
        (4, 4, (3, 3), 2, 1, 1, 1, 2, BLOCKED, True),
        (8, 8, (1, 1), 2, 0, 1, 1, 1, BLOCKED, False),
        (8, 8, (1, 1), 1, 0, 1, 1, 2, BLOCKED, True),
        (8, 16, (2, 3), 3, 1, 2, 2, 1, BLOCKED, True),
        (4, 8, (3, 3), 1, 4, 4, 1, 1, BLOCKED, True),
        (4, 8, (3,), 1, 1, 1, 1, 2, BLOCKED, True),
        (4, 8, (4,), 2, 1, 3, 1, 1, ROW_MAJOR, True),
        (4, 4, (3, 2, 2), 1, 1, 1, 1, 2, BLOCKED, True),
        (4, 4, (2, 1, 3), 2, 1, 1, 1, 1, BLOCKED, False),
    ],
)
def test_any_size_computes_the_same(channels, outputs, kernel, stride, pad, dilation, groups, threads, layout, after):
    rank = len(kernel)
    arguments = outputs, kernel, stride, pad, dilation, groups, after
    symbols = [arith.SizeVar(name) for name in "nhwd"[: rank + 1]]
    offer, symbolic_kernel = scheduled(convolution((symbols[0], channels, *symbols[1:]), *arguments), threads, layout)
    parallel = any(isinstance(stmt, ir.For) and stmt.kind is ir.ForKind.PARALLEL for stmt in ir.walk_stmts(symbolic_kernel.body))
    assert parallel == (threads > 1)
    generator = np.random.default_rng(len(kernel) + stride)
    least = [max((size - 1) * dilation + 1 - 2 * pad, 1) for size in kernel]
    for more in (0, 1, 7, 9) if rank < 3 else (0, 3):
        batch, *sizes = 1 + more % 2, *(size + more + axis for axis, size in enumerate(least))
        program = convolution((batch, channels, *sizes), *arguments)
        arrays = [generator.integers(-4, 5, buffer.shape).astype("float32") for buffer in program.inputs]
        expected = interp.run(program, arrays)[0]
        env = dict(zip(symbols, (batch, *sizes), strict=True))
        check_schedule(offer, symbolic_kernel, arrays, expected, env)
        if rank != 2 and more:
            check_schedule(*scheduled(program, threads, layout), arrays, expected, {})


def check_schedule(offer, program, arrays, expected, sizes):
    """Run a scheduled kernel; what lies in padding must not matter."""
    is_element = offer.layouts[-1].pack(np.ones(expected.shape)) > 0
    packed = []
    for layout, array, buffer in zip(offer.layouts, arrays, program.inputs, strict=False):
        padded_array = np.where(layout.pack(np.ones(array.shape)) > 0, layout.pack(array), np.nan).astype("float32")
        packed.append(padded_array.reshape([arith.evaluate(arith.wrap(dim), sizes) for dim in buffer.shape]))
    actual = interp.run(program, packed, sizes=sizes, intrinsics=SEMANTICS)[0].reshape(is_element.shape)
    assert np.array_equal(actual[is_element], offer.layouts[-1].pack(expected)[is_element])


def test_lines_share_their_halo():
    """A line of a 3 x 3 window padded by 1 is followed by one zero, not by two; with stride 2, by none if its length is odd."""
    height, width = arith.SizeVar("h"), arith.SizeVar("w")
    for stride, length, between in ((1, 8, 1), (1, 9, 1), (2, 8, 1), (2, 9, 0), (2, 1, 0)):
        program = convolution((1, 4, height, width), 4, (3, 3), stride, 1, 1)
        conv = find_conv(program, lambda anchor: anchor.product)
        assert conv is not None
        axes = flat_axes(conv)
        assert axes is not None
        assert arith.evaluate(axes[1].pitch - axes[1].size, {width: length}) == between
        assert [axis.phases for axis in axes] == [stride, stride]


@pytest.mark.parametrize("max_extent", [2, 3, 4])
def test_as_many_vectors_as_places(max_extent):
    """A tile of images this small has as many places as vectors of channels: its loops must be told apart."""
    height, width = (arith.SizeVar(name, 1, max_extent) for name in "hw")
    arguments = 4 * max_extent, (3, 3), 1, 1, 1
    offer, program = scheduled(convolution((1, 4, height, width), *arguments), layout=BLOCKED)
    generator = np.random.default_rng(max_extent)
    for size in range(1, max_extent + 1):
        static = convolution((1, 4, size, size), *arguments)
        arrays = [generator.integers(-4, 5, buffer.shape).astype("float32") for buffer in static.inputs]
        check_schedule(offer, program, arrays, interp.run(static, arrays)[0], {height: size, width: size})


@pytest.mark.parametrize(("channels", "kernel", "stride", "size"), [(4, (3, 3), 2, 4), (4, (3, 3), 1, 2), (256, (2, 2), 1, 2)])
def test_small_images_take_one_tile(channels, kernel, stride, size):
    """What lies beside the last line is not computed, and lines of deep sums are shorter."""
    height, width = arith.SizeVar("h"), arith.SizeVar("w")
    context = KernelContext(replace(CAPABILITIES, vector_registers=32), 1)
    (offer,) = ConvRule().offer(
        convolution((1, channels, height, width), 8, kernel, stride, 1, 1), context, (InputInfo(BLOCKED),) * 4
    )
    program = finish(offer.schedule(None))
    sizes = {height: size, width: size}
    tiles = [arith.evaluate(loop.extent, sizes) for loop in ir.walk_stmts(program.body) if is_tile_loop(loop)]
    assert tiles == [1]
    static = convolution((1, channels, size, size), 8, kernel, stride, 1, 1)
    generator = np.random.default_rng(size)
    arrays = [generator.integers(-4, 5, buffer.shape).astype("float32") for buffer in static.inputs]
    check_schedule(offer, program, arrays, interp.run(static, arrays)[0], sizes)


def is_tile_loop(stmt):
    return isinstance(stmt, ir.For) and stmt.var.name.startswith("p_")


def test_tiles_inside_the_image_are_stored_without_conditions():
    height, width = arith.SizeVar("h"), arith.SizeVar("w")
    _, program = scheduled(convolution((1, 4, height, width), 4, (3, 3), 2, 1, 1))
    choices = [stmt for stmt in ir.walk_stmts(program.body) if isinstance(stmt, ir.If) and stmt.otherwise is not None]
    stores = [part for part in ir.walk_stmts(program.body) if isinstance(part, ir.Store) and part.buffer is program.outputs[0]]
    (choice,) = (stmt for stmt in choices if any(part is stores[0] for part in ir.walk_stmts(stmt)))
    stored = [[part for part in ir.walk_stmts(arm) if part in stores] for arm in (choice.then, choice.otherwise)]
    assert len(stored[0]) == len(stored[1]) > 1
    assert not any(isinstance(part, ir.If) for part in ir.walk_stmts(choice.then))
    assert sum(isinstance(part, ir.If) for part in ir.walk_stmts(choice.otherwise)) == len(stored[1])


def test_no_tile_checks_what_it_sums():
    """Results alone are stored under a condition, and each tile divides twice: for the line and the place of its first pixel."""
    height, width = arith.SizeVar("h"), arith.SizeVar("w")
    _, program = scheduled(convolution((1, 4, height, width), 4, (3, 3), 1, 1, 1))
    sums = [stmt for stmt in ir.walk_stmts(program.body) if isinstance(stmt, ir.Store) and stmt.buffer.scope == "register"]
    guarded = [part for stmt in ir.walk_stmts(program.body) if isinstance(stmt, ir.If) for part in ir.walk_stmts(stmt)]
    assert sums
    assert not {id(stmt) for stmt in sums} & {id(part) for part in guarded}
    assert len([stmt for stmt in ir.walk_stmts(program.body) if isinstance(stmt, ir.Let)]) == 2
    assert len(sums) <= 2 * CAPABILITIES.core.costs.flat_pixels * 4


@pytest.mark.parametrize(("kernel", "phases"), [((3, 3), (2,)), ((3, 1), (2,)), ((1, 3), ()), ((1, 1), ())])
def test_lines_that_windows_read_whole_are_copied_whole(kernel, phases):
    """With a stride of 2 along both axes, only lines are divided by their remainder."""
    height, width = arith.SizeVar("h"), arith.SizeVar("w")
    _, program = scheduled(convolution((1, 4, height, width), 4, kernel, 2, 1, 1))
    (copy,) = (buffer for buffer in program.outputs if buffer.name == "flat")
    assert copy.shape[2:-2] == phases
