"""The parser of integer expressions, and the tokenizer shared by the text forms of Inlaid's IRs.

`repr` prints an integer expression; `parse_expr` reads it back.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from functools import partial
from typing import NamedTuple, NoReturn

from inlaid_runtime.arith import expr as e
from inlaid_runtime.arith.expr import Dim, Expr
from inlaid_runtime.errors import ParseError

_TOKEN = re.compile(
    r"""
    (?P<space>\s+)
  | (?P<comment>\#[^\n]*)
  | (?P<string>"(?:[^"\\\n]|\\.)*")
  | (?P<size>`[^`\n]*`)
  | (?P<part>\$\d+)
  | (?P<local>%(?:\w+|"(?:[^"\\\n]|\\.)*"))
  | (?P<global>@(?:[\w.$]+|"(?:[^"\\\n]|\\.)*"))
  | (?P<number>-?\d+(?:\.\d+)?(?:[eE][+-]?\d+)?|-inf\b)
  | (?P<name>\??[A-Za-z_]\w*(?:\.[A-Za-z_]\w*)*)
  | (?P<symbol>->|//|<=|==|!=|\.\.\.|\.\.|[-()\[\]{},:=+*%<.])
    """,
    re.VERBOSE,
)


class Token(NamedTuple):
    """One token. `kind` is a group of the pattern above, or "end"; `line` counts from 1."""

    kind: str
    text: str
    line: int


class Tokens:
    """A cursor over the tokens of a text. Comments are tokens that every method except `comment` skips."""

    def __init__(self, text: str) -> None:
        self._tokens = _scan(text)
        self.position = 0
        self.levels = _DEEPEST

    @property
    def next(self) -> Token:
        """Return the token that `take` would consume."""
        while self._tokens[self.position].kind == "comment":
            self.position += 1
        return self._tokens[self.position]

    def peek(self, ahead: int) -> Token:
        """Return the token `ahead` places after `next`, not counting comments."""
        position = self.position
        for _ in range(ahead + 1):
            while self._tokens[position].kind == "comment":
                position += 1
            token = self._tokens[position]
            position = min(position + 1, len(self._tokens) - 1)
        return token

    def take(self) -> Token:
        """Consume and return the next token."""
        token = self.next
        if token.kind != "end":
            self.position += 1
        return token

    def comment(self) -> str | None:
        """Consume the comment on the line of the last consumed token; None if there is no comment."""
        token = self._tokens[self.position]
        if token.kind == "comment" and self.position and token.line == self._tokens[self.position - 1].line:
            self.position += 1
            return token.text
        return None

    def at(self, text: str) -> bool:
        """Test whether the next token is this symbol or name."""
        token = self.next
        return token.text == text and token.kind in ("symbol", "name")

    def accept(self, text: str) -> bool:
        """Consume this symbol or name if it is next. Returns whether it was."""
        if self.at(text):
            self.position += 1
            return True
        return False

    def expect(self, text: str) -> None:
        """Consume this symbol or name. Raises `ParseError` if another token is next."""
        if not self.accept(text):
            self.fail(f"expected {text!r}")

    def expect_kind(self, kind: str) -> str:
        """Consume a token of a kind and return its text. Raises `ParseError` if another kind is next."""
        if self.next.kind != kind:
            self.fail(f"expected a {kind}")
        return self.take().text

    def expect_int(self) -> int:
        """Consume an integer and return its value. Raises `ParseError` if another token is next."""
        try:
            return int(self.expect_kind("number"))
        except ValueError:
            self.fail("expected an integer")

    def fail(self, problem: str) -> NoReturn:
        """Raise `ParseError` at the next token: "line N: `problem`, found ..."."""
        token = self.next
        description = "the end of the text" if token.kind == "end" else repr(token.text)
        raise ParseError(f"line {token.line}: {problem}, found {description}")


def _scan(text: str) -> list[Token]:
    tokens = []
    position, line = 0, 1
    for match in _TOKEN.finditer(text):
        if match.start() != position:
            break
        position, kind = match.end(), match.lastgroup
        assert kind is not None
        if kind == "space":
            line += match.group().count("\n")  # no other token has one
        else:
            tokens.append(Token(kind, match.group(), line))
    if position < len(text):
        raise ParseError(f"line {line}: unexpected character {text[position]!r}")
    tokens.append(Token("end", "", line))
    return tokens


def quoted(name: str) -> str:
    """Quote a name; `unquoted` is the inverse."""
    return json.dumps(name, ensure_ascii=False)


def unquoted(text: str) -> str:
    """Decode a name that may be quoted. Raises `ParseError` for an invalid escape."""
    if not text.startswith('"'):
        return text
    try:
        name = json.loads(text)
    except ValueError as error:
        raise ParseError(f"expected a string in double quotes, got {text}: {error}") from None
    assert isinstance(name, str)
    return name


_INFIX: dict[str, Callable[[Dim, Dim], Expr]] = {
    "+": e.add,
    "*": e.mul,
    "//": e.floordiv,
    "%": e.floormod,
    "and": e.logical_and,
    "or": e.logical_or,
    **{op: partial(e.compare, op) for op in ("<", "<=", "==", "!=")},
}
_FUNCTIONS: dict[str, tuple[int, Callable[..., Expr]]] = {
    "min": (2, e.minimum),
    "max": (2, e.maximum),
    "not": (1, e.logical_not),
    "select": (3, e.select),
}
_DEEPEST = 200
"""Greatest nesting depth of an expression in a text, since parsing is recursive. `format_expr` stays below it."""
INFIX = frozenset(_INFIX)
"""The infix operators of integer expressions. Each application is parenthesized."""


def parse_expr(tokens: Tokens, leaf: Callable[[Tokens], Expr]) -> Expr:
    """Parse an integer expression in the form that `repr` prints. `leaf` parses a variable. Raises `ParseError`."""
    token = tokens.next
    if token.kind == "number":
        return e.Const(tokens.expect_int())
    if not tokens.levels:
        tokens.fail(f"expected an expression nested at most {_DEEPEST} deep")
    tokens.levels -= 1
    if tokens.accept("("):
        expr = parse_infix(tokens, parse_expr(tokens, leaf), leaf)
    elif token.kind == "name" and token.text == "let" and tokens.peek(1).text == "(":
        expr = _parse_let(tokens, leaf)
    elif token.kind == "name" and token.text in _FUNCTIONS and tokens.peek(1).text == "(":
        tokens.take()
        tokens.expect("(")
        count, build = _FUNCTIONS[token.text]
        operands = [parse_expr(tokens, leaf)]
        while len(operands) < count:
            tokens.expect(",")
            operands.append(parse_expr(tokens, leaf))
        tokens.expect(")")
        expr = build(*operands)
    else:
        expr = leaf(tokens)
    tokens.levels += 1
    return expr


def _parse_let(tokens: Tokens, leaf: Callable[[Tokens], Expr]) -> Expr:
    """Parse `let($0 = ..., ..., ...)`: named subexpressions, then an expression that uses them."""
    tokens.take()
    tokens.expect("(")
    parts: dict[str, Expr] = {}

    def part_or_leaf(tokens: Tokens) -> Expr:
        if tokens.next.kind != "part":
            return leaf(tokens)
        if tokens.next.text not in parts:
            tokens.fail("expected the name of a subexpression")
        return parts[tokens.take().text]

    while tokens.next.kind == "part" and tokens.peek(1).text == "=":
        name = tokens.take().text
        tokens.expect("=")
        parts[name] = parse_expr(tokens, part_or_leaf)
        tokens.expect(",")
    expr = parse_expr(tokens, part_or_leaf)
    tokens.expect(")")
    return expr


def parse_infix(tokens: Tokens, first: Expr, leaf: Callable[[Tokens], Expr]) -> Expr:
    """Parse the rest of `(first op second)`, from the operator on. Raises `ParseError`."""
    token = tokens.next
    if token.text not in _INFIX:
        tokens.fail("expected an infix operator")
    tokens.take()
    second = parse_expr(tokens, leaf)
    tokens.expect(")")
    return _INFIX[token.text](first, second)
