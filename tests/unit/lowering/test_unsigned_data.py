"""Signed bytes that products read are stored without a sign: every integer stays, but for 128."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from inlaid import ops
from inlaid.graph.interp import evaluate
from inlaid.graph.ir import Call, Expr, Function, constant, function, post_order, tuple_, var
from inlaid.graph.verify import verify
from inlaid.lowering.rewrites.unsigned_data import unsigned_data
from inlaid.plugins import Capabilities
from inlaid.tensor.ir import LoopProgram
from inlaid.tensor.primitives import TensorIntrin
from inlaid.tensor.scheduling.dot_products import dot_product
from inlaid.tensor.scheduling.rule import KernelContext
from inlaid_runtime.arith import Dim, SizeVar
from inlaid_runtime.types import TensorType


def context(*groups: tuple[str, int]) -> KernelContext:
    """Of a target with dot products of some data with signed bytes, in groups."""
    intrinsics = tuple(TensorIntrin(f"dot.{a}", dot_product(a, "int8", "int32", 16, group)) for a, group in groups)
    return KernelContext(Capabilities((), vector_bits=512), 1, intrinsics)


def in_scope(program: LoopProgram, scope: str) -> LoopProgram:
    """The semantics of an instruction whose operands are in a memory scope, as those of matrix units are."""
    inputs, outputs = (tuple(replace(buffer, scope=scope) for buffer in buffers) for buffers in (program.inputs, program.outputs))
    return replace(program, inputs=inputs, outputs=outputs)


UNSIGNED = context(("uint8", 4), ("int8", 2))


def weights(generator: np.random.Generator, *shape: int) -> Expr:
    return constant(generator.integers(-127, 128, shape).astype(np.int8))


def number(value: Any, dtype: str = "int32") -> Expr:
    return constant(np.array(value, dtype))


def conv(x: Expr, w: Expr, pads: int = 0, groups: int = 1) -> Expr:
    return ops.conv(x, w, strides=(1, 1), pads=(pads,) * 4, dilations=(1, 1), groups=groups, out_dtype="int32")


def stored(kind: str, total: Expr, generator: np.random.Generator) -> Expr:
    """Sums as bytes, in one of the ways in which models have it."""
    point = int(generator.integers(-128, 128))
    match kind:
        case "requantize":
            return ops.requantize(total, number(0.01, "float32"), number(point, "int8"), dtype="int8")
        case "quantize":
            real = ops.dequantize(total, number(0.01, "float32"), dtype="float32")
            return ops.quantize(real, number(0.7, "float32"), dtype="int8")
        case "fixed":
            total = ops.multiply_fixed(total, number(1 << 30), number(-5))
        case "wrapping":
            total = ops.multiply_fixed(total, number((1 << 31) - 1), number(20))
    total = ops.add(total, number(point))
    return ops.cast(total if kind == "cast" else ops.clip(total, minimum=-128.0, maximum=100.0), dtype="int8")


def products(unit: Function) -> list[tuple[str, ...]]:
    """The types of the operands of products, in order."""
    calls = [expr for expr in post_order(unit) if isinstance(expr, Call) and expr.callee in (ops.conv, ops.matmul)]
    return [tuple(arg.type.dtype.name for arg in call.args if isinstance(arg.type, TensorType)) for call in calls]


def assert_equal(unit: Function, changed: Function, *data: np.ndarray) -> None:
    verify(changed)
    assert changed.type == unit.type
    results = [evaluate(each, list(data)) for each in (unit, changed)]
    expected, actual = (each if isinstance(each, tuple) else (each,) for each in results)
    for a, b in zip(expected, actual, strict=True):
        np.testing.assert_array_equal(a, b)


MOVES = {
    "nothing": lambda x: x,
    "max_pool": lambda x: ops.max_pool(x, kernel=(2, 2), strides=(1, 1), pads=(1, 0, 0, 1), dilations=(1, 1)),
    "pad": lambda x: ops.pad(x, number(-7, "int8"), pads=(0, 0, 1, 2, 0, 0, 0, 1)),
    "reflect": lambda x: ops.pad(x, pads=(0, 0, 1, 1, 0, 0, 1, 1), mode="reflect"),
    "transpose": lambda x: ops.transpose(x, perm=(0, 1, 3, 2)),
    "concat": lambda x: ops.concat(x, number(np.full((2, 4, 5, 6), -3), "int8"), ops.relu(x), axis=2),
    "clip": lambda x: ops.clip(x, minimum=-5.0),
    "maximum": lambda x: ops.maximum(x, number(3, "int8")),
    "table": lambda x: ops.take(number(np.arange(255, -1, -1) - 128, "int8"), ops.bitcast(x, dtype="uint8"), axis=0),
    "negated": lambda x: ops.bitwise_not(x),
}


@settings(max_examples=60, deadline=None)
@given(
    st.integers(0, 99),
    st.sampled_from(["requantize", "quantize", "fixed", "wrapping", "cast"]),
    st.sampled_from(sorted(MOVES)),
    st.integers(0, 1),
)
def test_the_same_integers(seed: int, kind: str, move: str, pads: int) -> None:
    generator = np.random.default_rng(seed)
    x = var("x", TensorType((2, 4, 5, 6), "int8"))
    first = stored(
        kind, ops.add(conv(x, weights(generator, 4, 4, 1, 1)), number(generator.integers(-99, 99, (4, 1, 1)))), generator
    )
    wide = ops.sub(ops.cast(first, dtype="int32"), number(-128))
    real = ops.dequantize(first, number(0.5, "float32"), number(4, "int8"), dtype="float32")
    last = conv(MOVES[move](first), weights(generator, 3, 4, 2, 2), pads)
    unit = function([x], tuple_([first, wide, real, ops.cast(last, dtype="int8"), last]))
    changed = unsigned_data(unit, UNSIGNED)
    assert products(changed) == [("uint8", "int8")] * 2
    assert_equal(unit, changed, generator.integers(-128, 128, (2, 4, 5, 6)).astype(np.int8))


def test_nothing_is_left_of_it_between_products() -> None:
    """The highest bit of the input is turned; after that, limits and constants are others."""
    generator = np.random.default_rng(3)
    x = var("x", TensorType((1, 4, 5, 6), "int8"))
    inner = stored("fixed", ops.add(conv(x, weights(generator, 8, 4, 1, 1)), number(5)), generator)
    unit = function([x], ops.add(conv(ops.relu(inner), weights(generator, 8, 8, 3, 3)), number(7)))
    names = [expr.callee.name for expr in post_order(unsigned_data(unit, UNSIGNED)) if isinstance(expr, Call)]  # type: ignore[union-attr]
    before = ["conv", "add", "multiply_fixed", "add", "clip", "cast", "maximum", "conv", "add"]
    assert names == ["bitcast", "bitwise_xor", *before]


@pytest.mark.parametrize("shape", [(5, 8), (2, 5, 8)])
def test_matrix_products(shape: tuple[int, ...]) -> None:
    generator = np.random.default_rng(4)
    x, y = var("x", TensorType(shape, "int8")), var("y", TensorType((2, 8, 3), "int8"))
    constant_product = ops.matmul(x, weights(generator, 8, 3), out_dtype="int32")
    unit = function([x, y], tuple_([constant_product, ops.matmul(x, y, out_dtype="int32")]))
    changed = unsigned_data(unit, UNSIGNED)
    assert products(changed) == [("uint8", "int8")] * 2
    data = [generator.integers(-128, 128, item.type.shape).astype(np.int8) for item in unit.params]  # type: ignore[union-attr]
    assert_equal(unit, changed, *data)


def test_depthwise_convolutions_read_what_there_is() -> None:
    """They are no sums over channels, and ask for nothing; zeros around them move with the data."""
    generator = np.random.default_rng(5)
    x = var("x", TensorType((1, 4, 5, 6), "int8"))
    deep, dense = weights(generator, 4, 1, 3, 3), weights(generator, 3, 4, 1, 1)
    alone = function([x], conv(x, deep, 1, 4))
    assert unsigned_data(alone, UNSIGNED) is alone
    grey = var("grey", TensorType((1, 1, 5, 6), "int8"))
    single = function([grey], conv(grey, deep))
    assert products(unsigned_data(single, UNSIGNED)) == [("uint8", "int8")]  # its windows are sums
    both = function([x], tuple_([conv(x, deep, 1, 4), conv(x, dense)]))
    changed = unsigned_data(both, UNSIGNED)
    assert products(changed) == [("uint8", "int8")] * 2
    assert_equal(both, changed, generator.integers(-128, 128, (1, 4, 5, 6)).astype(np.int8))


def test_products_that_cannot_read_it_keep_the_sign() -> None:
    """What they read is stored without one for others: vectors, sums in other types."""
    generator = np.random.default_rng(7)
    rows, row = var("rows", TensorType((5, 8), "int8")), var("row", TensorType((8,), "int8"))
    read: list[Expr] = [ops.matmul(each, weights(generator, 8, 3), out_dtype="int32") for each in (rows, row)]
    read.append(ops.matmul(rows, weights(generator, 8), out_dtype="int32"))
    read.append(ops.matmul(rows, weights(generator, 8, 3), out_dtype="float32"))
    read.append(ops.matmul(ops.reshape(row, shape=(1, 8)), weights(generator, 8, 3), out_dtype="int32"))
    unit = function([rows, row], tuple_(read))
    changed = unsigned_data(unit, UNSIGNED)
    assert [kinds[0] for kinds in products(changed)].count("uint8") == 2
    shapes = [item.type.shape for item in unit.params if isinstance(item.type, TensorType)]
    assert_equal(unit, changed, *(generator.integers(-128, 128, shape).astype(np.int8) for shape in shapes))


@pytest.mark.parametrize(("pads", "groups"), [(0, 1), (1, 1), (1, 2)])
def test_convolutions_of_computed_weights(pads: int, groups: int) -> None:
    """Their sums of weights are computed, too."""
    generator = np.random.default_rng(8)
    x, w = var("x", TensorType((2, 4, 5, 6), "int8")), var("w", TensorType((6, 4 // groups, 3, 2), "int8"))
    unit = function([x, w], conv(x, w, pads, groups))
    changed = unsigned_data(unit, UNSIGNED)
    assert products(changed) == [("uint8", "int8")]
    assert_equal(unit, changed, *(generator.integers(-128, 128, item.type.shape).astype(np.int8) for item in (x, w)))  # type: ignore[union-attr]


@pytest.mark.parametrize("rows", [5, SizeVar("rows", 0, 64)])
def test_scales_of_rows(rows: Dim) -> None:
    """Nothing says what the zero points are of, where rows are as many as there are."""
    generator = np.random.default_rng(9)
    x = var("x", TensorType((rows, 8), "float32"))
    scales = ops.reduce_max(ops.abs(x), axes=(1,), keepdims=False)
    data = ops.quantize(x, scales, dtype="int8", axis=0)
    real = ops.dequantize(data, scales, axis=0, dtype="float32")
    unit = function([x], tuple_([ops.matmul(data, weights(generator, 8, 3), out_dtype="int32"), real]))
    changed = unsigned_data(unit, UNSIGNED)
    assert products(changed) == [("uint8", "int8")]
    assert_equal(unit, changed, generator.normal(0, 50, (5, 8)).astype(np.float32))


def test_targets_that_do_not_ask_for_it() -> None:
    x = var("x", TensorType((1, 4, 5, 6), "int8"))
    unit = function([x], conv(x, weights(np.random.default_rng(6), 3, 4, 1, 1)))
    for kernel_context in (context(), context(("int8", 4)), context(("uint8", 4), ("int8", 4)), replace(UNSIGNED, intrinsics=())):
        assert unsigned_data(unit, kernel_context) is unit


@pytest.mark.parametrize("groups", [(), (("uint8", 4), ("int8", 4))], ids=["alone", "beside a matrix unit"])
def test_the_cost_of_an_instruction_counts(groups) -> None:
    """A pair of instructions on int8 that does as many products as one on uint8 is slower. A matrix unit for both types leaves
    products of few rows to them."""
    x = var("x", TensorType((1, 4, 5, 6), "int8"))
    unit = function([x], conv(x, weights(np.random.default_rng(6), 3, 4, 1, 1)))
    intrinsics = [
        TensorIntrin(f"dot.{a}", dot_product(a, "int8", "int32", 16, 4), cost=cost) for a, cost in (("uint8", 1), ("int8", 3))
    ]
    intrinsics += [TensorIntrin(f"tile.{a}", in_scope(dot_product(a, "int8", "int32", 16, 4), "acme.tile")) for a, _ in groups]
    target = KernelContext(Capabilities((), vector_bits=512), 1, tuple(intrinsics))
    assert products(unsigned_data(unit, target)) == [("uint8", "int8")]
