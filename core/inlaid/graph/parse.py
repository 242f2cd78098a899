"""Parser of the text form of the graph IR (see `inlaid.graph.text`)."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

import numpy as np

from inlaid.graph.ir import (
    Constant,
    Expr,
    Function,
    Module,
    Span,
    Var,
    call,
    constant,
    function,
    global_var,
    if_,
    let,
    loop,
    tuple_,
    tuple_item,
    var,
)
from inlaid.graph.operator import Operator
from inlaid.graph.unify import fits, fresh_size
from inlaid_runtime import arith
from inlaid_runtime.arith import Constraint
from inlaid_runtime.arith.text import INFIX, Tokens, parse_expr, parse_infix, unquoted
from inlaid_runtime.errors import ParseError, TypeInferenceError
from inlaid_runtime.types import FunctionType, OptionalType, SequenceType, TensorType, TupleType, Type, dtype

Array = np.ndarray[Any, Any]

_T = TypeVar("_T")
_E = TypeVar("_E", bound=Expr)
_OpenLet = tuple[Var, Expr, "Span | None"]
_SPAN = re.compile(r'#\s*("(?:[^"\\]|\\.)*") ("(?:[^"\\]|\\.)*")\s*')
_WORDS = {"true": True, "false": False, "none": None, "inf": float("inf"), "-inf": float("-inf"), "nan": float("nan")}


def parse(text: str, operators: Mapping[str, Operator], constants: Mapping[str, Array] | None = None) -> Module:
    """Parse a module.

    `operators` are the operators that the text may name, `constants` the arrays by content hash. Raises `ParseError` if the text is
    not a module, names an unknown operator or constant, or has elided weights; `TypeInferenceError` if it is ill-typed.
    """
    tokens = Tokens(text)
    signatures = _signatures(Tokens(text))
    functions: dict[str, Function] = {}
    while tokens.next.kind != "end":
        tokens.expect("def")
        name = unquoted(tokens.expect_kind("global")[1:])
        functions[name] = _Parser(tokens, operators, constants or {}, signatures).function()
    return Module(functions)


def _signatures(tokens: Tokens) -> dict[str, FunctionType]:
    """Return the declared types of all global functions. Bodies are parsed afterwards, because functions may call each other."""
    signatures: dict[str, FunctionType] = {}
    while tokens.next.kind != "end":
        if tokens.accept("def"):
            name = unquoted(tokens.expect_kind("global")[1:])
            if name in signatures:
                raise ParseError(f"line {tokens.next.line}: @{name} is defined twice")
            parser = _Parser(tokens, {}, {}, {})
            params = tuple(param.type for param in parser.params())
            tokens.expect("->")
            signatures[name] = FunctionType(params, parser.type())
        else:
            tokens.take()
    return signatures


class _Parser:
    """Parses one function of a module. `_names` are the values in scope, `_sizes` the symbolic dimensions by name."""

    def __init__(
        self,
        tokens: Tokens,
        operators: Mapping[str, Operator],
        constants: Mapping[str, Array],
        signatures: Mapping[str, FunctionType],
    ) -> None:
        self._tokens = tokens
        self._operators = operators
        self._constants = constants
        self._signatures = signatures
        self._names: dict[str, Expr] = {}
        self._shadowed: list[tuple[str, Expr | None]] = []
        self._sizes: dict[str, arith.Expr] = {}
        self._weights: dict[str, Constant] = {}

    def _define(self, name: str, value: _E) -> _E:
        self._shadowed.append((name, self._names.get(name)))
        self._names[name] = value
        return value

    def _leave(self, depth: int) -> None:
        """Remove all definitions after the first `depth` ones from the scope."""
        while len(self._shadowed) > depth:
            name, old = self._shadowed.pop()
            if old is None:
                del self._names[name]
            else:
                self._names[name] = old

    def _list(self, close: str, item: Callable[[], _T]) -> list[_T]:
        """Parse comma-separated items up to a closing symbol."""
        items = []
        while not self._tokens.accept(close):
            items.append(item())
            if not self._tokens.at(close):
                self._tokens.expect(",")
        return items

    # --- functions, blocks, statements --------------------------------------------------------------------------------

    def params(self) -> tuple[Var, ...]:
        """Parse parameters in parentheses and define them."""
        self._tokens.expect("(")
        return tuple(self._list(")", self._param))

    def _param(self) -> Var:
        name = self._tokens.expect_kind("local")
        self._tokens.expect(":")
        return self._define(name, var(unquoted(name[1:]), self.type()))

    def function(self) -> Function:
        """Parse a function, starting at its parameters."""
        tokens, depth = self._tokens, len(self._shadowed)
        params = self.params()
        tokens.expect("->")
        result = self.type()
        attrs: list[tuple[str, str]] = []
        if tokens.accept("with"):
            tokens.expect("{")
            attrs = self._list("}", self._attribute)
        constraints = self._requires()
        body, span = self._block()
        self._leave(depth)
        return function(params, body, tuple(attrs), result, span, constraints)

    def _attribute(self) -> tuple[str, str]:
        key = unquoted(self._tokens.expect_kind("string"))
        self._tokens.expect(":")
        return key, unquoted(self._tokens.expect_kind("string"))

    def _requires(self) -> tuple[Constraint, ...]:
        """Parse the constraints of a function or a branch."""
        if not self._tokens.accept("requires"):
            return ()
        self._tokens.expect("[")
        return tuple(self._list("]", self._constraint))

    def _constraint(self) -> Constraint:
        tokens = self._tokens
        tokens.expect("(")
        condition = arith.unwrap(parse_expr(tokens, self._size))
        tokens.expect(",")
        value = arith.unwrap(parse_expr(tokens, self._size))
        texts = []
        for _ in range(4):
            tokens.expect(",")
            texts.append(unquoted(tokens.expect_kind("string")))
        tokens.expect(")")
        what, expected, operator, node = texts
        return Constraint(condition, what, expected, value, operator, node)

    def _span(self) -> Span | None:
        """Parse the span in a comment at the end of the line."""
        match = _SPAN.fullmatch(self._tokens.comment() or "")
        return Span(unquoted(match[1]), unquoted(match[2])) if match else None

    def _block(self) -> tuple[Expr, Span | None]:
        """Parse a block in braces, and the span on its first line."""
        tokens, depth = self._tokens, len(self._shadowed)
        tokens.expect("{")
        span = self._span()
        lets: list[_OpenLet] = []
        while tokens.at("let") or (tokens.next.kind == "local" and tokens.peek(1).text in ("=", ":")):
            self._statement(lets)
        body = self._atom()
        tokens.expect("}")
        for variable, value, let_span in reversed(lets):
            body = let(variable, value, body, let_span)
        self._leave(depth)
        return body, span

    def _statement(self, lets: list[_OpenLet]) -> None:
        """Parse one line. `lets` are the open `let`s of the block, innermost last."""
        tokens = self._tokens
        is_let = tokens.accept("let")
        line, name = tokens.next.line, tokens.expect_kind("local")
        declared = self.type() if tokens.accept(":") else None
        tokens.expect("=")
        is_name = tokens.next.kind in ("local", "global") and tokens.peek(1).text not in ("(", ".")
        try:
            value = self._right_hand_side(lets, declared)
        except TypeInferenceError as error:
            raise TypeInferenceError(f"line {line}: {error.message}", operator=error.operator, node=error.node) from error
        if declared is not None and not fits(declared, value.type):
            raise ParseError(f"line {line}: {name} is declared {declared!r}, but has type {value.type!r}")
        if declared is not None and not is_name:
            # The declared type has the source's names for sizes that inference gave fresh names.
            value = dataclasses.replace(value, type=declared)
        if is_let:
            variable = self._define(name, var(unquoted(name[1:]), value.type if declared is None else declared))
            lets.append((variable, value, self._span() if is_name else None))
        else:
            self._define(name, value)

    def _right_hand_side(self, lets: list[_OpenLet], declared: Type | None) -> Expr:
        tokens, token = self._tokens, self._tokens.next
        if token.kind == "name" and token.text != "const":
            tokens.take()
            match token.text:
                case "fn":
                    return self.function()
                case "if":
                    condition = self._atom()
                    constraints = self._requires()
                    then, span = self._block()
                    tokens.expect("else")
                    else_constraints = self._requires()
                    return if_(condition, then, self._block()[0], span, (constraints, else_constraints))
                case "end":
                    return self._end(lets)
                case "loop":
                    return self._loop(declared)
            return self._operator(token.text)
        if tokens.accept("("):
            fields = self._list(")", self._atom)
            return tuple_(fields, self._span())
        value = self._atom()
        if tokens.accept("("):
            args = self._list(")", self._atom)
            return call(value, args, span=self._span())
        if tokens.accept("."):
            index = tokens.expect_int()
            return tuple_item(value, index, self._span())
        return value

    def _end(self, lets: list[_OpenLet]) -> Expr:
        self._tokens.expect("(")
        variable = self._atom()
        position = next((index for index, item in enumerate(lets) if item[0] is variable), None)
        if position is None:
            self._tokens.fail("expected a variable of an open `let` of this block")
        self._tokens.expect(",")
        body = self._atom()
        self._tokens.expect(")")
        variable, value, span = lets.pop(position)
        return let(variable, value, body, span)

    def _operator(self, name: str) -> Expr:
        tokens = self._tokens
        operator = self._operators.get(name)
        if operator is None:
            raise ParseError(f"line {tokens.next.line}: unknown operator {name!r}")
        args: list[Expr] = []
        attrs: dict[str, Any] = {}

        def item() -> None:
            if tokens.next.kind == "name" and tokens.peek(1).text == "=":
                key = tokens.take().text
                tokens.expect("=")
                attrs[key] = self._value()
            else:
                args.append(self._atom())

        tokens.expect("(")
        self._list(")", item)
        try:
            call_attrs = operator.attrs(**attrs)
        except TypeError as error:
            raise ParseError(f"line {tokens.next.line}: {error}", operator=name) from None
        return call(operator, args, call_attrs, self._span())

    def _loop(self, declared: Type | None) -> Expr:
        tokens = self._tokens
        scalars: dict[str, Expr] = {}
        lists: dict[str, list[Expr]] = {"state": [], "scanned": []}

        def item() -> None:
            key = tokens.expect_kind("name")
            tokens.expect("=")
            if key in lists:
                tokens.expect("(")
                lists[key] = self._list(")", self._atom)
            elif key in ("trip_count", "condition"):
                scalars[key] = self._atom()
            else:
                tokens.fail(f"expected trip_count, condition, state or scanned, got {key!r}")

        tokens.expect("(")
        body = self._atom()
        if not tokens.at(")"):
            tokens.expect(",")
        self._list(")", item)
        outputs = declared.fields[len(lists["state"]) :] if isinstance(declared, TupleType) else ()
        extent = outputs[0].shape[0] if outputs and isinstance(outputs[0], TensorType) and outputs[0].shape else None
        return loop(
            body,
            state=lists["state"],
            scanned=lists["scanned"],
            trip_count=scalars.get("trip_count"),
            condition=scalars.get("condition"),
            stacked_extent=extent,
            span=self._span(),
        )

    # --- names and constants ------------------------------------------------------------------------------------------

    def _atom(self) -> Expr:
        tokens, token = self._tokens, self._tokens.next
        if token.kind == "local":
            expr = self._names.get(token.text)
            if expr is None:
                tokens.fail("expected a name in scope")
            tokens.take()
            return expr
        if token.kind == "global":
            name = unquoted(token.text[1:])
            if name not in self._signatures:
                tokens.fail("expected a function of the module")
            tokens.take()
            return global_var(name, self._signatures[name])
        tokens.expect("const")
        return self._constant()

    def _constant(self) -> Constant:
        tokens, line = self._tokens, self._tokens.next.line
        tokens.expect("[")
        element_dtype = dtype(tokens.expect_kind("name"))
        shape: tuple[Any, ...] | None = None
        if tokens.accept(","):
            tokens.expect("(")
            shape = tuple(self._list(")", tokens.expect_int))
        tokens.expect("]")
        tokens.expect("(")
        if tokens.at("..."):
            raise ParseError(f"line {line}: the weights of this text are elided", remedy="print it with its weights")
        if shape is None:
            elements = self._elements()
            tokens.expect(")")
            try:
                return constant(np.asarray(elements, element_dtype.numpy))
            except (ValueError, TypeError, OverflowError) as error:
                raise ParseError(f"line {line}: expected a constant of type {element_dtype}: {error}") from None
        digest = unquoted(tokens.expect_kind("string"))
        tokens.expect(")")
        if digest not in self._weights:
            if digest not in self._constants:
                raise ParseError(f"line {line}: unknown constant with hash {digest}")
            self._weights[digest] = constant(self._constants[digest])
        weight = self._weights[digest]
        if weight.type != TensorType(shape, element_dtype) or weight.digest() != digest:
            raise ParseError(f"line {line}: the constant given for hash {digest} has a different type or content")
        return weight

    def _elements(self) -> Any:
        if self._tokens.accept("["):
            return self._list("]", self._elements)
        return self._scalar()

    def _scalar(self) -> Any:
        token = self._tokens.next
        if token.kind == "string":
            return unquoted(self._tokens.take().text)
        if token.kind == "number":
            text = self._tokens.take().text
            return int(text) if text.lstrip("-").isdigit() else float(text)
        if token.text not in _WORDS:
            self._tokens.fail("expected a number, a string or a truth value")
        return _WORDS[self._tokens.take().text]

    # --- attributes and types -----------------------------------------------------------------------------------------

    def _value(self) -> Any:
        """Parse the value of an attribute."""
        tokens, token = self._tokens, self._tokens.next
        if token.kind in ("string", "number") or token.text in _WORDS:
            return self._scalar()
        if tokens.accept("dtype"):
            return dtype(tokens.expect_kind("name"))
        if tokens.accept("type"):
            return self.type()
        if not tokens.accept("("):
            return arith.unwrap(parse_expr(tokens, self._size))
        if tokens.accept(")"):
            return ()
        first = self._value()
        if tokens.next.text in INFIX:
            return arith.unwrap(parse_infix(tokens, arith.wrap(first), self._size))
        if not tokens.at(")"):
            tokens.expect(",")
        return (first, *self._list(")", self._value))

    def type(self) -> Type:
        """Parse a type."""
        tokens = self._tokens
        if tokens.accept("("):
            return TupleType(tuple(self._list(")", self.type)))
        match tokens.expect_kind("name"):
            case "Tensor":
                tokens.expect("[")
                tokens.expect("(")
                shape = self._list(")", lambda: arith.unwrap(parse_expr(tokens, self._size)))
                tokens.expect(",")
                result: Type = TensorType(shape, dtype(tokens.expect_kind("name")))
                tokens.expect("]")
            case "Sequence" | "Optional" as kind:
                tokens.expect("[")
                element = self.type()
                tokens.expect("]")
                result = SequenceType(element) if kind == "Sequence" else OptionalType(element)
            case "fn":
                tokens.expect("(")
                params = tuple(self._list(")", self.type))
                tokens.expect("->")
                result = FunctionType(params, self.type())
            case other:
                raise ParseError(f"line {tokens.next.line}: expected a type, got {other!r}")
        return result

    def _size(self, tokens: Tokens) -> arith.Expr:
        """Parse a symbolic dimension, with its bounds at the first occurrence."""
        if tokens.next.kind not in ("name", "size"):
            tokens.fail("expected a dimension")
        name = tokens.take().text.strip("`")
        lower, upper = 0, None
        if tokens.accept("{"):
            lower = tokens.expect_int()
            tokens.expect("..")
            upper = None if tokens.at("}") else arith.unwrap(parse_expr(tokens, self._size))
            tokens.expect("}")
        if name not in self._sizes:
            existential = name.startswith("?")
            self._sizes[name] = fresh_size(name, upper) if existential else arith.SizeVar(name, lower, upper)
        return self._sizes[name]
