from __future__ import annotations

import numpy as np

from inlaid import ops
from inlaid.graph.attrs import attr_vars, sizes_in
from inlaid.graph.interp import evaluate
from inlaid.graph.ir import Call, Function, function, let, post_order, tuple_, var
from inlaid.graph.verify import verify
from inlaid.passes.name_sizes import name_sizes
from inlaid_runtime.types import TensorType


def model() -> Function:
    x = var("x", TensorType((6,), "float32"))
    positions = ops.nonzero(x)
    count = positions.type.shape[1]  # type: ignore[attr-defined]
    bound = var("v", positions.type)
    twice = ops.nonzero(ops.reshape(bound, shape=(count,)))
    return function([x], let(bound, positions, tuple_([twice, ops.concat(bound, bound, axis=1)])))


def names(target: Function) -> set[str]:
    size_names = {size.name for expr in post_order(target) for size in sizes_in(expr.type)}
    return size_names | {str(size) for expr in post_order(target) if isinstance(expr, Call) for size in attr_vars(expr.attrs)}


def test_names_depend_on_the_model_alone() -> None:
    first, second = model(), model()
    assert names(first) != names(second)
    a, b = name_sizes(first), name_sizes(second)
    assert names(a) == names(b) and len(names(a)) == len(names(first)) == 2
    for target in (a, b):
        verify(target)
    assert name_sizes(a) is a
    data = [np.asarray([0, 1, 0, 2, 3, 0], np.float32)]
    for x, y in zip(evaluate(first, data), evaluate(a, data), strict=True):
        np.testing.assert_array_equal(x, y)


def test_bounds_are_renamed_too() -> None:
    sizes = {size.name: size for expr in post_order(name_sizes(model())) for size in sizes_in(expr.type)}
    outer, inner = (sizes[name] for name in sorted(sizes))
    assert outer.upper == 6
    assert {size.name for size in sizes_in(inner.upper)} <= {outer.name}


def test_a_function_without_existential_sizes_is_left_alone() -> None:
    x = var("x", TensorType(("n",), "float32"))
    target = function([x], ops.neg(x))
    assert name_sizes(target) is target
