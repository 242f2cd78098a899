"""Examples of element-wise operators."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from inlaid import ops
from inlaid_conformance.corpus.example import COMMON, FLOATS, FLOATS_OF_ANY_WIDTH, INTEGERS, NUMBERS, Choices, Entry, Example
from inlaid_runtime.types import DTYPES

_FLOAT_FUNCTIONS = (
    *("exp", "expm1", "log", "log1p", "sin", "cos", "tan", "asin", "acos", "atan", "sinh", "cosh", "tanh", "asinh", "acosh"),
    *("atanh", "erf", "sigmoid"),
)
_EXACT_FLOAT_FUNCTIONS = ("sqrt", "floor", "ceil", "round", "isnan")
_NUMBER_FUNCTIONS = ("abs", "neg", "sign", "relu")
_EXACT_ARITHMETIC = ("add", "sub", "mul", "div", "maximum", "minimum", "less", "less_equal")
"""Comparisons, and arithmetic with results that IEEE 754 defines exactly. Results of narrow types are float32 results, rounded
once."""
_ARITHMETIC = ("mod", "fmod", "pow")
_BITS = ("bitwise_and", "bitwise_or", "bitwise_xor", "shift_left", "shift_right")
_LOGIC = ("logical_and", "logical_or", "logical_xor")


def _mapped(name: str, count: int) -> Callable[[Choices, str], Example]:
    def make(choices: Choices, dtype_name: str) -> Example:
        return Example(ops.TABLE[name], tuple(choices.array(shape, dtype_name) for shape in choices.broadcasting(count)))

    return make


def _operands(example: Example) -> dict[str, str]:
    """List the operands that are broadcast."""
    shapes = [value.shape for value in example.inputs]
    full_shape = np.broadcast_shapes(*shapes)
    return {"broadcast": ", ".join(str(number) for number, shape in enumerate(shapes) if shape != full_shape) or "none"}


def _entries(names: tuple[str, ...], dtypes: tuple[str, ...], count: int = 1, exact: bool = True) -> tuple[Entry, ...]:
    facets = _operands if count > 1 else lambda example: {}
    return tuple(Entry(ops.TABLE[name], dtypes, _mapped(name, count), exact, facets) for name in names)


def _gelu(choices: Choices, dtype_name: str) -> Example:
    return Example(ops.gelu, (choices.array(choices.shape(), dtype_name),), {"approximate": choices.flag()})


def _isinf(choices: Choices, dtype_name: str) -> Example:
    attrs = {"negative": not choices.flag(), "positive": not choices.flag()}
    return Example(ops.isinf, (choices.array(choices.shape(), dtype_name),), attrs)


def _where(choices: Choices, dtype_name: str) -> Example:
    first, second, third = choices.broadcasting(3)
    return Example(ops.where, (choices.array(first, "bool"), choices.array(second, dtype_name), choices.array(third, dtype_name)))


def _clip(choices: Choices, dtype_name: str) -> Example:
    low, high = choices.pick((1.0, 2.0), (0.0, math.inf), (-math.inf, 1.0), (2.0, 1.0))
    return Example(ops.clip, (choices.array(choices.shape(), dtype_name),), {"minimum": low, "maximum": high})


def _cast(choices: Choices, dtype_name: str) -> Example:
    target_dtypes = tuple(name for name in ("float32", *COMMON, "float8e4m3fn", "int4", "uint32") if name != dtype_name)
    attrs = {"dtype": choices.pick(*target_dtypes), "saturate": not choices.flag()}
    return Example(ops.cast, (choices.array(choices.shape(), dtype_name),), attrs)


def _bitcast(choices: Choices, dtype_name: str) -> Example:
    equals = {
        "float32": ("int32", "uint32"), "int32": ("float32",), "float64": ("int64",), "int64": ("float64", "uint64"),
        "float16": ("int16", "bfloat16"), "bfloat16": ("uint16", "float16"), "int8": ("uint8",), "uint8": ("int8", "float8e4m3fn"),
    }  # fmt: skip
    return Example(
        ops.bitcast, (choices.array(choices.shape(), dtype_name, -2.0, 3.0),), {"dtype": choices.pick(*equals[dtype_name])}
    )


ENTRIES = (
    *_entries(_FLOAT_FUNCTIONS, FLOATS_OF_ANY_WIDTH, exact=False),
    *_entries(_EXACT_FLOAT_FUNCTIONS, FLOATS_OF_ANY_WIDTH),
    *_entries(_NUMBER_FUNCTIONS, NUMBERS),
    *_entries(("bitwise_not",), INTEGERS),
    *_entries(("logical_not",), ("bool",)),
    *_entries(_EXACT_ARITHMETIC, NUMBERS, 2),
    *_entries(_ARITHMETIC, NUMBERS, 2, exact=False),
    *_entries(("equal",), (*NUMBERS, "bool"), 2),
    *_entries(_BITS, INTEGERS, 2),
    *_entries(_LOGIC, ("bool",), 2),
    Entry(ops.gelu, FLOATS_OF_ANY_WIDTH, _gelu),
    Entry(ops.isinf, FLOATS, _isinf, exact=True),
    Entry(ops.where, (*NUMBERS, "bool"), _where, exact=True, facets=_operands),
    Entry(ops.clip, NUMBERS, _clip, exact=True),
    Entry(ops.cast, tuple(name for name in DTYPES if name != "string"), _cast, exact=True),
    Entry(ops.bitcast, ("float32", "int32", "float64", "int64", "float16", "bfloat16", "int8", "uint8"), _bitcast, exact=True),
)
