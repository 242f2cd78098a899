"""Validation of the arguments of schedule primitives."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from inspect import signature
from typing import Any

from inlaid.tensor import ir
from inlaid_runtime.arith import Var
from inlaid_runtime.errors import ScheduleError


def _integer(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


_KINDS: dict[str, tuple[str, Callable[[Any], bool]]] = {
    "Var": ("a loop from schedule.loops(block)", lambda value: isinstance(value, Var)),
    "str": ("a name", lambda value: isinstance(value, str)),
    "int": ("an integer", _integer),
    "bool": ("True or False", lambda value: isinstance(value, bool)),
    "int | float": ("a number", lambda value: _integer(value) or isinstance(value, float)),
    "tuple[Var, ...]": ("loops", lambda value: _is_tuple(value, lambda item: isinstance(item, Var)) and value != ()),
    "tuple[int, ...]": ("a tuple of integers", lambda value: _is_tuple(value, _integer)),
    "tuple[int | None, ...]": (
        "a tuple of integers and at most one None",
        lambda value: _is_tuple(value, lambda item: item is None or _integer(item)),
    ),
    "tuple[str, ...]": ("a tuple of names", lambda value: _is_tuple(value, lambda item: isinstance(item, str))),
}
"""Maps the annotation of a primitive's parameter to a description of valid values, and to a predicate that tests a value."""


def _is_tuple(value: Any, fits: Callable[[Any], bool]) -> bool:
    return isinstance(value, tuple) and all(map(fits, value))


def require_program(value: Any) -> ir.LoopProgram:
    """Return the loop program that a schedule is created from. Raises `ScheduleError` if the value is not a loop program."""
    if isinstance(value, ir.LoopProgram):
        return value
    type_name = type(value).__name__
    raise ScheduleError(f"expected a loop program, got {type_name}", remedy="build one with te.program(inputs, outputs)")


def checked(primitive: Callable[..., Any], args: tuple[Any, ...]) -> tuple[Any, ...]:
    """Check the arguments of a primitive, except its program, and convert lists to tuples. Raises `ScheduleError`."""
    args = tuple(tuple(value) if isinstance(value, list) else value for value in args)
    for (name, (description, fits)), value in zip(_parameters(primitive), args, strict=False):
        if not fits(value):
            raise ScheduleError(f"{name} of {primitive.__name__} must be {description}, got {value!r}")
    return args


@cache
def _parameters(primitive: Callable[..., Any]) -> tuple[tuple[str, tuple[str, Callable[[Any], bool]]], ...]:
    """Return the names of a primitive's positional parameters after its program, each with its description and predicate."""
    parameters = [item for item in signature(primitive).parameters.values() if item.kind is item.POSITIONAL_OR_KEYWORD]
    return tuple((item.name, _kind(item.annotation)) for item in parameters[1:])


def _kind(annotation: str) -> tuple[str, Callable[[Any], bool]]:
    description, fits = _KINDS[annotation.removesuffix(" | None")]
    if not annotation.endswith(" | None"):
        return description, fits
    return f"{description}, or None", lambda value: value is None or fits(value)
