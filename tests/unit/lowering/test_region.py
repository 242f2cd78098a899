"""Regions of the graph as kernels, calls and buffers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.computed_relations import CASES, check
from tests.unit.graph.strategies import F32, Generator, N, Program, assert_close, tensor_shape

from inlaid import ops
from inlaid.graph import ir
from inlaid.graph.interp import Interpreter
from inlaid.graph.operator import Operator
from inlaid.lowering.kernels.bodies import inline_scalars
from inlaid.passes.rounded_floats import rounded_floats
from inlaid.tensor.region import RegionProgram, size_vars
from inlaid_runtime import arith
from inlaid_runtime.arith import SizeVar
from inlaid_runtime.errors import CompileError
from inlaid_runtime.types import TensorType

from .oracle import buffers_in, lowered, run


class RegionGenerator(Generator):
    """Random bodies of regions."""

    def step(self, pool: list[ir.Expr], depth: int) -> ir.Expr:
        kinds: list[Callable[[list[ir.Expr], int], ir.Expr]] = [self.unary, self.binary, self.reduce, self.shape, self.several]
        return self.pick([*kinds, self.shape, self.binary, self.fixed])(pool, depth)  # type: ignore[no-any-return]

    def several(self, pool: list[ir.Expr], depth: int) -> ir.Expr:
        x = self.tensor(pool)
        if not tensor_shape(x) or not isinstance(tensor_shape(x)[-1], int) or not tensor_shape(x)[-1]:
            return ops.neg(x)
        both = ops.topk(x, k=1, axis=len(tensor_shape(x)) - 1)
        pool.append(ops.cast(ir.tuple_item(both, 1), dtype=F32))
        return ir.tuple_item(both, 0)

    def fixed(self, pool: list[ir.Expr], depth: int) -> ir.Expr:
        return self.constant(self.pick([(), (1,), (3,), (2, 3)]))


@st.composite
def regions(draw: Callable[..., Any]) -> Program:
    generator = RegionGenerator(draw)
    kinds = [TensorType((2, 3), F32), TensorType((N, 3), F32), TensorType((3,), F32), TensorType((), F32)]
    params = [ir.var(name, type_) for name, type_ in zip("wxyz", kinds, strict=True)]
    pool: list[ir.Expr] = list(params)
    generator.grow(pool, 0, generator.number(1, 10))
    results = [generator.pick(pool) for _ in range(generator.number(0, 3))] + [pool[-1]]
    rng = np.random.default_rng(generator.number(0, 3))
    size = generator.number(1, 3)
    inputs = {
        param.name: rng.integers(-3, 4, [size if dim == N else dim for dim in tensor_shape(param)]).astype(np.float32)
        for param in params
    }
    return Program(ir.Module({"main": ir.function(params, ir.tuple_(results))}), inputs)


@settings(max_examples=60, deadline=None)
@given(regions(), st.booleans())
def test_regions_compute_what_graphs_do(program: Program, fused: bool) -> None:
    region = lowered(program.module.main, fused=fused)
    arrays = list(program.inputs.values())
    with np.errstate(all="ignore"):
        assert_close(tuple(run(region, arrays)), Interpreter().run(program.module.main, arrays))


# --- kernels ----------------------------------------------------------------------------------------------------------

X = ir.var("x", TensorType((2, 3), F32))
Y = ir.var("y", TensorType((2, 3), F32))
VALUES = [np.arange(-3, 3, dtype=np.float32).reshape(2, 3), np.full((2, 3), 2, np.float32)]


def make_region(*results: ir.Expr, fused: bool = True) -> RegionProgram:
    """The region of x and y with these results, checked against the interpreter."""
    function = ir.function([X, Y], ir.tuple_(results))
    region = lowered(function, fused=fused)
    assert_close(tuple(run(region, VALUES)), Interpreter().run(function, VALUES))
    return region


def weight(*shape: int, seed: int = 0) -> ir.Constant:
    return ir.constant(np.random.default_rng(seed).integers(-3, 4, shape).astype(np.float32))


def test_equal_kernels_are_built_once() -> None:
    region = make_region(ops.tanh(X), ops.tanh(Y), ops.tanh(ops.exp(X)), ops.exp(Y), fused=False)
    assert len(region.calls) == 5 and len(region.kernels) == 2


def test_what_is_done_with_scalars_alone_takes_no_buffer() -> None:
    region = make_region(ops.transpose(ir.constant(np.float32(2)), perm=()), ops.transpose(ops.reduce_sum(X, axes=(0, 1)), perm=()))
    assert not region.calls[-1].inputs or not region.calls[0].inputs


def test_kernels_that_differ_are_not_shared() -> None:
    """By attributes, element types, shapes, constants inside, and which argument is which."""
    one, two = ir.constant(np.float32(1)), ir.constant(np.float32(2))
    pairs = [
        (ops.reduce_sum(X, axes=(0,)), ops.reduce_sum(X, axes=(1,))),
        (ops.add(X, one), ops.add(X, two)),
        (ops.neg(X), ops.neg(ops.cast(X, dtype="float64"))),
        (ops.sub(X, Y), ops.sub(ops.reshape(X, shape=(3, 2)), ops.reshape(Y, shape=(3, 2)))),
        (ops.clip(X, minimum=0.0, maximum=1.0), ops.clip(X, minimum=0.0, maximum=2.0)),
    ]
    for a, b in pairs:
        region = make_region(a, b, fused=False)
        names = [region.kernels[call.kernel].name for call in region.calls]
        assert len({call.kernel for call in region.calls}) == len(names), names


def test_constants_of_one_element_are_literals() -> None:
    region = make_region(ops.mul(X, ir.constant(np.float32(3))), ops.add(Y, ir.constant(np.full((1, 1), 2, np.float32))))
    assert not region.constants
    assert all(len(kernel.inputs) == 1 for kernel in region.kernels)
    for array in (np.float64(0.1), np.int8(-7), np.uint64(2**64 - 1), np.bool_(True), np.float32("nan"), np.float32("-inf")):
        literal = ir.constant(array)
        function = ir.function([X], ir.tuple_([ops.broadcast_to(literal, shape=(2,)), literal]))
        np.testing.assert_array_equal(run(lowered(function), VALUES[:1])[0], np.broadcast_to(array, 2))


def test_kernels_that_differ_in_many_scalars_are_one() -> None:
    scales, points, two = (0.5, 0.25, 0.125), (1, 2, 2), ir.constant(np.float32(2))

    def stored(x: ir.Expr, number: int) -> ir.Expr:
        scale, point = ir.constant(np.float32(scales[number])), ir.constant(np.uint8(points[number]))
        return ops.mul(ops.dequantize(ops.quantize(x, scale, point, dtype="uint8"), scale, point, dtype="float32"), two)

    for count, kernels, constants in ((2, 2, 0), (3, 1, 5)):
        function = ir.function([X], ir.tuple_([stored(X, number) for number in range(count)]))
        region = lowered(function)
        assert (len(region.kernels), len(region.constants)) == (kernels, constants)
        assert_close(tuple(run(region, VALUES[:1])), Interpreter().run(function, VALUES[:1]))


def test_layers_that_differ_in_zero_points_are_one_kernel() -> None:
    x = ir.var("x", TensorType((4, 8), "int32"))

    def layer(number: int) -> ir.Expr:
        scale, point = ir.constant(np.float32(0.5 + number)), ir.constant(np.uint8(100 + number))
        return ops.dequantize(ops.requantize(x, scale, point, dtype="uint8"), scale, point, dtype="float32")

    function = ir.function([x], ir.tuple_([layer(number) for number in range(3)]))
    region = lowered(rounded_floats(function))
    assert len(region.kernels) == 1
    values = [np.arange(-400, 400, 25, dtype=np.int32).reshape(4, 8)]
    assert_close(tuple(run(region, values)), Interpreter().run(function, values))


def test_divisors_and_exponents_stay_literals() -> None:
    integer = ir.var("n", TensorType((4,), "int64"))
    for x, operator in ((integer, ops.div), (integer, ops.mod), (X, ops.pow)):
        results = [operator(x, ir.constant(np.asarray(number, x.type.dtype.numpy))) for number in (2, 3, 5)]
        region = lowered(ir.function([x], ir.tuple_(results)))
        assert len(region.kernels) == 3 and not region.constants


def test_inlining_leaves_others_alone() -> None:
    a, b = ir.var("a", X.type), ir.var("b", TensorType((), F32))
    body = ops.add(a, b)
    assert inline_scalars((a, b), body, (X, ir.tuple_item(ir.tuple_([weight()]), 0)))[0] == (a,)
    params, inlined_body, args = inline_scalars((a, b), body, (X, ir.var("s", TensorType((), F32))))
    assert params == (a, b) and inlined_body is body and len(args) == 2
    empty = ir.constant(np.zeros((0,), np.float32))
    function = ir.function([X], ir.tuple_([ops.concat(empty, empty, axis=0), ops.neg(empty)]))
    assert [array.shape for array in run(lowered(function), VALUES[:1])] == [(0,), (0,)]


def test_source_nodes() -> None:
    function = ir.function([X], ops.exp(ops.neg(X, span=ir.Span("m", "first")), span=ir.Span("m", "second")))
    (call,) = lowered(function).calls
    assert call.nodes == ("first", "second")


# --- buffers ----------------------------------------------------------------------------------------------------------


def test_weights_are_stored_once() -> None:
    w, equal_weights = weight(2, 3), weight(2, 3)
    region = make_region(ops.add(X, w), ops.mul(Y, equal_weights), ops.sub(X, weight(2, 3, seed=1)), w)
    assert len(region.constants) == 2
    assert all(array.shape == (2, 3) for array in region.constants.values())


def test_weights_are_stored_only_as_they_are_read() -> None:
    """A convolution's weights lie in blocks; the plain form is stored only where something reads that too."""
    x = ir.var("x", TensorType((1, 16, 6, 6), F32))
    w = weight(32, 16, 3, 3)
    conv = ops.conv(x, w, strides=(1, 1), pads=(1, 1, 1, 1), dilations=(1, 1))
    value = np.random.default_rng(1).integers(-2, 3, (1, 16, 6, 6)).astype(np.float32)
    for results, stored in (([conv], 1), ([conv, ops.reduce_sum(w, axes=(0,))], 2), ([conv, w], 2)):
        function = ir.function([x], ir.tuple_(results))
        region = lowered(function)
        assert len(region.constants) == stored
        blocked = [array for array in region.constants.values() if array.ndim > 4]
        assert len(blocked) == 1 and blocked[0].size >= w.data.size
        assert_close(tuple(run(region, [value])), Interpreter().run(function, [value]))


def test_reshapes_are_views() -> None:
    """They cost no kernel and no bytes, wherever they stand."""
    flat = ops.reshape(ops.neg(X), shape=(6,))
    region = make_region(ops.exp(ops.reshape(flat, shape=(3, 2))), fused=False)
    assert [region.kernels[call.kernel].name for call in region.calls] == ["neg", "exp"]
    (view,) = [region.buffers[call.inputs[0]] for call in region.calls[1:]]
    assert view.offset == region.buffers[region.calls[0].outputs[0]].offset and view.shape == (3, 2)
    weights = weight(6)
    assert len(make_region(ops.add(X, ops.reshape(weights, shape=(2, 3))), fused=False).constants) == 1
    assert make_region(ops.add(ops.reshape(ops.reshape(X, shape=(6,)), shape=(2, 3)), Y), fused=False).workspace == 0


def test_a_result_that_is_a_view_needs_no_copy() -> None:
    region = make_region(ops.reshape(ops.neg(X), shape=(6,)))
    assert [region.kernels[call.kernel].name for call in region.calls] == ["neg"]
    assert region.workspace == 0


def test_copies_of_results() -> None:
    """Of inputs, constants, views of them, and what is returned twice; equal copies are one kernel."""
    value = ops.neg(X)
    region = make_region(X, weight(2, 3), ops.reshape(Y, shape=(6,)), value, value, ops.reshape(value, shape=(3, 2)))
    names = [region.kernels[call.kernel].name for call in region.calls]
    assert sorted(names) == ["neg"] + ["relayout"] * 5
    assert len(region.kernels) == 4


def kernel_names(region: RegionProgram) -> list[str]:
    return [region.kernels[call.kernel].name for call in region.calls]


def image(name: str, channels: int, batch: int = 1, size: int = 4) -> ir.Var:
    return ir.var(name, TensorType((batch, channels, size, size), F32))


def opaque(value: ir.Expr) -> ir.Expr:
    """A kernel of its own, whose result others do not compute for themselves."""
    return ops.max_pool(value, kernel=(1, 1), strides=(1, 1), pads=(0, 0, 0, 0), dilations=(1, 1))


def agrees(function: ir.Function, region: RegionProgram, seed: int = 0) -> None:
    rng = np.random.default_rng(seed)
    inputs = [rng.integers(-3, 4, tensor_shape(param)).astype(np.float32) for param in function.params]
    expected = Interpreter().run(function, inputs)
    assert_close(tuple(run(region, inputs)), expected if isinstance(expected, tuple) else (expected,))


def test_parts_of_concatenations_are_written_in_place() -> None:
    """Also where a concatenation is a part of another, and where it is a result."""
    x, y = image("x", 8), image("y", 16)
    inner = ops.concat(opaque(x), opaque(y), axis=1)
    outer = ops.concat(inner, opaque(inner), axis=1)
    for body in (opaque(outer), outer):
        function = ir.function([x, y], ir.tuple_([body]))
        region = lowered(function, fused=False)
        assert "concat" not in kernel_names(region)
        agrees(function, region)


@pytest.mark.parametrize("sizes", [{}, {"n": 1, "h": 1}, {"n": 3, "h": 4}])
def test_parts_behind_a_batch_are_written_in_place(sizes: dict[str, int]) -> None:
    """Also where other kernels read a part, and where a concatenation is a part of another."""
    batch, height = (SizeVar("n"), SizeVar("h")) if sizes else (2, 4)
    x, y = (ir.var(name, TensorType((batch, channels, height, 5), F32)) for name, channels in (("x", 8), ("y", 16)))
    part = opaque(x)
    inner = ops.concat(part, opaque(y), axis=1)
    outer = ops.concat(inner, opaque(inner), axis=1)
    rows = ops.concat(opaque(x), opaque(opaque(x)), axis=1)
    function = ir.function([x, y], ir.tuple_([opaque(outer), opaque(part), rows]))
    region = lowered(function, fused=False)
    assert "concat" not in kernel_names(region)
    shapes = [[dim if isinstance(dim, int) else sizes[str(dim)] for dim in tensor_shape(param)] for param in function.params]
    inputs = [np.random.default_rng(0).integers(-3, 4, shape).astype(np.float32) for shape in shapes]
    expected = Interpreter().run(function, inputs)
    assert isinstance(expected, tuple)
    assert_close(tuple(run(region, inputs)), expected)


def test_what_concatenations_cannot_take_over_is_copied() -> None:
    """Inputs, parts of others, what they hold twice; and there is a kernel where parts are not in one run, or not aligned."""
    x, y = image("x", 16), image("y", 16)
    part = opaque(x)
    region_twice = ops.concat(part, part, y, axis=1)
    for body, kernels in (
        (ops.concat(x, y, axis=1), ["concat"]),
        (opaque(region_twice), ["max_pool", "relayout", "relayout", "max_pool"]),
        (ops.concat(opaque(x), opaque(y), axis=2), None),
        (ir.tuple_([ops.concat(part, opaque(y), axis=1), ops.concat(opaque(y), part, axis=1), part]), None),
    ):
        function = ir.function([x, y], body if isinstance(body, ir.Tuple) else ir.tuple_([body]))
        region = lowered(function, fused=False)
        if kernels is not None:
            assert [name for name in kernel_names(region) if name == "concat"] == [name for name in kernels if name == "concat"]
        agrees(function, region)


def depthwise(x: ir.Expr) -> ir.Expr:
    """A window that leaves blocks of channels."""
    weights = np.random.default_rng(0).integers(-1, 2, (tensor_shape(x)[1], 1, 3, 3)).astype(np.float32)
    return ops.conv(x, ir.constant(weights), strides=(1, 1), pads=(1,) * 4, dilations=(1, 1), groups=tensor_shape(x)[1])


def test_parts_in_merged_dimensions_are_copied() -> None:
    """The kernel of a part may hold batch and channels as one dimension, where the result has more channels."""
    x = ir.var("x", TensorType((2, 8, 4, 4), F32))
    for body in (ops.concat(depthwise(x), x, axis=1), ops.concat(depthwise(x), opaque(x), axis=1)):
        function = ir.function([x], ir.tuple_([opaque(body)]))
        agrees(function, lowered(function, fused=False))


def test_one_input_in_blocks_is_copied_rather_than_all_others() -> None:
    """A window leaves blocks of channels; what it is added to lies in rows, and so does the result."""
    x, *rows = (image(name, 16) for name in "xabc")
    body = depthwise(x)
    for other in rows:
        body = ops.add(body, other)
    function = ir.function([x, *rows], body)
    region = lowered(function, fused=False)
    assert kernel_names(region) == ["relayout", "conv", "relayout", "add", "add", "add"]
    agrees(function, region)


def test_slices_are_views() -> None:
    """Where they are one run of memory; at the borders of vectors."""
    x = image("x", 32)
    value = opaque(x)
    low = ops.strided_slice(value, begin=(0, 0, 0, 0), end=(1, 16, 4, 4), strides=(1, 1, 1, 1))
    high = ops.strided_slice(value, begin=(0, 16, 0, 0), end=(1, 32, 4, 4), strides=(1, 1, 1, 1))
    function = ir.function([x], ir.tuple_([opaque(low), opaque(high), high]))
    region = lowered(function, fused=False)
    assert "strided_slice" not in kernel_names(region)
    agrees(function, region)
    across = ops.strided_slice(value, begin=(0, 0, 1, 0), end=(1, 32, 3, 4), strides=(1, 1, 1, 1))
    every = ops.strided_slice(x, begin=(0, 0, 0, 0), end=(1, 32, 4, 4), strides=(1, 2, 1, 1))
    for body in (opaque(across), opaque(every)):
        function = ir.function([x], ir.tuple_([body]))
        assert "strided_slice" in kernel_names(lowered(function, fused=False))
        agrees(function, lowered(function, fused=False))


@st.composite
def networks(draw: Callable[..., Any]) -> ir.Function:
    """Random graphs over images, whose kernels want channels in vectors, in half vectors, or in order."""
    batch = draw(st.sampled_from([1, 1, 2]))
    params = [image(name, channels, batch) for name, channels in (("x", 8), ("y", 12), ("z", 6))]
    pool: list[ir.Expr] = list(params)
    rng = np.random.default_rng(draw(st.integers(0, 9)))

    def channels(value: ir.Expr) -> int:
        extent = tensor_shape(value)[1]
        assert isinstance(extent, int)
        return extent

    for _ in range(draw(st.integers(1, 8))):
        x, y = (pool[draw(st.integers(0, len(pool) - 1))] for _ in range(2))
        kind = draw(st.sampled_from(["conv", "depthwise", "pool", "add", "relu", "concat", "slice", "transpose"]))
        if kind == "conv":
            weights = rng.integers(-1, 2, (draw(st.sampled_from([4, 8, 16])), channels(x), 3, 3)).astype(np.float32)
            new = ops.conv(x, ir.constant(weights), strides=(1, 1), pads=(1,) * 4, dilations=(1, 1), groups=1)
        elif kind == "depthwise":
            weights = rng.integers(-1, 2, (channels(x), 1, 3, 3)).astype(np.float32)
            new = ops.conv(x, ir.constant(weights), strides=(1, 1), pads=(1,) * 4, dilations=(1, 1), groups=channels(x))
        elif kind == "pool":
            new = ops.max_pool(x, kernel=(3, 3), strides=(1, 1), pads=(1,) * 4, dilations=(1, 1))
        elif kind == "add":
            new = ops.add(x, x if channels(x) != channels(y) else y)
        elif kind == "concat" and channels(x) + channels(y) < 80:
            new = ops.concat(x, y, axis=1)
        elif kind == "slice" and channels(x) >= 8:
            half = channels(x) // 2
            new = ops.strided_slice(x, begin=(0, half, 0, 0), end=(batch, 2 * half, 4, 4), strides=(1, 1, 1, 1))
        elif kind == "transpose":
            new = ops.transpose(x, perm=(0, 1, 3, 2))
        else:
            new = ops.relu(x)
        pool.append(new)
    results = [pool[draw(st.integers(0, len(pool) - 1))] for _ in range(draw(st.integers(0, 2)))] + [pool[-1]]
    return ir.function(params, ir.tuple_(results))


@settings(max_examples=40, deadline=None)
@given(networks(), st.booleans())
def test_layouts_change_no_result(function: ir.Function, fused: bool) -> None:
    agrees(function, lowered(function, fused=fused))


def test_a_result_that_later_kernels_read() -> None:
    value = ops.reduce_sum(X, axes=(1,), keepdims=True)
    region = make_region(value, ops.sub(X, value), ops.exp(value))
    assert {buffer.index for buffer in buffers_in(region, "output")} == {0, 1, 2}


def test_the_arena_is_reused() -> None:
    """A chain of kernels needs two buffers at a time, whatever its length."""
    value: ir.Expr = X
    for _ in range(12):
        value = ops.reduce_max(ops.transpose(value, perm=(1, 0)), axes=(), keepdims=True)
        value = ops.cumsum(value, axis=0)
    region = make_region(value, fused=False)
    assert isinstance(region.workspace, int) and region.workspace <= 3 * 64


def test_results_that_nobody_reads() -> None:
    both = ops.topk(X, k=2, axis=1)
    region = make_region(ir.tuple_item(both, 1))
    assert len(region.calls) == 1 and len(region.signature.outputs) == 1


# --- sizes ------------------------------------------------------------------------------------------------------------


def test_signature_dimensions() -> None:
    """A dimension of an input is read from it, one that a kernel works out is written, one that only the plan knows is asked of
    it."""
    n, m, k = SizeVar("n"), SizeVar("m"), SizeVar("k")
    x = ir.var("x", TensorType((n, 3), "int64"))
    y = ir.var("y", TensorType((m * 2,), "int64"))
    positions = ops.nonzero(x)
    results = [positions, ops.neg(y), ops.sizes(dims=(k,)), ops.iota(shape=(n * 2,))]
    region = lowered(ir.function([x, y], ir.tuple_(results)))
    dims = {source.name: source for source in region.signature.dims}
    size = positions.type.shape[1]  # type: ignore[union-attr]
    assert isinstance(size, SizeVar)
    assert (dims["n"].input, dims["n"].axis) == (0, 0)
    assert dims[size.name].input is None and dims[size.name].upper is not None
    assert dims["m"].input is dims["k"].input is None and dims["m"].upper is dims["k"].upper is None
    value = np.array([[0, 1, 2], [3, 0, 0]])
    outputs = run(region, [value, np.arange(4)], {"m": 2, "k": 9})
    for one, other in zip(outputs, [np.array(np.nonzero(value)), -np.arange(4), [9], np.arange(4)], strict=True):
        np.testing.assert_array_equal(one, other)


def test_kernels_are_shared_up_to_the_names_of_existential_sizes() -> None:
    flags = [ops.less(X, Y), ops.less(Y, X)]
    positions = [ops.neg(ops.nonzero(flag)) for flag in flags]
    region = make_region(*positions, fused=False)
    assert [region.kernels[call.kernel].name for call in region.calls] == ["less", "nonzero", "neg"] * 2
    assert len(region.kernels) == 3
    assert len({size for call in region.calls for size in (*call.sizes, *call.defines)}) == 2


def test_symbolic_arenas() -> None:
    n = SizeVar("n", 0, 100)
    x = ir.var("x", TensorType((n, 4), F32))
    total = ops.cumsum(ops.transpose(x, perm=(1, 0)), axis=0)
    function = ir.function([x], ir.tuple_([ops.cumsum(total, axis=1), ops.reduce_sum(total, axes=(0, 1))]))
    region = lowered(function, fused=False)
    assert arith.free_vars(region.workspace) == {n}
    for size in (0, 1, 7):
        value = np.arange(size * 4, dtype=np.float32).reshape(size, 4)
        assert_close(tuple(run(region, [value])), Interpreter().run(function, [value]))


def test_scratch_of_symbolic_size() -> None:
    """Sorting needs memory for a whole row: the caller gives it."""
    n = SizeVar("n")
    x = ir.var("x", TensorType((2, n), F32))
    function = ir.function([x], ir.tuple_item(ops.topk(x, k=1, axis=1), 0))
    region = lowered(function)
    for size in (1, 5):
        value = np.random.default_rng(0).permutation(2 * size).astype(np.float32).reshape(2, size)
        assert_close(tuple(run(region, [value])), Interpreter().run(ir.function([x], ir.tuple_([function.body])), [value]))


# --- refusals ---------------------------------------------------------------------------------------------------------


def test_a_part_of_a_concatenation_that_nothing_reads() -> None:
    """What a slice leaves out is neither computed nor given a buffer, however many rows there are."""
    n = SizeVar("n")
    x = ir.var("x", TensorType((n, 4), F32))
    both = ops.concat(ops.neg(x), ops.exp(ops.mul(x, ops.sub(x, x))), axis=0)
    first_part = ops.strided_slice(both, begin=(0, 0), end=(n, 4), strides=(1, 1))
    rows = ops.reduce_sum(first_part, axes=(1,), keepdims=True)
    region = lowered(ir.function([x], rows))
    assert [len(kernel.outputs) for kernel in region.kernels] == [1]
    data = np.arange(12, dtype=np.float32).reshape(3, 4)
    np.testing.assert_array_equal(run(region, [data])[0], -data.sum(1, keepdims=True))


def test_what_cannot_be_lowered() -> None:
    opaque = Operator("test.opaque", lambda attrs, x: x, reference=lambda attrs, x: x)
    spanned = opaque(X, span=ir.Span("m.onnx", "node7"))
    with pytest.raises(
        CompileError,
        match=r"no tensor-level compute: decompose the operator before lowering .*operator test.opaque, at m.onnx:node7",
    ):
        lowered(ir.function([X], spanned))
    let_var = ir.var("held", X.type)
    with pytest.raises(CompileError, match="must consist of"):
        lowered(ir.function([X], ir.let(let_var, ops.neg(X), let_var)))
    rows = ir.var("rows", TensorType((SizeVar("?k"),), F32))
    with pytest.raises(CompileError, match="must have an upper bound"):
        lowered(ir.function([rows], ops.nonzero(rows)))


def test_a_size_without_a_bound_that_an_input_shows_is_as_any_other() -> None:
    rows = ir.var("rows", TensorType((SizeVar("?k"),), F32))
    region = lowered(ir.function([rows], ops.cumsum(ops.neg(rows), axis=0)), fused=False)
    assert [(dim.name, dim.input, dim.upper) for dim in region.signature.dims] == [("?k", 0, None)]


def test_sizes_of_kernels_are_given() -> None:
    """Every kernel of a region finds its sizes among the call's, in its own order."""
    n, m = SizeVar("n"), SizeVar("m")
    x = ir.var("x", TensorType((n, m), F32))
    region = lowered(ir.function([x], ops.transpose(x, perm=(1, 0))), fused=False)
    (call,) = region.calls
    assert [size.name for size in size_vars(region.kernels[call.kernel])] == [str(size) for size in call.sizes] == ["n", "m"]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_relations_of_computed_sizes(case) -> None:
    """Each condition is checked by the call that defines the last of its sizes."""
    function = case.module().main
    region = lowered(function)
    for constraint in region.constraints:
        number = next(number for number, call in enumerate(region.calls) if constraint in call.checks)
        earlier = {size for call in region.calls[:number] for size in call.defines}
        late = {size for size in arith.free_vars(constraint.condition) if ir.existential(size)}
        assert not late <= earlier and late <= earlier | set(region.calls[number].defines)
    check(case, lambda feeds: run(region, [feeds[param.name] for param in function.params])[0])


@pytest.mark.parametrize("count", [1000, 5000])
def test_bounds_that_are_integers(count: int) -> None:
    """The number of nonzero elements is at most that of all, a bound that is no expression."""
    x = ir.var("x", TensorType((count,), "bool"))
    program = lowered(ir.function([x], ops.cast(ops.nonzero(x), dtype="int32")))
    value = np.arange(count) % 3 == 0
    (result,) = run(program, [value])
    np.testing.assert_array_equal(result, [np.flatnonzero(value)])
