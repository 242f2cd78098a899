"""Encodes programs and artifacts as JSON values, and decodes them.

Decoding checks every value against the declared fields and types of the dataclasses. A mismatch raises a `PackageError` with its
location. Names in the data can only refer to element types, operators of dimension expressions, and the instruction classes listed
here.
"""

from __future__ import annotations

import dataclasses
import functools
import types
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal, TypeVar, Union, cast, get_args, get_origin, get_type_hints

from inlaid import arith
from inlaid.arith import Dim, SizeVar
from inlaid.artifact.plan import Assert, Bind, Branch, Call, Invoke, Loop, Move, Wait
from inlaid.errors import PackageError
from inlaid.types import DTYPES, DType

Json = Any
T = TypeVar("T")

MAX_DEPTH = 100
"""Greatest nesting depth of a dimension expression in a package."""

MAX_RANK = 32
"""Greatest number of dimensions of a tensor, which every version of numpy supports."""

_LIMIT = 1 << 62
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


def encode(value: object) -> Json:
    """Encode a dataclass of `inlaid.artifact`, or the value of one of its fields, as a JSON value."""
    if value is None or isinstance(value, (bool, int, str)):
        return value
    if isinstance(value, DType):
        return value.name
    if isinstance(value, arith.Expr):
        return _encode_shared(value)
    if isinstance(value, tuple):
        return [encode(item) for item in value]
    if isinstance(value, Mapping):
        return {key: encode(item) for key, item in value.items()}
    assert dataclasses.is_dataclass(value), f"{value!r} cannot be stored in a package"
    fields = {item.name: encode(getattr(value, item.name)) for item in dataclasses.fields(value)}
    name = type(value).__name__.lower()
    return {"do": name, **fields} if name in _INSTRUCTIONS else fields


def decode(cls: type[T], data: Json, where: str) -> T:
    """Decode a JSON value to a dataclass. Raises `PackageError` with the location, which starts with `where`."""
    return cast("T", _decode(cls, data, where))


def expect(data: Json, wanted: type[T], where: str) -> T:
    """Check the type of a JSON value and return it. Raises `PackageError`."""
    if type(data) is not wanted:
        raise PackageError(f"{where}: expected {wanted.__name__}, got {_kind(data)}")
    return data


def expect_fields(data: Json, fields: tuple[str, ...], where: str) -> dict[str, Json]:
    """Check that a JSON object has exactly the given fields and return it. Raises `PackageError`."""
    found: dict[str, Json] = expect(data, dict, where)
    odd = sorted(set(found) ^ set(fields))
    if odd:
        raise PackageError(f"{where}: field {odd[0][:80]!r} is {'missing' if odd[0] in fields else 'unknown'}")
    return found


def expect_int(data: Json, where: str, least: int = -_LIMIT, greatest: int = _LIMIT) -> int:
    """Check the type and range of an integer and return it. Raises `PackageError`."""
    value = expect(data, int, where)
    if not least <= value <= greatest:
        raise PackageError(f"{where}: an integer is out of range")
    return value


def _decode(hint: Any, data: Json, where: str) -> Any:
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
        return _decode_tuple(args, expect(data, list, where), where)
    if origin in (Union, types.UnionType):
        return _decode_union(args, data, where)
    if origin is not None and issubclass(origin, Mapping):
        return {key: _decode(args[1], item, f"{where}.{key[:80]}") for key, item in expect(data, dict, where).items()}
    assert dataclasses.is_dataclass(hint), f"{hint!r} has no JSON form"
    cls = cast("type", hint)
    hints = _hints(cls)
    fields = expect_fields(data, tuple(hints), where)
    return cls(**{name: _decode(of, fields[name], f"{where}.{name}") for name, of in hints.items()})


def _decode_tuple(args: tuple[Any, ...], data: list[Json], where: str) -> tuple[Any, ...]:
    if len(args) == 2 and args[1] is Ellipsis:
        if arith.Expr in get_args(args[0]) and len(data) > MAX_RANK:
            raise PackageError(f"{where}: a shape has {len(data)} dimensions")
        return tuple(_decode(args[0], item, f"{where}[{index}]") for index, item in enumerate(data))
    if len(data) != len(args):
        raise PackageError(f"{where}: expected {len(args)} items, got {len(data)}")
    return tuple(_decode(of, item, f"{where}[{index}]") for index, (of, item) in enumerate(zip(args, data, strict=True)))


def _decode_union(args: tuple[Any, ...], data: Json, where: str) -> Any:
    if data is None and type(None) in args:
        return None
    if arith.Expr in args:
        return arith.unwrap(_decode_shared(data, where))
    if Invoke in args:
        fields = dict(expect(data, dict, where))
        cls = _INSTRUCTIONS.get(str(fields.pop("do", "")))
        if cls is None:
            raise PackageError(f"{where}: unknown instruction")
        return _decode(cls, fields, where)
    (hint,) = (arg for arg in args if arg is not type(None))
    return _decode(hint, data, where)


@functools.cache
def _hints(cls: type) -> dict[str, Any]:
    """Return the declared types of a dataclass's fields. `Dim` refers to `Expr` by a string that only `arith` can resolve."""
    return get_type_hints(cls, localns={"Expr": arith.Expr})


def _encode_shared(expr: arith.Expr) -> Json:
    """Encode an expression, preceded by its repeated `Max` subexpressions, so that each is written once."""
    uses: dict[arith.Expr, int] = {}
    order: list[arith.Expr] = []
    stack = [(expr, False)]
    while stack:
        node, ready = stack.pop()
        if ready:
            order.append(node)
        elif isinstance(node, arith.Max) or node is expr:
            uses[node] = uses.get(node, 0) + 1
            if uses[node] == 1:
                stack += [(node, True), *((operand, False) for operand in node.operands)]
        else:
            stack += ((operand, False) for operand in node.operands)
    shared: dict[arith.Expr, int] = {}
    parts: list[Json] = []
    for node in order:
        if uses[node] > 1:
            parts.append(_encode_expr(node, shared))
            shared[node] = len(shared)
    whole = _encode_expr(expr, shared)
    return ["let", parts, whole] if parts else whole


def _encode_expr(expr: arith.Expr, shared: Mapping[arith.Expr, int]) -> Json:
    if expr in shared:
        return ["part", shared[expr]]
    match expr:
        case arith.Const(value=value):
            return value
        case SizeVar(name=name, lower=lower, upper=upper):
            return ["size", name, lower, encode(upper)]
        case arith.Compare(op=op, operands=(a, b)):
            return ["compare", op, _encode_expr(a, shared), _encode_expr(b, shared)]
        case arith.Not(operands=(a,)):
            return ["not", _encode_expr(a, shared)]
        case arith.Select(operands=(a, b, c)):
            return ["select", *(_encode_expr(item, shared) for item in (a, b, c))]
    binary = _BINARY_NAMES.get(type(expr))
    if binary is None:
        raise PackageError(f"the size {expr!r} has no value at run time and cannot be packaged")
    return [binary, *(_encode_expr(item, shared) for item in expr.operands)]


def _decode_shared(data: Json, where: str) -> arith.Expr:
    parts: list[arith.Expr] = []
    if isinstance(data, list) and len(data) == 3 and data[0] == "let":
        for part in expect(data[1], list, where):
            parts.append(_decode_expr(part, where, MAX_DEPTH, parts))
        data = data[2]
    return _decode_expr(data, where, MAX_DEPTH, parts)


def _decode_expr(data: Json, where: str, depth: int, parts: Sequence[arith.Expr]) -> arith.Expr:
    if type(data) is int:
        return arith.Const(expect_int(data, where))
    if depth == 0:
        raise PackageError(f"{where}: an expression is nested too deeply")
    match expect(data, list, where):
        case ["part", int(number)]:
            return parts[expect_int(number, where, 0, len(parts) - 1)]
        case ["size", str(name), int(lower), None]:
            return SizeVar(name, expect_int(lower, where))
        case ["size", str(name), int(lower), upper]:
            return SizeVar(name, expect_int(lower, where), arith.unwrap(_decode_expr(upper, where, depth - 1, parts)))
        case ["compare", str(op), a, b] if op in _COMPARISONS:
            return arith.compare(op, _decode_expr(a, where, depth - 1, parts), _decode_expr(b, where, depth - 1, parts))
        case ["not", a]:
            return arith.logical_not(_decode_expr(a, where, depth - 1, parts))
        case ["select", a, b, c]:
            return arith.select(*(_decode_expr(item, where, depth - 1, parts) for item in (a, b, c)))
        case [str(name), a, b] if name in _BINARY:
            return _BINARY[name][1](_decode_expr(a, where, depth - 1, parts), _decode_expr(b, where, depth - 1, parts))
    raise PackageError(f"{where}: expected an expression")


def _kind(data: Json) -> str:
    return "null" if data is None else type(data).__name__
