from __future__ import annotations

import numpy as np
import pytest

from inlaid import ops
from inlaid.graph.interp import evaluate
from inlaid.graph.ir import Call, Constant, Expr, Span, constant, function, if_, post_order, tuple_, var
from inlaid.graph.operator import Operator
from inlaid.ops.compose import softplus
from inlaid.passes.cse import share_common
from inlaid.passes.decompose import decompose
from inlaid.passes.fold_constants import fold_constants
from inlaid.passes.simplify import simplify
from inlaid.passes.simplify_inference import simplify_inference
from inlaid_runtime.arith import SizeVar
from inlaid_runtime.types import TensorType

X = var("x", TensorType((2, 3), "float32"))
J = var("j", TensorType((2, 3), "int32"))
H = var("h", TensorType((2, 3), "float16"))
F = var("flag", TensorType((), "bool"))


def one(value: float, dtype: str = "float32") -> Expr:
    return constant(value, dtype)


def operators(expr: Expr) -> list[str]:
    return [node.callee.name for node in post_order(expr) if isinstance(node, Call) and isinstance(node.callee, Operator)]


def simplified(body: Expr) -> Expr:
    return simplify(function([X, J, H, F], body)).body


@pytest.mark.parametrize(
    "body",
    [
        ops.mul(X, one(1)),
        ops.mul(constant(np.ones((3,), np.float32)), X),
        ops.div(X, one(1)),
        ops.sub(X, one(0.0)),
        ops.neg(ops.neg(X)),
        ops.pow(X, one(1)),
        ops.cast(X, dtype="float32"),
        ops.cast(ops.cast(X, dtype="float64"), dtype="float32"),
        ops.transpose(ops.transpose(X, perm=(1, 0)), perm=(1, 0)),
        ops.reshape(ops.reshape(X, shape=(6,)), shape=(2, 3)),
        ops.broadcast_to(X, shape=(2, 3)),
        ops.strided_slice(X, begin=(0, 0), end=(2, 3), strides=(1, 1)),
        ops.pad(X, one(0), pads=(0, 0, 0, 0)),
        ops.tile(X, repeats=(1, 1)),
        ops.maximum(X, X),
        if_(constant(True), X, ops.neg(X)),
        if_(F, X, X),
    ],
    ids=lambda body: operators(body)[-1] if operators(body) else "if",
)
def test_what_changes_nothing_goes(body: Expr) -> None:
    assert simplified(body) is X


def test_integers_have_one_zero() -> None:
    assert simplified(ops.add(J, one(0, "int32"))) is J
    assert simplified(ops.sub(J, one(0, "int32"))) is J


@pytest.mark.parametrize(
    "body",
    [
        ops.add(X, one(0.0)),  # -0.0 + 0.0 is 0.0
        ops.sub(X, one(-0.0)),
        ops.mul(X, one(0.0)),  # NaN and infinities stay NaN
        ops.mul(X, constant(np.ones((4, 1, 1), np.float32))),  # it broadcasts
        ops.cast(ops.cast(X, dtype="float16"), dtype="float32"),
        ops.cast(ops.cast(J, dtype="float64"), dtype="int8"),  # a float saturates, an integer wraps
        ops.cast(ops.cast(J, dtype="uint32"), dtype="int64"),
        ops.div(X, one(3)),
        ops.div(H, one(2, "float16")),
        ops.strided_slice(X, begin=(0, 2), end=(2, -1), strides=(1, -1)),
    ],
    ids=lambda body: operators(body)[-1],
)
def test_what_changes_a_value_stays(body: Expr) -> None:
    assert simplified(body) is body


def test_chains_become_shorter() -> None:
    assert operators(simplified(ops.relu(ops.relu(ops.abs(ops.abs(X)))))) == ["abs", "relu"]
    assert operators(simplified(ops.pow(X, one(2)))) == ["mul"]
    assert operators(simplified(ops.pow(X, one(3)))) == ["mul", "mul"]
    assert operators(simplified(ops.pow(H, one(3, "float16")))) == ["cast", "mul", "mul", "cast"]
    assert operators(simplified(ops.div(X, one(8)))) == ["mul"]
    chain = ops.transpose(ops.transpose(ops.reshape(X, shape=(2, 3, 1)), perm=(2, 0, 1)), perm=(1, 2, 0))
    assert simplified(ops.reshape(chain, shape=(2, 3))) is X
    n = SizeVar("n")
    single = var("single", TensorType((1, n, 1, 4), "float32"))
    moved = simplify(function([single], ops.transpose(single, perm=(0, 2, 1, 3)))).body
    assert operators(moved) == ["reshape"] and moved.type == TensorType((1, 1, n, 4), "float32")
    assert operators(simplify(function([single], ops.transpose(single, perm=(0, 3, 2, 1)))).body) == ["transpose"]
    y = var("y", TensorType((n, 3), "int8"))
    wide = ops.cast(ops.cast(y, dtype="int32"), dtype="float32")
    assert operators(simplify(function([y], wide)).body) == ["cast"]


def test_narrow_floats_of_several_operators_are_rounded_once() -> None:
    """All float16 numbers, beside float64."""
    data = np.arange(1 << 16, dtype=np.uint16).view(np.float16)
    x = var("x", TensorType(data.shape, "float16"))
    for body in (ops.pow(x, one(3, "float16")), ops.tanh(softplus(x))):
        unit = simplify(function([x], body))
        assert not {"pow", "tanh"} & set(operators(unit.body))
        wide = data.astype(np.float64)
        with np.errstate(all="ignore"):
            expected = (wide**3 if body.callee is ops.pow else np.tanh(np.logaddexp(0, wide))).astype(np.float16)  # type: ignore[attr-defined]
            actual = evaluate(unit, [data])
        differ = (actual != expected) & ~(np.isnan(actual) & np.isnan(expected))
        assert differ.mean() < 1e-3
        np.testing.assert_array_almost_equal_nulp(actual[differ], expected[differ])


def _softplus_forms(x: Expr) -> list[Expr]:
    dtype = x.type.dtype.name  # type: ignore[attr-defined]
    unit, zero, power = one(1, dtype), one(0, dtype), ops.exp(ops.neg(ops.abs(x)))
    return [
        softplus(x),
        ops.add(ops.log(ops.add(unit, power)), ops.relu(x)),
        ops.add(ops.maximum(zero, x), ops.log1p(power)),
        ops.log(ops.add(ops.exp(x), unit)),
        ops.log1p(ops.exp(x)),
    ]


@pytest.mark.parametrize("form", range(5))
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_tanh_of_softplus_has_one_exponential(dtype: str, form: int) -> None:
    """Mish of every finite value, and of infinities and NaN, is at least as exact as the composition."""
    x = var("x", TensorType((4006,), dtype))
    mish = simplify(function([x], ops.mul(x, ops.tanh(_softplus_forms(x)[form]))))
    assert not {"tanh", "log", "log1p", "abs", "relu", "maximum"} & set(operators(mish.body))
    data = np.concatenate([np.linspace(-750, 750, 2001), np.linspace(-25, 25, 2001), [np.inf, -np.inf, np.nan, -0.0]]).astype(dtype)
    wide = data.astype(np.longdouble)
    with np.errstate(all="ignore"):
        expected = wide * np.tanh(np.log1p(np.exp(np.minimum(wide, 1000))))
        actual = evaluate(mish, [data])
    facts = np.finfo(dtype)
    np.testing.assert_allclose(actual, expected.astype(dtype), rtol=4 * facts.eps, atol=float(2000 * facts.smallest_subnormal))


def test_other_compositions_of_tanh_stay() -> None:
    two = ops.add(ops.exp(X), one(2))
    other = ops.add(ops.maximum(X, one(0)), ops.log1p(ops.exp(ops.neg(ops.abs(ops.neg(ops.exp(X)))))))
    for body in (ops.log(two), other, ops.log1p(X)):
        assert operators(simplified(ops.tanh(body)))[-1] == "tanh"
    assert "log1p" in operators(simplified(softplus(X)))


def test_folding_is_bounded() -> None:
    fold = fold_constants(function([X], ops.mul(X, ops.exp(ops.broadcast_to(one(0), shape=(2, 3))))))
    assert operators(fold) == ["mul"]
    large = function([X], ops.reduce_sum(ops.broadcast_to(one(1), shape=(1000, 1000)), axes=(0,)))
    assert operators(fold_constants(large)) == ["broadcast_to", "reduce_sum"]
    assert operators(fold_constants(large, limit=1 << 22)) == []
    weights = ops.transpose(ops.full(one(1), shape=(1000, 3)), perm=(1, 0))
    assert operators(fold_constants(function([X], ops.matmul(X, weights)), limit=100)) == ["matmul"]
    shared = function([X], tuple_([ops.matmul(X, weights), weights]))
    assert operators(fold_constants(shared, limit=100)) == ["full", "transpose", "matmul"]
    turned = function([], ops.transpose(constant(np.zeros((600, 600), np.float32)), perm=(1, 0)))
    assert isinstance(fold_constants(turned).body, Constant)


def test_folding_carries_sizes_that_become_known() -> None:
    positions = ops.nonzero(constant(np.asarray([0, 1, 1], np.float32)))
    count = positions.type.shape[1]  # type: ignore[attr-defined]
    target = function([X], ops.reshape(ops.concat(positions, positions, axis=0), shape=(2, count)))
    folded = fold_constants(target)
    assert isinstance(folded.body, Constant)
    np.testing.assert_array_equal(folded.body.data, [[1, 2], [1, 2]])
    broadcast_function = function([X], ops.broadcast_to(ops.after(one(1), positions), shape=(count,)))
    assert operators(fold_constants(broadcast_function)) == []


def test_a_constant_fault_is_left_for_the_run() -> None:
    bad = ops.take(constant(np.zeros(3, np.float32)), constant(np.asarray([7])), axis=0)
    assert fold_constants(function([], bad)).body is bad


def test_common_subexpressions_are_shared() -> None:
    body = ops.add(ops.exp(ops.neg(X)), ops.exp(ops.neg(X)))
    assert operators(share_common(function([X], body))) == ["neg", "exp", "add"]
    weights = [constant(np.arange(12, dtype=np.float32).reshape(4, 3)) for _ in range(2)]
    both = share_common(function([X], tuple_([ops.neg(item) for item in weights])))
    assert operators(both) == ["neg"]
    apart = function([X], ops.add(ops.pad(X, one(0.0), pads=(1, 0, 0, 0)), ops.pad(X, one(-0.0), pads=(1, 0, 0, 0))))
    assert share_common(apart) is apart
    sizes = function([X], tuple_([ops.nonzero(X), ops.nonzero(X)]))
    assert share_common(sizes) is sizes


def test_sharing_respects_branches() -> None:
    def branches(first: Expr, second: Expr) -> Expr:
        return if_(F, first, second)

    siblings = function([F, X], branches(ops.neg(ops.exp(X)), ops.abs(ops.exp(X))))
    assert share_common(siblings) is siblings
    outer = ops.exp(X)
    nested = function([F, X], ops.add(branches(ops.neg(ops.exp(X)), ops.abs(ops.exp(X))), outer))
    assert operators(share_common(nested)) == ["exp", "neg", "abs", "add"]


def test_decomposition_goes_on_and_names_the_source() -> None:
    x = var("x", TensorType((2, 4), "float32"))
    scale = constant(np.ones(4, np.float32))
    target = function([x], ops.relu(ops.layer_norm(x, scale, axis=1, span=Span("m", "LN"))))
    composite = decompose(target, lambda call: True)
    assert composite is target
    simple = decompose(target, lambda call: False)
    assert "layer_norm" not in operators(simple)
    assert {str(node.span) for node in post_order(simple) if isinstance(node, Call) and node.callee is not ops.relu} == {"m:LN"}
    data = np.arange(8, dtype=np.float32).reshape(2, 4)
    np.testing.assert_allclose(evaluate(simple, [data]), evaluate(target, [data]), rtol=1e-5, atol=1e-6)


# --- inference --------------------------------------------------------------------------------------------------------


def normalized(x: Expr, channels: int, seed: int = 0) -> Expr:
    rng = np.random.default_rng(seed)
    scale, bias, mean = (constant(rng.normal(size=channels).astype(np.float32)) for _ in range(3))
    variance = constant(rng.uniform(0.5, 2, channels).astype(np.float32))
    return ops.batch_norm(x, scale, bias, mean, variance, epsilon=1e-5)


def assert_close(a: object, b: object, inputs: list[np.ndarray]) -> None:
    np.testing.assert_allclose(evaluate(a, inputs), evaluate(b, inputs), rtol=1e-4, atol=1e-5)  # type: ignore[arg-type]


def test_batch_norm_goes_into_weights() -> None:
    rng = np.random.default_rng(1)
    x = var("x", TensorType(("n", 2, 5, 5), "float32"))
    w = constant(rng.normal(size=(4, 1, 3, 3)).astype(np.float32))
    bias = constant(rng.normal(size=(4, 1, 1)).astype(np.float32))
    data = [rng.normal(size=(2, 2, 5, 5)).astype(np.float32)]
    for body, left in (
        (normalized(ops.conv(x, w, groups=2), 4), ["conv", "add"]),
        (normalized(ops.add(ops.conv(x, w, groups=2), bias), 4), ["conv", "add"]),
        (normalized(ops.relu(ops.conv(x, w, groups=2)), 4), ["conv", "relu", "mul", "add"]),
        (normalized(normalized(ops.relu(ops.conv(x, w, groups=2)), 4), 4, 1), ["conv", "relu", "mul", "add"]),
        (normalized(normalized(ops.conv(x, w, groups=2), 4), 4, 1), ["conv", "add"]),
    ):
        target = function([x], body)
        simpler = simplify_inference(target)
        assert operators(simpler) == left
        assert_close(target, simpler, data)
    assert simplify_inference(simpler) is simpler


def test_scales_go_into_other_products() -> None:
    rng = np.random.default_rng(1)
    x = var("x", TensorType((2, 3), "float32"))
    w, scale = (constant(rng.normal(size=shape).astype(np.float32)) for shape in ((3, 4), (1, 4)))
    target = function([x], ops.mul(ops.matmul(x, w), scale))
    assert operators(simplify_inference(target)) == ["matmul"]
    assert_close(target, simplify_inference(target), [rng.normal(size=(2, 3)).astype(np.float32)])
    image = var("y", TensorType((1, 3, 4, 4), "float32"))
    kernel, by_channel = (constant(rng.normal(size=shape).astype(np.float32)) for shape in ((3, 2, 3, 3), (1, 2, 1, 1)))
    turned = function([image], ops.mul(ops.conv_transpose(image, kernel), by_channel))
    assert operators(simplify_inference(turned)) == ["conv_transpose"]
    assert_close(turned, simplify_inference(turned), [rng.normal(size=(1, 3, 4, 4)).astype(np.float32)])


def test_constants_become_one_only_within_range() -> None:
    def chain(operator: Operator, a: float, b: float) -> list[str]:
        body = operator(operator(X, one(a)), one(b))
        target = function([X], body)
        simpler = simplify_inference(target)
        assert_close(target, simpler, [np.arange(6, dtype=np.float32).reshape(2, 3)])
        return operators(simpler)

    assert chain(ops.mul, 3, 5) == ["mul"] and chain(ops.add, 3, 5) == ["add"]
    assert chain(ops.mul, 1e-30, 1e-30) == ["mul", "mul"] and chain(ops.mul, 0, 5) == ["mul"]
    halves = function([H], ops.mul(ops.mul(H, one(3, "float16")), one(5, "float16")))
    assert simplify_inference(halves) is halves
    product = ops.mul(X, one(3))
    shared = function([X], ops.add(ops.mul(product, one(5)), product))
    assert simplify_inference(shared) is shared


def test_what_is_read_elsewhere_or_scaled_otherwise_stays() -> None:
    rng = np.random.default_rng(1)
    x = var("x", TensorType((2, 3), "float32"))
    w, columns, rows = (constant(rng.normal(size=shape).astype(np.float32)) for shape in ((3, 4), (4,), (2, 1)))
    product = ops.matmul(x, w)
    shared = function([x], ops.add(ops.mul(product, columns), product))
    assert simplify_inference(shared) is shared
    by_row = function([x], ops.mul(ops.matmul(x, w), rows))
    assert simplify_inference(by_row) is by_row


def test_batch_norm_with_unknown_statistics() -> None:
    x = var("x", TensorType((2, 3, 4), "float16"))
    params = [var(name, TensorType((3,), "float16")) for name in ("scale", "bias", "mean", "variance")]
    target = function([x, *params], ops.batch_norm(x, *params, epsilon=1e-3))
    simpler = simplify_inference(target)
    assert "batch_norm" not in operators(simpler)
    rng = np.random.default_rng(0)
    inputs = [rng.uniform(0.5, 1, list(p.type.shape)).astype(np.float16) for p in target.params]  # type: ignore[attr-defined]
    np.testing.assert_allclose(evaluate(simpler, inputs), evaluate(target, inputs), rtol=2e-3)
