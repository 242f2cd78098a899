"""Encodes programs and artifacts as JSON values, and decodes them.

Decoding checks every value against the declared fields and types of the dataclasses. A mismatch raises a `PackageError` with its
location. Names in the data can only refer to element types, operators of dimension expressions, and the instruction classes listed
here.

The expressions of an object may have subexpressions in common, and be nested to any depth. Common subexpressions, and enough others
to keep the rest shallow, are written once, in the object's list "parts"; expressions refer to a part by its number.
"""

from __future__ import annotations

import dataclasses
import functools
import types
from collections.abc import Callable, Mapping
from typing import Any, Literal, TypeVar, Union, cast, get_args, get_origin, get_type_hints

from inlaid_runtime import arith
from inlaid_runtime.arith import Dim, SizeVar
from inlaid_runtime.artifact.plan import Assert, Bind, Branch, Call, Invoke, Loop, Move, Wait
from inlaid_runtime.errors import PackageError
from inlaid_runtime.types import DTYPES, DType

Json = Any
T = TypeVar("T")

MAX_DEPTH = 100
"""Greatest nesting depth of an expression or a part in a package, since decoding is recursive. Encoding writes at most `LEVELS`."""
PARTS = "parts"
"""Field of an encoded object that lists the shared parts of its expressions."""

MAX_RANK = 32
"""Greatest number of dimensions of a tensor, which every version of numpy supports."""

LARGEST_INTEGER = 1 << 62
"""Greatest absolute value of an integer in a package."""
_INSTRUCTIONS: dict[str, type] = {cls.__name__.lower(): cls for cls in (Invoke, Call, Branch, Loop, Move, Bind, Assert, Wait)}
_BINARY: dict[str, tuple[type[arith.Expr], Callable[[Dim, Dim], arith.Expr]]] = {
    "add": (arith.Add, arith.add),
    "mul": (arith.Mul, arith.mul),
    "floordiv": (arith.FloorDiv, arith.floordiv),
    "floormod": (arith.FloorMod, arith.floormod),
    "min": (arith.Min, arith.minimum),
    "max": (arith.Max, arith.maximum),
    "and": (arith.And, arith.logical_and),
    "or": (arith.Or, arith.logical_or),
}
_BINARY_NAMES: dict[type[arith.Expr], str] = {cls: name for name, (cls, _) in _BINARY.items()}
_COMPARISONS = ("<", "<=", "==", "!=")


def encode(value: object) -> dict[str, Json]:
    """Encode a dataclass of `inlaid_runtime.artifact` as a JSON object. Raises `PackageError` for an expression that cannot be
    packaged."""
    encoder = _Encoder()
    fields: dict[str, Json] = encoder.value(value)
    return {**fields, PARTS: encoder.finish()}


class _Encoder:
    """Encodes one object. Expressions are written by `finish`, when all of them are known."""

    def __init__(self) -> None:
        self._exprs: list[tuple[arith.Expr, list[Json]]] = []
        self._numbers: dict[int, int] = {}

    def value(self, value: object) -> Json:
        """Encode a dataclass or the value of one of its fields."""
        if isinstance(value, int):
            return _limited(value)
        if value is None or isinstance(value, str):
            return value
        if isinstance(value, DType):
            return value.name
        if isinstance(value, arith.Const):
            return _limited(value.value)
        if isinstance(value, arith.Expr):
            self._exprs.append((value, []))
            return self._exprs[-1][1]
        if isinstance(value, tuple):
            return [self.value(item) for item in value]
        if isinstance(value, Mapping):
            return {key: self.value(item) for key, item in value.items()}
        assert dataclasses.is_dataclass(value), f"{value!r} cannot be stored in a package"
        fields = {item.name: self.value(getattr(value, item.name)) for item in dataclasses.fields(value)}
        name = type(value).__name__.lower()
        return {"do": name, **fields} if name in _INSTRUCTIONS else fields

    def finish(self) -> list[Json]:
        """Write the expressions of the object, and return their shared parts."""
        exprs = [expr for expr, _ in self._exprs]
        parts, self._numbers = arith.named_parts(*exprs, depth=arith.LEVELS, below=_inside)
        for expr, encoding in self._exprs:
            encoding += self._expr(expr)
        return [self._node(part) for part in parts]

    def _expr(self, expr: arith.Expr) -> Json:
        number = self._numbers.get(id(expr))
        return self._node(expr) if number is None else ["part", number]

    def _node(self, expr: arith.Expr) -> Json:
        match expr:
            case arith.Const(value=value):
                return _limited(value)
            case SizeVar(name=name, lower=lower, upper=upper):
                bound = None if upper is None else _limited(upper) if isinstance(upper, int) else self._expr(upper)
                return ["size", name, _limited(lower), bound]
            case arith.Compare(op=op, operands=(a, b)):
                return ["compare", op, self._expr(a), self._expr(b)]
            case arith.Not(operands=(a,)):
                return ["not", self._expr(a)]
            case arith.Select(operands=(a, b, c)):
                return ["select", self._expr(a), self._expr(b), self._expr(c)]
        binary = _BINARY_NAMES.get(type(expr))
        if binary is None:
            raise PackageError(f"the size {expr!r} has no value at run time and cannot be packaged")
        a, b = expr.operands
        return [binary, self._expr(a), self._expr(b)]


def _limited(value: int) -> int:
    """Return an integer that decoding accepts. Raises `PackageError` for any other."""
    if not -LARGEST_INTEGER <= value <= LARGEST_INTEGER:
        raise PackageError(f"expected sizes and offsets of at most 2^62, got {value}", remedy="give smaller sizes")
    return value


def _inside(expr: arith.Expr) -> tuple[arith.Expr, ...]:
    """Return the expressions that are written inside another one: operands, and the bound of a size."""
    return (expr.upper,) if isinstance(expr, SizeVar) and isinstance(expr.upper, arith.Expr) else expr.operands


def decode(cls: type[T], data: Json, where: str) -> T:
    """Decode a JSON object to a dataclass. Raises `PackageError` with the location, which starts with `where`."""
    fields = dict(expect(data, dict, where))
    if PARTS not in fields:
        raise PackageError(f"{where}: field {PARTS!r} is missing")
    decoder = _Decoder(fields.pop(PARTS), f"{where}.{PARTS}")
    return cast("T", decoder.value(cls, fields, where))


def expect(data: Json, expected_type: type[T], where: str) -> T:
    """Check the type of a JSON value and return it. Raises `PackageError`."""
    if type(data) is not expected_type:
        raise PackageError(f"{where}: expected {expected_type.__name__}, got {_kind(data)}")
    return data


def expect_fields(data: Json, fields: tuple[str, ...], where: str) -> dict[str, Json]:
    """Check that a JSON object has exactly the given fields and return it. Raises `PackageError`."""
    members: dict[str, Json] = expect(data, dict, where)
    mismatches = sorted(set(members) ^ set(fields))
    if mismatches:
        raise PackageError(f"{where}: field {mismatches[0][:80]!r} is {'missing' if mismatches[0] in fields else 'unknown'}")
    return members


def expect_int(data: Json, where: str, least: int = -LARGEST_INTEGER, greatest: int = LARGEST_INTEGER) -> int:
    """Check the type and range of an integer and return it. Raises `PackageError`."""
    value = expect(data, int, where)
    if not least <= value <= greatest:
        raise PackageError(f"{where}: an integer is out of range")
    return value


class _Decoder:
    """Decodes one object, whose expressions refer to its `parts`."""

    def __init__(self, parts: Json, where: str) -> None:
        self._parts: list[arith.Expr] = []
        for number, part in enumerate(expect(parts, list, where)):
            self._parts.append(self._expr(part, f"{where}[{number}]"))

    def value(self, hint: Any, data: Json, where: str) -> Any:
        """Decode a value of a declared type."""
        origin, args = get_origin(hint), get_args(hint)
        if hint is bool:
            return expect(data, bool, where)
        if hint is int:
            return expect_int(data, where)
        if hint is str:
            return expect(data, str, where)
        if hint is DType:
            name = expect(data, str, where)
            if name not in DTYPES:
                raise PackageError(f"{where}: {name[:80]!r} is not an element type")
            return DTYPES[name]
        if origin is Literal:
            if data not in args or type(data) is not str:
                raise PackageError(f"{where}: {data if type(data) is str else _kind(data)!r} is not one of {', '.join(args)}")
            return data
        if origin is tuple:
            return self._tuple(args, expect(data, list, where), where)
        if origin in (Union, types.UnionType):
            return self._union(args, data, where)
        if origin is not None and issubclass(origin, Mapping):
            return {key: self.value(args[1], item, f"{where}.{key[:80]}") for key, item in expect(data, dict, where).items()}
        assert dataclasses.is_dataclass(hint), f"{hint!r} has no JSON form"
        cls = cast("type", hint)
        hints = _hints(cls)
        fields = expect_fields(data, tuple(hints), where)
        return cls(**{name: self.value(field_type, fields[name], f"{where}.{name}") for name, field_type in hints.items()})

    def _tuple(self, args: tuple[Any, ...], data: list[Json], where: str) -> tuple[Any, ...]:
        if len(args) == 2 and args[1] is Ellipsis:
            if arith.Expr in get_args(args[0]) and len(data) > MAX_RANK:
                raise PackageError(f"{where}: a shape has {len(data)} dimensions")
            return tuple(self.value(args[0], item, f"{where}[{index}]") for index, item in enumerate(data))
        if len(data) != len(args):
            raise PackageError(f"{where}: expected {len(args)} items, got {len(data)}")
        return tuple(
            self.value(element_type, item, f"{where}[{index}]")
            for index, (element_type, item) in enumerate(zip(args, data, strict=True))
        )

    def _union(self, args: tuple[Any, ...], data: Json, where: str) -> Any:
        if data is None and type(None) in args:
            return None
        if arith.Expr in args:
            return arith.unwrap(self._expr(data, where))
        if Invoke in args:
            fields = dict(expect(data, dict, where))
            cls = _INSTRUCTIONS.get(str(fields.pop("do", "")))
            if cls is None:
                raise PackageError(f"{where}: unknown instruction")
            return self.value(cls, fields, where)
        (hint,) = (arg for arg in args if arg is not type(None))
        return self.value(hint, data, where)

    def _expr(self, data: Json, where: str, depth: int = MAX_DEPTH) -> arith.Expr:
        if type(data) is int:
            return arith.Const(expect_int(data, where))
        if depth == 0:
            raise PackageError(f"{where}: an expression is nested too deeply")
        expr = self._node(expect(data, list, where), where, lambda item: self._expr(item, where, depth - 1))
        if isinstance(expr, arith.Const):
            expect_int(expr.value, where)  # the result of folding may be out of range
        return expr

    def _node(self, data: list[Json], where: str, inner: Callable[[Json], arith.Expr]) -> arith.Expr:
        match data:
            case ["part", int(number)]:
                return self._parts[expect_int(number, where, 0, len(self._parts) - 1)]
            case ["size", str(name), int(lower), None]:
                return SizeVar(name, expect_int(lower, where))
            case ["size", str(name), int(lower), upper]:
                return SizeVar(name, expect_int(lower, where), arith.unwrap(inner(upper)))
            case ["compare", str(op), a, b] if op in _COMPARISONS:
                return arith.compare(op, inner(a), inner(b))
            case ["not", a]:
                return arith.logical_not(inner(a))
            case ["select", a, b, c]:
                return arith.select(inner(a), inner(b), inner(c))
            case [str(name), a, b] if name in _BINARY:
                return _BINARY[name][1](inner(a), inner(b))
        raise PackageError(f"{where}: expected an expression")


@functools.cache
def _hints(cls: type) -> dict[str, Any]:
    """Return the declared types of a dataclass's fields. `Dim` refers to `Expr` by a string that only `arith` can resolve."""
    return get_type_hints(cls, localns={"Expr": arith.Expr})


def _kind(data: Json) -> str:
    return "null" if data is None else type(data).__name__
