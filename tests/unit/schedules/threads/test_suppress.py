"""Non-maximum suppression on grids of threads."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from inlaid import ops
from inlaid.plugins import Capabilities
from inlaid_runtime import arith
from inlaid_runtime.arith import Dim

from .interpreter_checks import CLASSES, planted_races
from .threaded import Threaded

B, N = arith.SizeVar("b", 0, 10), arith.SizeVar("n", 0, 1000)


def suppression(able: Capabilities, batches: Dim, classes: int, boxes: Dim, max_output: int, center: bool = False) -> Threaded:
    shapes = ((batches, boxes, 4), (batches, classes, boxes), (), ())
    return Threaded(ops.non_max_suppression, able, *((shape, "float32") for shape in shapes), max_output=max_output, center=center)


def arrays_for(batches: int, classes: int, boxes: int, limits: tuple[float, float] = (0.3, 0.2), seed: int = 0) -> list[np.ndarray]:
    """Many equal scores, of which some are NaN."""
    random = np.random.default_rng(seed)
    scores = random.integers(0, 12, (batches, classes, boxes)) / np.float32(12)
    scores[..., ::7] = np.nan
    return [random.random((batches, boxes, 4), np.float32), scores.astype(np.float32), *map(np.float32, limits)]


@pytest.mark.parametrize("able", CLASSES.values(), ids=CLASSES)
@pytest.mark.parametrize(("max_output", "center"), [(1, False), (4, True), (100, False)])
def test_boxes(able, max_output, center):
    kernel = suppression(able, 2, 3, 50, max_output, center)
    for limits in ((0.3, 0.2), (0.0, -1.0), (2.0, 0.5), (0.3, 2.0), (0.3, np.nan), (np.nan, 0.2)):
        kernel.check(arrays_for(2, 3, 50, limits))


@pytest.fixture(scope="module", params=CLASSES.values(), ids=CLASSES)
def any_size_kernel(request):
    return suppression(request.param, B, 2, N, 10)


@settings(deadline=None, max_examples=10)
@given(batches=st.integers(0, 2), boxes=st.integers(0, 80), seed=st.integers(0, 99))
def test_any_size(any_size_kernel, batches, boxes, seed):
    any_size_kernel.check(arrays_for(batches, 2, boxes, seed=seed), {B: batches, N: boxes}, seed=seed)


def test_barriers_of_any_size(any_size_kernel):
    assert planted_races(any_size_kernel.split) == []
