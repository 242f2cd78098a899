"""Products of narrow numbers through tensor intrinsics: scheduled kernels compute the same in the interpreter, which runs the
intrinsics' own loop nests."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from inlaid import ops
from inlaid.graph import ir as graph
from inlaid.lowering.kernels.finish import finish
from inlaid.lowering.kernels.kernel import KernelSource, build
from inlaid.ops.winograd import winograd_conv
from inlaid.plugins import Capabilities
from inlaid.schedules.conv import ConvRule
from inlaid.schedules.default import SHARED_RULES
from inlaid.schedules.matmul import MatmulRule
from inlaid.tensor import interp, ir
from inlaid.tensor.primitives import PREFETCH, SEMANTICS, TensorIntrin
from inlaid.tensor.scheduling.dot_products import dot_product
from inlaid.tensor.scheduling.rule import InputInfo, KernelContext
from inlaid.tensor.scheduling.trace import collect_offers
from inlaid.tensor.transform.layouts import relayout
from inlaid.tensor.transform.rewrite import Rewriter
from inlaid_runtime import arith
from inlaid_runtime.arith import SizeVar
from inlaid_runtime.types import ROW_MAJOR, Layout, TensorType, dtype

PAIRS = (
    ("uint8", "int8", "int32", 4),
    ("int8", "uint8", "int32", 4),
    ("int8", "int8", "int32", 2),
    ("bfloat16",) * 2 + ("float32", 2),
)
INTRINSICS = tuple(TensorIntrin(f"dot.{a}.{b}", dot_product(a, b, total, 4, group)) for a, b, total, group in PAIRS)
MEANING = {**SEMANTICS, **{intrinsic.name: intrinsic.semantics for intrinsic in INTRINSICS}}
CAPABILITIES = Capabilities(dtypes=(), vector_bits=128, vector_registers=16)


def context(threads=1):
    return KernelContext(CAPABILITIES, threads, INTRINSICS)


def concrete_shape(buffer, sizes):
    return tuple(arith.evaluate(dim, sizes) for dim in buffer.shape)


def random(buffer, generator, sizes):
    shape = concrete_shape(buffer, sizes)
    if buffer.dtype.is_int and buffer.dtype.bits == 8:
        low, high = buffer.dtype.limits
        return generator.choice([low, low + 1, -1 % (high + 1), high], shape).astype(buffer.dtype.numpy)
    return generator.integers(-4, 5, shape).astype(buffer.dtype.numpy)


def check(rule, program, constant, threads=1, first=ROW_MAJOR, every=({},)):
    """The scheduled kernel uses an intrinsic and equals the unscheduled one on the extremes of its operands, at every set of sizes.
    The first operand is given in a layout."""
    facts = tuple(InputInfo(ROW_MAJOR if number else first, number in constant) for number in range(len(program.inputs)))
    offer = rule.offer(program, context(threads), facts)
    if isinstance(offer, tuple):
        (offer,) = offer
    assert offer is not None, "the rule declines"
    scheduled = finish(offer.schedule(program))
    assert any(isinstance(stmt, ir.Intrinsic) and stmt.name != PREFETCH for stmt in ir.walk_stmts(scheduled.body))
    generator = np.random.default_rng(5)
    for sizes in every:
        arrays = [random(buffer, generator, sizes) for buffer in program.inputs]
        packed = [layout.pack(array) for layout, array in zip(offer.layouts, arrays, strict=False)]
        expected = interp.run(program, arrays, sizes)[0]
        shaped = [array.reshape(concrete_shape(buffer, sizes)) for array, buffer in zip(packed, scheduled.inputs, strict=True)]
        actual = interp.run(scheduled, shaped, sizes, MEANING)[0]
        assert np.array_equal(actual.ravel(), offer.layouts[len(program.inputs)].pack(expected).ravel())
    return offer, scheduled


def matmul(m, k, n, a, b, total, after=False, batch=(), shared=()):
    x, w = graph.var("x", TensorType((*batch, m, k), a)), graph.var("w", TensorType((*shared, k, n), b))
    y = ops.matmul(x, w, out_dtype=total)
    params = [x, w]
    if after:
        params.append(graph.var("bias", TensorType((n,), total)))
        y = ops.add(y, params[-1])
    return build(KernelSource("kernel", tuple(params), y))


@settings(max_examples=60, deadline=None)
@given(
    st.sampled_from(PAIRS), st.integers(1, 17), st.integers(2, 13), st.integers(4, 21), st.booleans(), st.integers(1, 2),
    st.sampled_from([((), (), True), ((), (), False), ((3,), (), True), ((3,), (3,), False), ((2, 3), (3,), False)]),
)  # fmt: skip
def test_matrix_products_compute_the_same(pair, m, k, n, after, threads, operands):
    a, b, total, _ = pair
    batch, shared, constant = operands
    check(MatmulRule(), matmul(m, k, n, a, b, total, after, batch, shared), {1} if constant else set(), threads)


N, M, K, C = (SizeVar(name) for name in "nmkc")
SIZES = tuple(
    {N: n, M: m, K: k, C: c} for n, m, k, c in ((1, 1, 1, 4), (2, 3, 8, 12), (3, 12, 5, 13), (0, 13, 2, 0), (5, 7, 13, 33))
)


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("pair", PAIRS[:1] + PAIRS[2:])
@pytest.mark.parametrize(
    ("m", "k", "n", "batch", "shared", "constant"),
    [
        (M, 12, 20, (), (), True),
        (M, 7, 13, (N,), (), True),
        (M, K, 9, (), (), True),
        (5, 8, 8, (N,), (), False),
        (M, 6, 21, (N, 2), (N, 2), False),
        (M, 8, C, (N,), (N,), False),
        (M, K, 9, (N,), (N,), False),
        (M, K, C, (), (), False),
        (4, K * 2 + 1, (C + 1) // 2, (N,), (N,), False),
    ],
)
def test_matrix_products_of_symbolic_sizes_compute_the_same(pair, m, k, n, batch, shared, constant, threads):
    a, b, total, _ = pair
    check(MatmulRule(), matmul(m, k, n, a, b, total, True, batch, shared), {1} if constant else set(), threads, every=SIZES)


def test_the_packed_operand_lies_in_panels_of_groups():
    offer, _ = check(MatmulRule(), matmul(3, 16, 24, "uint8", "int8", "int32"), {1})
    assert offer.layouts == (ROW_MAJOR, Layout(((0, 16), (1, 12), (0, 4))), ROW_MAJOR)


def test_one_line_of_the_next_panel_is_asked_for_at_a_time():
    """Groups are shorter than a line: lines count, not groups."""
    _, scheduled = check(MatmulRule(), matmul(16, 64, 24, "uint8", "int8", "int32"), {1})
    statements = list(ir.walk_stmts(scheduled.body))
    assert any(isinstance(stmt, ir.Intrinsic) and stmt.name == PREFETCH for stmt in statements)
    assert not any(isinstance(stmt, ir.For) and isinstance(stmt.body, ir.Intrinsic) for stmt in statements)


def test_operands_of_what_follows_are_converted_in_it():
    x, w, other = (graph.var(*item) for item in (("x", TensorType((5, 6), "bfloat16")), ("w", TensorType((6, 8), "bfloat16")),
                   ("other", TensorType((5, 8), "bfloat16"))))  # fmt: skip
    y = ops.add(ops.matmul(x, w, out_dtype="float32"), ops.cast(other, dtype="float32"))
    check(MatmulRule(), build(KernelSource("kernel", (x, w, other), y)), {1})


def uses_instructions(program, kernel_context):
    facts = (InputInfo(ROW_MAJOR), InputInfo(ROW_MAJOR, True))
    scheduled = finish(MatmulRule().offer(program, kernel_context, facts).schedule(program))
    return any(isinstance(stmt, ir.Intrinsic) and stmt.name != PREFETCH for stmt in ir.walk_stmts(scheduled.body))


def test_columns_that_fill_no_lanes_are_summed_by_multiply_adds():
    assert uses_instructions(matmul(3, 8, 4, "uint8", "int8", "int32"), context())
    assert not uses_instructions(matmul(3, 8, 3, "uint8", "int8", "int32"), context())


def test_other_instructions_are_not_taken_for_dot_products():
    nest = dot_product("uint8", "int8", "int32", 4, 4)
    store = next(stmt for stmt in ir.walk_stmts(nest.body) if isinstance(stmt, ir.Store))
    twice = ir.Store(store.buffer, store.indices, store.value + store.value)
    other = TensorIntrin(
        "odd",
        ir.LoopProgram("odd", nest.inputs, nest.outputs, Rewriter(stmt=lambda s: twice if s is store else None).stmt(nest.body)),
    )
    assert not uses_instructions(matmul(3, 8, 8, "uint8", "int8", "int32"), KernelContext(CAPABILITIES, 1, (other,)))


def test_axes_that_are_cut_twice():
    layout = Layout(((0, 8), (1, 3), (0, 2)))
    array = np.arange(16 * 6).reshape(16, 6)
    packed = layout.pack(array)
    assert packed.shape == layout.shape(array.shape) == (2, 2, 4, 3, 2)
    assert packed[1, 1, 2, 1, 1] == array[8 + 2 * 2 + 1, 3 + 1]
    assert not layout.pads(array.shape)
    assert layout.pads((15, 6))


@pytest.mark.parametrize("shape", [(16, 6), (15, 6)])
def test_copies_to_layouts_that_cut_axes_twice(shape):
    layout = Layout(((0, 8), (1, 3), (0, 2)))
    array = np.arange(np.prod(shape)).reshape(shape).astype(np.int32)
    for source, target in ((ROW_MAJOR, layout), (layout, ROW_MAJOR)):
        program = relayout(shape, dtype("int32"), source, target)
        packed_array = source.pack(array).reshape(program.inputs[0].shape)
        assert np.array_equal(interp.run(program, [packed_array])[0].ravel(), target.pack(array).ravel())


def conv(pair, n, c, o, k, stride, pad, width, after, groups=1):
    a, b, total, _ = pair
    x, w = graph.var("x", TensorType((n, c, k + 1, k + width), a)), graph.var("w", TensorType((o, c // groups, k, k), b))
    y = ops.conv(x, w, strides=(stride, stride), pads=(pad,) * 4, dilations=(1, 1), groups=groups, out_dtype=total)
    params = [x, w]
    if after:
        params.append(graph.var("bias", TensorType((o, 1, 1), total)))
        y = ops.add(y, params[-1])
    return build(KernelSource("kernel", tuple(params), y))


@settings(max_examples=40, deadline=None)
@given(
    st.sampled_from(PAIRS), st.integers(1, 2), st.integers(1, 9), st.sampled_from([3, 4, 6, 8, 12]), st.integers(1, 3),
    st.integers(1, 2), st.integers(0, 1), st.integers(1, 16), st.booleans(), st.integers(1, 2),
)  # fmt: skip
def test_convolutions_compute_the_same(pair, n, c, o, k, stride, pad, width, after, threads):
    offer, _ = check(ConvRule(), conv(pair, n, c, o, k, stride, pad, width, after), {1}, threads)
    assert offer.layouts[-1] == Layout(((1, 4),))


@settings(max_examples=40, deadline=None)
@given(
    st.sampled_from(PAIRS), st.integers(1, 2), st.integers(2, 3), st.integers(2, 9), st.sampled_from([1, 2, 3, 4, 5, 7]),
    st.integers(2, 11), st.booleans(), st.integers(1, 2),
)  # fmt: skip
def test_groups_that_fill_no_vectors_are_products_over_pixels(pair, n, groups, c, o, width, after, threads):
    assume(o % 4 or c % pair[3])
    program = conv(pair, n, groups * c, groups * o, 1, 1, 0, width, after, groups)
    offer, _ = check(MatmulRule(), program, {1}, threads)
    assert set(offer.layouts) == {ROW_MAJOR}


def test_products_over_pixels_take_scales_by_channel_and_their_own_data():
    types = TensorType((2, 15, 3, 5), "uint8"), TensorType((15, 5, 1, 1), "int8"), TensorType((15,), "float32")
    x, w, scale = (graph.var(name, tensor_type) for name, tensor_type in zip(("x", "w", "scale"), types, strict=True))
    y = ops.conv(x, w, groups=3, out_dtype="int32")
    y = ops.maximum(ops.requantize(y, scale, graph.constant(np.array(3, np.uint8)), dtype="uint8", axis=1), x)
    check(MatmulRule(), build(KernelSource("kernel", (x, w, scale), y)), {1, 2})


@pytest.mark.parametrize(
    ("outputs", "size", "stride", "width", "groups"),
    [
        (8, 1, 1, 8, 2),  # a group fills vectors
        (6, 3, 1, 8, 2),  # windows
        (6, 1, 2, 8, 2),  # pixels that are not adjacent
        (6, 1, 1, 0, 2),  # fewer pixels than lanes
        (6, 1, 1, 8, 1),
    ],
)
def test_other_convolutions_are_no_products_over_pixels(outputs, size, stride, width, groups):
    program = conv(PAIRS[0], 1, 4 * groups, outputs, size, stride, 0, width, False, groups)
    facts = (InputInfo(ROW_MAJOR), InputInfo(ROW_MAJOR, True))
    assert MatmulRule().offer(program, context(), facts) is None


@settings(max_examples=20, deadline=None)
@given(
    st.sampled_from(PAIRS), st.integers(2, 3), st.integers(1, 3), st.sampled_from([4, 8]), st.integers(1, 3), st.integers(0, 1),
    st.integers(1, 9), st.booleans(), st.integers(1, 2),
)  # fmt: skip
def test_grouped_convolutions_compute_the_same(pair, groups, depth, o, k, pad, width, after, threads):
    check(ConvRule(), conv(pair, 1, groups * depth * pair[3], groups * o, k, 1, pad, width, after, groups), {1}, threads)


H, W = SizeVar("h", 1), SizeVar("w", 1)
IMAGES = tuple({N: n, H: h, W: w} for n, h, w in ((1, 1, 1), (2, 2, 3), (0, 3, 9), (1, 3, 19)))


def images(shape, c, o, k, stride, pad, pair, groups=1):
    """A convolution with a bias over images of a shape."""
    a, b, total, _ = pair
    axes = len(shape) - 1
    x, w = graph.var("x", TensorType((shape[0], c, *shape[1:]), a)), graph.var("w", TensorType((o, c // groups, *(k,) * axes), b))
    bias = graph.var("bias", TensorType((o, *(1,) * axes), total))
    each = {"strides": (stride,) * axes, "pads": (pad,) * 2 * axes, "dilations": (1,) * axes}
    y = ops.add(ops.conv(x, w, groups=groups, out_dtype=total, **each), bias)
    return build(KernelSource("kernel", (x, w, bias), y))


@pytest.mark.parametrize(
    ("shape", "c", "o", "k", "stride", "pad", "groups", "threads"),
    [
        ((N, H, W), 8, 8, 3, 1, 1, 1, 2),
        ((N, 5, 6), 4, 4, 3, 1, 1, 1, 1),
        ((2, H, 7), 8, 12, 1, 1, 0, 1, 2),
        ((N, H, W), 4, 6, 3, 2, 1, 1, 1),
        ((1, H, W), 3, 8, 3, 2, 1, 1, 2),
        ((N, W), 8, 8, 3, 1, 1, 2, 1),
    ],
)
def test_convolutions_of_symbolic_sizes_compute_the_same(shape, c, o, k, stride, pad, groups, threads):
    for pair in (PAIRS[0], PAIRS[3]):
        check(ConvRule(), images(shape, c, o, k, stride, pad, pair, groups), {1}, threads, every=IMAGES)


def test_single_pixels_of_images_are_read_where_they_are():
    _, scheduled = check(ConvRule(), images((N, H, W), 8, 8, 1, 1, 0, PAIRS[0]), {1}, every=IMAGES)
    local = [stmt.buffer for stmt in ir.walk_stmts(scheduled.body) if isinstance(stmt, ir.Alloc)]
    assert all(buffer.scope == "register" for buffer in local)
    assert len(scheduled.params) == 4


@pytest.mark.parametrize(("c", "o", "groups"), [(6, 8, 2), (8, 6, 2), (8, 1, 1)])
def test_channels_of_groups_that_fill_nothing_are_declined(c, o, groups):
    program = conv(PAIRS[0], 1, c, o, 1, 1, 0, 4, False, groups)
    assert not ConvRule().offer(program, context(), (InputInfo(ROW_MAJOR), InputInfo(ROW_MAJOR, True)))


@pytest.mark.parametrize("block", [4, 8, 16])
def test_blocks_of_channels_are_taken_as_they_are(block):
    offer, _ = check(ConvRule(), conv(PAIRS[0], 1, 8, 8, 3, 1, 1, 5, False), {1}, first=Layout(((1, block),)))
    assert offer.layouts[0] == Layout(((1, block),))


def product(a, b, total):
    return ops.matmul(
        *(graph.var(*item) for item in (("x", TensorType((M, K), a)), ("w", TensorType((K, 12), b)))), out_dtype=total
    )


def convolution(a, b, total):
    x, w = graph.var("x", TensorType((N, K, 5, 6), a)), graph.var("w", TensorType((8, K, 3, 3), b))
    return ops.conv(x, w, pads=(1,) * 4, out_dtype=total)


def winograd(a, b, total):
    x, u = graph.var("x", TensorType((N, K, 6, 8), a)), graph.var("u", TensorType((4, 4, K, 8), b))
    return winograd_conv(x, u, pads=(1,) * 4, tile=2)


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize(
    ("build_call", "dtypes"),
    [
        (product, ("float32",) * 3),
        (product, ("uint8", "int8", "int32")),
        (convolution, ("float32",) * 3),
        (convolution, ("uint8", "int8", "int32")),
        (winograd, ("float32",) * 3),
        (winograd, ("int16", "int16", "int32")),
    ],
)
def test_constants_of_symbolic_depth_compute_the_same(build_call, dtypes, threads):
    """Weights are constant and of symbolic depth if they are broadcast: rules cannot prefetch panels of them, or decline."""
    call = build_call(*dtypes)
    program = build(KernelSource("kernel", tuple(call.args), call))
    facts = (InputInfo(ROW_MAJOR), InputInfo(ROW_MAJOR, True))
    offer = next(filter(None, (collect_offers(rule, program, context(threads), facts) for rule in SHARED_RULES)))[0]
    generator = np.random.default_rng(5)
    for schedule in offer.schedules:
        scheduled = finish(schedule(program))
        for sizes in ({N: 1, M: 1, K: 1}, {N: 2, M: 13, K: 7}):
            arrays = [random(buffer, generator, sizes) for buffer in program.inputs]
            packed = [layout.pack(array) for layout, array in zip(offer.layouts, arrays, strict=False)]
            expected = interp.run(program, arrays, sizes)[0]
            shaped = [array.reshape(concrete_shape(buffer, sizes)) for array, buffer in zip(packed, scheduled.inputs, strict=True)]
            actual = interp.run(scheduled, shaped, sizes, MEANING)[0]
            assert np.array_equal(actual.ravel(), offer.layouts[2].pack(expected).ravel())
