from __future__ import annotations

import numpy as np
import pytest

from inlaid import ops
from inlaid.graph.ir import Call, Expr, Module, Span, constant, function, if_, post_order, tuple_, tuple_item, var
from inlaid.graph.pattern import (
    Match,
    dominates,
    explain_mismatch,
    is_const,
    is_op,
    is_scalar,
    is_tuple,
    is_var,
    match,
    wildcard,
)
from inlaid.graph.pattern import tuple_item as item
from inlaid.graph.rewrite import RewriteRule, rewrite, rewrite_expr
from inlaid.graph.transform import map_functions, substitute, transform
from inlaid_runtime.errors import VerifyError
from inlaid_runtime.types import TensorType

SCALAR = TensorType((), "float32")
X, Y, Z = (var(name, SCALAR) for name in "xyz")
ONE = constant(np.float32(1))


def test_names_calls_and_attributes() -> None:
    expr = ops.relu(ops.add(ops.cast(X, dtype="float32"), ONE))
    pattern = is_op("relu")(is_op(ops.add, "sub")(is_op("cast").has_attr(dtype="float32").named("cast"), is_const().named("c")))
    pattern_match = match(pattern, expr)
    assert pattern_match is not None
    assert pattern_match.root is expr
    assert [call.callee.name for call in pattern_match.calls] == ["relu", "add", "cast"]
    assert (
        pattern_match.attrs("cast").dtype == "float32"
        and pattern_match.constant("c") == 1
        and pattern_match.get("d") is None
        and "c" in pattern_match
    )
    with pytest.raises(TypeError, match="must match a constant"):
        pattern_match.constant("cast")


def test_commutative_arguments_match_in_either_order_and_backtrack() -> None:
    pattern = is_op("add")(is_op("neg")(wildcard()).named("n"), wildcard().named("o"))
    assert match(pattern, ops.add(X, ops.neg(Y)))["o"] is X
    assert match(pattern, ops.add(ops.neg(Y), X))["o"] is X
    assert match(is_op("sub")(is_const(), wildcard()), ops.sub(X, ONE)) is None
    operand = wildcard()
    twice = is_op("add")(is_op("mul")(operand, is_const()), is_op("neg")(operand))
    assert match(twice, ops.add(ops.neg(X), ops.mul(ONE, X))) is not None
    assert match(twice, ops.add(ops.neg(X), ops.mul(ONE, Y))) is None
    both = wildcard()
    assert match(is_op("mul")(both, both), ops.mul(X, X)) is not None
    assert match(is_op("mul")(both, both), ops.mul(X, Y)) is None


def test_optional_and_alternatives_prefer_the_first() -> None:
    conv = is_op("neg")(wildcard().named("x"))
    pattern = conv.optional(lambda inner: is_op("add")(inner, is_const().named("bias"))).optional(
        lambda inner: is_op("relu")(inner)
    )
    full = match(pattern, ops.relu(ops.add(ops.neg(X), ONE)))
    assert full is not None and full["bias"] is ONE and len(full.calls) == 3
    assert match(pattern, ops.relu(ops.neg(X))).get("bias") is None
    assert match(pattern, ops.neg(X)) is not None
    assert match(pattern, ops.relu(X)) is None
    either = is_var().named("a") | is_const().named("b")
    assert "a" in match(either, X) and "b" in match(either, ONE)


def test_types_and_predicates() -> None:
    v = var("v", TensorType((2, 3), "int8"))
    assert match(wildcard().has_dtype("int8", "uint8").has_rank(2).has_type(TensorType((2, "n"), "int8")), v)
    assert match(wildcard().has_rank(1), v) is None
    assert match(wildcard().where(lambda expr: expr is X), v) is None


def test_scalars_tell_signed_zeros_apart() -> None:
    def zero(value: float) -> Expr:
        return constant(np.full((2,), value, np.float32))

    assert match(is_scalar(-0.0), zero(-0.0)) and not match(is_scalar(-0.0), zero(0.0)) and not match(is_scalar(0), zero(-0.0))
    assert match(is_scalar(0), constant(np.zeros(2, np.int32))) and match(is_scalar(1), ONE) and not match(is_scalar(1), X)


def test_tuples() -> None:
    pair = tuple_([X, Y])
    assert match(is_tuple(is_var(), is_var()), pair) and not match(is_tuple(is_var()), pair)
    values = ops.topk(var("v", TensorType((4,), "float32")), k=2, axis=0) if "topk" in ops.TABLE else None
    if values is not None:
        assert match(item(is_op("topk"), 1), tuple_item(values, 1))
        assert not match(item(is_op("topk"), 0), tuple_item(values, 1))


def test_dominates() -> None:
    path = is_op("neg", "add", "mul")
    pattern = dominates(is_op("exp").named("top"), path, is_op("relu"))
    top = ops.exp(X)
    assert match(pattern, ops.relu(ops.add(ops.neg(top), ops.mul(top, ONE))))["top"] is top
    assert match(pattern, ops.relu(ops.add(top, ops.exp(Y)))) is None
    assert match(pattern, ops.relu(ops.add(top, ops.sqrt(X)))) is None
    assert match(pattern, ops.relu(ops.neg(X))) is None


def test_mismatches_are_explained() -> None:
    pattern = is_op("relu")(is_op("add")(wildcard(), is_const()).has_dtype("int8"))
    assert explain_mismatch(pattern, ops.neg(X)) == "neg is not relu"
    assert explain_mismatch(pattern, ops.relu(ops.add(X, Y))) == "expected a constant, found a var"
    assert "expected dtype int8" in explain_mismatch(pattern, ops.relu(ops.add(X, ONE)))
    assert explain_mismatch(pattern.optional(lambda it: it), ops.relu(ops.add(X, ONE))) is not None


def double_neg(pattern_match: Match) -> Expr:
    return pattern_match["x"]


DOUBLE_NEG = RewriteRule("double_neg", is_op("neg")(is_op("neg")(wildcard().named("x"))), double_neg)


def test_a_long_chain_collapses_in_one_sweep() -> None:
    expr: Expr = X
    for _ in range(5001):
        expr = ops.neg(expr)
    assert show_ops(rewrite_expr(expr, [DOUBLE_NEG])) == ["neg"]


def show_ops(expr: Expr) -> list[str]:
    return [node.callee.name for node in post_order(expr) if isinstance(node, Call)]


def test_sharing_is_kept_and_nothing_is_built_without_a_match() -> None:
    shared = ops.exp(X)
    expr = ops.add(ops.neg(ops.neg(shared)), shared)
    new = rewrite_expr(expr, [DOUBLE_NEG])
    assert isinstance(new, Call) and new.args[0] is shared and new.args[1] is shared
    assert rewrite_expr(new, [DOUBLE_NEG]) is new
    module = Module({"main": function([X], new)})
    assert rewrite(module, [DOUBLE_NEG]) is module


def test_replacements_are_rewritten_in_turn_and_take_the_span() -> None:
    grow = RewriteRule(
        "grow", is_op("abs")(wildcard().named("x")), lambda pattern_match: ops.neg(ops.neg(ops.relu(pattern_match["x"])))
    )
    expr = ops.add(ops.abs(X, span=Span("m", "n")), X)
    new = rewrite_expr(expr, [grow, DOUBLE_NEG])
    assert show_ops(new) == ["relu", "add"]
    assert new.args[0].span == Span("m", "n")  # type: ignore[attr-defined]


def test_rules_reach_into_branches_and_functions() -> None:
    flag = var("flag", TensorType((), "bool"))
    body = if_(flag, ops.neg(ops.neg(X)), ops.neg(X))
    new = rewrite_expr(function([flag, X], body), [DOUBLE_NEG])
    assert show_ops(new) == ["neg"]


@pytest.mark.parametrize(
    "rules",
    [
        [
            RewriteRule("up", is_op("neg"), lambda pattern_match: ops.abs(pattern_match.root.args[0])),
            RewriteRule("down", is_op("abs"), lambda f: ops.neg(f.root.args[0])),
        ],
        [RewriteRule("up down", is_op("neg"), lambda pattern_match: ops.neg(pattern_match.root.args[0]))],
        [RewriteRule("up down", is_op("neg"), lambda pattern_match: pattern_match.root)],
        [RewriteRule("up down", is_op("neg"), lambda pattern_match: ops.exp(pattern_match.root))],
    ],
)
def test_oscillating_rules_are_named(rules: list[RewriteRule]) -> None:
    with pytest.raises(VerifyError, match=r"oscillate: (up down|down, up|up, down)"):
        rewrite_expr(ops.neg(X), rules)


def test_a_rule_that_changes_a_type_is_named() -> None:
    wrong = RewriteRule("wrong", is_op("neg"), lambda pattern_match: constant(np.zeros(3, np.int8)))
    with pytest.raises(VerifyError, match="rule wrong"):
        rewrite_expr(ops.neg(X), [wrong])


def test_transform_and_substitute_keep_what_does_not_change() -> None:
    expr = ops.add(ops.neg(X), Y)
    assert transform(expr, lambda old, new: new) is expr
    new = substitute(expr, {Y: ONE})
    assert isinstance(new, Call) and isinstance(expr, Call) and new.args[0] is expr.args[0] and new.args[1] is ONE
    module = Module({"main": function([X, Y], expr)})
    assert map_functions(module, lambda target: target) is module
