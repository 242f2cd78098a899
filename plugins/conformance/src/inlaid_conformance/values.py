"""Random arrays of every element type, with ordinary, special or extreme values."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

import ml_dtypes
import numpy as np

from inlaid_runtime.types import DType, dtype

Array = np.ndarray[Any, Any]
Mix = Literal["plain", "special", "edge", "full", "small"]
"""plain: finite values of small magnitude. special: also signed zeros, infinities and NaN. edge: the extremes of the type,
denormals, and integers over the whole range, so that arithmetic wraps around. Two mixes are for integers in products. full: mostly
one extreme, so that sums fill the accumulator. small: 1 and -1, so that a requantization shifts to the left. Other values are plain
in these two."""

MIXES: tuple[Mix, ...] = ("plain", "special", "edge")
"""Mixes with which every example is run."""

FULL = 0.9
"""Share of the elements that have the extreme value in the mix "full"."""


def random_array(
    seed: int, shape: Sequence[int], element: str | DType, low: float | None = None, high: float | None = None, mix: Mix = "plain"
) -> Array:
    """Draw random values of an element type, in [low, high] if given, else of a mix."""
    rng, element, shape = np.random.default_rng(seed), dtype(element), tuple(shape)
    if low is not None or high is not None:
        mix = "plain"
    if element.kind == "bool":
        return rng.random(shape) < 0.5
    if element.is_int:
        return _integers(rng, shape, element, low, high, mix)
    values = np.asarray(rng.uniform(-4.0 if low is None else low, 4.0 if high is None else high, shape))
    with np.errstate(all="ignore"):
        # Drawn in float64 and rounded as a computation in float32 would.
        array: Array = values.astype(np.float32 if element.bits < 32 else element.numpy).astype(element.numpy)
        if mix in ("plain", "full", "small"):
            return array
        specials = _special(element) if mix == "special" else _edges(element)
        return _among(rng, array, specials)


def _integers(
    rng: np.random.Generator, shape: tuple[int, ...], element: DType, low: float | None, high: float | None, mix: Mix
) -> Array:
    least, greatest = element.limits
    if mix == "edge":
        wide = rng.integers(least, greatest, shape, endpoint=True, dtype=element.numpy if element.bits >= 8 else np.int64)
        edges = np.array([least, greatest, 0, 1, max(least, -1)], element.numpy if element.bits >= 8 else np.int64)
        return _among(rng, wide.astype(element.numpy), edges)
    first, last = max(least, -8 if low is None else int(low)), min(greatest, 8 if high is None else int(high))
    return rng.integers(first, last, shape, endpoint=True).astype(element.numpy)


def factors(seed: int, shape: Sequence[int], dtype_name: str, number: int, mix: Mix) -> Array:
    """Draw operand `number` of a product: values with well-conditioned sums, finite floats around 1, or 8-bit integers of the whole
    range. In the mix "edge", operands of float16 are denormals and great values, with products around 1, so that a target that
    flushes denormals loses whole products. Those of float32 and bfloat16 are too small to matter, and processors' instructions for
    products of bfloat16 flush them."""
    element, rng = dtype(dtype_name), np.random.default_rng(seed)
    if element.is_float:
        if mix == "edge" and dtype_name == "float16":
            signs = rng.choice([-1.0, 1.0], tuple(shape))
            values = signs * (
                rng.uniform(1, 1023, tuple(shape)) * 2.0**-24 if number == 0 else rng.uniform(0.1, 1, tuple(shape)) * 2.0**14
            )
            return np.asarray(values).astype(element.numpy)
        return random_array(seed, shape, dtype_name, -1.0, 1.0)
    least, greatest = element.limits if element.is_int else (0, 1)
    least, greatest = max(least, -128), min(greatest, 255)
    if mix == "small":
        return np.where(rng.integers(0, 2, tuple(shape)) > 0, 1, max(least, -1)).astype(element.numpy)
    array = random_array(seed, shape, dtype_name, least, greatest)
    if mix == "full":
        extreme = greatest if least == 0 or rng.integers(2) else least
        return np.where(rng.random(tuple(shape)) < FULL, np.asarray(extreme, array.dtype), array)
    return array


def _among(rng: np.random.Generator, array: Array, specials: Array) -> Array:
    """Replace random elements by the given values, each at least once if possible."""
    flat = array.reshape(-1).copy()
    positions = rng.permutation(flat.size)[: max(2 * flat.size // 5, min(flat.size, specials.size))]
    flat[positions] = np.resize(specials, positions.size).astype(array.dtype)
    return flat.reshape(array.shape)


def _special(element: DType) -> Array:
    with np.errstate(all="ignore"):
        return np.array([0.0, -0.0, np.inf, -np.inf, np.nan, 1.0, -1.0], np.float32).astype(element.numpy)


def _edges(element: DType) -> Array:
    """Return the extreme normal values, two denormals, and their negatives."""
    facts: Any = ml_dtypes.finfo(element.numpy)  # type: ignore[no-untyped-call]
    least = float(facts.smallest_subnormal)
    positive = np.array([float(facts.max), float(facts.tiny), least, 3 * least])
    with np.errstate(all="ignore"):
        return np.concatenate([positive, -positive]).astype(element.numpy)
