"""Products in bfloat16."""

from __future__ import annotations

import numpy as np
import pytest

from inlaid import ops
from inlaid.graph.interp import evaluate
from inlaid.graph.ir import Call, Expr, Function, constant, function, post_order, tuple_, var
from inlaid.graph.operator import Operator
from inlaid.graph.verify import verify
from inlaid.passes.cse import share_common
from inlaid.passes.fold_constants import fold_constants
from inlaid.passes.lower_precision import lower_precision
from inlaid.passes.simplify import simplify
from inlaid_runtime.types import TensorType

RNG = np.random.default_rng(0)
X = var("x", TensorType((1, 4, 6, 6), "float32"))


def lowered(target: Function) -> Function:
    result = share_common(fold_constants(simplify(lower_precision(target))))
    verify(result)
    assert result.type == target.type
    return result


def calls(expr: Expr, name: str) -> list[Call]:
    return [
        node
        for node in post_order(expr)
        if isinstance(node, Call) and isinstance(node.callee, Operator) and node.callee.name == name
    ]


def types(*exprs: Expr) -> list[str]:
    return [expr.type.dtype.name for expr in exprs]  # type: ignore[attr-defined]


def weights(*shape: int) -> Expr:
    return constant(RNG.uniform(-1, 1, shape).astype(np.float32))


def convolved(x: Expr, groups: int = 1) -> Call:
    return ops.conv(x, weights(4, 4 // groups, 3, 3), pads=(1, 1, 1, 1), groups=groups)


def close(target: Function, tolerance: float) -> None:
    arrays = [RNG.uniform(-1, 1, param.type.shape).astype(np.float32) for param in target.params]  # type: ignore[attr-defined]
    expected, actual = evaluate(target, arrays), evaluate(lowered(target), arrays)
    np.testing.assert_allclose(actual, expected, rtol=0, atol=tolerance * np.abs(expected).max())


def test_operands_are_rounded_and_sums_are_not() -> None:
    target = function([X], ops.relu(convolved(X)))
    (product,) = calls(lowered(target), "conv")
    assert types(product, *product.args) == ["float32", "bfloat16", "bfloat16"]
    assert product.args[1] in calls(product, "conv")[0].args, "weights are rounded when the model is compiled"
    close(target, 0.01)


def test_what_several_read_is_stored_once() -> None:
    """A residual block: the sum is read in bfloat16 by the product and by the other sum."""
    block = ops.relu(convolved(X))
    result = lowered(function([X], convolved(ops.add(block, convolved(block)))))
    stored = [cast for cast in calls(result, "cast") if types(cast) == ["bfloat16"]]
    (relu,) = calls(result, "relu")
    assert [cast for cast in stored if cast.args[0] is relu] == [cast for cast in stored if cast.args[0] is relu][:1]
    assert not any(relu in node.args for node in calls(result, "add"))


def test_moves_move_bfloat16() -> None:
    block = ops.relu(convolved(X))
    pooled = ops.max_pool(ops.concat(block, X, axis=1), kernel=(2, 2), strides=(2, 2))
    target = function([X], ops.conv(pooled, weights(3, 8, 1, 1)))
    result = lowered(target)
    assert types(*calls(result, "concat"), *calls(result, "max_pool")) == ["bfloat16"] * 2
    assert not [cast for cast in calls(result, "cast") if types(cast) == ["float32"]]
    close(target, 0.02)


@pytest.mark.parametrize("sensitive", [ops.exp, lambda x: ops.softmax(x, axis=1), lambda x: ops.exp(ops.mul(x, x)), ops.floor])
def test_what_is_sensitive_stays_exact(sensitive) -> None:  # type: ignore[no-untyped-def]
    sums = ops.reshape(convolved(X), shape=(4, 36))
    result = lowered(function([X], tuple_([sensitive(sums), ops.matmul(sums, weights(36, 2))])))
    (moved,) = calls(result, "reshape")
    assert types(moved, *moved.args) == ["float32"] * 2


def test_results_and_element_wise_operators_stay_exact() -> None:
    target = function([X], ops.add(X, ops.mul(X, X)))
    assert lower_precision(target) is target
    (sums,) = calls(lowered(function([X], tuple_([y := convolved(X), ops.reduce_sum(y, axes=(1,)), ops.add(y, y)]))), "conv")
    assert types(sums) == ["float32"]


def test_depthwise_convolutions_stay_in_float32() -> None:
    (product,) = calls(lowered(function([X], convolved(X, groups=4))), "conv")
    assert types(product, *product.args) == ["float32"] * 3
    (product,) = calls(lowered(function([X], convolved(X, groups=2))), "conv")
    assert types(*product.args) == ["bfloat16"] * 2


def test_other_types_are_left_alone() -> None:
    x = var("x", TensorType((2, 3), "float64"))
    target = function([x], ops.matmul(x, constant(np.ones((3, 2)))))
    assert lower_precision(target) is target


def test_products_of_two_that_are_computed() -> None:
    a, b = var("a", TensorType((5, 7), "float32")), var("b", TensorType((7, 3), "float32"))
    close(function([a, b], ops.matmul(ops.relu(a), ops.relu(b))), 0.01)


def test_a_quotient_by_a_known_number_is_a_product() -> None:
    target = function([X], ops.relu(ops.div(convolved(X), constant(np.float32(1.7)))))
    assert not calls(lowered(target), "div")
    close(target, 0.02)
    for divisor in (np.float32(0), np.float32(np.inf), np.float32(3e38)):
        assert calls(lowered(function([X], ops.div(X, constant(divisor)))), "div")


def test_the_error_function_is_a_polynomial_where_it_may_be_rounded() -> None:
    x = var("x", TensorType((6008, 4), "float32"))
    gelu = ops.mul(x, ops.add(ops.erf(x), constant(np.float32(1))))
    target = function([x], ops.matmul(gelu, weights(4, 4)))
    assert not calls(lowered(target), "erf")
    assert calls(lowered(function([x], ops.erf(x))), "erf"), "results of the model are exact"
    values = np.concatenate([np.linspace(-6, 6, 24000), [np.inf, -np.inf, np.nan, 1e-30, 3, -3, 2.999, 0] * 4]).reshape(6008, 4)
    inner = function([x], ops.erf(x))
    rough = function([x], calls(lowered(target), "clip")[-1])
    expected, actual = (evaluate(item, [values.astype(np.float32)]) for item in (inner, rough))
    np.testing.assert_allclose(actual, expected, rtol=0, atol=2**-13)
    infinite = np.isinf(values)
    np.testing.assert_array_equal(actual[infinite], np.sign(values[infinite]))
