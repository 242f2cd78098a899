"""What a user may say of a model's symbolic dimensions."""

from __future__ import annotations

import operator
import re
from collections.abc import Mapping
from typing import Any

from inlaid.errors import InputError, Remedy, dims_setting

LARGEST = 2**63 - 1
"""Sizes are computed in 64-bit integers."""

DimSpec = int | tuple[int, int]
"""A size that a symbolic dimension takes, or its inclusive bounds."""

_BY_NAME = Remedy.of("give sizes by name, such as ", dims_setting({"batch": 1}))


def checked_dims(dims: Mapping[str, Any] | None) -> dict[str, DimSpec]:
    """Sizes and bounds by name, as plain integers; bounds that are equal are a size. Raises `InputError`, naming the dimension, for
    what is neither a size nor a pair of bounds in order."""
    if dims is not None and not isinstance(dims, Mapping):
        raise InputError(f"dims is given as {type(dims).__name__}", remedy=_BY_NAME)
    return {_name(name): _spec(name, value) for name, value in (dims or {}).items()}


def _name(name: object) -> str:
    if isinstance(name, str):
        return name
    raise InputError(f"a dimension is named {name!r}", remedy=_BY_NAME)


def _spec(name: str, value: object) -> DimSpec:
    if not isinstance(value, (tuple, list)):
        return _size(name, value, value)
    if len(value) != 2:
        raise _wrong(name, value, "it takes a size, or the least and the greatest")
    low, high = (_size(name, item, value) for item in value)
    if low > high:
        raise _wrong(name, value, "the least comes first")
    return low if low == high else (low, high)


def _size(name: str, size: object, value: object) -> int:
    """A size as an integer: Python's own, or what can stand for one, such as numpy's."""
    if isinstance(size, bool) or not hasattr(size, "__index__"):
        raise _wrong(name, value, "a size is an integer")
    found = operator.index(size)
    if not 0 <= found <= LARGEST:
        raise _wrong(name, value, f"a size is 0 to {LARGEST}")
    return found


def _wrong(name: str, value: object, why: str) -> InputError:
    remedy = Remedy.of("give a size, such as ", dims_setting({name: 4}), ", or bounds, such as ", dims_setting({name: (1, 64)}))
    return InputError(f"dimension {name!r} cannot be {value!r}: {why}", remedy=remedy)


_NAMELESS = frozenset(("?", "none", "null", "nil", "dynamic", "unknown", "unk", "any", "*", "_"))
"""What exporters write for a dimension that they know nothing of, in lower case."""


def own_name(name: str) -> str:
    """The name that a model gives a dimension; "" for what says only that its size is not known: such dimensions need not be equal.
    A number is no name either, -1 being the usual one."""
    plain = name.strip()
    return "" if plain.lower() in _NAMELESS or re.fullmatch(r"-?\d+", plain) else name


def identifier(name: str) -> str:
    """A name of a dimension that prints and parses: letters, digits and underscores, not starting with a digit."""
    plain = re.sub(r"\W", "_", name, flags=re.ASCII)
    return plain if plain and not plain[0].isdigit() else f"_{plain}"
