"""Tests of the garbage collector's thresholds while something compiles."""

from __future__ import annotations

import gc
from collections.abc import Iterator

import pytest

from inlaid.support.collector import COLLECTIONS, rare_collections


@pytest.fixture(autouse=True)
def restore_thresholds() -> Iterator[None]:
    before = gc.get_threshold()
    yield
    gc.set_threshold(*before)


def test_thresholds_are_restored() -> None:
    gc.set_threshold(700, 10, 10)
    with rare_collections():
        assert gc.get_threshold() == COLLECTIONS
        with rare_collections():
            pass
        assert gc.get_threshold() == COLLECTIONS
    assert gc.get_threshold() == (700, 10, 10)
    with pytest.raises(ZeroDivisionError), rare_collections():
        raise ZeroDivisionError
    assert gc.get_threshold() == (700, 10, 10)


@pytest.mark.parametrize("rarer", [(0, 10, 10), (10_000_000, 10, 10)])
def test_what_is_rarer_stays(rarer: tuple[int, int, int]) -> None:
    gc.set_threshold(*rarer)
    with rare_collections():
        assert gc.get_threshold() == rarer
    assert gc.get_threshold() == rarer
