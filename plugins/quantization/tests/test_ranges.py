"""Histograms beside numpy's, and ranges beside their definitions, by brute force."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from inlaid_quantization.histogram import BINS, Histogram
from inlaid_quantization.ranges import ENTROPY_ENDS, Scale, choose_scale, compute_scales
from inlaid_quantization.settings import Quantization

ASYMMETRIC, SYMMETRIC = Quantization(), Quantization(activations="symmetric")


def counted(*parts: np.ndarray) -> Histogram:
    histogram = Histogram()
    for part in parts:
        histogram.add(part.astype(np.float32))
    return histogram


def drawn(kind: str, seed: int = 0, size: int = 20000) -> np.ndarray:
    generator = np.random.default_rng(seed)
    values = generator.standard_t(3, size) if kind == "tails" else generator.normal(size=size)
    return (np.maximum(values, 0) if kind == "relu" else values).astype(np.float32)


def squared_error(values: np.ndarray, scale: Scale) -> float:
    return float(np.square(scale.real_array(scale.stored_array(values)) - values, dtype=np.float64).sum())


# --- histograms -------------------------------------------------------------------------------------------------------


@given(st.lists(st.floats(-1e4, 1e4, width=32), min_size=1, max_size=60), st.integers(1, 59))
@settings(deadline=None, max_examples=50)
@example([0.0, 0.25], 1)
@example([4096.0, -1e-45], 1)
def test_counts_are_numpys_in_any_order(values: list[float], cut: int) -> None:
    array = np.array(values, np.float32)
    forwards, backwards, merged = counted(array[:cut], array[cut:]), counted(array[::-1]), counted(array[:cut])
    merged.merge(counted(array[cut:]))
    expected, _ = np.histogram(array[array != 0], forwards.edges)
    for each in (forwards, backwards, merged):
        assert each.reach == forwards.reach
        np.testing.assert_array_equal(each.counts, expected)
        assert (each.zeros, each.total) == (np.count_nonzero(array == 0), array.size)
        assert (each.least, each.greatest) == (array.min(), array.max())


@pytest.mark.parametrize("values", [[np.nan], [1.0, np.inf], [-np.inf]])
def test_what_is_not_finite_is_refused(values: list[float]) -> None:
    with pytest.raises(ValueError, match="NaN or infinity"):
        counted(np.array(values))


def test_denormals_and_huge_values_are_counted() -> None:
    histogram = counted(np.array([1e-45, -1e-40]), np.array([3e38, 0.0]))
    assert (histogram.total, histogram.zeros, histogram.greatest) == (4, 1, float(np.float32(3e38)))


# --- scales -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("calibration", ["minmax", "percentile", "entropy", "mse"])
@pytest.mark.parametrize("values", [[0.0, 0.0], []])
def test_nothing_but_zeros_has_the_scale_one(calibration: str, values: list[float]) -> None:
    assert choose_scale(counted(np.array(values)), Quantization(calibration)) == Scale(1.0, 0)


@pytest.mark.parametrize("calibration", ["minmax", "percentile", "entropy", "mse"])
@pytest.mark.parametrize("value", [5.0, -0.25])
def test_a_constant_is_stored_well(calibration: str, value: float) -> None:
    array = np.full(1000, value, np.float32)
    scale = choose_scale(counted(array), Quantization(calibration))
    assert np.abs(scale.real_array(scale.stored_array(array)) - value).max() <= abs(value) / 250


@given(st.floats(-1e3, 1e3), st.floats(-1e3, 1e3), st.sampled_from(["any", "power_of_two"]))
@settings(deadline=None, max_examples=60)
def test_ranges_are_covered_and_zero_is_exact(low: float, high: float, scales: str) -> None:
    for activations in ("asymmetric", "symmetric"):
        factors, points = compute_scales(np.array([low]), np.array([high]), Quantization(scales=scales, activations=activations))
        scale = Scale(float(factors[0]), int(points[0]))
        assert scale.real_array(np.array([scale.stored(0.0)], np.int8))[0] == 0
        assert scale.scale == np.float32(scale.scale)
        for end in (min(low, 0), max(high, 0)):
            assert abs((scale.stored(end) - scale.zero_point) * scale.scale - end) <= scale.scale * 0.51
        if scales == "power_of_two":
            assert math.frexp(scale.scale)[0] == 0.5
        if activations == "symmetric":
            assert scale.zero_point == 0


def test_a_relu_has_all_values() -> None:
    scale = choose_scale(counted(drawn("relu")), ASYMMETRIC)
    assert scale.zero_point == -128
    assert scale.scale == pytest.approx(drawn("relu").max() / 255, rel=1e-6)


# --- calibration ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["normal", "tails", "relu"])
def test_percentiles_are_numpys(kind: str) -> None:
    values = drawn(kind)
    histogram = counted(values)
    scale = choose_scale(histogram, Quantization("percentile", percentile=99.5))
    width = 2 * histogram.reach / BINS
    # A value more or less on either side: numpy and a histogram part ties differently.
    inner, outer = (np.quantile(values, [0.005 + d, 0.995 - d], method="inverted_cdf") for d in (2e-4, -2e-4))
    narrow, wide = (max(high, 0) - min(low, 0) for low, high in (inner, outer))
    assert narrow - width <= scale.scale * 255 <= wide + width


@pytest.mark.parametrize("chosen", [ASYMMETRIC, SYMMETRIC])
@pytest.mark.parametrize("kind", ["normal", "tails", "relu"])
def test_the_squared_error_is_the_least_there_is(kind: str, chosen: Quantization) -> None:
    """Of 12 x 12 ranges, each tried on the values themselves, none is better by more than the width of bins allows."""
    values = drawn(kind, size=40000 if kind == "tails" else 4000)
    scale = choose_scale(counted(values), Quantization("mse", activations=chosen.activations))
    parts = np.arange(1, 13) / 12
    lows, highs = np.meshgrid(parts * min(values.min(), 0), parts * values.max())
    scales, points = compute_scales(lows.reshape(-1), highs.reshape(-1), chosen)
    best = min(squared_error(values, Scale(float(s), int(p))) for s, p in zip(scales, points, strict=True))
    assert squared_error(values, scale) <= 1.02 * best
    if kind == "tails":
        assert squared_error(values, scale) < 0.95 * squared_error(values, choose_scale(counted(values), chosen))


def slow_divergence(histogram: Histogram, scale: Scale) -> float:
    """The definition, bin by bin."""
    levels: dict[int, list[int]] = {}
    clipped: dict[int, float] = {}
    middles = (histogram.edges[:-1] + histogram.edges[1:]) / 2
    inside = [index for index in range(BINS) if -128 <= round(middles[index] / scale.scale) + scale.zero_point <= 127]
    for index in range(BINS):
        nearest = min(max(index, inside[0]), inside[-1])
        clipped[nearest] = clipped.get(nearest, 0) + int(histogram.counts[index])
    for index in inside:
        levels.setdefault(round(middles[index] / scale.scale), []).append(index)
    inside_count = sum(int(histogram.counts[index]) for index in inside)
    total = 0.0
    for indices in levels.values():
        filled = [index for index in indices if histogram.counts[index]]
        share = sum(int(histogram.counts[index]) for index in filled) / max(len(filled), 1) / inside_count
        for index in indices:
            p = clipped.get(index, 0) / histogram.counts.sum()
            if p:
                total += p * math.log(p / (share if histogram.counts[index] else 1e-12))
    return total


@pytest.mark.parametrize("kind", ["tails", "relu"])
def test_the_divergence_is_the_least_there_is(kind: str) -> None:
    values = drawn(kind, size=100_000)
    histogram = counted(values)
    scale = choose_scale(histogram, Quantization("entropy"))
    parts = np.arange(ENTROPY_ENDS, 0, -1) / ENTROPY_ENDS
    scales, points = compute_scales(parts * histogram.least, parts * histogram.greatest, ASYMMETRIC)
    tried = [Scale(float(s), int(p)) for s, p in zip(scales, points, strict=True)]
    divergences = [slow_divergence(histogram, each) for each in tried]
    assert scale == tried[int(np.argmin(divergences))]
    assert scale.scale < choose_scale(histogram, ASYMMETRIC).scale or kind == "relu"
