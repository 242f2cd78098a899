"""Validation of the sizes and bounds that a user sets for symbolic dimensions."""

from __future__ import annotations

import operator
import re
from collections.abc import Mapping
from typing import Any

from inlaid_runtime.errors import InputError, Remedy, dims_setting

LARGEST = 2**63 - 1
"""Maximum size: sizes are 64-bit integers."""

DimSpec = int | tuple[int, int]
"""The size of a symbolic dimension, or its inclusive bounds (minimum, maximum)."""

_BY_NAME = Remedy.join("give sizes by name, such as ", dims_setting({"batch": 1}))


def checked_dims(dims: Mapping[str, Any] | None) -> dict[str, DimSpec]:
    """Validate sizes and bounds by dimension name, and convert them to int; equal bounds become a size. Raises `InputError`, which
    names the dimension, if they are invalid."""
    if dims is not None and not isinstance(dims, Mapping):
        raise InputError(f"dims must be a mapping, got {type(dims).__name__}", remedy=_BY_NAME)
    return {_name(name): _spec(name, value) for name, value in (dims or {}).items()}


def _name(name: object) -> str:
    if isinstance(name, str):
        return name
    raise InputError(f"the name of a dimension must be a string, got {name!r}", remedy=_BY_NAME)


def _spec(name: str, value: object) -> DimSpec:
    if not isinstance(value, (tuple, list)):
        return _size(name, value, value, least=1)
    if len(value) != 2:
        raise _dims_error(name, value, "a size or (minimum, maximum)")
    low, high = _size(name, value[0], value, least=0), _size(name, value[1], value, least=1)
    if low > high:
        raise _dims_error(name, value, "minimum <= maximum")
    return low if low == high else (low, high)


def _size(name: str, size: object, value: object, least: int) -> int:
    """Convert a size to int; it may be any integer type, such as numpy's."""
    if isinstance(size, bool) or not hasattr(size, "__index__"):
        raise _dims_error(name, value, "an integer size")
    extent = operator.index(size)
    if not least <= extent <= LARGEST:
        raise _dims_error(name, value, f"a size >= {least} and <= {LARGEST}")
    return extent


def _dims_error(name: str, value: object, expected: str) -> InputError:
    remedy = Remedy.join("give a size, such as ", dims_setting({name: 4}), ", or bounds, such as ", dims_setting({name: (1, 64)}))
    return InputError(f"expected {expected} for dimension {name!r}, got {value!r}", remedy=remedy)


_NAMELESS = frozenset(("?", "none", "null", "nil", "dynamic", "unknown", "unk", "any", "*", "_"))
"""Names that exporters give to unknown dimensions, in lower case."""


def dimension_name(name: str) -> str:
    """Return the name of a dimension in a model, or "" for a placeholder of an unknown dimension, such as "?" or "-1". Dimensions
    with the same placeholder need not be equal."""
    plain = name.strip()
    return "" if plain.lower() in _NAMELESS or re.fullmatch(r"-?\d+", plain) else name


def identifier(name: str) -> str:
    """Convert a name to an identifier that prints and parses: letters, digits and underscores, not starting with a digit."""
    plain = re.sub(r"\W", "_", name, flags=re.ASCII)
    return plain if plain and not plain[0].isdigit() else f"_{plain}"
