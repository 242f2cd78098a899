"""Values that callers hand in."""

from __future__ import annotations

import ctypes
from typing import Any

import numpy as np
import onnx.parser
import pytest

import inlaid
from inlaid_runtime import Executable
from inlaid_runtime.artifact import ALIGNMENT
from inlaid_runtime.errors import InputError
from inlaid_runtime.execution.arrays import Results, address, put_addresses
from inlaid_runtime.types import DTYPES, dtype


@pytest.fixture(scope="module")
def joining() -> Executable:
    text = '<ir_version: 8, opset_import: ["" : 20]> g (string[n] a, string[n] b) => (string[n] y) { y = StringConcat(a, b) }'
    return inlaid.compile(onnx.parser.parse_model(text), targets=["reference"])


@pytest.mark.parametrize(
    "value",
    [
        ["x", "é"],
        np.array(["x", "é"]),
        np.array(["x", "é"], object),
        np.array(["x", "é"], np.dtypes.StringDType()),
        [b"x", "é".encode()],
        np.array([b"x", "é".encode()]),
        np.array(["x", "é".encode()], object),
    ],
)
def test_strings_in_all_their_forms(joining: Executable, value: Any) -> None:
    actual = joining.run({"a": value, "b": ["1", "2"]})["y"]
    assert actual.tolist() == ["x1", "é2"] and all(type(item) is str for item in actual)


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ([1, 2], r"\[1, 2\], but must have .*string"),
        (np.array([1, 2]), "element type int64, but must have string"),
        (np.array(["x", 2], object), "input 'a' must hold strings, got 2"),
        (np.array(["x", None], object), "input 'a' must hold strings, got None"),
        ([b"x", b"\xff"], "input 'a' holds bytes that are not UTF-8"),
        ("x", r"has shape \(\), the model expects \(n,\)"),
        (None, "string"),
    ],
)
def test_what_is_no_string_is_refused(joining: Executable, value: Any, message: str) -> None:
    with pytest.raises(InputError, match=message):
        joining.run({"a": value, "b": ["1", "2"]})


def test_sequences_of_strings_stay_sequences() -> None:
    text = '<ir_version: 8, opset_import: ["" : 20]> g (seq(string[n]) s, int64 i) => (string[k] y) { y = SequenceAt(s, i) }'
    model = inlaid.compile(onnx.parser.parse_model(text), targets=["reference"])
    parts = [np.array(["a"], object), np.array(["b", "c"], object)]
    assert model.run({"s": parts, "i": np.array(1)})["y"].tolist() == ["b", "c"]


def test_addresses_are_those_of_the_array_interface() -> None:
    fixed = np.arange(6, dtype=np.float32)
    fixed.flags.writeable = False
    arrays = [
        fixed, fixed[2:], np.array(4), np.empty((5, 0)), np.zeros(3, dtype("bfloat16").numpy), np.zeros(2, bool),
        np.ones((2, 3)).view(np.matrix), np.array(["a", None], object),
    ]  # fmt: skip
    pointers = (ctypes.c_void_p * len(arrays))()
    put_addresses(pointers, arrays)
    expected = [array.__array_interface__["data"][0] for array in arrays]
    assert list(pointers) == expected
    assert list(map(address, arrays)) == expected


@pytest.mark.parametrize("name", [name for name in DTYPES if name != "string"])
def test_pooled_memory_of_each_element_type(name):
    """numpy does not read the names of all element types that extensions define."""
    pool, element = Results(), dtype(name).numpy
    for _ in range(2):
        array = pool.empty(0, (3, 5), element)
        assert array.dtype == element and array.shape == (3, 5) and address(array) % ALIGNMENT == 0
        del array
