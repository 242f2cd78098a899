"""Schedule rules: what they make of a kernel computes the same, and has the shape that they promise."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from inlaid import ops
from inlaid.graph import ir as graph
from inlaid.lowering.kernels.finish import finish
from inlaid.lowering.kernels.kernel import KernelSource, build
from inlaid.plugins import Capabilities
from inlaid.schedules.blocked import BlockedRule
from inlaid.schedules.conv import ConvRule
from inlaid.schedules.generic import GenericRule
from inlaid.schedules.transpose import TransposeRule
from inlaid.schedules.window import WindowRule
from inlaid.tensor import interp, ir
from inlaid.tensor.primitives import SEMANTICS
from inlaid.tensor.scheduling.rule import InputInfo, KernelContext
from inlaid_runtime import arith
from inlaid_runtime.types import ROW_MAJOR, Layout, TensorType

CAPABILITIES = Capabilities(dtypes=("float32",), vector_bits=128, vector_registers=16)
BLOCKED = Layout(((1, 4),))
CHECKED = settings(max_examples=25, deadline=None)


def kernel(params, body):
    return build(KernelSource("kernel", tuple(params), body))


def check(rule, program, threads=1, constant=frozenset(), layout=ROW_MAJOR, sizes=None):
    """Carry out the rule's offer; the scheduled kernel must equal the unscheduled one on small integers, where sums are exact.
    `sizes` are those of symbolic dimensions."""
    context = KernelContext(CAPABILITIES, threads)
    facts = tuple(InputInfo(layout, number in constant) for number in range(len(program.inputs)))
    offer = rule.offer(program, context, facts)
    assert offer, "the rule declines"
    offer = offer[0] if isinstance(offer, tuple) else offer
    scheduled = finish(offer.schedule(program))
    generator = np.random.default_rng(3)
    shapes = [[arith.evaluate(arith.wrap(dim), sizes or {}) for dim in buffer.shape] for buffer in program.inputs]
    arrays = [
        generator.integers(-4, 5, shape).astype(buffer.dtype.numpy) for shape, buffer in zip(shapes, program.inputs, strict=True)
    ]
    # What lies in padding must not matter.
    packed = [poisoned(layout, array) for layout, array in zip(offer.layouts, arrays, strict=False)]
    for number, (input_layout, buffer) in enumerate(zip(offer.layouts, scheduled.inputs, strict=False)):
        if input_layout is ROW_MAJOR:  # neighboring dimensions may have become one
            packed[number] = packed[number].reshape([arith.evaluate(arith.wrap(dim), sizes or {}) for dim in buffer.shape])
        assert sizes or packed[number].shape == buffer.shape
    expected = interp.run(program, arrays)[0]
    actual = interp.run(scheduled, packed, sizes, intrinsics=SEMANTICS)[0]
    layout = offer.layouts[len(program.inputs)]
    is_element = layout.pack(np.ones(expected.shape)) > 0
    actual = actual.reshape(is_element.shape) if layout is ROW_MAJOR else actual
    assert actual.shape == is_element.shape
    assert np.array_equal(actual[is_element], layout.pack(expected)[is_element])
    return offer, scheduled


def poisoned(layout, array):
    packed = layout.pack(array)
    return (
        np.where(layout.pack(np.ones(array.shape)) > 0, packed, np.nan).astype(packed.dtype) if array.dtype.kind == "f" else packed
    )


def declined(rule, program):
    facts = (InputInfo(ROW_MAJOR),) * len(program.inputs)
    return not rule.offer(program, KernelContext(CAPABILITIES), facts)


def kinds(program):
    return {stmt.kind for stmt in ir.walk_stmts(program.body) if isinstance(stmt, ir.For)}


def conv(n, c, h, w, o, k, stride, pad, groups=1, after=0):
    x = graph.var("x", TensorType((n, c, h, w), "float32"))
    weight = graph.var("w", TensorType((o, c // groups, k, k), "float32"))
    bias = graph.var("b", TensorType((o, 1, 1), "float32"))
    y = ops.conv(x, weight, strides=(stride, stride), pads=(pad,) * 4, dilations=(1, 1), groups=groups)
    params = [x, weight]
    if after:
        params.append(bias)
        y = ops.add(y, bias)
    if after > 1:
        residual = graph.var("r", y.type)
        params.append(residual)
        y = ops.relu(ops.add(y, residual))
    return kernel(params, y)


@CHECKED
@given(
    st.integers(1, 2), st.integers(2, 9), st.integers(1, 3), st.integers(1, 3), st.integers(3, 13), st.integers(0, 2),
    st.integers(1, 2), st.integers(0, 1), st.integers(3, 16), st.sampled_from([1, 2]), st.booleans(),
)  # fmt: skip
def test_convolution_computes_the_same(n, c, k, height, o, after, stride, pad, width, threads, blocked):
    program = conv(n, c, k + height, k + width, o, k, stride, pad, after=after)
    offer, scheduled = check(ConvRule(), program, threads, layout=BLOCKED if blocked else ROW_MAJOR)
    assert ir.ForKind.VECTORIZED in kinds(scheduled)
    assert ir.ForKind.UNROLLED not in kinds(scheduled)
    assert offer.layouts[-1] in (BLOCKED, Layout(((1, 2),)))


def test_padding_is_decided_by_rows():
    x = graph.var("x", TensorType((1, 8, 9, 9), "float32"))
    _, scheduled = check(WindowRule(), kernel([x], ops.max_pool(x, kernel=(3, 3), pads=(1, 1, 1, 1))))
    stores = [stmt for stmt in ir.walk_stmts(scheduled.body) if isinstance(stmt, ir.Store)]
    assert not any(isinstance(node, ir.Select) for stmt in stores for node in ir.walk_exprs(stmt.value))


def test_convolution_blocks_channels_and_packs_weights():
    offer, _ = check(ConvRule(), conv(1, 8, 6, 6, 16, 3, 1, 1, after=2))
    blocked = Layout(((1, 4),))
    assert offer.layouts == (blocked, Layout(((1, 4), (0, 8))), ROW_MAJOR, blocked, blocked)


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize(("n", "height", "groups"), [(1, 6, 1), (3, 5, 1), (2, 4, 2)])
def test_convolution_of_any_batch_computes_the_same(n, height, groups, threads):
    batch = arith.SizeVar("n")
    program = conv(batch, 8, height, 5, 16, 3, 1, 1, groups, after=2)
    _, scheduled = check(ConvRule(), program, threads, sizes={batch: n})
    assert (ir.ForKind.PARALLEL in kinds(scheduled)) == (threads > 1)


@pytest.mark.parametrize(("channels", "outputs", "groups"), [(8, 8, 2), (16, 16, 2), (6, 12, 3)])
@pytest.mark.parametrize("layout", [ROW_MAJOR, BLOCKED])
def test_grouped_convolution_computes_the_same(channels, outputs, groups, layout):
    check(ConvRule(), conv(1, channels, 5, 5, outputs, 3, 1, 1, groups=groups, after=1), layout=layout)


def prefetches(program):
    return [stmt for stmt in ir.walk_stmts(program.body) if isinstance(stmt, ir.Intrinsic)]


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize(("channels", "k"), [(36, 3), (128, 1)])
def test_panels_of_weights_are_fetched_ahead(channels, k, threads):
    """Of 32 output channels, 8 or 16 in a panel, over inputs that are fewer than weights: threads share panels."""
    _, scheduled = check(ConvRule(), conv(1, channels, 5, 3, 32, k, 1, 0, after=1), threads)
    assert prefetches(scheduled)
    assert next(stmt.extent.value for stmt in ir.walk_stmts(scheduled.body) if isinstance(stmt, ir.For)) in (2, 4)


@pytest.mark.parametrize(("k", "height"), [(1, 6), (3, 6), (1, 9)])
def test_panels_are_fetched_ahead_where_images_have_any_size(k, height):
    """Images of the size that is expected ask for all of the next panel; larger ones for no more."""
    h, w = arith.SizeVar("h", 0, 12), arith.SizeVar("w", 0, 12)
    program = conv(1, 128, h, w, 32, k, 1, k // 2)
    scheduled = finish(ConvRule().offer(program, KernelContext(CAPABILITIES), (InputInfo(ROW_MAJOR),) * 2)[0].schedule(program))
    weights = scheduled.inputs[1]
    indices = [index for index in fetched(scheduled.body, {h: height, w: 6}) if index[0] == 1]
    lines = {int(np.ravel_multi_index(index, weights.shape)) * weights.dtype.bytes // 64 for index in indices}
    assert len(lines) == np.prod(weights.shape[1:]) * weights.dtype.bytes // 64


def fetched(stmt, sizes):
    """The indices of all prefetches of a statement, in order."""
    if isinstance(stmt, ir.For):
        for iteration in range(arith.evaluate(stmt.extent, sizes)):
            yield from fetched(stmt.body, {**sizes, stmt.var: iteration})
    elif isinstance(stmt, ir.Intrinsic):
        yield tuple(arith.evaluate(low, sizes) for low, _ in stmt.regions[0].ranges)
    elif isinstance(stmt, ir.Let):
        yield from fetched(stmt.body, {**sizes, stmt.var: arith.evaluate(stmt.value.index, sizes)})
    elif not isinstance(stmt, ir.If) or arith.evaluate(stmt.condition.index, sizes):
        for inner in ir.substatements(stmt):
            yield from fetched(inner, sizes)


def test_weights_that_stay_in_cache_are_not_fetched_ahead():
    _, scheduled = check(ConvRule(), conv(1, 8, 4, 4, 16, 3, 1, 0, after=1))
    assert not prefetches(scheduled)


def test_rows_are_shared_where_there_are_few_weights():
    _, scheduled = check(ConvRule(), conv(1, 8, 16, 3, 16, 1, 1, 0), threads=2)
    kind = {stmt.kind: stmt.extent.value for stmt in ir.walk_stmts(scheduled.body) if isinstance(stmt, ir.For)}
    assert kind[ir.ForKind.PARALLEL] == 2 * 2


def test_groups_do_not_share_vectors():
    """Six channels of three groups: vectors of four would lie across two of them."""
    offer, _ = check(ConvRule(), conv(1, 6, 5, 5, 18, 3, 1, 1, groups=3))
    assert offer.layouts[-1] == Layout(((1, 2),))


def test_pixels_of_several_rows_make_a_tile():
    """Weights are read once for 2 rows of 3 pixels; the third row is alone."""
    _, scheduled = check(ConvRule(), conv(1, 4, 3, 3, 8, 1, 1, 0, after=1))
    assert not [stmt for stmt in ir.walk_stmts(scheduled.body) if isinstance(stmt, ir.For) and stmt.extent == 3]


def test_padded_channels_are_an_offer_beside_half_vectors():
    program = conv(1, 4, 5, 5, 6, 1, 1, 0, after=1)
    offers = ConvRule().offer(program, KernelContext(CAPABILITIES), (InputInfo(ROW_MAJOR),) * 3)
    assert [offer.layouts[-1] for offer in offers] == [Layout(((1, 4),)), Layout(((1, 2),))]
    assert offers[0].cost < offers[1].cost


def test_parallel_convolution_computes_the_same():
    _, scheduled = check(ConvRule(), conv(2, 4, 6, 6, 8, 3, 1, 1, after=1), threads=2)
    assert ir.ForKind.PARALLEL in kinds(scheduled)


def test_convolution_declines_what_does_not_fill_vectors():
    assert declined(ConvRule(), conv(1, 4, 5, 5, 1, 3, 1, 0))
    assert declined(ConvRule(), conv(1, 4, 5, 5, 4, 3, 1, 0, groups=4))


@CHECKED
@given(
    st.sampled_from(["max", "average", "depthwise"]),
    st.integers(3, 9),
    st.integers(1, 3),
    st.integers(1, 11),
    st.integers(0, 1),
)
def test_windows_compute_the_same(kind, channels, k, width, pad):
    pad = min(pad, k - 1)
    x = graph.var("x", TensorType((2, channels, k + 1, k + width), "float32"))
    window = {"kernel": (k, k), "strides": (1, 1), "pads": (pad,) * 4}
    params = [x]
    if kind == "max":
        y = ops.max_pool(x, dilations=(1, 1), **window)
    elif kind == "average":
        y = ops.avg_pool(x, dilations=(1, 1), count_include_pad=True, **window)
    else:
        params.append(graph.var("w", TensorType((channels, 1, k, k), "float32")))
        y = ops.conv(x, params[1], strides=(1, 1), pads=(pad,) * 4, dilations=(1, 1), groups=channels)
    program = kernel(params, y)
    facts = (InputInfo(ROW_MAJOR),) * len(params)
    if not WindowRule().offer(program, KernelContext(CAPABILITIES), facts):
        # A window of one element is no reduction.
        assert k == 1
        return
    _, scheduled = check(WindowRule(), program)
    assert ir.ForKind.VECTORIZED in kinds(scheduled)


def test_convolutions_to_one_channel_of_any_size_go_row_by_row():
    size = arith.SizeVar("h", 3)
    for outputs, stride in ((1, 1), (1, 2), (2, 1)):
        x = graph.var("x", TensorType((1, 8, size, size), "float32"))
        weight = graph.var("w", TensorType((outputs, 8, 3, 3), "float32"))
        program = kernel([x, weight], ops.conv(x, weight, strides=(stride, stride), pads=(1,) * 4))
        facts = (InputInfo(ROW_MAJOR),) * 2
        wide = KernelContext(Capabilities(dtypes=("float32",), vector_bits=256, vector_registers=16))
        assert bool(ConvRule().offer(program, wide, facts)) == ((outputs, stride) != (1, 1))


def test_windows_leave_products_of_matrices_to_others():
    """They too are a sum for each channel."""
    heads = (1, 4, 5, 6)
    a, b = graph.var("a", TensorType(heads, "float32")), graph.var("b", TensorType((1, 4, 6, 8), "float32"))
    assert not WindowRule().offer(kernel([a, b], ops.matmul(a, b)), KernelContext(CAPABILITIES), (InputInfo(ROW_MAJOR),) * 2)


@CHECKED
@given(st.lists(st.sampled_from([4, 8, 12]), min_size=2, max_size=4), st.integers(1, 2), st.booleans())
def test_concatenation_stays_in_blocks(channels, threads, after):
    params = [graph.var(f"x{n}", TensorType((2, c, 3, 2), "float32")) for n, c in enumerate(channels)]
    y = ops.concat(*params, axis=1)
    offer, scheduled = check(BlockedRule(), kernel(params, ops.relu(y) if after else y), threads, layout=BLOCKED)
    assert set(offer.layouts) == {BLOCKED}
    assert ir.ForKind.VECTORIZED in kinds(scheduled)


def test_elementwise_operators_stay_in_blocks():
    x, y = (graph.var(name, TensorType((1, 8, 3, 3), "float32")) for name in "xy")
    bias = graph.var("bias", TensorType((8, 1, 1), "float32"))
    offer, _ = check(BlockedRule(), kernel([x, y, bias], ops.relu(ops.add(ops.mul(x, y), bias))), layout=BLOCKED)
    assert offer.layouts == (BLOCKED, BLOCKED, ROW_MAJOR, BLOCKED)


def test_blocks_are_left_where_channels_move():
    x = graph.var("x", TensorType((1, 8, 8, 3), "float32"))
    facts = (InputInfo(BLOCKED),)
    turned = kernel([x], ops.transpose(x, perm=(0, 2, 1, 3)))
    assert BlockedRule().offer(turned, KernelContext(CAPABILITIES), facts) is None
    assert BlockedRule().offer(kernel([x], ops.relu(x)), KernelContext(CAPABILITIES), (InputInfo(ROW_MAJOR),)) is None


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("blocked", [False, True])
def test_transposes_read_what_lies_in_blocks(blocked, threads):
    x = graph.var("x", TensorType((1, 16, 5, 7), "float32"))
    layout = Layout(((1, 8),)) if blocked else ROW_MAJOR
    program = kernel([x], ops.transpose(x, perm=(0, 2, 3, 1)))
    offer = TransposeRule().offer(program, KernelContext(CAPABILITIES, threads), (InputInfo(layout),))
    assert offer is not None and offer.layouts == (layout, ROW_MAJOR)
    scheduled = finish(offer.schedule(program))
    array = np.arange(16 * 35, dtype=np.float32).reshape(1, 16, 5, 7)
    (actual,) = interp.run(scheduled, [layout.pack(array).reshape(scheduled.inputs[0].shape)])
    assert np.array_equal(actual.reshape(1, 5, 7, 16), array.transpose(0, 2, 3, 1))
    assert ir.ForKind.VECTORIZED in kinds(scheduled)


def test_the_transpose_rule_declines_what_does_more():
    x = graph.var("x", TensorType((4, 8), "float32"))
    assert declined(TransposeRule(), kernel([x], ops.relu(ops.transpose(x, perm=(1, 0)))))
    assert declined(TransposeRule(), kernel([x], ops.strided_slice(x, begin=(0, 0), end=(2, 8), strides=(1, 1))))


@CHECKED
@given(st.integers(1, 6), st.integers(1, 6), st.integers(1, 2))
def test_the_generic_rule_takes_everything(m, n, threads):
    a = graph.var("a", TensorType((m, n), "float32"))
    check(GenericRule(), kernel([a], ops.exp(ops.mul(ops.add(a, a), graph.constant(0, "float32")))), threads)
    check(GenericRule(), kernel([a], ops.reduce_sum(ops.mul(a, a), axes=(1,), keepdims=False)), threads)
    check(GenericRule(), kernel([a], ops.transpose(a, perm=(1, 0))), threads)


def test_the_generic_rule_runs_over_images_as_one_row():
    h, w = arith.SizeVar("h"), arith.SizeVar("w")
    a = graph.var("a", TensorType((2, 3, h, w), "float32"))
    _, scheduled = check(GenericRule(), kernel([a], ops.relu(a)), sizes={h: 5, w: 3})
    (loop,) = (stmt for stmt in ir.walk_stmts(scheduled.body) if isinstance(stmt, ir.For))
    assert arith.simplify(loop.extent - 6 * h * w) == arith.ZERO


def across_rows(shape, axis):
    a = graph.var("a", TensorType(shape, "float32"))
    return kernel([a], ops.reduce_max(a, axes=(axis,), keepdims=False))


@CHECKED
@given(st.integers(1, 5), st.integers(1, 6), st.integers(1, 600), st.integers(1, 2), st.booleans())
def test_the_generic_rule_reduces_across_rows(outer, rows, columns, threads, first_axis):
    program = across_rows((rows, columns), 0) if first_axis else across_rows((outer, rows, columns), 1)
    check(GenericRule(), program, threads)


def test_reductions_across_rows_walk_along_them():
    _, scheduled = check(GenericRule(), across_rows((3, 6, 40), 1))
    loops = [stmt for stmt in ir.walk_stmts(scheduled.body) if isinstance(stmt, ir.For)]
    innermost = [loop for loop in loops if not any(isinstance(stmt, ir.For) for stmt in ir.walk_stmts(loop.body))]
    assert [loop.extent.value for loop in innermost] == [40, 40]


def test_the_generic_rule_merges_chains():
    a = graph.var("a", TensorType((300, 200), "float32"))
    program = kernel([a], ops.relu(ops.add(ops.mul(a, a), a)))
    offer = GenericRule().offer(program, KernelContext(CAPABILITIES, 2), (InputInfo(ROW_MAJOR),))
    scheduled = offer.schedule(program)
    blocks = [stmt for stmt in ir.walk_stmts(scheduled.body) if isinstance(stmt, ir.Block)]
    assert len(blocks) == 1
    assert ir.ForKind.PARALLEL in kinds(scheduled)


def selects(program):
    """Choices between elements that a kernel makes, in its innermost loops."""
    return [
        node
        for stmt in ir.walk_stmts(program.body)
        if isinstance(stmt, ir.Store)
        for node in ir.walk_exprs(stmt.value)
        if isinstance(node, ir.Select)
    ]


@pytest.mark.parametrize("mode", ["constant", "reflect", "edge", "wrap"])
@pytest.mark.parametrize("sizes", [(1, 1), (2, 5), (7, 4)])
def test_the_generic_rule_copies_what_is_padded_by_rows(mode, sizes):
    h, w = arith.SizeVar("h"), arith.SizeVar("w")
    x = graph.var("x", TensorType((2, h, w), "float32"))
    value = (graph.constant(np.float32(3)),) if mode == "constant" else ()
    # The operator before is computed on the way, though rows inside and borders read it at places of their own.
    padded = ops.pad(ops.neg(x), *value, pads=(0, 1, 2, 0, 0, 1), mode=mode)
    program = kernel([x], padded)
    scheduled = check(GenericRule(), program, sizes={h: sizes[0], w: sizes[1]})[1]
    assert not selects(scheduled)
    assert not any(isinstance(stmt, ir.Alloc) for stmt in ir.walk_stmts(scheduled.body))


@pytest.mark.parametrize("axis", [0, 1])
def test_the_generic_rule_joins_by_runs(axis):
    n = arith.SizeVar("n")
    x, y = (graph.var(name, TensorType((n, 5), "float32")) for name in "xy")
    scheduled = check(GenericRule(), kernel([x, y], ops.concat(x, ops.relu(y), x, axis=axis)), sizes={n: 3})[1]
    assert not selects(scheduled)
    assert all(stmt.extent != arith.ZERO for stmt in ir.walk_stmts(scheduled.body) if isinstance(stmt, ir.For))


def test_the_generic_rule_repeats_rows_without_division():
    x = graph.var("x", TensorType((4, 6), "float32"))
    scheduled = check(GenericRule(), kernel([x], ops.tile(x, repeats=(1, 3))))[1]
    loads = [node for stmt in ir.walk_stmts(scheduled.body) if isinstance(stmt, ir.Store) for node in ir.walk_exprs(stmt.value)]
    indices = [index for node in loads if isinstance(node, ir.Load) for index in node.indices]
    assert not any(isinstance(part, arith.FloorMod) for index in indices for part in arith.walk(index))


def innermost(program):
    """The extents of the loops that hold no others."""
    loops = [stmt for stmt in ir.walk_stmts(program.body) if isinstance(stmt, ir.For)]
    return [loop.extent for loop in loops if not any(isinstance(stmt, ir.For) for stmt in ir.walk_stmts(loop.body))]


@CHECKED
@given(st.integers(1, 3), st.integers(1, 2), st.integers(1, 3), st.sampled_from([(5, 9), (4, 4), (3, 17)]), st.integers(1, 2))
def test_the_generic_rule_sums_windows_row_by_row(channels, outputs, stride, sizes, threads):
    h, w = arith.SizeVar("h"), arith.SizeVar("w")
    x, weights = (
        graph.var("x", TensorType((2, channels, h, w), "float32")),
        graph.var("w", TensorType((outputs, channels, 3, 2), "float32")),
    )
    convolution = ops.conv(x, weights, strides=(stride, stride), pads=(1, 0, 1, 1), dilations=(1, 1), groups=1)
    scheduled = check(GenericRule(), kernel([x, weights], ops.relu(convolution)), threads, sizes={h: sizes[0], w: sizes[1]})[1]
    # By greater strides most of a vector would be read for nothing.
    assert all(arith.free_vars(extent) for extent in innermost(scheduled)) == (stride < 3)


def test_the_generic_rule_multiplies_row_by_row():
    n = arith.SizeVar("n")
    a, b = graph.var("a", TensorType((3, 5), "float32")), graph.var("b", TensorType((5, n), "float32"))
    scheduled = check(GenericRule(), kernel([a, b], ops.matmul(a, b)), sizes={n: 9})[1]
    assert all(arith.free_vars(extent) == {n} for extent in innermost(scheduled))
