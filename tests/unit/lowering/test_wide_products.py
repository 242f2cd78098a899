"""Products of bytes over int16: every integer stays, on targets that sum them faster so."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from inlaid import ops
from inlaid.graph.interp import evaluate
from inlaid.graph.ir import Call, Expr, Function, constant, function, post_order, tuple_, var
from inlaid.graph.verify import verify
from inlaid.lowering.rewrites.wide_products import wide_products
from inlaid.plugins import Capabilities
from inlaid.tensor.primitives import TensorIntrin
from inlaid.tensor.scheduling.dot_products import dot_product
from inlaid.tensor.scheduling.rule import KernelContext
from inlaid_runtime.types import TensorType

BYTES = ("int8", "uint8")


def context(cost: float, words: bool = True) -> KernelContext:
    """Of a target with dot products of bytes of a cost, and perhaps with those of int16."""
    intrinsics = [TensorIntrin(f"dot.{a}.{b}", dot_product(a, b, "int32", 8, 4), cost=cost) for a in BYTES for b in BYTES]
    if words:
        intrinsics.append(TensorIntrin("dot.int16", dot_product("int16", "int16", "int32", 8, 2)))
    return KernelContext(Capabilities((), vector_bits=256), 1, tuple(intrinsics))


FASTER = context(3)


def conv(x: Expr, w: Expr, groups: int = 1) -> Expr:
    return ops.conv(x, w, strides=(1, 1), pads=(1,) * 4, dilations=(1, 1), groups=groups, out_dtype="int32")


def operands(unit: Function) -> list[tuple[str, ...]]:
    """The types of the operands of products, in order."""
    calls = [expr for expr in post_order(unit) if isinstance(expr, Call) and expr.callee in (ops.conv, ops.matmul)]
    return [tuple(arg.type.dtype.name for arg in call.args if isinstance(arg.type, TensorType)) for call in calls]


def make_unit(data: str, weights: np.ndarray, groups: int = 1, rows: int = 5) -> Function:
    x = var("x", TensorType((1, weights.shape[1] * groups, rows, rows), data))
    return function([x], conv(x, constant(weights), groups))


@settings(max_examples=30, deadline=None)
@given(st.integers(0, 1 << 30), st.sampled_from(BYTES), st.booleans())
def test_every_integer_stays(seed: int, dtype: str, extreme: bool) -> None:
    """Of a chain whose bytes are products' data twice, moved, pooled, and read by others too."""
    generator = np.random.default_rng(seed)
    limits = np.iinfo(dtype)

    def random_array(shape: tuple[int, ...], kind: str) -> np.ndarray:
        ends = np.iinfo(kind)
        if extreme:
            return generator.choice([ends.min, ends.max], shape).astype(kind)
        return generator.integers(ends.min, ends.max + 1, shape).astype(kind)

    x = var("x", TensorType((1, 8, 6, 6), dtype))
    first = conv(x, constant(random_array((8, 8, 3, 3), "int8")))
    point = constant(np.array(0, dtype))
    y = ops.requantize(first, constant(np.array(0.001, np.float32)), point, dtype=dtype)
    both = ops.concat(y, ops.max_pool(x, kernel=(3, 3), pads=(1,) * 4), axis=1)
    second = conv(both, constant(random_array((4, 16, 3, 3), "int8")))
    rows = ops.reshape(y, shape=(36, 8))
    third = ops.matmul(rows, constant(random_array((8, 4), "int8")), out_dtype="int32")
    unit = function([x], tuple_([second, third, y]))
    changed = wide_products(unit, FASTER)
    verify(changed)
    assert operands(changed) == [("int16", "int16")] * 3 and changed.type == unit.type
    data = generator.integers(limits.min, limits.max + 1, (1, 8, 6, 6)).astype(dtype)
    for expected, actual in zip(evaluate(unit, [data]), evaluate(changed, [data]), strict=True):
        assert expected.dtype == actual.dtype and np.array_equal(expected, actual)


def test_other_targets_and_products_are_left_alone() -> None:
    weights = np.ones((8, 8, 3, 3), np.int8)
    unit = make_unit("uint8", weights)
    assert wide_products(unit, context(1)) is unit  # bytes are as fast
    assert wide_products(unit, context(3, words=False)) is unit
    assert wide_products(unit, FASTER, lambda call: False) is unit
    tile = dot_product("uint8", "int8", "int32", 8, 4)
    inputs, outputs = (tuple(replace(item, scope="acme.tile") for item in buffers) for buffers in (tile.inputs, tile.outputs))
    unit_of_bytes = TensorIntrin("tile", replace(tile, inputs=inputs, outputs=outputs))
    assert (
        wide_products(unit, replace(FASTER, intrinsics=(*FASTER.intrinsics, unit_of_bytes))) is unit
    )  # a matrix unit multiplies bytes
    alone = make_unit("uint8", np.ones((8, 1, 3, 3), np.int8), groups=8)
    assert wide_products(alone, FASTER) is alone  # nothing is added in pairs
    one_row = make_unit("uint8", weights, rows=1)
    assert wide_products(one_row, FASTER) is one_row  # weights are read once
