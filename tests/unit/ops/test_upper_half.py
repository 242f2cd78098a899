"""Upper halves of products of 64 bits."""

from __future__ import annotations

import numpy as np
import pytest

from inlaid.ops.upper_half import multiply_high
from inlaid_runtime.errors import TypeInferenceError

from .generate import agree

INT32 = np.iinfo(np.int32)


@pytest.mark.parametrize("axis", [0, 1])
@pytest.mark.parametrize("away", [False, True])
def test_the_operator(axis: int, away: bool) -> None:
    generator = np.random.default_rng(2)
    x = generator.integers(INT32.min, INT32.max, (3, 5), np.int32, endpoint=True)
    count = x.shape[axis]
    agree(
        multiply_high,
        x,
        generator.integers(0, INT32.max, count, np.int32),
        generator.integers(0, 1 << 29, count, np.int32),
        generator.integers(0, 31, count, np.int32) if axis else np.int32(3),
        low=(3 if axis else 1) << 30,
        axis=axis,
        away=away,
    )
    with pytest.raises(TypeInferenceError, match="int32"):
        agree(multiply_high, x, *(np.zeros((), np.int64),) * 3, low=0)
    with pytest.raises(TypeInferenceError, match="dimension 0 of the multiplier must be 3, got 2"):
        agree(multiply_high, x, np.zeros(2, np.int32), *(np.zeros((), np.int32),) * 2, low=0)
