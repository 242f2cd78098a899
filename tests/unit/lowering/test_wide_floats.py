from __future__ import annotations

import numpy as np
import pytest

from inlaid import ops
from inlaid.graph.interp import evaluate
from inlaid.graph.ir import Call, Expr, Function, constant, function, post_order, var
from inlaid.graph.verify import verify
from inlaid.lowering.rewrites.wide_floats import wide_floats
from inlaid.plugins import Capabilities
from inlaid.tensor.primitives import TensorIntrin
from inlaid.tensor.scheduling.dot_products import dot_product
from inlaid.tensor.scheduling.rule import KernelContext
from inlaid_runtime.types import TensorType, dtype

DOTS = TensorIntrin("dot.bfloat16", dot_product("bfloat16", "bfloat16", "float32", 16, 2))


def context(*intrinsics: TensorIntrin) -> KernelContext:
    return KernelContext(Capabilities((), vector_bits=512), 1, intrinsics)


def product_types(target: Function) -> list[tuple[str, ...]]:
    products = [expr for expr in post_order(target) if isinstance(expr, Call) and expr.callee in (ops.conv, ops.matmul)]
    return [tuple(item.type.dtype.name for item in (*call.args, call)) for call in products]  # type: ignore[union-attr]


def matmul(name: str, rows: int) -> Function:
    x = var("x", TensorType((rows, 6), name))
    weights = np.random.default_rng(0).standard_normal((6, 5)).astype(dtype(name).numpy)
    return function([x], ops.matmul(x, constant(weights)))


def conv(name: str, groups: int = 1) -> Function:
    x = var("x", TensorType((1, 4, 6, 6), name))
    weights = np.random.default_rng(0).standard_normal((4, 4 // groups, 3, 3)).astype(dtype(name).numpy)
    w: Expr = constant(weights)
    return function([x], ops.conv(x, w, pads=(1,) * 4, groups=groups))


@pytest.mark.parametrize("name", ["float16", "bfloat16"])
@pytest.mark.parametrize("target_of", [conv, lambda name: matmul(name, 8)])
def test_products_are_rounded_once(name: str, target_of: object) -> None:
    target = target_of(name)  # type: ignore[operator]
    changed = wide_floats(target, context())
    verify(changed)
    assert product_types(changed) == [("float32",) * 3]
    shape = target.params[0].type.shape
    x = np.random.default_rng(1).standard_normal(shape).astype(dtype(name).numpy)
    assert np.array_equal(evaluate(changed, [x]), evaluate(target, [x]))
    assert wide_floats(changed, context()) is changed


def test_products_with_an_instruction_stay() -> None:
    target = matmul("bfloat16", 8)
    assert wide_floats(target, context(DOTS)) is target
    assert wide_floats(matmul("float16", 8), context(DOTS)) is not None


def test_products_that_are_bound_by_reading_weights_stay() -> None:
    for target in (matmul("float16", 1), conv("float16", 4), matmul("float32", 8)):
        assert wide_floats(target, context()) is target


def test_a_target_without_float32_keeps_its_products() -> None:
    target = conv("float16")
    assert wide_floats(target, context(), lambda call: call.type.dtype.name != "float32") is target  # type: ignore[union-attr]
