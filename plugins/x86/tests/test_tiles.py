"""Products of narrow numbers through instructions on tiles: scheduled kernels compute the same in the interpreter, which runs the
instructions' own loop nests."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from inlaid import ops
from inlaid.graph import ir as graph
from inlaid.lowering.kernels.finish import finish
from inlaid.lowering.kernels.kernel import KernelSource, build
from inlaid.plugins import Capabilities, MemoryScope
from inlaid.tensor import interp, ir
from inlaid.tensor.primitives import TensorIntrin
from inlaid.tensor.scheduling.rule import InputInfo, KernelContext
from inlaid_runtime import arith
from inlaid_runtime.arith import SizeVar
from inlaid_runtime.types import ROW_MAJOR, Layout, TensorType
from inlaid_x86.tiles.conv import TileConvRule
from inlaid_x86.tiles.matmul import TileMatmulRule
from inlaid_x86.tiles.nest import LEAST_ROWS
from inlaid_x86.tiles.unit import tile_groups, tile_product, tile_rows, tile_sums, tile_zero

TILES = MemoryScope("tile", "thread", capacity=48, count=8, row_bytes=16)
"""Smaller than any that exist, so that small products have many: 3 rows of 4 sums, of 6 or 12 elements."""
PAIRS = (("uint8", "int8", "int32", 4), ("int8", "int8", "int32", 4), ("bfloat16", "bfloat16", "float32", 2))
MEANING = {
    f"{name}.{kind}": program
    for a, b, total, group in PAIRS
    for name, kind, program in (
        ("zero", total, tile_zero(total, "tile")),
        ("rows", a, tile_rows(a, 1, "tile")),
        ("rows", f"{a}.2", tile_rows(a, 2, "tile")),
        ("groups", b, tile_groups(b, group, "tile")),
        ("product", a + b, tile_product(a, b, total, group, "tile")),
        ("store", total, tile_sums(total, "tile")),
    )
}
CAPABILITIES = Capabilities(dtypes=(), scopes=(TILES,), vector_bits=128, vector_registers=16)


def context(threads=1, missing=""):
    intrinsics = tuple(TensorIntrin(name, program) for name, program in MEANING.items() if name != missing)
    return KernelContext(CAPABILITIES, threads, intrinsics)


def evaluate_shape(buffer, sizes):
    return tuple(arith.evaluate(dim, sizes) for dim in buffer.shape)


def random(buffer, generator, sizes):
    shape = evaluate_shape(buffer, sizes)
    if buffer.dtype.is_int and buffer.dtype.bits == 8:
        low, high = buffer.dtype.limits
        return generator.choice([low, low + 1, -1 % (high + 1), high], shape).astype(buffer.dtype.numpy)
    return generator.integers(-4, 5, shape).astype(buffer.dtype.numpy)


def check(program, threads=1, rule=TileMatmulRule, every=({},)):
    """The scheduled kernel uses the instructions and equals the unscheduled one on the extremes of its operands, at every set of
    sizes."""
    facts = tuple(InputInfo(ROW_MAJOR, number == 1) for number in range(len(program.inputs)))
    offer = rule().offer(program, context(threads), facts)
    assert offer is not None, "the rule declines"
    scheduled = finish(offer.schedule(program))
    assert {stmt.name.split(".")[0] for stmt in ir.walk_stmts(scheduled.body) if isinstance(stmt, ir.Intrinsic)} == {
        "zero", "rows", "groups", "product", "store"
    }  # fmt: skip
    generator = np.random.default_rng(5)
    for sizes in every:
        arrays = [random(buffer, generator, sizes) for buffer in program.inputs]
        packed = [
            layout.pack(array).reshape(evaluate_shape(buffer, sizes))
            for layout, array, buffer in zip(offer.layouts, arrays, scheduled.inputs, strict=False)
        ]
        expected = offer.layouts[len(program.inputs)].pack(interp.run(program, arrays, sizes)[0])
        actual = interp.run(scheduled, packed, sizes, MEANING)[0]
        assert np.array_equal(actual.reshape(expected.shape), expected)
    return offer, scheduled


def variables(*items):
    return [graph.var(name, TensorType(shape, dtype)) for name, shape, dtype in items]


def product(a_shape, b_shape, pair, after=""):
    a, b, total, _ = pair
    params = variables(("x", a_shape, a), ("w", b_shape, b))
    y = ops.matmul(*params, out_dtype=total)
    if after:
        params += variables(("bias", (b_shape[-1],), total), ("other", y.type.shape, total))
        y = ops.mul(ops.maximum(ops.add(y, params[2]), y), params[3])
    if after == "turned":
        rank = len(y.type.shape)
        y = ops.transpose(y, perm=(*range(1, rank), 0))
    return build(KernelSource("kernel", tuple(params), y))


@settings(max_examples=40, deadline=None)
@given(
    st.sampled_from(PAIRS), st.integers(LEAST_ROWS, 17), st.integers(1, 30), st.integers(1, 21),
    st.sampled_from(["", "chain", "turned"]), st.integers(1, 2),
)  # fmt: skip
def test_matrix_products_compute_the_same(pair, m, k, n, after, threads):
    check(product((m, k), (k, n), pair, after), threads)


@pytest.mark.parametrize(
    ("a_shape", "b_shape"),
    [
        ((2, 3, 5, 12), (2, 3, 12, 7)),
        ((2, 3, 5, 12), (12, 9)),
        ((2, 1, 5, 7), (2, 3, 7, 4)),
        ((1, 8, 12), (12, 20)),
        ((5, 12), (2, 12, 9)),
    ],
)
def test_stacks_of_matrices_compute_the_same(a_shape, b_shape):
    for pair in PAIRS:
        check(product(a_shape, b_shape, pair))
        check(product(a_shape, b_shape, pair, "chain"))


N, M, H, W = SizeVar("n"), SizeVar("m"), SizeVar("h", 1), SizeVar("w", 1)
SIZES = tuple({N: n, M: m} for n, m in ((1, 1), (2, 2), (3, 3), (1, 4), (0, 5), (2, 0), (2, 16)))
"""Fewer rows than a tile has, as many, and more."""


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize(
    ("a_shape", "b_shape"),
    [((M, 12), (12, 20)), ((N, M, 24), (24, 7)), ((N, 5, 25), (25, 8)), ((N, 2, M, 7), (7, 4)), ((N, 2, M, 12), (N, 2, 12, 9))],
)
def test_products_of_symbolic_sizes_compute_the_same(a_shape, b_shape, threads):
    for pair in PAIRS[1:]:
        check(product(a_shape, b_shape, pair, "chain"), threads, every=SIZES)


def test_where_the_factors_lie():
    """The left one as it is where its rows are whole steps, else padded; the right one in panels of groups."""
    bytes_, floats = PAIRS[0], PAIRS[2]
    offer, _ = check(product((7, 24), (24, 8), bytes_))
    assert offer.layouts == (ROW_MAJOR, Layout(((0, 24), (1, 4), (0, 4))), ROW_MAJOR)
    offer, _ = check(product((7, 25), (25, 8), bytes_))
    assert offer.layouts == (Layout(((0, 3), (1, 36))), Layout(((0, 36), (1, 4), (0, 4))), ROW_MAJOR)
    offer, _ = check(product((7, 8), (8, 8), floats))
    assert offer.layouts == (ROW_MAJOR, Layout(((0, 8), (1, 4), (0, 2))), ROW_MAJOR)


def test_what_tiles_do_not_fit_is_declined():
    facts = (InputInfo(ROW_MAJOR), InputInfo(ROW_MAJOR, True))

    def declines(program, kernel_context=None):
        return TileMatmulRule().offer(program, kernel_context or context(), facts[: len(program.inputs)]) is None

    assert declines(product((LEAST_ROWS - 1, 12), (12, 8), PAIRS[0]))
    assert declines(product((8, 12), (12, 8), ("int8", "uint8", "int32", 4)))
    assert declines(product((8, 12), (12, 8), ("float32", "float32", "float32", 1)))
    assert declines(product((8, 12), (12, 8), PAIRS[2]), context(missing="store.float32"))
    assert declines(product((8, 12), (12, 8), PAIRS[2]), KernelContext(Capabilities(dtypes=()), 1, context().intrinsics))


def convolution(pair, image, channels, window, stride=1, pad=0, after=""):
    a, b, total, _ = pair
    inputs, outputs = channels
    params = variables(("x", (image[0], inputs, *image[1:]), a), ("w", (outputs, inputs, *window), b))
    y = ops.conv(params[0], params[1], strides=(stride,) * 2, pads=(pad,) * 4, dilations=(1, 1), groups=1, out_dtype=total)
    if after:
        params += variables(("bias", (outputs, 1, 1), total), ("other", y.type.shape, total))
        y = ops.mul(ops.maximum(ops.add(y, params[2]), y), params[3])
    if after == "itself":
        y = ops.add(y, ops.cast(params[0], dtype=total))
    return build(KernelSource("kernel", tuple(params), y))


@settings(max_examples=40, deadline=None)
@given(
    st.sampled_from(PAIRS), st.integers(1, 2), st.integers(1, 3), st.integers(LEAST_ROWS, 9), st.sampled_from([4, 8, 12, 24]),
    st.sampled_from([4, 8, 12, 20]), st.sampled_from([(1, 1), (3, 3), (2, 1)]), st.integers(1, 2), st.integers(0, 1),
    st.sampled_from(["", "chain"]), st.integers(1, 2),
)  # fmt: skip
def test_convolutions_compute_the_same(pair, images, height, width, inputs, outputs, window, stride, pad, after, threads):
    size = (images, (height - 1) * stride + window[0], (width - 1) * stride + window[1])
    program = convolution(pair, size, (inputs, outputs), window, stride, pad, after)
    offer, _ = check(program, threads, TileConvRule)
    assert offer.layouts[0].blocks[0][1] <= 3 * pair[3] and inputs % offer.layouts[0].blocks[0][1] == 0


IMAGES = tuple({N: n, H: h, W: w} for n, h, w in ((1, 1, 1), (2, 2, 3), (1, 5, 4), (0, 3, 9), (2, 4, 13)))


@pytest.mark.parametrize(
    ("image", "window", "stride", "pad", "after"),
    [
        ((N, 5, 9), (3, 3), 1, 1, "itself"),
        ((2, H, 9), (3, 3), 2, 1, "chain"),
        ((N, H, W), (3, 3), 1, 1, "chain"),
        ((N, H, W), (1, 1), 1, 0, "chain"),
        ((N, H, W), (1, 1), 1, 0, "itself"),
    ],
)
def test_convolutions_of_symbolic_sizes_compute_the_same(image, window, stride, pad, after):
    check(convolution(PAIRS[0], image, (8, 8), window, stride, pad, after), 2, TileConvRule, IMAGES)


def test_windows_of_one_pixel_take_an_image_for_a_line():
    """7 by 3 pixels are seven tiles of 3 rows, although a row of pixels is no whole tile; not where the image is read again."""
    pair = PAIRS[0]
    offer, scheduled = check(convolution(pair, (1, 3, 7), (12, 12), (1, 1)), rule=TileConvRule)
    assert scheduled.inputs[0].shape == (1, 1, 21, 12)
    assert offer.layouts == (Layout(((1, 12),)), Layout(((1, 12), (0, 4), (1, 4))), Layout(((1, 12),)))
    _, scheduled = check(convolution(pair, (1, 3, 7), (12, 12), (1, 1), after="itself"), rule=TileConvRule)
    assert scheduled.inputs[0].shape == (1, 1, 3, 7, 12)


def test_convolutions_that_tiles_do_not_fit_are_declined():
    def declines(*arguments, **more):
        program = convolution(*arguments, **more)
        return TileConvRule().offer(program, context(), (InputInfo(ROW_MAJOR),) * len(program.inputs)) is None

    pair = PAIRS[0]
    assert declines(pair, (1, 5, 3), (8, 8), (3, 1))  # rows of pixels too short
    assert declines(pair, (1, 5, 9), (6, 8), (1, 1))  # no whole groups
    assert declines(pair, (1, 5, 9), (8, 6), (1, 1))  # no whole columns
    assert declines(pair, (1, 19, 19), (8, 8), (1, 1), 3)  # a stride that no load has
    assert not declines(pair, (1, 19, 19), (8, 8), (1, 1), 2)
