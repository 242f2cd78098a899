"""Zero points outside products: every integer stays, and products read bytes."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from inlaid import ops
from inlaid.graph.interp import evaluate
from inlaid.graph.ir import Call, Expr, Function, constant, function, post_order, var
from inlaid.graph.verify import verify
from inlaid.lowering.rewrites.zero_points import zero_points
from inlaid.ops.compose import cast_to
from inlaid.plugins import Capabilities
from inlaid.tensor.primitives import TensorIntrin
from inlaid.tensor.scheduling.dot_products import dot_product
from inlaid.tensor.scheduling.rule import KernelContext
from inlaid_runtime.types import TensorType

BYTES = ("int8", "uint8")
KINDS = ("vector", "vectors", "matmul", "batched", "conv", "strided", "grouped", "pointwise")
SHAPES = {
    "vector": ((12,), (12, 9)),
    "vectors": ((12,), (2, 12, 9)),
    "matmul": ((5, 12), (12, 9)),
    "batched": ((2, 5, 12), (2, 12, 9)),
    "conv": ((2, 4, 7, 6), (9, 4, 3, 2)),
    "strided": ((1, 3, 8), (4, 3, 3)),
    "grouped": ((1, 8, 6, 6), (8, 2, 3, 3)),
    "pointwise": ((2, 8, 5, 5), (4, 8, 1, 1)),
}
MATRICES = ("vector", "vectors", "matmul", "batched")
WORDS = TensorIntrin("dot.words", dot_product("int16", "int16", "int32", 8, 2))


def context(*intrinsics: TensorIntrin) -> KernelContext:
    return KernelContext(Capabilities((), vector_bits=256), 1, intrinsics)


NARROW = context(*(TensorIntrin(f"dot.{a}", dot_product(a, "int8", "int32", 8, 4)) for a in BYTES))
WIDE = context(WORDS)


def product(kind: str, x: Expr, w: Expr) -> Expr:
    if kind in MATRICES:
        return ops.matmul(x, w, out_dtype="int32")
    rank = w.type.rank - 2  # type: ignore[union-attr]
    stride = 2 if kind == "strided" else 1
    groups = x.type.shape[1] // w.type.shape[1]  # type: ignore[union-attr]
    pads = (0, 0, 0, 0) if kind == "pointwise" else (1,) * 2 * rank
    return ops.conv(x, w, strides=(stride,) * rank, pads=pads, dilations=(1,) * rank, groups=groups, out_dtype="int32")


def operand_types(target: Function) -> list[tuple[str, ...]]:
    calls = [expr for expr in post_order(target) if isinstance(expr, Call) and expr.callee in (ops.conv, ops.matmul)]
    return [tuple(arg.type.dtype.name for arg in call.args) for call in calls]  # type: ignore[union-attr]


@settings(deadline=None, max_examples=150)
@given(st.data())
def test_every_integer_stays(data: st.DataObject) -> None:
    kind, machine = data.draw(st.sampled_from(KINDS)), data.draw(st.sampled_from([NARROW, WIDE]))
    random = np.random.default_rng(data.draw(st.integers(0, 1 << 30)))
    shapes = SHAPES[kind]
    types = [data.draw(st.sampled_from(BYTES)) for _ in shapes]
    values = [
        random.integers(*map(int, (np.iinfo(name).min, np.iinfo(name).max)), shape, name, endpoint=True)
        for name, shape in zip(types, shapes, strict=True)
    ]
    x, w = (var(key, TensorType(shape, name)) for key, shape, name in zip("xw", shapes, types, strict=True))
    point = var("p", TensorType((), types[0]))
    params, inputs = [x, point], [values[0], values[0].reshape(-1)[0]]
    left: Expr = ops.sub(cast_to(x, "int32"), cast_to(point, "int32")) if data.draw(st.booleans()) else cast_to(x, "int32")
    channels = (shapes[1][0], *(1,) * (len(shapes[1]) - 1))
    along = (*shapes[1][:-2], 1, shapes[1][-1]) if kind in MATRICES else channels
    points = random.integers(-128, 128, along if data.draw(st.booleans()) else (), np.int32)
    if data.draw(st.booleans()):
        right: Expr = constant((values[1].astype(np.int32) - points).astype(np.int16))
    else:
        right = ops.sub(cast_to(w, "int32"), constant(points.astype(np.int32)))
        params.append(w)
        inputs.append(values[1])
    target = function(params, product(kind, left, cast_to(right, "int32")))
    changed = zero_points(target, machine)
    verify(changed)
    assert np.array_equal(evaluate(changed, inputs), evaluate(target, inputs))
    assert zero_points(changed, machine) is changed


@pytest.mark.parametrize("machine", [NARROW, WIDE])
@pytest.mark.parametrize("kind", ["matmul", "conv"])
@pytest.mark.parametrize("where", ["data", "computed", "weights"])
def test_numbers_beyond_bytes(kind: str, where: str, machine: KernelContext) -> None:
    """Zero points that no byte has, and weights that int16 does not hold: sums wrap at 32 bits alone, and padding is zero."""
    random = np.random.default_rng(0)
    x = var("x", TensorType(SHAPES[kind][0], "uint8"))
    far = var("p", TensorType((), "int32"))
    weights = random.integers(-128, 128, SHAPES[kind][1], np.int32)
    left: Expr = cast_to(x, "int32")
    if where == "data":
        left = ops.sub(left, constant(np.int32(100_000)))
    elif where == "computed":
        left = ops.sub(left, far)
    right: Expr = constant(weights + 100_000 if where == "weights" else weights.astype(np.int8))
    target = function([x, far], product(kind, left, right))
    inputs = [random.integers(0, 256, SHAPES[kind][0], np.uint8), np.int32(100_000)]
    changed = zero_points(target, machine)
    verify(changed)
    assert np.array_equal(evaluate(changed, inputs), evaluate(target, inputs))
