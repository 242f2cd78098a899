"""Resizing."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from inlaid import ops
from inlaid.graph.interp import evaluate
from inlaid.graph.ir import constant, function
from inlaid.ops.interpolation import COORDINATES, NEAREST
from inlaid_runtime.arith import SizeVar

from .harness import check, normal, raises_for, tolerance
from .test_conv import FLOATS

SETTINGS = settings(deadline=None, max_examples=40)

# Sums of a few inputs times weights of either sign, which for cubic kernels exceed 1.
LOOSE = {"float64": 1e-9, "float32": 1e-4, "float16": 2e-2, "bfloat16": 1e-1}


@SETTINGS
@given(
    st.integers(1, 5),
    st.integers(1, 6),
    st.integers(1, 6),
    st.sampled_from(("linear", "cubic")),
    st.sampled_from(COORDINATES),
    st.booleans(),
    st.booleans(),
    st.sampled_from(FLOATS),
)
def test_kernels(
    before: int, after: int, other: int, mode: str, coordinates: str, antialias: bool, exclude_outside: bool, dtype: str
) -> None:
    attrs = {"mode": mode, "coordinates": coordinates, "antialias": antialias, "exclude_outside": exclude_outside}
    crop = (0.0, 0.1, 0.0, 1.0, 0.8, 1.4) if coordinates == "tf_crop_and_resize" else ()
    check(
        ops.resize,
        normal((2, before, 3), dtype),
        shape=(2, after, other),
        crop=crop,
        outside=7.0,
        rtol=LOOSE[dtype],
        atol=LOOSE[dtype],
        **attrs,
    )


@SETTINGS
@given(
    st.integers(1, 5),
    st.integers(0, 9),
    st.sampled_from(COORDINATES),
    st.sampled_from(NEAREST),
    st.sampled_from(("float32", "uint8", "bool", "int64", "bfloat16")),
)
def test_nearest(before: int, after: int, coordinates: str, rounding: str, dtype: str) -> None:
    x = normal((before, 2), "uint8").astype(bool) if dtype == "bool" else normal((before, 2), dtype)
    crop = (0.1, 0.0, 0.9, 1.0) if coordinates == "tf_crop_and_resize" else ()
    result = check(ops.resize, x, shape=(after, 2), coordinates=coordinates, rounding=rounding, crop=crop)[0]
    if not crop:
        assert set(result.reshape(-1).tolist()) <= set(x.reshape(-1).tolist())


def exact_index(position: int, before: int, after: int, coordinates: str, rounding: str) -> int:
    """The source of an output position, in fractions."""
    half = Fraction(1, 2)
    place = Fraction(position * before, after) if coordinates == "asymmetric" else (position + half) * before / after - half
    if coordinates == "align_corners":
        place = Fraction(position * (before - 1), after - 1) if after > 1 else Fraction(0)
    low = math.floor(place)
    up = {"floor": False, "ceil": place > low, "round_prefer_floor": place - low > half, "round_prefer_ceil": place - low >= half}
    return min(max(low + up[rounding], 0), before - 1)


@pytest.mark.parametrize("rounding", NEAREST)
@pytest.mark.parametrize("coordinates", ["asymmetric", "half_pixel", "half_pixel_symmetric", "align_corners"])
def test_nearest_is_exact_where_sizes_are_given(coordinates: str, rounding: str) -> None:
    for before in range(1, 20):
        for after in range(1, 30):
            call = ops.resize(constant(np.arange(before)), shape=(after,), coordinates=coordinates, rounding=rounding)
            expected = [exact_index(position, before, after, coordinates, rounding) for position in range(after)]
            assert evaluate(function([], call), []).tolist() == expected, (before, after)
    result = check(ops.resize, np.arange(15), shape=(11,), coordinates=coordinates, rounding=rounding)[0]
    assert result.tolist() == [exact_index(position, 15, 11, coordinates, rounding) for position in range(11)]


@pytest.mark.parametrize(
    ("mode", "coordinates", "scale", "expected"),
    [
        ("nearest", "asymmetric", 2.0, [1, 1, 2, 2]),
        ("linear", "half_pixel", 2.0, [1, 1.25, 1.75, 2]),
        ("linear", "align_corners", 2.0, [1, 4 / 3, 5 / 3, 2]),
        ("linear", "asymmetric", 2.0, [1, 1.5, 2, 2]),
    ],
)
def test_two_elements_to_four(mode: str, coordinates: str, scale: float, expected: list[float]) -> None:
    x = np.array([1, 2], np.float32)
    result = check(ops.resize, x, shape=(4,), scales=(scale,), mode=mode, coordinates=coordinates, rounding="floor", rtol=1e-6)[0]
    np.testing.assert_allclose(result, expected, rtol=1e-6)


def test_integers_are_rounded_and_saturated() -> None:
    x = np.array([0, 255, 0, 255], np.uint8)
    result = check(ops.resize, x, shape=(9,), mode="cubic")[0]
    assert (result.min(), result.max()) == (0, 255)
    check(ops.resize, normal((5,), "int32"), shape=(3,), mode="linear", antialias=True)


def test_symbolic_sizes() -> None:
    n = SizeVar("n", 1)
    x = normal((1, 4))
    for mode in ("nearest", "linear", "cubic"):
        for coordinates in COORDINATES[:-1]:
            check(
                ops.resize,
                x,
                shapes=((1, n),),
                shape=(1, n * 2),
                mode=mode,
                coordinates=coordinates,
                exclude_outside=mode == "cubic",
                **tolerance("float32"),
            )


def test_resize_refuses() -> None:
    x = normal((2, 3))
    raises_for(ops.resize, "expected shape, scales and crop for 2 axes, got", x, shape=(2,))
    raises_for(ops.resize, "mode must be nearest, linear or cubic, got", x, shape=(2, 2), mode="area")
    raises_for(ops.resize, "coordinates and rounding must be", x, shape=(2, 2), coordinates="corner")
    raises_for(ops.resize, "antialias requires mode linear or cubic, got nearest", x, shape=(2, 2), antialias=True)
    raises_for(ops.resize, "dimension 0 of the input must be >= 1, got 0", normal((0,)), shape=(2,), mode="linear")
    raises_for(
        ops.resize,
        "the input must have a dtype of kind float or int or uint, got bool",
        x.astype(bool),
        shape=(2, 2),
        mode="linear",
    )


def test_a_single_element_of_a_crop_is_its_center() -> None:
    for extent in range(1, 60):
        call = ops.resize(
            constant(np.arange(extent, dtype=np.float64)),
            shape=(1,),
            mode="linear",
            coordinates="tf_crop_and_resize",
            crop=(0.0, 1.0),
        )
        assert evaluate(function([], call), []).tolist() == pytest.approx([(extent - 1) / 2])
