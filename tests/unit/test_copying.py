"""Copies by several threads."""

from __future__ import annotations

import numpy as np
import pytest

from inlaid_runtime import copying


@pytest.mark.parametrize("shape", [(7, 5, 3), (1, 2, 1), (64, 3, 2), (2, 3, 64), (0, 4, 2)])
def test_copies_are_row_major(shape, monkeypatch):
    monkeypatch.setattr(copying, "_LARGE", 1)
    array = np.arange(np.prod(shape), dtype=np.int32).reshape(shape)
    for source in (array, array.transpose(2, 0, 1), array[::-1], np.broadcast_to(array[:1], shape)):
        contiguous_copy = copying.contiguous(source)
        assert contiguous_copy.flags.c_contiguous and contiguous_copy.dtype == source.dtype
        np.testing.assert_array_equal(contiguous_copy, source)
    assert copying.contiguous(array) is array
    for large in (1, 1 << 20):
        monkeypatch.setattr(copying, "_LARGE", large)
        copy = copying.copied(array)
        assert copy.flags.c_contiguous and not np.shares_memory(copy, array)
        np.testing.assert_array_equal(copy, array)


def test_strings_are_copied(monkeypatch):
    monkeypatch.setattr(copying, "_LARGE", 1)
    assert copying.contiguous(np.array(["a", "b", "c"], object)[::-1]).tolist() == ["c", "b", "a"]
