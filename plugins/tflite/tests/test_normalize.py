"""Softmax, normalizations and pools beside LiteRT."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from inlaid_tflite.convert.normalize import CONVERTERS as NORMALIZE
from inlaid_tflite.convert.pool import CONVERTERS as POOL

from .build import Options, Tensor, check_litert, drawn, single
from .test_elements import STORED, TOLERANCE, cases, seeds, stands_for

QUICK = settings(max_examples=8, deadline=None, derandomize=True)
RESULTS = {
    "SOFTMAX": {"int8": (1 / 256, -128), "uint8": (1 / 256, 0), "int16": (1 / 32768, 0)},
    "LOG_SOFTMAX": {"int8": (16 / 256, 127), "uint8": (16 / 256, 255)},
    "L2_NORMALIZATION": {"int8": (1 / 128, 0), "uint8": (1 / 128, 128)},
}
"""The scale and the zero point that LiteRT wants of a result."""


@pytest.mark.parametrize(("name", "dtype"), cases(NORMALIZE))
@QUICK
@given(seeds)
def test_normalization(name: str, dtype: str, seed: int) -> None:
    generator = np.random.default_rng(seed)
    shape = (*map(int, generator.integers(1, 4, 3)), int(generator.integers(1, 40)))
    a = stands_for(dtype, generator, -1)
    result: dict[str, Any] = {}
    if dtype in STORED:
        result = dict(zip(("scale", "zero_point"), RESULTS[name][dtype], strict=True))
    options: dict[str, Options] = {
        "SOFTMAX": ("SoftmaxOptions", {"beta": float(generator.choice([1.0, 0.5, 2.0]))}),
        "LOG_SOFTMAX": ("LogSoftmaxOptions", {}),
        "L2_NORMALIZATION": ("L2NormOptions", {}),
        "LOCAL_RESPONSE_NORMALIZATION": (
            "LocalResponseNormalizationOptions",
            {"radius": int(generator.integers(0, 4)), "bias": 1.5, "alpha": 0.3, "beta": 0.7},
        ),
    }
    data = single(name, [Tensor(shape, dtype, **a)], Tensor(shape, dtype, **result), options[name])
    check_litert(data, [drawn(dtype, shape, generator)], TOLERANCE.get(dtype, 1e-4))


@pytest.mark.parametrize(("name", "dtype"), cases(POOL))
@QUICK
@given(seeds, st.booleans())
def test_pools(name: str, dtype: str, seed: int, padded: bool) -> None:
    generator = np.random.default_rng(seed)
    high, wide, channels = (int(each) for each in generator.integers(4, 9, 3))
    rows, columns, stride = (int(each) for each in generator.integers(1, 4, 3))
    shape = tuple(-(-size // stride) if padded else (size - taps) // stride + 1 for size, taps in ((high, rows), (wide, columns)))
    a = stands_for(dtype, generator, -1)
    fields = {"filterHeight": rows, "filterWidth": columns, "strideH": stride, "strideW": stride, "padding": 0 if padded else 1}
    fields["fusedActivationFunction"] = int(generator.integers(4))
    x = drawn(dtype, (2, high, wide, channels), generator)
    data = single(name, [Tensor(x.shape, dtype, **a)], Tensor((2, *shape, channels), dtype, **a), ("Pool2DOptions", fields))
    check_litert(data, [x], 1e-4)


@pytest.mark.parametrize(
    ("scale", "row"),
    [(0.131, [38, -21, 27, 0, -122, -20]), (0.047, [123, 43, 58, -127, 117, 109]), (0.161, [111, 34, -79, 108, 80])],
)
def test_logarithms_of_softmax_are_rounded_step_by_step(scale: float, row: list[int]) -> None:
    """Rows that come out one step away where the steps are taken in another order."""
    x = Tensor((len(row),), "int8", scale=scale, zero_point=3)
    data = single("LOG_SOFTMAX", [x], Tensor(x.shape, "int8", scale=1 / 16, zero_point=127), ("LogSoftmaxOptions", {}))
    check_litert(data, [np.array(row, np.int8)])
