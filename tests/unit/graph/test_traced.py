"""Type relations that compare sizes by themselves, and so only check sizes that are integers."""

from __future__ import annotations

import dataclasses
import inspect
from collections.abc import Callable
from typing import Any

import pytest

import inlaid
from inlaid import conditions, ops
from inlaid.graph.scope_conditions import call_conditions
from inlaid.graph.traced import TracedSize, trace
from inlaid_runtime import arith
from inlaid_runtime.arith import SizeVar
from inlaid_runtime.errors import TypeInferenceError
from inlaid_runtime.types import OptionalType, SequenceType, TensorType, TupleType, Type

N, M = SizeVar("n"), SizeVar("m")


@dataclasses.dataclass(frozen=True)
class Cut(inlaid.Attrs):
    """`size`: a size. `by`: a number that is none."""

    size: arith.Dim = 4
    by: int = 4


def rule(check: Callable[[arith.Dim, arith.Dim, Cut], object]) -> inlaid.Operator:
    """An operator of two vectors, whose type relation applies `check` to their sizes."""

    def infer(attrs: Cut, x: TensorType, y: TensorType) -> Type:
        check(x.shape[0], y.shape[0], attrs)
        return x

    return inlaid.Operator("my.op", infer, Cut, arity=(2, 2), inputs=("x", "y"))


def refuse(condition: bool) -> None:
    if condition:
        raise ValueError("refused")


def vector(size: arith.Dim) -> TensorType:
    return TensorType((size,), "int8")


def static(*sizes: object) -> bool:
    return all(isinstance(size, int) for size in sizes)


def call(operator: inlaid.Operator, *sizes: arith.Dim | str, **attrs: Any) -> inlaid.graph.ir.Call:  # type: ignore[name-defined]
    return operator(*(inlaid.var(f"x{number}", (size,)) for number, size in enumerate(sizes)), **attrs)


@pytest.mark.parametrize(
    ("check", "text"),
    [
        (lambda a, b, _: refuse(static(a, b) and a != b), r"\(n != m\)"),
        (lambda a, b, _: refuse(static(a, b) and a > b), r"\(m < n\)"),
        (lambda a, b, _: refuse(static(a) and not a > 0), r"\(0 < n\)"),
        (lambda a, b, _: refuse(static(a) and a % 4), r"\(\(n % 4\) != 0\)"),
        (lambda a, b, _: refuse(static(a) and a - 3 < 1), r"\(\(n \+ -3\) < 1\)"),
        (lambda a, b, _: refuse(static(a) and 2 * -a // 3 + 1 == -5), r"== -5\)"),
        (lambda a, b, _: refuse(static(a, b) and max(a, b) == 7), r"\(n < m\)"),
        (lambda a, b, _: refuse(static(a, b) and (a, 3) != (b, 3)), r"n == m"),
        (lambda a, b, _: refuse(static(a) and a not in (1, 128)), r"\(n == 1\)"),
        (lambda a, b, _: refuse(static(a, b) and len({a, b}) > 1), r"hash\(n\)"),
        (lambda a, b, _: refuse(static(a) and float(a) < 2), r"float\(n\)"),
        (lambda a, b, _: refuse(static(a) and int(a) < 2), r"int\(n\)"),
        (lambda a, b, _: refuse(static(a) and round(a / 2) < 2), r"n / 2"),
        # Through expressions and types, which fold integers.
        (lambda a, b, _: refuse(static(a) and arith.unwrap(arith.add(a, -2)) < 0), r"\(\(n \+ -2\) < 0\)"),
        (lambda a, b, _: refuse(static(a, b) and arith.maximum(a, b) == arith.wrap(7)), r"== 7\)"),
        (lambda a, b, _: refuse(TensorType((a, b), "int8").size == 7), r"\(\(n \* m\) == 7\)"),
        (
            lambda a, b, _: refuse(vector(a).is_static and vector(a) != vector(b)),
            "n == m",
        ),
    ],
)
def test_comparisons_are_found(check: Callable[..., object], text: str) -> None:
    """The error names the place. For integers, the type relation decides by itself: they hide nothing."""
    operator = rule(check)
    with pytest.raises(TypeInferenceError, match=text) as caught:
        call(operator, N, M)
    lines = [inspect.getsourcelines(check)[1], inspect.getsourcelines(refuse)[1] + 1]
    assert any(f"{__file__}:{line}" in str(caught.value) for line in lines)
    assert caught.value.operator == "my.op"
    assert "inlaid.conditions" in str(caught.value.remedy)
    assert call(operator, 128, 128).type == TensorType((128,), "float32")


@pytest.mark.parametrize(
    "check",
    [
        # Stated, or the same for all sizes, or of numbers that are no sizes.
        lambda a, b, _: conditions.require_equal(a, b, "y"),
        lambda a, b, _: conditions.broadcast_shapes((a, 1), (b, 4)),
        lambda a, b, _: refuse(arith.compare("<", a, b) == 7),
        lambda a, b, _: refuse(a is None or vector(a) != vector(a)),
        lambda a, b, _: refuse(static(a) and (a < 0 or a != a + 0 or a * 2 + 1 == 0)),
        lambda a, b, attrs: refuse(attrs.by > 5),
        lambda a, b, _: conditions.provably_equal(a, 1) or conditions.provably_equal(a, b),
        lambda a, b, _: f"{a} {b!r} {a + b}",
    ],
)
def test_what_holds_for_symbolic_sizes_is_no_finding(check: Callable[..., object]) -> None:
    assert call(rule(check), N, M).type == TensorType((N,), "float32")


def test_sizes_in_attributes() -> None:
    operator = rule(lambda a, b, attrs: refuse(static(attrs.size) and attrs.size > 3))
    assert call(operator, 5, 5, size=2).type.shape == (5,)
    with pytest.raises(TypeInferenceError, match=r"compares \(3 < n\)"):
        call(operator, 5, 5, size=N)


def test_static_sizes_are_compared_freely() -> None:
    """Once they are required to be static. A symbolic one is refused by the statement."""
    operator = rule(lambda a, b, _: refuse(conditions.require_static(a, "dimension 0 of x") > 5))
    assert call(operator, 5, M).type.shape == (5,)
    with pytest.raises(TypeInferenceError, match="refused"):
        call(operator, 6, M)
    with pytest.raises(TypeInferenceError, match="dimension 0 of x must be static, got n"):
        call(operator, N, M)


def test_another_result_for_integers() -> None:
    def infer(attrs: inlaid.Attrs, x: TensorType) -> Type:
        (size,) = x.shape
        return TensorType((size + 1 if isinstance(size, int) else size,), x.dtype)

    operator = inlaid.Operator("my.op", infer)
    with pytest.raises(TypeInferenceError, match=r"the same result for symbolic sizes as for integers.*\(n,\).* where n is 128"):
        call(operator, N)
    assert call(operator, 3).type.shape == (4,)


def test_sizes_that_satisfy_what_is_stated() -> None:
    """The type relation is traced at sizes that it takes, if these are found; what it requires otherwise is no error."""

    def infer(attrs: inlaid.Attrs, x: TensorType, y: TensorType) -> Type:
        conditions.require_equal(y.shape[0], x.shape[0] - 200, "dimension 0 of y")
        quotient = conditions.require_multiple(x.shape[0], 7, "dimension 0 of x")
        if isinstance(quotient, int) and quotient * 7 != x.shape[0]:
            raise AssertionError("the sizes do not satisfy the condition")
        return TensorType((quotient,), x.dtype)

    operator = inlaid.Operator("my.op", infer, arity=(2, 2))
    with pytest.raises(TypeInferenceError, match=r"compares .*\(n // 7\) \* 7\)? != n"):
        call(operator, N, M)

    def impossible(attrs: inlaid.Attrs, x: TensorType, y: TensorType) -> Type:
        conditions.require_equal(x.shape[0] * 2, y.shape[0] * 2 + 1, "twice")
        return TensorType((conditions.require_multiple(x.shape[0], y.shape[0], "x"),), x.dtype)

    assert call(inlaid.Operator("my.op", impossible, arity=(2, 2)), N, M).type.shape == (N // M,)


def test_rules_that_fail_for_integers_are_judged_by_what_they_did_before() -> None:
    assert call(rule(lambda a, b, _: (1).no if static(a) else None), N, M).type.shape == (N,)  # type: ignore[attr-defined]


def test_types_of_all_kinds_are_traced() -> None:
    traced_types: list[Any] = []
    vector = TensorType((N, 3), "float32")
    types = (TupleType((vector, vector)), SequenceType(vector), OptionalType(vector), vector)
    traced = trace(lambda attrs, *types: traced_types.extend(types) or types[-1], inlaid.Attrs(), types, {N: 5})
    shapes = [traced_types[0].fields[1].shape, traced_types[1].element.shape, traced_types[2].element.shape, traced_types[3].shape]
    assert all(type(shape[0]) is TracedSize and type(shape[1]) is int for shape in shapes)
    assert traced.result is not None and not traced.comparisons and not traced.violations


def test_a_call_inside_of_a_rule_states_its_conditions_for_the_rule() -> None:
    def infer(attrs: inlaid.Attrs, x: TensorType, y: TensorType) -> Type:
        return ops.matmul(inlaid.var("x", x), inlaid.var("y", y)).type

    product = inlaid.Operator("my.product", infer, arity=(2, 2))
    call = product(inlaid.var("x", (3, N)), inlaid.var("y", (M, 4)))
    assert call.type.shape == (3, 4)  # type: ignore[union-attr]
    assert [condition.expected for condition in call_conditions([call])] == ["m"]
