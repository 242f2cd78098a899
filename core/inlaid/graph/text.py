"""The text form of the graph IR.

    def @main(%x: Tensor[(n{1..64}, 3), float32], %flag: Tensor[(), bool]) -> Tensor[(n, 3), float32] {
      %0 = relu(%x)  # "model.onnx" "Relu_3"
      %1 = if %flag {
        %2 = mul(%0, const[float32](2.0))
        %2
      } else {
        %0
      }
      let %y = add(%1, const[float32, (1, 3)]("9f86d0..."))
      %y
    }

Each line applies one operator to names and constants. A name refers to a shared expression; a line is printed in the scope that
evaluates it. `let %y = ...` begins a `Let` whose body is the rest of the block, or ends at `end(%y, body)`. Attributes with default
values are omitted. A constant of at most 8 elements is printed in full, any other as its shape and content hash; the arrays are
returned separately. A type is printed if it cannot be inferred or introduces an existential size, such as `?n_0{0..12}`. The bounds
of a size follow its first occurrence in a function. `requires [(condition, value, "what", "expected", "operator", "node"), ...]`
before the block of a function or branch lists its constraints.
`parse` reads the text back.
"""

from __future__ import annotations

import dataclasses
import itertools
import re
from collections.abc import Iterator, Sequence
from typing import Any, Literal

import numpy as np

from inlaid.graph.attrs import attr_items, sizes_in
from inlaid.graph.ir import (
    Call,
    Constant,
    Expr,
    Function,
    GlobalVar,
    If,
    Let,
    Loop,
    Module,
    Span,
    Tuple,
    TupleItem,
    Var,
    children,
    introduced_sizes,
    post_order,
)
from inlaid.graph.operator import Attrs, Operator
from inlaid.graph.scopes import Scope, Scopes, analyse, is_leaf
from inlaid.graph.unify import size_hint
from inlaid_runtime import arith
from inlaid_runtime.arith import Constraint
from inlaid_runtime.arith.text import quoted
from inlaid_runtime.types import DType, FunctionType, OptionalType, SequenceType, TensorType, TupleType, Type

Array = np.ndarray[Any, Any]

INLINE_ELEMENTS = 8
"""Maximum number of elements of a constant that is printed in full."""

_NAME = re.compile(r"[A-Za-z_]\w*")
_GLOBAL = re.compile(r"[A-Za-z_][\w.$]*")
_SIZE = re.compile(r"\??[A-Za-z_]\w*")
RESERVED = frozenset(
    ("and", "const", "def", "dtype", "else", "end", "false", "fn", "if", "inf", "let", "loop", "max", "min", "nan", "none", "not",
     "or", "requires", "select", "true", "type", "with")
)  # fmt: skip


def print_module(module: Module) -> tuple[str, dict[str, Array]]:
    """Print a module. Returns the text, which `parse` reads back, and the arrays by content hash."""
    constants: dict[str, Array] = {}
    return _module_text(module, "hash", True, constants), constants


def show(unit: Module | Expr, weights: Literal["elided", "hash"] = "elided", spans: bool = False) -> str:
    """Print a module, a function or any expression for reading, with weights as `...` or as hashes."""
    if isinstance(unit, Module):
        return _module_text(unit, weights, spans, {})
    printer = _Printer(analyse(unit), weights, spans, {})
    if isinstance(unit, Function):
        printer.function(unit, "fn")
    else:
        printer.block(printer.scopes.root)
    return "\n".join(printer.lines) + "\n"


def summary(module: Module) -> str:
    """Summarize a module in one line: the type of its entry point, the number of operators, and the targets of its regions."""

    def described(name: str, function: Function) -> str:
        count = sum(isinstance(expr, Call) and isinstance(expr.callee, Operator) for expr in post_order(function))
        target = function.attr("target")
        return f"@{name}{f' on {target}' if target else ''}: {count} operator{'s' * (count != 1)}"

    functions = dict(module.functions)
    main = functions.pop("main", None)
    parts = [described(name, function) for name, function in itertools.islice(functions.items(), 4)]
    if len(functions) > len(parts):
        parts.append(f"{len(functions) - len(parts)} more functions")
    if main is not None:
        shown = [f"{param.name}: {param.type!r}" for param in main.params[:4]]
        params = ", ".join([*shown, "..."] if len(main.params) > len(shown) else shown)
        result = main.type.result if isinstance(main.type, FunctionType) else main.type
        parts.insert(0, f"{described('main', main).replace('@main', f'@main({params}) -> {result!r}', 1)}")
    return f"<{type(module).__name__} {'; '.join(parts) or 'without functions'}>"


def _module_text(module: Module, weights: Literal["elided", "hash"], spans: bool, constants: dict[str, Array]) -> str:
    texts = []
    for name, target in module.functions.items():
        printer = _Printer(analyse(target), weights, spans, constants)
        printer.function(target, f"def {global_name(name)}")
        texts.append("\n".join(printer.lines) + "\n")
    return "\n".join(texts)


def global_name(name: str) -> str:
    """Print a global name."""
    return f"@{name if _GLOBAL.fullmatch(name) else quoted(name)}"


def inline_text(value: Constant) -> str | None:
    """Print the elements of a constant exactly. Returns None if it is large, empty, or has a NaN with a payload."""
    data = value.data
    if not 0 < data.size <= INLINE_ELEMENTS:
        return None
    if data.dtype == object:
        return _elements_text(data.tolist()) if all(isinstance(item, str) for item in data.flat) else None
    for plain in _plain(data):
        if np.asarray(plain, data.dtype).tobytes() == data.tobytes():
            return _elements_text(plain)
    return None


def _plain(data: Array) -> Iterator[Any]:
    """Yield the elements as nested lists of Python numbers. For floats, first yield the shortest decimals, then the exact values,
    without NaN payloads."""
    if data.dtype.kind in "biu":
        yield data.tolist()
    elif "int" in data.dtype.name:  # a type of ml_dtypes, whose elements are not Python numbers
        yield data.astype(np.int8).tolist()
    else:
        yield np.asarray([float(str(item)) for item in data.flat]).reshape(data.shape).tolist()
        wide = data.astype(np.float64)
        yield np.where(np.isnan(wide), np.nan, wide).tolist()


def _elements_text(value: Any) -> str:
    return f"[{', '.join(map(_elements_text, value))}]" if isinstance(value, list) else _scalar_text(value)


def _scalar_text(value: Any) -> str:
    if isinstance(value, str):
        return quoted(value)
    return str(value).lower() if isinstance(value, bool) else repr(value)


class _Printer:
    """Prints one function or expression with unique names."""

    def __init__(self, scopes: Scopes, weights: str, spans: bool, constants: dict[str, Array]) -> None:
        self.scopes = scopes
        self.lines: list[str] = []
        self._events = _events(scopes)
        # The value of a `let` without other uses is printed on the line of the `let`.
        self._inlined = {
            id(expr.value)
            for expr, binds in itertools.chain.from_iterable(self._events.values())
            if binds and isinstance(expr, Let) and _prints_with_its_name(expr, scopes)
        }
        self._weights = weights
        self._spans = spans
        self._constants = constants
        self._indent = ""
        self._count = 0
        self._names: dict[int, str] = {}
        self._reserved_names: set[str] = set()
        self._sizes: dict[arith.Expr, arith.SizeVar] = {}

    # --- lines --------------------------------------------------------------------------------------------------------

    def function(self, target: Function, head: str) -> None:
        """Print a function: `head`, its signature, and its body in braces."""
        assert isinstance(target.type, FunctionType)
        params = ", ".join(f"{self._bind(param)}: {self._type(param.type)}" for param in target.params)
        pairs = ", ".join(f"{quoted(key)}: {quoted(value)}" for key, value in target.attrs)
        attrs = f" with {{{pairs}}}" if pairs else ""
        requires = self._requires(target.constraints)
        self._line(f"{head}({params}) -> {self._type(target.type.result)}{attrs}{requires} {{", target.span)
        self._nested(self.scopes.body(target))
        self._line("}")

    def block(self, scope: Scope) -> None:
        """Print the lines of a scope, its result last. A `Let` that extends to the end of the scope needs no `end`."""
        result, open_lets = scope.result, set()
        while (
            isinstance(result, Let)
            and self.scopes.expr_scopes.get(id(result)) is scope
            and self.scopes.uses.get(id(result), 1) == 1
        ):
            open_lets.add(id(result))
            result = result.body
        for expr, binds in self._events.get(scope, ()):
            if isinstance(expr, Let) and binds:
                self._let(expr)
            elif isinstance(expr, Let):
                if id(expr) not in open_lets:
                    self._line(f"{self._number(expr)} = end({self._atom(expr.var)}, {self._atom(expr.body)})")
            elif id(expr) not in self._inlined:
                self._statement(f"{self._number(expr)}{self._annotation(expr)} = ", expr)
        self._line(self._atom(result))

    def _nested(self, scope: Scope) -> None:
        outer, self._indent = self._indent, self._indent + "  "
        self.block(scope)
        self._indent = outer

    def _line(self, text: str, span: Span | None = None) -> None:
        where = f"  # {quoted(span.file)} {quoted(span.node)}" if self._spans and span is not None else ""
        self.lines.append(f"{self._indent}{text}{where}")

    def _let(self, expr: Let) -> None:
        value, name = expr.value, self._bind(expr.var)
        if id(value) in self._inlined:
            self._statement(f"let {name}{self._annotation(value)} = ", value)
        else:
            declared = f": {self._type(expr.var.type)}" if expr.var.type != value.type else ""
            self._line(f"let {name}{declared} = {self._atom(value)}", expr.span)

    def _statement(self, head: str, expr: Expr) -> None:
        """Print one expression over names and constants, with its nested blocks."""
        match expr:
            case Call(callee=Operator(name=name), args=args, attrs=attrs):
                self._line(f"{head}{name}({', '.join([*map(self._atom, args), *self._attrs(attrs)])})", expr.span)
            case Call(callee=callee, args=args):
                assert isinstance(callee, Expr)
                self._line(f"{head}{self._atom(callee)}({', '.join(map(self._atom, args))})", expr.span)
            case Tuple(fields=fields):
                self._line(f"{head}{_tuple_text([self._atom(item) for item in fields])}", expr.span)
            case TupleItem(tuple=value, index=index):
                self._line(f"{head}{self._atom(value)}.{index}", expr.span)
            case Function():
                self.function(expr, f"{head}fn")
            case If(condition=condition):
                then, otherwise = self.scopes.branches(expr)
                required = [self._requires(constraints) for constraints in expr.constraints]
                self._line(f"{head}if {self._atom(condition)}{required[0]} {{", expr.span)
                self._nested(then)
                self._line(f"}} else{required[1]} {{")
                self._nested(otherwise)
                self._line("}")
            case Loop():
                self._line(f"{head}loop({', '.join(self._loop(expr))})", expr.span)
            case _:
                raise AssertionError(f"{expr!r} has no text")

    def _requires(self, constraints: Sequence[Constraint]) -> str:
        items = [
            ", ".join(
                (
                    *map(self._dim, (item.condition, item.value)),
                    *map(quoted, (item.what, item.expected, item.operator, item.node)),
                )
            )
            for item in constraints
        ]
        return f" requires [{', '.join(f'({item})' for item in items)}]" if items else ""

    def _loop(self, expr: Loop) -> list[str]:
        parts = [self._atom(expr.body)]
        for name, scalar in (("trip_count", expr.trip_count), ("condition", expr.condition)):
            if scalar is not None:
                parts.append(f"{name}={self._atom(scalar)}")
        for name, values in (("state", expr.state), ("scanned", expr.scanned)):
            if values:
                parts.append(f"{name}={_tuple_text([self._atom(item) for item in values])}")
        return parts

    # --- names and constants ------------------------------------------------------------------------------------------

    def _number(self, expr: Expr) -> str:
        name = self._names[id(expr)] = f"%{self._count}"
        self._count += 1
        return name

    def _bind(self, variable: Var) -> str:
        """Give a variable a unique name."""
        stem = re.sub(r"_\d+$", "", variable.name)
        name, count = variable.name, 0
        while name in self._reserved_names:
            count += 1
            name = f"{stem}_{count}"
        self._reserved_names.add(name)
        self._names[id(variable)] = text = f"%{name if _NAME.fullmatch(name) else quoted(name)}"
        return text

    def _atom(self, expr: Expr) -> str:
        match expr:
            case Constant():
                return self._constant(expr)
            case GlobalVar(name=name):
                return global_name(name)
            case Var() if id(expr) not in self._names:
                return self._bind(expr)
        return self._names[id(expr)]

    def _constant(self, value: Constant) -> str:
        assert isinstance(value.type, TensorType)
        text = inline_text(value)
        if text is not None:
            return f"const[{value.type.dtype}]({text})"
        kind = f"const[{value.type.dtype}, {_tuple_text([str(dim) for dim in value.type.shape])}]"
        if self._weights == "elided":
            return f"{kind}(...)"
        self._constants[value.digest()] = value.data
        return f'{kind}("{value.digest()}")'

    # --- attributes and types -----------------------------------------------------------------------------------------

    def _attrs(self, attrs: Attrs) -> list[str]:
        default = {item.name: item.default for item in dataclasses.fields(attrs)}
        return [f"{name}={self._value(value)}" for name, value in attr_items(attrs) if not _is_default(value, default[name])]

    def _value(self, value: object) -> str:
        match value:
            case tuple():
                return _tuple_text([self._value(item) for item in value])
            case arith.Expr():
                return self._dim(value)
            case DType():
                return f"dtype {value}"
            case Type():
                return f"type {self._type(value)}"
            case None:
                return "none"
            case bool() | int() | float() | str():
                return _scalar_text(value)
        raise AssertionError(f"an attribute of type {type(value).__name__} has no text")

    def _annotation(self, expr: Expr) -> str:
        """Print the type if the parser cannot infer it: for a loop, whose extent may be declared, and for a value that introduces
        an existential size."""
        return f": {self._type(expr.type)}" if isinstance(expr, Loop) or introduced_sizes(expr) else ""

    def _type(self, type_: Type) -> str:
        match type_:
            case TensorType(shape=shape, dtype=dtype):
                return f"Tensor[{_tuple_text([self._dim(dim) for dim in shape])}, {dtype}]"
            case TupleType(fields=fields):
                return _tuple_text([self._type(item) for item in fields])
            case FunctionType(params=params, result=result):
                return f"fn({', '.join(map(self._type, params))}) -> {self._type(result)}"
            case SequenceType(element=element):
                return f"Sequence[{self._type(element)}]"
            case OptionalType(element=element):
                return f"Optional[{self._type(element)}]"
        raise AssertionError(f"a type of class {type(type_).__name__} has no text")

    def _dim(self, dim: arith.Dim) -> str:
        if isinstance(dim, int):
            return str(dim)
        shown: dict[arith.Expr, arith.Expr] = {}
        for size in sizes_in(dim):
            if size not in shown:
                shown[size] = self._sizes[size] if size in self._sizes else self._new_size(size)
        return repr(arith.substitute(dim, shown))

    def _new_size(self, size: arith.SizeVar) -> arith.SizeVar:
        """Print the first occurrence of a size, with its bounds. Existential sizes are numbered in order of appearance, so that the
        text does not depend on the process-wide counter."""
        name = size.name
        if size.existential:
            name = f"?{size_hint(name)}_{sum(other.name[0] == '?' for other in self._sizes.values())}"
        if not _SIZE.fullmatch(name) or name in RESERVED:
            name = f"`{name.replace('`', chr(39))}`"
        self._sizes[size] = arith.SizeVar(name)
        if size.lower == 0 and size.upper is None:
            return arith.SizeVar(name)
        return arith.SizeVar(f"{name}{{{size.lower}..{'' if size.upper is None else self._dim(size.upper)}}}")


def _prints_with_its_name(expr: Let, scopes: Scopes) -> bool:
    value = expr.value
    return scopes.uses[id(value)] == 1 and not is_leaf(value) and not isinstance(value, Let) and expr.var.type == value.type


def _tuple_text(items: Sequence[str]) -> str:
    return f"({', '.join(items)}{',' if len(items) == 1 else ''})"


def _is_default(value: object, default: object) -> bool:
    """Test whether an attribute has its default value. Equality is not sufficient, as 0.0 == -0.0 and 1 == True."""
    return type(value) is type(default) and repr(value) == repr(default)


def _events(scopes: Scopes) -> dict[Scope, list[tuple[Expr, bool]]]:
    """Return what each scope prints, in order, as pairs (expression, whether it is the start of a `Let`). A `Let` occurs twice:
    (`Let`, True) where it binds its variable, and (`Let`, False) where its body ends."""
    events: dict[Scope, list[tuple[Expr, bool]]] = {}
    visited: set[int] = set()
    pending: list[tuple[Expr, str]] = [(scopes.root.result, "visit")]
    while pending:
        expr, step = pending.pop()
        if step != "visit":
            events.setdefault(scopes.expr_scopes[id(expr)], []).append((expr, step == "bind"))
        elif id(expr) not in visited and not is_leaf(expr):
            visited.add(id(expr))
            pending.append((expr, "done"))
            if isinstance(expr, Let):
                pending += [(expr.body, "visit"), (expr, "bind"), (expr.value, "visit")]
            else:
                pending.extend((child, "visit") for child in reversed(children(expr)))
    return events
