"""Normalize the arguments of a call: make scalars and arrays constants, make negative axes positive, put keywords in order."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Mapping, Sequence
from functools import lru_cache
from inspect import Parameter, Signature
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from inlaid_runtime import arith
from inlaid_runtime.errors import TypeInferenceError, suggestion
from inlaid_runtime.types import TensorType

if TYPE_CHECKING:
    from inlaid.graph.attrs import Attrs
    from inlaid.graph.ir import Expr
    from inlaid.graph.operator import Operator

_AXES = frozenset(("axis", "axes", "batch_axis", "time_axis", "perm"))
"""Attributes that hold axes of the first operand, or axes of the result if the operator has no operands."""


_INTEGER = (int, np.integer)
_KINDS: dict[str, Any] = {"int": _INTEGER, "float": (*_INTEGER, float, np.number), "bool": (bool, np.bool_), "str": str}
_KINDS |= {"Dim": (*_INTEGER, arith.Expr), "None": type(None)}


class _Field(NamedTuple):
    """An attribute's type annotation, and whether it is required."""

    annotation: str
    required: bool


def _fields(operator: Operator) -> Mapping[str, _Field]:
    """Return the attributes of an operator, in order of declaration."""
    return _class_fields(operator.attrs)  # type: ignore[arg-type] # mypy takes the hash of instances for that of the class


@lru_cache(1024)
def _class_fields(attrs: type[Attrs]) -> Mapping[str, _Field]:
    """Return the fields of a class of attributes. The class is the cache key, since an operator as the key would stay alive with
    its kernel."""
    return {
        item.name: _Field(
            item.type.__name__ if isinstance(item.type, type) else str(item.type),
            item.default is item.default_factory is dataclasses.MISSING,
        )
        for item in dataclasses.fields(attrs)
    }


def operand_names(operator: Operator) -> tuple[str, ...]:
    """Return the keywords of the operands. An operand with the same name as an attribute gets a trailing underscore."""
    return tuple(f"{name}_" if name in _fields(operator) else name for name in operator.inputs)


def call_signature(operator: Operator) -> Signature:
    """Return the signature of a call: operands by position or keyword, attributes by keyword only."""
    least, greatest = operator.arity
    parameters = []
    names = operand_names(operator)
    for position, name in enumerate(names):
        if greatest is None and position == len(names) - 1:
            parameters.append(Parameter(name, Parameter.VAR_POSITIONAL))
        else:
            default = Parameter.empty if position < least else None
            parameters.append(Parameter(name, Parameter.POSITIONAL_OR_KEYWORD, default=default))
    for item in dataclasses.fields(operator.attrs):
        default = Parameter.empty if item.default is dataclasses.MISSING else item.default
        parameters.append(Parameter(item.name, Parameter.KEYWORD_ONLY, default=default, annotation=item.type))
    return Signature([*parameters, Parameter("span", Parameter.KEYWORD_ONLY, default=None)], return_annotation="Call")


def bind_operands(operator: Operator, args: tuple[Any, ...], keywords: dict[str, Any]) -> tuple[Any, ...]:
    """Return the operands in order. Operands given by keyword are removed from `keywords`. Raises `TypeInferenceError` for a
    keyword that is neither an operand nor an attribute, and for a missing attribute or operand."""
    fields = _fields(operator)
    operands = args
    if not keywords.keys() <= fields.keys():
        names = operand_names(operator)
        for name in keywords.keys() - fields.keys():
            if name not in names:
                raise _call_error(
                    operator, f"expected an operand or an attribute, got {name!r}{suggestion(name, [*fields, *names])}"
                )
            if name in names[: len(args)]:
                raise _call_error(operator, f"operand {name!r} is given by position and by keyword")
        while len(operands) < len(names) and names[len(operands)] in keywords:
            operands += (keywords.pop(names[len(operands)]),)
        if left := keywords.keys() - fields.keys():
            raise _call_error(operator, f"operand {names[len(operands)]!r} is missing before {min(left, key=names.index)!r}")
    for name, field in fields.items():
        if field.required and name not in keywords:
            raise _call_error(operator, f"attribute {name!r} is missing")
    _check_kinds(operator, keywords)
    return operands


def _check_kinds(operator: Operator, attrs: Mapping[str, Any]) -> None:
    """Raise `TypeInferenceError` for an attribute whose value does not have the declared type."""
    for name, value in attrs.items():
        declared = _fields(operator)[name].annotation
        if not _fits(value, declared):
            raise _call_error(operator, f"attribute {name!r} must be {declared}, got {value!r}")


def _fits(value: Any, declared: str) -> bool:
    """Test whether a value has a type, given as an annotation."""
    classes, elements = _parse_annotation(declared)
    if not elements or not isinstance(value, classes):
        return isinstance(value, classes)
    annotations = elements[:1] * len(value) if elements[-1] == "..." else elements
    return len(value) == len(annotations) and all(map(_fits, value, annotations))


@lru_cache(256)
def _parse_annotation(declared: str) -> tuple[tuple[Any, ...], list[str]]:
    """Return the classes of values that an annotation allows, and the annotations of the elements if it is that of a tuple. An
    annotation of another form allows every value."""
    elements = re.fullmatch(r"tuple\[([^][]+)\]", declared)
    if elements is not None:
        return (tuple, list), elements[1].split(", ")
    return tuple(_KINDS.get(kind, object) for kind in declared.split(" | ")), []


def _call_error(operator: Operator, problem: str) -> TypeInferenceError:
    return TypeInferenceError(problem, operator=operator.name, remedy=f"call it as {usage(operator)}")


def usage(operator: Operator) -> str:
    """Return the operator's call syntax: its signature without annotations and without `span`."""
    parameters = call_signature(operator).parameters
    bare_parameters = [item.replace(annotation=Parameter.empty) for name, item in parameters.items() if name != "span"]
    return f"{operator.name}{Signature(bare_parameters)}"


def as_operands(operator: Operator, args: Sequence[Any]) -> tuple[Expr, ...]:
    """Convert scalars and arrays among the operands to constants. Raises `TypeInferenceError` for other objects.

    In an element-wise operator, a Python number or a list of numbers takes the dtype of the first non-bool tensor operand; a float
    takes the dtype of the first float operand. Without such an operand, and in all other operators, integers become int64 and
    floats float32. numpy arrays keep their dtype.
    """
    from inlaid.graph.ir import Expr

    if all(isinstance(item, Expr) for item in args):
        return tuple(args)
    dtypes = [item.type.dtype for item in args if isinstance(item, Expr) and isinstance(item.type, TensorType)]
    candidate_dtypes = [dtype for dtype in dtypes if dtype.kind != "bool"] if operator.elementwise else []
    return tuple(
        item if isinstance(item, Expr) else _constant(operator, position, item, candidate_dtypes)
        for position, item in enumerate(args)
    )


def _constant(operator: Operator, position: int, value: Any, dtypes: Sequence[Any]) -> Expr:
    from inlaid.graph.ir import constant

    if isinstance(value, (np.ndarray, np.generic)) and not isinstance(value, float):
        return constant(value)
    if isinstance(value, (bool, int, float, list)):
        array = np.asarray(value)
        floats = [dtype for dtype in dtypes if dtype.is_float]
        if array.dtype == np.bool_:
            return constant(array)
        if array.dtype.kind == "f":
            return constant(array, floats[0].name if floats else "float32")
        if array.dtype.kind in "iu":
            target_dtype = dtypes[0] if dtypes else None
            result = constant(array, target_dtype.name if target_dtype is not None else "int64")
            if target_dtype is not None and not np.array_equal(result.data.astype(np.float64), array.astype(np.float64)):
                raise TypeInferenceError(
                    f"{value!r} is out of range for {target_dtype.name}",
                    operator=operator.name,
                    remedy="cast the other operand first",
                )
            return result
    name = operator.inputs[min(position, len(operator.inputs) - 1)] if operator.inputs else str(position)
    raise TypeInferenceError(
        f"operand {name!r} must be an expression, a number or an array, got {type(value).__name__}",
        operator=operator.name,
        remedy="give attributes by keyword; make other constants with inlaid.constant",
    )


def normalized(attrs: Mapping[str, Any], args: Sequence[Expr], operator: Operator) -> dict[str, Any]:
    """Return the attributes with lists as tuples and negative axes made non-negative. An extent of -1 in the shape of a view is
    replaced by the extent that keeps the number of elements. Raises `TypeInferenceError` for an axis out of range."""
    result = {name: tuple(value) if isinstance(value, list) else value for name, value in attrs.items()}
    for name in _AXES & result.keys():
        value = result[name]
        axes = value if isinstance(value, tuple) else (value,)
        negative = [axis for axis in axes if isinstance(axis, int) and axis < 0]
        rank = _rank(result, args) if negative else None
        if rank is not None:
            if min(negative) < -rank:
                raise TypeInferenceError(
                    f"{name} must be >= -{rank} for an operand of rank {rank}, got {min(negative)}", operator=operator.name
                )
            nonnegative_axes = tuple(axis + rank if axis in negative else axis for axis in axes)
            result[name] = nonnegative_axes if isinstance(value, tuple) else nonnegative_axes[0]
    shape = result.get("shape")
    if operator.traits.view and args and isinstance(shape, tuple) and shape.count(-1) == 1:
        rest = arith.product(tuple(dim for dim in shape if dim != -1))
        extent = 0 if rest == 0 else arith.unwrap(arith.simplify(arith.floordiv(arith.product(args[0].shape), rest)))
        result["shape"] = tuple(extent if dim == -1 else dim for dim in shape)
    return result


def _rank(attrs: Mapping[str, Any], args: Sequence[Expr]) -> int | None:
    if args:
        return args[0].type.rank if isinstance(args[0].type, TensorType) else None
    return len(attrs["shape"]) if isinstance(attrs.get("shape"), tuple) else None
