"""Examples of operators on sequences, optionals and strings, which run only on the host."""

from __future__ import annotations

from typing import Any

import numpy as np

from inlaid import ops
from inlaid_conformance.corpus.example import Choices, Entry, Example
from inlaid_runtime.types import OptionalType, SequenceType, TensorType, Type

_WORDS = np.array(["one", "Two", "3", ""], object)
_TEXT = TensorType((4,), "string")


def _text(name: str, count: int = 1, **attrs: Any) -> Entry:
    def make(choices: Choices, dtype_name: str) -> Example:
        return Example(ops.TABLE[name], (_WORDS,) * count, attrs, dict.fromkeys(range(count), _TEXT))

    return Entry(ops.TABLE[name], ("string",), make, exact=True)


def _on_sequence(name: str, *more_arguments: Any, **attrs: Any) -> Entry:
    def make(choices: Choices, dtype_name: str) -> Example:
        items = [choices.array((3, 4), dtype_name) for _ in range(3)]
        sequence_type = SequenceType(TensorType((3, 4), dtype_name))
        arguments = tuple(choices.array((3, 4), dtype_name) if item is _ITEM else item for item in more_arguments)
        return Example(ops.TABLE[name], (items, *arguments), attrs, {0: sequence_type})

    return Entry(ops.TABLE[name], ("float32", "int64"), make, exact=True)


def _on_optional(name: str, **attrs: Any) -> Entry:
    def make(choices: Choices, dtype_name: str) -> Example:
        optional_type: Type = OptionalType(TensorType((3, 4), dtype_name))
        return Example(ops.TABLE[name], (choices.array((3, 4), dtype_name),), attrs, {0: optional_type})

    return Entry(ops.TABLE[name], ("float32",), make, exact=True)


def _on_tensors(name: str, count: int, **attrs: Any) -> Entry:
    def make(choices: Choices, dtype_name: str) -> Example:
        return Example(ops.TABLE[name], tuple(choices.array((3, 4), dtype_name) for _ in range(count)), attrs)

    return Entry(ops.TABLE[name], ("float32",), make, exact=True)


_ITEM = object()
_LAST = np.array(-1)

ENTRIES = (
    _on_tensors("sequence_empty", 0),
    _on_tensors("sequence_construct", 2),
    _on_sequence("sequence_insert", _ITEM, _LAST),
    _on_sequence("sequence_erase", _LAST),
    _on_sequence("sequence_at", _LAST),
    _on_sequence("sequence_length"),
    _on_sequence("sequence_join", axis=1),
    _on_tensors("sequence_split", 1, axis=0, keepdims=False),
    _on_tensors("optional_none", 0, kinds=("optional",), dtype="float32", shape=(3, 4)),
    _on_tensors("optional_some", 1),
    _on_optional("optional_has"),
    _on_optional("optional_get"),
    _on_optional("host_widen", kinds=("optional",), dtype="float32", shape=(3, -1)),
    _text("string_concat", 2),
    _text("string_equal", 2),
    _text("string_split", delimiter="e"),
    _text("string_normalize", case="UPPER"),
    _text("regex_full_match", pattern="[a-z]+"),
    _on_tensors("string_cast", 1, dtype="string"),
    _text("lookup", keys=("one", "3"), values=(1, 3), default=0, dtype="int64"),
)
