"""Parses the text form of loop programs (see `tensor.text`)."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any, TypeVar

from inlaid.tensor import ir
from inlaid.tensor.text import ACCESS_WORDS, INFIX
from inlaid_runtime import arith
from inlaid_runtime.arith.text import Tokens, parse_expr, unquoted
from inlaid_runtime.errors import ParseError
from inlaid_runtime.types import DTYPES, DType
from inlaid_runtime.types import dtype as as_dtype

T = TypeVar("T")
_OPERATORS = {symbol: op for op, symbol in INFIX.items()}
_KINDS = {kind.value: kind for kind in ir.ForKind}
_ITERS = {kind.value: kind for kind in ir.IterKind}
_Bare = int | float
"""A number without a dtype, which gets the dtype of the other operand."""


def parse(text: str) -> ir.LoopProgram:
    """Parse a program. Raises `ParseError`, which names the line."""
    lines = _lines(text)
    if len(lines) != 1:
        raise ParseError("a program must be one line `program ...:` followed by an indented body")
    return _Parser().program(lines[0])


@dataclass(slots=True)
class _Line:
    """A line and the lines indented below it."""

    number: int
    indent: int
    text: str
    below: list[_Line] = field(default_factory=list)


def _lines(text: str) -> list[_Line]:
    roots: list[_Line] = []
    open_lines: list[_Line] = []
    for number, raw in enumerate(text.splitlines(), 1):
        stripped = raw.strip()
        if not stripped or stripped.startswith("#"):
            continue
        line = _Line(number, len(raw) - len(raw.lstrip()), stripped)
        while open_lines and open_lines[-1].indent >= line.indent:
            open_lines.pop()
        siblings = open_lines[-1].below if open_lines else roots
        if siblings and siblings[0].indent != line.indent:
            raise ParseError(f"line {number}: the indentation must match that of a line above")
        siblings.append(line)
        open_lines.append(line)
    return roots


class _Parser:
    def __init__(self) -> None:
        self._buffers: dict[str, ir.Buffer] = {}
        self._variables: dict[str, arith.Expr] = {}
        self._temporaries: dict[str, ir.Expr] = {}
        self._sizes: dict[str, arith.SizeVar] = {}
        self._tokens = Tokens("")

    # -- lines --

    def _on(self, line: _Line, parse_line: Callable[[], T]) -> T:
        """Apply `parse_line` to a whole line. Errors in the text or in the program name the line."""
        try:
            self._tokens = Tokens(line.text)
            result = parse_line()
            if self._tokens.next.kind != "end":
                self._tokens.fail("expected the end of the line")
        except (ParseError, ValueError, AssertionError) as error:
            detail = error.message.removeprefix("line 1: ") if isinstance(error, ParseError) else str(error)
            raise ParseError(f"line {line.number}: {detail}") from None
        return result

    def program(self, line: _Line) -> ir.LoopProgram:
        head = [item for item in line.below if item.text.split(maxsplit=1)[0] in ("size", "note")]
        sizes = [item for item in head if item.text.startswith("size")]
        # Bounds may mention any dimension, whatever the order: names first.
        for item in sizes:
            name = self._on(item, self._size_head)
            self._sizes[name] = arith.SizeVar(name)
        defines: list[tuple[str, str]] = []
        arguments: list[str] = []
        bounds = {}
        for item in sizes:
            name, lower, upper, buffer, argument = self._on(item, self._size)
            bounds[name] = (lower, upper)
            if buffer:
                defines.append((name, buffer))
            if argument:
                arguments.append(name)
        for name in _bounds_first(bounds):
            lower, upper = bounds[name]
            self._sizes[name] = arith.SizeVar(
                name, lower, upper and arith.unwrap(arith.substitute(upper, self._size_substitution()))
            )
        title, inputs, outputs, updates = self._on(line, self._program_head)
        notes = tuple(self._on(item, self._note) for item in head if item not in sizes)
        body = self._stmts(line.below[len(head) :])
        pairs = tuple((self._sizes[name], self._find_buffer(buffer)) for name, buffer in defines)
        return ir.LoopProgram(title, inputs, outputs, body, pairs, notes, tuple(self._sizes[name] for name in arguments), updates)

    def _size_substitution(self) -> dict[arith.Expr, arith.Expr]:
        return {size: size for size in self._sizes.values()}

    def _program_head(self) -> tuple[str, tuple[ir.Buffer, ...], tuple[ir.Buffer, ...], tuple[tuple[int, int], ...]]:
        tokens = self._tokens
        tokens.expect("program")
        name = self._name()
        tokens.expect("(")
        inputs = tuple(self._list(")", self._declaration))
        tokens.expect("->")
        tokens.expect("(")
        results = tuple(self._list(")", self._result))
        tokens.expect(":")
        updates = [
            (number, inputs.index(input_buffer)) for number, (_, input_buffer) in enumerate(results) if input_buffer is not None
        ]
        return name, inputs, tuple(buffer for buffer, _ in results), tuple(updates)

    def _result(self) -> tuple[ir.Buffer, ir.Buffer | None]:
        """Parse an output. Returns its buffer, and the buffer of the input that the output updates, if any."""
        buffer = self._declaration()
        return buffer, self._find_buffer(self._tokens.expect_kind("name")) if self._tokens.accept("over") else None

    def _size_head(self) -> str:
        self._tokens.expect("size")
        name = self._size_name()
        while self._tokens.next.kind != "end":
            self._tokens.take()
        return name

    def _size(self) -> tuple[str, int, arith.Expr | None, str, bool]:
        tokens = self._tokens
        tokens.expect("size")
        name = self._size_name()
        tokens.expect(":")
        lower = tokens.expect_int()
        tokens.expect("..")
        is_unbounded = tokens.next.kind == "end" or tokens.at("=") or tokens.at(",")
        upper = None if is_unbounded else self._index()
        buffer = self._name() if tokens.accept("=") else ""
        argument = tokens.accept(",")
        if argument:
            tokens.expect("argument")
        return name, lower, upper, buffer, argument

    def _note(self) -> tuple[str, Any]:
        self._tokens.expect("note")
        return self._annotation()

    def _annotation(self) -> tuple[str, Any]:
        key = unquoted(self._tokens.expect_kind("string"))
        self._tokens.expect("=")
        return key, self._constant()

    def _constant(self) -> Any:
        tokens = self._tokens
        token = tokens.take()
        match token.kind:
            case "string":
                return unquoted(token.text)
            case "number":
                return _number(token.text)
            case "name" if token.text in ("true", "false", "none"):
                return {"true": True, "false": False}.get(token.text)
            case "name":
                return self._find_buffer(token.text)
        items = []
        while not tokens.accept(")"):
            items.append(self._constant())
            tokens.expect(",")
        return tuple(items)

    def _stmts(self, lines: list[_Line]) -> ir.Stmt:
        """Parse the statements of one block. The statements after an open `alloc` or `let` form its body."""
        wraps: list[Callable[[ir.Stmt], ir.Stmt]] = []
        groups: list[list[ir.Stmt]] = [[]]
        position = 0
        while position < len(lines):
            line = lines[position]
            position += 1
            if line.text.startswith("%"):
                self._on(line, self._temporary)
                continue
            first = line.text.split(maxsplit=1)[0]
            if first in ("alloc", "let") and not line.text.endswith(":"):
                wraps.append(self._on(line, self._binder))
                groups.append([])
            elif first == "if":
                condition = self._on(line, self._condition)
                then = self._stmts(line.below)
                otherwise = None
                if position < len(lines) and lines[position].text == "else:":
                    otherwise = self._stmts(lines[position].below)
                    position += 1
                groups[-1].append(ir.If(condition, then, otherwise))
            elif first == "barrier":
                groups[-1].append(self._on(line, self._barrier))
            elif first != "pass":
                groups[-1].append(self._stmt(line, first))
            self._temporaries = {}
        body = _joined(groups.pop())
        while wraps:
            body = _joined([*groups.pop(), wraps.pop()(body)])
        return body

    def _stmt(self, line: _Line, first: str) -> ir.Stmt:
        match first:
            case "for":
                wrap = self._on(line, self._for)
            case "while":
                condition = self._on(line, self._condition)
                return ir.While(condition, self._stmts(line.below))
            case "alloc" | "let":
                wrap = self._on(line, self._binder)
            case "block" | "block:":
                return self._block(line)
            case "intrinsic":
                return self._on(line, self._intrinsic)
            case _:
                return self._on(line, self._store)
        return wrap(self._stmts(line.below))

    def _temporary(self) -> None:
        name = self._tokens.expect_kind("local")
        self._tokens.expect("=")
        self._temporaries[name] = self._value()

    def _condition(self) -> ir.Expr:
        self._tokens.take()
        condition = self._value()
        self._tokens.expect(":")
        return condition

    def _for(self) -> Callable[[ir.Stmt], ir.Stmt]:
        tokens = self._tokens
        tokens.expect("for")
        name = tokens.expect_kind("name")
        tokens.expect("in")
        extent = self._index()
        var = self._bind(name)
        kind, thread = ir.ForKind.SERIAL, ""
        annotations: list[tuple[str, Any]] = []
        while tokens.accept(","):
            if tokens.next.kind == "name":
                word = tokens.take().text
                if word not in _KINDS:
                    tokens.fail(f"expected a loop kind, one of {', '.join(_KINDS)}, got {word}")
                kind = _KINDS[word]
            elif tokens.peek(1).text == "=":
                annotations.append(self._annotation())
            else:
                thread = unquoted(tokens.expect_kind("string"))
        tokens.expect(":")
        return lambda body: ir.For(var, extent, body, kind, thread, tuple(annotations))

    def _binder(self) -> Callable[[ir.Stmt], ir.Stmt]:
        tokens = self._tokens
        if tokens.accept("alloc"):
            buffer = self._declaration()
            tokens.accept(":")
            return lambda body: ir.Alloc(buffer, body)
        tokens.expect("let")
        name = tokens.expect_kind("name")
        tokens.expect("=")
        value = self._value()
        bounds = None
        if tokens.accept("in"):
            lower = self._index()
            tokens.expect("..")
            bounds = (lower, self._index())
        tokens.accept(":")
        var = self._bind(name)
        return lambda body: ir.Let(var, value, body, bounds)

    def _store(self) -> ir.Stmt:
        tokens = self._tokens
        buffer = self._find_buffer(tokens.expect_kind("name"))
        tokens.expect("[")
        indices = tuple(self._list("]", self._index))
        assert len(indices) == len(buffer.shape), f"{buffer.name} needs {len(buffer.shape)} indices, got {len(indices)}"
        tokens.expect("=")
        value = self._value()
        if value.dtype is not buffer.dtype:
            raise ValueError(f"a store into {buffer.name} needs a {buffer.dtype}, got {value.dtype}")
        return ir.Store(buffer, indices, value)

    def _barrier(self) -> ir.Stmt:
        self._tokens.expect("barrier")
        return ir.Barrier(self._over())

    def _over(self) -> tuple[str, ...]:
        return self._after("over", lambda: unquoted(self._tokens.expect_kind("string")))

    def _intrinsic(self) -> ir.Stmt:
        tokens = self._tokens
        tokens.expect("intrinsic")
        name = unquoted(tokens.expect_kind("string"))
        over = self._over()
        operands = self._after("on", lambda: (self._access(), self._region()))
        args = self._after("with", self._value)
        return ir.Intrinsic(name, tuple(part for _, part in operands), tuple(part for part, _ in operands), args, over)

    def _after(self, word: str, item: Callable[[], T]) -> tuple[T, ...]:
        """Parse a list that follows `word`. The list is empty if `word` is missing."""
        items = [item()] if self._tokens.accept(word) else []
        while items and self._tokens.accept(","):
            items.append(item())
        return tuple(items)

    def _access(self) -> ir.AccessMode:
        word = self._tokens.expect_kind("name")
        kind = next((access for access, text in ACCESS_WORDS.items() if text == word), None)
        if kind is None:
            self._tokens.fail(f"expected one of {', '.join(ACCESS_WORDS.values())}, got {word}")
        return kind

    def _block(self, line: _Line) -> ir.Stmt:
        def head() -> str:
            self._tokens.expect("block")
            name = self._name()
            self._tokens.expect(":")
            return name

        name = self._on(line, head)
        iters: list[ir.IterVar] = []
        bindings: list[arith.Expr] = []
        regions: dict[str, tuple[ir.BufferRegion, ...]] = {}
        annotations: list[tuple[str, Any]] = []
        predicate: arith.Expr = arith.ONE
        init: ir.Stmt | None = None
        position = 0
        while position < len(line.below):
            item = line.below[position]
            match item.text.split(maxsplit=1)[0]:
                case "iter":
                    iter_var, binding = self._on(item, self._iter)
                    iters.append(iter_var)
                    bindings.append(binding)
                case "reads" | "writes" as title:
                    regions[title] = self._on(item, self._regions)
                case "where":
                    predicate = self._on(item, self._where)
                case "note":
                    annotations.append(self._on(item, self._note))
                case "init:":
                    init = self._stmts(item.below)
                case text if text.startswith("%") and _is_header(line.below, position):
                    self._on(item, self._temporary)
                    position += 1
                    continue
                case _:
                    break
            self._temporaries = {}
            position += 1
        body = self._stmts(line.below[position:])
        reads, writes = regions.get("reads", ()), regions.get("writes", ())
        return ir.Block(name, tuple(iters), tuple(bindings), reads, writes, body, init, predicate, tuple(annotations))

    def _iter(self) -> tuple[ir.IterVar, arith.Expr]:
        tokens = self._tokens
        tokens.expect("iter")
        name = tokens.expect_kind("name")
        tokens.expect("=")
        binding = self._index()
        tokens.expect("in")
        extent = self._index()
        kind = ir.IterKind.SPATIAL
        if tokens.accept(","):
            word = tokens.expect_kind("name")
            if word not in _ITERS:
                tokens.fail(f"expected a variable kind, one of {', '.join(_ITERS)}, got {word}")
            kind = _ITERS[word]
        return ir.IterVar(self._bind(name), extent, kind), binding

    def _where(self) -> arith.Expr:
        self._tokens.take()
        return self._index()

    def _regions(self) -> tuple[ir.BufferRegion, ...]:
        self._tokens.take()
        regions = [self._region()]
        while self._tokens.accept(","):
            regions.append(self._region())
        return tuple(regions)

    def _region(self) -> ir.BufferRegion:
        tokens = self._tokens
        buffer = self._find_buffer(tokens.expect_kind("name"))
        tokens.expect("[")

        def pair() -> tuple[arith.Expr, arith.Expr]:
            first = self._index()
            tokens.expect("+")
            tokens.expect(":")
            return first, self._index()

        return ir.BufferRegion(buffer, tuple(self._list("]", pair)))

    # -- names --

    def _name(self) -> str:
        token = self._tokens.take()
        if token.kind not in ("name", "string"):
            self._tokens.fail("expected a name")
        return unquoted(token.text)

    def _size_name(self) -> str:
        token = self._tokens.take()
        if token.kind not in ("name", "size"):
            self._tokens.fail("expected the name of a dimension")
        return token.text.strip("`")

    def _bind(self, name: str) -> arith.Var:
        """Return the variable of a name. Sibling loops may share a variable, as copies made by unrolling do."""
        if name in self._sizes:
            raise ParseError(f"expected a new name, got {name}, which is a size")
        var = self._variables.get(name) or arith.Var(name)
        assert isinstance(var, arith.Var)
        self._variables[name] = var
        return var

    def _find_buffer(self, name: str) -> ir.Buffer:
        if name not in self._buffers:
            raise ParseError(f"unknown buffer {name}")
        return self._buffers[name]

    def _declaration(self) -> ir.Buffer:
        tokens = self._tokens
        name = tokens.expect_kind("name")
        tokens.expect(":")
        dtype = as_dtype(tokens.expect_kind("name"))
        tokens.expect("[")
        shape = tuple(arith.unwrap(dim) for dim in self._list("]", self._index))
        scope = unquoted(tokens.expect_kind("string")) if tokens.accept("in") else ""
        buffer = self._buffers.setdefault(name, ir.Buffer(name, shape, dtype, scope))
        if (buffer.shape, buffer.dtype, buffer.scope) != (shape, dtype, scope):
            raise ParseError(f"buffer {name} must have one type, got another declaration")
        return buffer

    def _list(self, end: str, parse_item: Callable[[], Any]) -> Iterator[Any]:
        if self._tokens.accept(end):
            return
        yield parse_item()
        while not self._tokens.accept(end):
            self._tokens.expect(",")
            yield parse_item()

    # -- integer expressions --

    def _index(self) -> arith.Expr:
        return parse_expr(self._tokens, self._index_leaf)

    def _index_leaf(self, tokens: Tokens) -> arith.Expr:
        token = tokens.take()
        if token.kind == "size":
            name = token.text.strip("`")
            return self._sizes.get(name) or self._raise_unknown(token.text)
        if token.text == "checked" and tokens.accept("("):
            value = self._value()
            tokens.expect(",")
            lower = self._index()
            tokens.expect(",")
            upper = self._index()
            tokens.expect(")")
            return ir.checked(value, lower, upper)
        variable = self._variables.get(token.text) or self._sizes.get(token.text)
        return variable or self._raise_unknown(token.text)

    def _raise_unknown(self, name: str) -> arith.Expr:
        raise ParseError(f"unknown variable {name}")

    # -- value expressions --

    def _value(self) -> ir.Expr:
        operand = self._operand()
        if isinstance(operand, ir.Expr):
            return operand
        raise ParseError(f"expected a typed value, got the number {operand}: write it with a dtype")

    def _operand(self) -> ir.Expr | _Bare:
        tokens = self._tokens
        token = tokens.take()
        if token.kind == "number":
            return _number(token.text)
        if token.kind == "local":
            if token.text not in self._temporaries:
                raise ParseError(f"unknown value {token.text}")
            return self._temporaries[token.text]
        if token.text == "(":
            a = self._operand()
            symbol = tokens.take().text
            if symbol not in _OPERATORS:
                raise ParseError(f"expected an operator, got {symbol!r}")
            b = self._operand()
            tokens.expect(")")
            return ir.binary(_OPERATORS[symbol], a, b)
        if token.kind != "name":
            raise ParseError(f"expected a value, found {token.text!r}")
        if tokens.accept("["):
            indices = tuple(self._list("]", self._index))
            return ir.load(self._find_buffer(token.text), indices)
        tokens.expect("(")
        return self._call(token.text)

    def _call(self, name: str) -> ir.Expr:
        tokens = self._tokens
        if name in DTYPES:
            value = tokens.take().text
            tokens.expect(")")
            return _typed(DTYPES[name], value)
        if name in ("index", "cast", "bitcast", "call"):
            dtype = as_dtype(tokens.expect_kind("name"))
            tokens.expect(",")
            if name == "index":
                index = self._index()
                tokens.expect(")")
                return ir.Index(dtype, index)
            if name == "call":
                function = unquoted(tokens.expect_kind("string"))
                args = []
                while tokens.accept(","):
                    args.append(self._value())
                tokens.expect(")")
                return ir.CallIntrinsic(dtype, function, tuple(args))
            value_ = self._value()
            tokens.expect(")")
            return ir.Cast(dtype, value_) if name == "cast" else ir.bitcast(value_, dtype)
        operands = list(self._list(")", self._operand))
        if name in ir.BINARY and len(operands) == 2:
            return ir.binary(name, *operands)
        exprs = [item for item in operands if isinstance(item, ir.Expr)]
        if len(exprs) == len(operands):
            if name in ir.UNARY and len(exprs) == 1:
                return ir.unary(name, exprs[0])
            if name == "fma" and len(exprs) == 3:
                return ir.fma(*exprs)
            if name == "select" and len(exprs) == 3:
                return ir.select(*exprs)
            if name in ir.MATH and exprs:
                return ir.math(name, *exprs)
        raise ParseError(f"expected a known operation, got {name} with {len(operands)} operands")


def _bounds_first(bounds: dict[str, tuple[int, arith.Expr | None]]) -> list[str]:
    """Order dimensions such that the bounds of each mention only earlier dimensions."""
    order: dict[str, None] = {}
    stack = [(name, False) for name in reversed(bounds)]
    entered: set[str] = set()
    while stack:
        name, is_expanded = stack.pop()
        upper = bounds[name][1]
        if is_expanded or upper is None:
            order[name] = None
        elif name not in entered:
            entered.add(name)
            stack.append((name, True))
            stack.extend((size.name, False) for size in arith.free_vars(upper) if isinstance(size, arith.SizeVar))
        elif name not in order:
            raise ParseError(f"the bound of size {name} must not depend on itself")
    return list(order)


def _is_header(lines: list[_Line], position: int) -> bool:
    """Test whether the lines from `position` on belong to the header of a block, not to its body."""
    while lines[position].text.startswith("%") and position + 1 < len(lines):
        position += 1
    return lines[position].text.split(maxsplit=1)[0] in ("iter", "where", "reads", "writes")


def _number(text: str) -> _Bare:
    try:
        return int(text)
    except ValueError:
        return float(text)


def _typed(dtype: DType, text: str) -> ir.Const:
    if dtype.kind == "bool":
        if text not in ("true", "false"):
            raise ParseError(f"expected true or false, got {text}")
        return ir.Const(dtype, text == "true")
    return ir.const(float(text) if dtype.is_float else int(text), dtype)


def _joined(stmts: list[ir.Stmt]) -> ir.Stmt:
    return stmts[0] if len(stmts) == 1 else ir.Seq(tuple(stmts))
