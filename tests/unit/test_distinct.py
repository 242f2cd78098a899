"""Recognition of equal arrays."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

from inlaid_runtime.distinct import DistinctArrays


def numbers(*arrays):
    distinct = DistinctArrays()
    keys = [distinct.add(np.asarray(array)) for array in arrays]
    assert len(distinct) == len(set(keys))
    return keys


def test_equal_arrays_share_a_number():
    array = np.arange(6, dtype=np.float32).reshape(2, 3)
    assert numbers(array, array.copy(), array + 1, array[:]) == [0, 0, 1, 0]
    assert numbers(array.T, np.ascontiguousarray(array.T), array.reshape(3, 2)) == [0, 0, 1]


def test_dtypes_and_shapes_differ():
    zeros = np.zeros(4, np.int8)
    assert numbers(zeros, zeros.view(np.uint8), zeros.astype(ml_dtypes.int4), zeros.reshape(2, 2), zeros[:0]) == [0, 1, 2, 3, 4]


def test_bytes_are_compared():
    assert numbers(0.0, -0.0, np.nan, np.nan, np.float32(np.nan)) == [0, 1, 2, 2, 3]


@pytest.mark.parametrize("index", [0, 1, 4999, 9999])
def test_one_element_of_many_differs(index):
    large = np.zeros((100, 100), ml_dtypes.bfloat16)
    other = large.copy()
    other.reshape(-1)[index] = 1
    assert numbers(large, other, other.copy(), large.copy()) == [0, 1, 1, 0]


def test_strings():
    texts = np.array(["a", "b"], object)
    assert numbers(texts, texts.copy(), texts.reshape(2, 1), np.array(["a", b"b"], object), texts[::-1]) == [0, 0, 1, 2, 3]
