"""Winograd convolution: the transforms, and the schedule."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from inlaid import ops
from inlaid.graph import ir as graph
from inlaid.lowering.kernels.finish import finish
from inlaid.lowering.kernels.kernel import KernelSource, build
from inlaid.ops.winograd import HALVES, TRANSFORMS, is_exact, transform_weights, winograd_conv
from inlaid.plugins import Capabilities
from inlaid.schedules.winograd import WinogradRule, plan_winograd
from inlaid.tensor import interp, ir
from inlaid.tensor.primitives import SEMANTICS, TensorIntrin
from inlaid.tensor.scheduling.dot_products import dot_product
from inlaid.tensor.scheduling.rule import InputInfo, KernelContext
from inlaid_runtime.arith import SizeVar
from inlaid_runtime.errors import TypeInferenceError
from inlaid_runtime.types import ROW_MAJOR, TensorType, dtype

NARROW = Capabilities(("float32",), vector_bits=128, vector_registers=16)
WIDE = Capabilities(("float32",), vector_bits=512, vector_registers=32, peak=2.5e11, bandwidth=3e10)
CHECKED = settings(max_examples=15, deadline=None)
RNG = np.random.default_rng(0)


def normal(*shape):
    return RNG.standard_normal(shape).astype(np.float32)


def direct(x, w, pads):
    """In double precision."""
    rows, columns = ((pads[axis], pads[axis + 2]) for axis in range(2))
    padded = np.pad(x.astype(np.float64), [(0, 0), (0, 0), rows, columns])
    windows = np.lib.stride_tricks.sliding_window_view(padded, (3, 3), (2, 3))
    return np.einsum("ncyxij,ocij->noyx", windows, w.astype(np.float64), optimize=True)


def close(actual, expected):
    np.testing.assert_allclose(actual, expected, rtol=0, atol=1e-4 * np.abs(expected).max(initial=0) + 1e-5)


def kernel(x, w, tile, pads, after):
    """Convolution; bias; residual and activation. And the arrays that it takes."""
    u = transform_weights(w, tile)
    params = [graph.var("x", TensorType(x.shape, "float32")), graph.var("u", TensorType(u.shape, "float32"))]
    y = winograd_conv(*params, pads=pads, tile=tile)
    expected, arrays = direct(x, w, pads), [x, u]
    if after:
        arrays.append(normal(w.shape[0], 1, 1))
        params.append(graph.var("b", TensorType(arrays[-1].shape, "float32")))
        y, expected = ops.add(y, params[-1]), expected + arrays[-1]
    if after > 1:
        arrays.append(normal(*expected.shape))
        params.append(graph.var("r", y.type))
        y, expected = ops.relu(ops.add(y, params[-1])), np.maximum(expected + arrays[-1], 0)
    return build(KernelSource("kernel", tuple(params), y)), arrays, expected


@pytest.mark.parametrize(("tile", "halves"), [(2, False), (4, False), (4, True)])
def test_transforms_are_exact(tile, halves):
    """In rational numbers, outputs of one dimension are those of the window."""
    t = (HALVES if halves else TRANSFORMS)[tile]
    for tap_input in range(tile + 2):
        for tap in range(3):
            into = [Fraction(row[tap_input]) for row in t.inputs]
            window = [Fraction(row[tap]).limit_denominator(30) for row in t.weights]
            outputs = [sum(Fraction(f) * d * g for f, d, g in zip(row, into, window, strict=True)) for row in t.outputs]
            assert outputs == [int(tap_input == output + tap) for output in range(tile)]


@CHECKED
@given(
    st.sampled_from([2, 4]), st.integers(1, 2), st.integers(1, 13), st.integers(1, 13), st.integers(3, 11), st.integers(3, 11),
    st.tuples(*[st.integers(0, 2)] * 4),
)  # fmt: skip
def test_operator_is_a_convolution(tile, n, c, o, height, width, pads):
    program, arrays, expected = kernel(normal(n, c, height, width), normal(o, c, 3, 3), tile, pads, 0)
    call = winograd_conv(*(graph.var("v", TensorType(array.shape, "float32")) for array in arrays), pads=pads, tile=tile)
    assert call.type == TensorType(expected.shape, "float32")
    close(winograd_conv.reference(call.attrs, *arrays), expected)
    close(interp.run(program, arrays)[0], expected)


@pytest.mark.parametrize(
    ("shape", "attrs", "message"),
    [
        ((6, 6, 3, 8), {"tile": 3}, "tile must be one of .*, got 3"),
        ((6, 6, 3, 8), {"tile": 2}, r"dimension 0 of u must be 4, got 6"),
        ((6, 6, 4, 8), {"tile": 4}, "dimension 2 of u must be 3, got 4"),
        ((4, 4, 3, 8), {"tile": 2, "halves": True}, "with halves, tile must be one of 4, got 2"),
        ((6, 6, 3, 8), {"tile": 4, "strides": (2, 2)}, "strides and dilations must be 1"),
    ],
)
def test_operator_refuses(shape, attrs, message):
    x, u = graph.var("x", TensorType((1, 3, 7, 7), "float32")), graph.var("u", TensorType(shape, "float32"))
    with pytest.raises(Exception, match=message):
        winograd_conv(x, u, **attrs)


@pytest.mark.parametrize("dtype_name", ["uint8", "int8", "int16"])
@pytest.mark.parametrize(("halves", "largest"), [(False, (1 << 25) - 1), (True, (1 << 29) - 1)])
def test_integers_are_exact_up_to_a_bound(dtype_name, halves, largest):
    limits = np.iinfo("uint8" if dtype_name == "uint8" else "int8")
    data, w = RNG.choice([limits.min, limits.max], (1, 6, 9, 7)), RNG.integers(-128, 128, (5, 6, 3, 3)).astype(np.int16)
    interval = (int(limits.min), int(limits.max))
    assert is_exact(w, 4, interval, largest, halves)
    assert not is_exact(w, 4, interval, largest + 1, halves)
    x, u = data.astype(dtype_name), transform_weights(w, 4, halves)
    params = [graph.var("x", TensorType(x.shape, dtype_name)), graph.var("u", TensorType(u.shape, "int16"))]
    y = winograd_conv(*params, pads=(1, 1, 1, 1), tile=4, halves=halves)
    expected = direct(x, w, (1, 1, 1, 1))
    assert np.array_equal(winograd_conv.reference(y.attrs, x, u), expected)
    assert np.array_equal(interp.run(build(KernelSource("kernel", tuple(params), y)), [x, u])[0], expected)


def test_integers_beyond_16_bits_are_not_exact():
    """Of a difference of bytes, say, tiles of 4 exceed 16 bits."""
    w = np.ones((1, 1, 3, 3), np.int16)
    assert not is_exact(w, 4, (-512, 511), 9 * 512)
    assert not is_exact(w, 4, (-255, 255), 9 * 255, True)
    assert is_exact(w, 2, (-512, 511), 9 * 512)


def check(program, arrays, expected, threads):
    """The kernel as the rule would have it gives what is wanted."""
    offer = WinogradRule().offer(program, KernelContext(NARROW, threads), (InputInfo(ROW_MAJOR),) * len(arrays))
    assert offer is not None, "the rule declines"
    finished_kernel = finish(offer.schedule(program))
    packed = [layout.pack(array) for layout, array in zip(offer.layouts, arrays, strict=False)]
    close(interp.run(finished_kernel, packed, intrinsics=SEMANTICS)[0], offer.layouts[len(arrays)].pack(expected))


@settings(max_examples=12, deadline=None)
@given(
    st.sampled_from([2, 4]), st.integers(1, 2), st.sampled_from([2, 4, 8]), st.sampled_from([4, 6, 8]), st.integers(5, 13),
    st.integers(5, 13), st.integers(0, 2), st.sampled_from([0, 1, 2]),
)  # fmt: skip
@example(2, 1, 2, 6, 5, 13, 0, 0)  # the product's last tile of rows reaches beyond a stripe
def test_schedule_computes_the_same(tile, n, c, o, height, width, after, threads):
    check(*kernel(normal(n, c, height, width), normal(o, c, 3, 3), tile, (1, 1, 1, 1), after), threads)


@pytest.mark.parametrize(("tile", "threads", "pads"), [(4, 1, (1, 1, 1, 1)), (2, 0, (1, 1, 1, 1)), (4, 2, (2, 2, 2, 2))])
def test_symbolic_sizes(tile, threads, pads):
    """One kernel for all sizes, those of less than a tile too; only what needs no more memory is in parallel."""
    batch, height, width = (SizeVar(name) for name in ("batch", "height", "width"))
    u = transform_weights(w := normal(8, 8, 3, 3), tile)
    params = [graph.var("x", TensorType((batch, 8, height, width), "float32")), graph.var("u", TensorType(u.shape, "float32"))]
    y = winograd_conv(*params, pads=pads, tile=tile)
    params.append(graph.var("r", y.type))
    program = build(KernelSource("kernel", tuple(params), ops.relu(ops.add(y, params[-1]))))
    offer = WinogradRule().offer(program, KernelContext(NARROW, threads), (InputInfo(ROW_MAJOR),) * 3)
    finished_kernel = finish(offer.schedule(program))
    assert all(isinstance(dim, int) for buffer in finished_kernel.outputs[1:] for dim in buffer.shape)
    parallel = [
        stmt for stmt in ir.walk_stmts(finished_kernel.body) if isinstance(stmt, ir.For) and stmt.kind is ir.ForKind.PARALLEL
    ]
    assert len(parallel) == (0 if threads == 1 else 3)
    for n, rows, columns in ((1, 1, 1), (2, 5, 3), (1, 13, 22), (0, 4, 4)):
        x = normal(n, 8, rows, columns)
        expected = direct(x, w, pads)
        r = normal(*expected.shape)
        arrays = [layout.pack(array) for layout, array in zip(offer.layouts, (x, u, r), strict=False)]
        actual = interp.run(finished_kernel, arrays, {batch: n, height: rows, width: columns}, intrinsics=SEMANTICS)[0]
        close(actual, offer.layouts[-1].pack(np.maximum(expected + r, 0)))


@pytest.mark.parametrize("tile", TRANSFORMS)
def test_narrow_data_is_widened(tile):
    """As it is read: nothing is stored wide."""
    x, w = normal(1, 4, 9, 9).astype(dtype("bfloat16").numpy), normal(8, 4, 3, 3)
    u = transform_weights(w, tile)
    params = [graph.var("x", TensorType(x.shape, "bfloat16")), graph.var("u", TensorType(u.shape, "float32"))]
    y = winograd_conv(*params, pads=(1, 1, 1, 1), tile=tile)
    assert y.type == TensorType((1, 8, 9, 9), "float32")
    expected = direct(x, w, (1, 1, 1, 1))
    close(winograd_conv.reference(y.attrs, x, u), expected)
    check(build(KernelSource("kernel", tuple(params), y)), [x, u], expected, 1)


@pytest.mark.parametrize("threads", [0, 1])
def test_transformed_data_in_bfloat16(threads):
    """Of small integers, and of weights that are multiples of four, nothing is rounded."""
    narrow = dtype("bfloat16").numpy
    x, w = RNG.integers(-8, 9, (1, 8, 9, 7)).astype(narrow), (4 * RNG.integers(-4, 5, (8, 8, 3, 3))).astype(narrow)
    u = transform_weights(w, 2)
    params = [graph.var("x", TensorType(x.shape, "bfloat16")), graph.var("u", TensorType(u.shape, "bfloat16"))]
    y = winograd_conv(*params, pads=(1, 1, 1, 1), tile=2)
    assert y.type == TensorType((1, 8, 9, 7), "float32")
    expected = direct(x, w, (1, 1, 1, 1))
    assert np.array_equal(winograd_conv.reference(y.attrs, x, u), expected)
    program = build(KernelSource("kernel", tuple(params), y))
    assert np.array_equal(interp.run(program, [x, u])[0], expected)
    assert WinogradRule().offer(program, KernelContext(NARROW, threads), (InputInfo(ROW_MAJOR),) * 2) is None
    dot = TensorIntrin("dot", dot_product("bfloat16", "bfloat16", "float32", 4, 2))
    offer = WinogradRule().offer(program, KernelContext(NARROW, threads, intrinsics=(dot,)), (InputInfo(ROW_MAJOR),) * 2)
    finished_kernel = finish(offer.schedule(program))
    assert any(isinstance(stmt, ir.Intrinsic) and stmt.name == "dot" for stmt in ir.walk_stmts(finished_kernel.body))
    packed = [layout.pack(array) for layout, array in zip(offer.layouts, (x, u), strict=False)]
    actual = interp.run(finished_kernel, packed, intrinsics={**SEMANTICS, "dot": dot.semantics})[0]
    assert np.array_equal(actual, offer.layouts[-1].pack(expected))


def test_wide_data_is_not_narrowed():
    x, u = graph.var("x", TensorType((1, 4, 7, 7), "float32")), graph.var("u", TensorType((4, 4, 4, 8), "bfloat16"))
    with pytest.raises(TypeInferenceError, match="u must have the dtype of x, float32, or float32"):
        winograd_conv(x, u, tile=2)


def test_schedule_runs_in_stripes():
    """What lies between the transforms of one stripe is all that there is room for."""
    program, *_ = kernel(normal(1, 64, 56, 56), normal(64, 64, 3, 3), 4, (1, 1, 1, 1), 0)
    offer = WinogradRule().offer(program, KernelContext(WIDE), (InputInfo(ROW_MAJOR),) * 2)
    finished_kernel = finish(offer.schedule(program))
    plan = plan_winograd(1, 64, 64, 56, 56, 4, KernelContext(WIDE))
    assert plan.stripe < 14 * 14
    scratch = {buffer.name: buffer.shape for buffer in finished_kernel.outputs[1:]}
    for name in ("tiles", "products"):
        assert np.prod(scratch[name]) == 36 * plan.stripe * 64
    assert not any(isinstance(stmt, ir.For) and stmt.kind is ir.ForKind.PARALLEL for stmt in ir.walk_stmts(finished_kernel.body))


def test_images_of_fewer_tiles_than_a_stripe_do_not_spill():
    """Of a deep layer of symbolic size, 16 tiles lie between the transforms, not a whole stripe of them: as of one size."""
    symbolic = plan_winograd(1, 48, 192, SizeVar("h") // 16, SizeVar("w") // 16, 4, KernelContext(WIDE))
    static = plan_winograd(1, 48, 192, 14, 14, 4, KernelContext(WIDE))
    assert symbolic.stripe > 16 >= static.stripe
    assert symbolic.cycles < 1.1 * static.cycles


def test_rule_declines_what_fills_no_vectors():
    for c, o, width in ((13, 16, 6), (16, 13, 6), (16, 16, 4)):
        program, arrays, _ = kernel(normal(1, c, 6, width), normal(o, c, 3, 3), 4, (1, 1, 1, 1), 1)
        assert WinogradRule().offer(program, KernelContext(NARROW), (InputInfo(ROW_MAJOR),) * len(arrays)) is None
