"""Relations between sizes: refused at once for integers, and recorded for symbolic sizes, with the same words."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from inlaid import ops
from inlaid.graph import conditions
from inlaid.graph.conditions import recording
from inlaid.graph.ir import Call, tuple_item, var
from inlaid.graph.scope_conditions import call_conditions
from inlaid_runtime import arith
from inlaid_runtime.arith import Constraint, Dim, SizeVar
from inlaid_runtime.types import TensorType

N, M, K = (SizeVar(name) for name in "nmk")

RELATIONS: dict[str, tuple[Callable[..., Any], Callable[..., bool], str]] = {
    "equal": (lambda a, b, c: conditions.require_equal(a, b, "it"), lambda a, b, c: a == b, "it must be {b}, got {a}"),
    "at least": (lambda a, b, c: conditions.require_at_least(a, b, "it"), lambda a, b, c: a >= b, "it must be >= {b}, got {a}"),
    "at most": (lambda a, b, c: conditions.require_at_most(a, b, "it"), lambda a, b, c: a <= b, "it must be <= {b}, got {a}"),
    "within": (
        lambda a, b, c: conditions.require_within(a, b, c, "it"),
        lambda a, b, c: b <= a <= c,
        "it must be {b} to {c}, got {a}",
    ),
    "multiple": (
        lambda a, b, c: conditions.require_multiple(a, b, "it"),
        lambda a, b, c: b >= 1 and a % b == 0,
        "it must be a multiple of {b}, got {a}",
    ),
    "range": (
        lambda a, b, c: conditions.require_range(a, b, c, "it"),
        lambda a, b, c: 0 <= a <= b <= c,
        "it must be within an axis of {c} elements, got {difference}",
    ),
    "shape": (
        lambda a, b, c: conditions.require_shape((3, a, c), (3, b, c), "it"),
        lambda a, b, c: a == b,
        "dimension 1 of it must be {b}, got {a}",
    ),
    "broadcast to": (
        lambda a, b, c: conditions.require_broadcast_to((a, 1), (3, b, c), "it"),
        lambda a, b, c: a in (1, b),
        "dimension 0 of it must be 1 or {b} to broadcast, got {a}",
    ),
    "broadcast": (
        lambda a, b, c: conditions.broadcast_shapes((2, a), (1, 1), (b,)),
        lambda a, b, c: a == b or 1 in (a, b),
        "an operand's dimension must be 1 or",
    ),
}
SIZES = st.integers(0, 4)


@pytest.mark.parametrize("name", RELATIONS)
@given(a=SIZES, b=SIZES, c=SIZES, symbolic=st.tuples(st.booleans(), st.booleans(), st.booleans()))
def test_relations(name: str, a: int, b: int, c: int, symbolic: tuple[bool, bool, bool]) -> None:
    """Whichever sizes are symbolic, the relation holds for the same values and fails with the same words."""
    state, holds, words = RELATIONS[name]
    sizes: dict[arith.Expr, int] = {N: a, M: b, K: c}
    extents = [variable if named else size for (variable, size), named in zip(sizes.items(), symbolic, strict=True)]
    try:
        with recording() as recorded:
            result = state(*extents)
    except ValueError as error:
        assert not holds(a, b, c)
        message = str(error)
    else:
        violated = [condition for condition in recorded.symbolic if not condition.holds(sizes)]
        assert holds(a, b, c) == (not violated)
        if not violated:
            assert _values(result, sizes) == _values(state(a, b, c), {})
            return
        message = violated[0].message(sizes)
    # A relation that no value of a symbolic size satisfies is refused at once: the message has the size's name, not its value.
    unknown = message.partition(", got ")[2] if any(symbolic) and not recorded.symbolic else None
    values = {"a": unknown or a, "b": extents[1], "c": extents[2], "difference": unknown or b - a}
    assert message.startswith(words.format(**values).replace("1 or 1 to", "1 to"))


def _values(result: Any, sizes: dict[arith.Expr, int]) -> Any:
    if isinstance(result, tuple):
        return tuple(_values(dim, sizes) for dim in result)
    return result if result is None else arith.evaluate(result, sizes)


def test_ranks() -> None:
    with pytest.raises(ValueError, match=r"the mask must have rank 2 \(shape \(n, 3\)\), got shape \(4,\)"):
        conditions.require_shape((4,), (N, 3), "the mask")
    with pytest.raises(ValueError, match=r"the mask must broadcast to \(n,\), got shape \(1, n\)"):
        conditions.require_broadcast_to((1, N), (N,), "the mask")


def test_static_sizes() -> None:
    assert conditions.require_static(3, "it") == 3
    with pytest.raises(ValueError, match="it must be static, got n"):
        conditions.require_static(N, "it")
    assert conditions.provably_equal(N, N) and conditions.provably_equal(2, 2)
    assert not conditions.provably_equal(N, M) and not conditions.provably_equal(N, 2) and not conditions.provably_equal(3, 2)


def test_an_integer_is_preferred() -> None:
    assert [conditions.require_equal(a, b, "it") for a, b in ((N, 3), (3, N), (N, M), (N, N))] == [3, 3, N, N]


def test_violations_are_recorded_on_request() -> None:
    with recording(lenient=True) as recorded:
        conditions.require_equal(2, 3, "it")
        assert conditions.require_multiple(7, 2, "it") == 3
        assert conditions.require_multiple(7, 0, "it") == 7
        conditions.require_at_most(N, 3, "it")
    assert [constraint.message({}) for constraint in recorded.violations] == [
        "it must be 3, got 2",
        "it must be a multiple of 2, got 7",
        "it must be a multiple of 0, got 7",
    ]
    assert len(recorded.symbolic) == 1
    with pytest.raises(ValueError, match="it must be 3, got 2"):
        conditions.require_equal(2, 3, "it")


# --- conditions of calls ----------------------------------------------------------------------------------------------


def x(*shape: Dim, dtype: str = "float32") -> Any:
    return var("x", TensorType(shape, dtype))


@pytest.mark.parametrize(
    ("call", "expected"),
    [
        (ops.add(x(N), x(4)), ["an operand's dimension must be 1 or 4 to broadcast"]),
        # Sizes in attributes alone, in one of several results, and in results that a kernel sizes.
        (
            ops.strided_slice(x(8), begin=(0,), end=(N,), strides=(1,)),
            ["the range of slice 0:n:1 must be within an axis of 8"],
        ),
        (ops.topk(x(8, M), k=N, axis=0), ["k must be 0 to 8"]),
        (ops.random_uniform(x(dtype="uint64"), shape=(N - 3,)), ["dimension 0 of the output must be >= 0"]),
        (ops.reshape(ops.nonzero(x(4)), shape=(N,)), ["the number of elements of the new shape must be "]),
        (ops.take(x(N, 3), x(2, dtype="int64"), axis=0), []),
        # Proved ones are left out, and so is one of two that are equal.
        (ops.max_pool(x(1, 1, N * 2 + 2), kernel=(2,)), []),
        (
            ops.max_pool(x(1, 1, N, N), kernel=(2, 2)),
            ["dimension 2 of the output (windows", "dimension 2 of"],
        ),
        (ops.add(x(4), x(4)), []),
    ],
)
def test_conditions_of_calls(call: Call, expected: list[str]) -> None:
    conditions = call_conditions([call])
    assert all(_text(item).startswith(words) for item, words in zip(conditions, expected, strict=True))
    assert all(item.operator == call.callee.name for item in conditions)  # type: ignore[union-attr]
    assert call_conditions([call, call]) == conditions


def test_conditions_of_composites_and_of_what_they_decompose_into() -> None:
    attention = ops.attention(x(2, 2, N, 4), x(2, 2, M, 4), x(2, 2, K, 4), scale=1.0)
    assert [_text(item) for item in call_conditions([attention])] == ["dimension 2 of the values must be m"]
    lstm = ops.lstm(x(5, N, 3), x(1, 8, 3), x(1, 8, 2), x(1, 16), x(1, M, 2), x(1, K, 2), activations=("Sigmoid", "Tanh", "Tanh"),
                    alphas=(0.0,) * 3, betas=(0.0,) * 3)  # fmt: skip
    assert [_text(item) for item in call_conditions([lstm])] == ["dimension 1 of an initial state must be n"] * 2
    assert tuple_item(lstm, 0).type == TensorType((5, 1, N, 2), "float32")


def _text(constraint: Constraint) -> str:
    return f"{constraint.what} must be {constraint.expected}"
