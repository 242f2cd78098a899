"""Deviation of a result from the reference: the greatest difference, its index, and the number of differing elements."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from inlaid.plugins.contract import Tolerance
from inlaid_runtime.types import TensorType

Array = np.ndarray[Any, Any]

RELATIVE = {"float64": 1e-6, "float32": 1e-3, "float16": 1e-2, "bfloat16": 5e-2}
"""Greatest allowed difference divided by the reference's greatest magnitude, by element type. The bound of float32 is that of whole
models, since a region may be a whole model. Integers must be equal."""
ABSOLUTE = 1e-5
"""Absolute difference that is always allowed."""
NARROW = 0.25
"""The bound of `RELATIVE` for floats of at most eight bits."""


@dataclass(frozen=True)
class Deviation:
    """The deviation of a result from the reference.

    `error` describes a deviation beyond the tolerance; None if within. `worst` is the greatest difference of an element; infinite
    if the results are not comparable: shapes differ, NaN or infinity at different indices, or the target fails. `at` is the index
    of `worst`; `relative` is `worst` divided by the greatest magnitude of the reference, for floats. `unlike` of `size` elements
    differ. `excess` is greater than 1 if `error` is set.
    """

    error: str | None = None
    worst: float = 0.0
    relative: float | None = None
    at: tuple[int, ...] = ()
    unlike: int = 0
    size: int = 0
    excess: float = 0.0

    def __str__(self) -> str:
        if math.isinf(self.worst):
            return self.error or "it differs"
        if not self.unlike:
            return "no difference"
        if self.relative is None:
            amount = f"{int(self.worst)} step{'' if self.worst == 1 else 's'}"
        else:
            amount = f"{self.worst:.3g} ({self.relative:.2g} of the greatest value)"
        return f"at most {amount} at {list(self.at)}, {self.unlike} of {self.size} elements differ"


def failed(error: str) -> Deviation:
    """Return the deviation of a result that is missing or cannot be compared."""
    return Deviation(error, math.inf, excess=math.inf)


def deviation(type_: TensorType, expected: Array, actual: Array, allowed: Tolerance | None = None) -> Deviation:
    """Compare array `actual` with the expected array `expected`. Without `allowed`, the tolerance of whole models applies."""
    if expected.shape != actual.shape:
        return failed(f"expected shape {expected.shape}, got {actual.shape}")
    if not type_.dtype.is_float:
        return _integer_deviation(type_, expected, actual, 0 if allowed is None else allowed.steps)
    a, b = expected.astype(np.float64), actual.astype(np.float64)
    equal = (a == b) | (np.isnan(a) & np.isnan(b))
    unlike = int(np.count_nonzero(~equal))
    if not unlike:
        return Deviation(size=a.size)
    finite = np.isfinite(a)
    mismatched = (finite != np.isfinite(b)) | (~finite & ~equal)
    if mismatched.any():
        return Deviation("NaN or infinity at different places", math.inf, None, _first(mismatched), unlike, a.size, math.inf)
    differences = np.abs(np.where(finite, a, 0) - np.where(finite, b, 0))
    at = _first(differences == differences.max())
    worst, greatest = float(differences[at]), float(np.max(np.abs(a[finite])))
    limit = allowed or Tolerance(type_.dtype.name, RELATIVE.get(type_.dtype.name, NARROW), ABSOLUTE)
    bound = limit.relative * greatest + limit.absolute
    error = f"by {worst:.3g}, expected at most {bound:.3g}" if worst > bound else None
    relative = worst / greatest if greatest else math.inf
    return Deviation(error, worst, relative, at, unlike, a.size, worst / bound if bound else math.inf)


def _integer_deviation(type_: TensorType, expected: Array, actual: Array, steps: int) -> Deviation:
    if not type_.dtype.is_int or actual.dtype != expected.dtype:
        differs = expected != actual
        unlike_count = int(np.count_nonzero(differs))
        if not unlike_count:
            return Deviation(size=expected.size)
        return Deviation(
            f"{unlike_count} of {expected.size} elements", 1.0, None, _first(differs), unlike_count, expected.size, math.inf
        )
    # The distance of two int64 needs up to 64 unsigned bits.
    a, b = (each if each.dtype.itemsize == 8 else each.astype(np.int64) for each in (expected, actual))
    differences = (np.maximum(a, b) - np.minimum(a, b)).astype(np.uint64)
    unlike = int(np.count_nonzero(differences))
    if not unlike:
        return Deviation(size=expected.size)
    worst, excess_count = int(differences.max()), int(np.count_nonzero(differences > steps))
    bound = f", expected at most {steps}" if steps else ""
    error = f"{excess_count} of {expected.size} elements, by up to {worst} steps{bound}" if excess_count else None
    excess = worst / steps if steps else math.inf
    return Deviation(error, worst, None, _first(differences == worst), unlike, expected.size, excess)


def _first(where: Array) -> tuple[int, ...]:
    return tuple(int(each) for each in np.unravel_index(int(np.argmax(where)), where.shape))
