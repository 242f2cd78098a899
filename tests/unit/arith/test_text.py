from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from inlaid_runtime import arith
from inlaid_runtime.arith import SizeVar
from inlaid_runtime.arith.text import Tokens, parse_expr, quoted, unquoted
from inlaid_runtime.errors import ParseError

LEAVES = st.one_of(st.integers(-9, 9).map(arith.Const), st.sampled_from("abc").map(SizeVar))


def grown(parts: st.SearchStrategy[arith.Expr]) -> st.SearchStrategy[arith.Expr]:
    two = [arith.add, arith.mul, arith.minimum, arith.maximum, arith.logical_and, arith.logical_or]
    two += [lambda a, b, op=op: arith.compare(op, a, b) for op in ("<", "<=", "==", "!=")]
    divided = [arith.floordiv, arith.floormod]
    return st.one_of(
        st.builds(lambda build, a, b: build(a, b), st.sampled_from(two), parts, parts),
        st.builds(lambda build, a, b: build(a, b), st.sampled_from(divided), parts, st.integers(1, 5)),
        st.builds(arith.logical_not, parts),
        st.builds(arith.select, parts, parts, parts),
    )


def leaf(tokens: Tokens) -> arith.Expr:
    return SizeVar(tokens.expect_kind("name"))


@settings(deadline=None, max_examples=100)
@given(st.recursive(LEAVES, grown, max_leaves=12))
def test_expressions_print_and_parse(expr: arith.Expr) -> None:
    tokens = Tokens(repr(expr))
    assert parse_expr(tokens, leaf) == expr
    assert tokens.next.kind == "end"


@given(st.text())
def test_any_name_survives_quotes(name: str) -> None:
    assert unquoted(quoted(name)) == name


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("(a + ", "line 1: expected a name, found the end of the text"),
        ("\n(a ~ b)", "line 2: unexpected character '~'"),
        ("(a b)", "expected an infix operator, found 'b'"),
        ("min(a)", "expected ',', found ')'"),
        ("1.5", "expected an integer"),
    ],
)
def test_errors_say_where(text: str, problem: str) -> None:
    with pytest.raises(ParseError) as caught:
        parse_expr(Tokens(text), leaf)
    assert problem in str(caught.value)
