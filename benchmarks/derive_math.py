"""Derives the polynomial coefficients of `inlaid.tensor.math.polynomials` and prints that module.

    pip install mpmath
    python benchmarks/derive_math.py > core/inlaid/tensor/math/polynomials.py
    ruff format core/inlaid/tensor/math/polynomials.py

Each polynomial is the weighted minimax approximation of a function that is left when exact leading terms are taken off, found by
the exchange algorithm of Remez (E. Ya. Remez, 1934; as in J.-M. Muller, "Elementary Functions", chapter 3) in 60-digit arithmetic
and rounded to the format. The error printed beside each is that of the unrounded polynomial, relative to the whole function.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import mpmath
from mpmath import mpf

mpmath.mp.dps = 60
Function = Callable[[mpf], mpf]


@dataclass(frozen=True)
class Fit:
    """`function` on [low, high] as a polynomial of a degree; `weight` turns its error into the error to level."""

    name: str
    meaning: str
    function: Function
    weight: Function
    low: mpf
    high: mpf
    degree: dict[int, int]


def remez(fit: Fit, degree: int) -> tuple[list[mpf], mpf]:
    """Coefficients, lowest first, and the largest weighted error."""
    count = degree + 2
    middle, half = (fit.low + fit.high) / 2, (fit.high - fit.low) / 2
    points = [middle - half * mpmath.cos(mpmath.pi * k / (count - 1)) for k in range(count)]
    coefficients: list[mpf] = []
    for _ in range(12):
        matrix = mpmath.matrix(count, count)
        right = mpmath.matrix(count, 1)
        for row, x in enumerate(points):
            for column in range(degree + 1):
                matrix[row, column] = x**column
            matrix[row, degree + 1] = (-1) ** row / fit.weight(x)
            right[row] = fit.function(x)
        solution = mpmath.lu_solve(matrix, right)
        coefficients = [solution[k] for k in range(degree + 1)]

        def error(x: mpf, coefficients: list[mpf] = coefficients) -> mpf:
            return (mpmath.polyval(coefficients[::-1], x) - fit.function(x)) * fit.weight(x)

        grid = [middle - half * mpmath.cos(mpmath.pi * k / 1200) for k in range(1201)]
        values = [error(x) for x in grid]
        peaks: list[tuple[mpf, mpf]] = []
        for x, value in zip(grid, values, strict=True):
            if peaks and (peaks[-1][1] >= 0) == (value >= 0):
                if abs(value) > abs(peaks[-1][1]):
                    peaks[-1] = (x, value)
            else:
                peaks.append((x, value))
        while len(peaks) > count:
            peaks.pop(0 if abs(peaks[0][1]) < abs(peaks[-1][1]) else -1)
        if len(peaks) < count:
            break
        largest, least = max(abs(v) for _, v in peaks), min(abs(v) for _, v in peaks)
        points = [x for x, _ in peaks]
        if largest / least < mpf("1.001"):
            break
    worst = max(abs((mpmath.polyval(coefficients[::-1], x) - fit.function(x)) * fit.weight(x)) for x in grid)
    return coefficients, worst


def series_safe(function: Function, at_zero: mpf) -> Function:
    """A function with a removable singularity at 0."""
    return lambda x: at_zero if abs(x) < mpf("1e-25") else function(x)


HALF_LN2 = mpmath.log(2) / 2 * mpf("1.0001")
ROOT = mpmath.sqrt(2) - 1
QUARTER = mpmath.pi / 4 * mpf("1.0001")
TAN_EIGHTH = mpmath.tan(mpmath.pi / 8) * mpf("1.0001")
SEVENTH = (3 - 2 * mpmath.sqrt(2)) * mpf("1.0001")


def root(z: mpf) -> mpf:
    return mpmath.sqrt(z)


FITS = (
    Fit(
        "EXP",
        "(exp(r) - 1 - r) / r^2 for |r| <= ln(2) / 2",
        series_safe(lambda r: (mpmath.expm1(r) - r) / r**2, mpf("0.5")),
        lambda r: r**2 / mpmath.exp(r) if abs(r) > mpf("0.02") else mpf("0.0004"),
        -HALF_LN2,
        HALF_LN2,
        {32: 4, 64: 9},
    ),
    Fit(
        "EXPM1",
        "(exp(r) - 1 - r) / r^2 for |r| <= ln(2) / 2, levelled for exp(r) - 1",
        series_safe(lambda r: (mpmath.expm1(r) - r) / r**2, mpf("0.5")),
        series_safe(lambda r: r**2 / mpmath.expm1(r), mpf("0.001")),
        -HALF_LN2,
        HALF_LN2,
        {32: 5, 64: 10},
    ),
    Fit(
        "LOG",
        "(log(1 + f) - f + f^2 / 2) / f^3 for 1 + f in [sqrt(1/2), sqrt(2)]",
        series_safe(lambda f: (mpmath.log1p(f) - f + f**2 / 2) / f**3, mpf(1) / 3),
        series_safe(lambda f: f**3 / mpmath.log1p(f), mpf("0.0001")),
        1 / mpmath.sqrt(2) - 1,
        ROOT,
        {32: 8},
    ),
    Fit(
        "LOG_ODD",
        "(log((1 + s) / (1 - s)) - 2 s) / s^3 in z = s^2, for |s| <= 3 - sqrt(8)",
        series_safe(lambda z: (2 * mpmath.atanh(root(z)) - 2 * root(z)) / root(z) ** 3, mpf(2) / 3),
        lambda z: max(z, mpf("0.0001")),
        mpf(0),
        SEVENTH**2,
        {64: 7},
    ),
    Fit(
        "LOG_LATE",
        "(log((1 + s) / (1 - s)) - 2 s - 2/3 s^3) / s^5 in z = s^2, for |s| <= 3 - sqrt(8)",
        series_safe(lambda z: (2 * mpmath.atanh(root(z)) - 2 * root(z) - 2 * root(z) ** 3 / 3) / root(z) ** 5, mpf(2) / 5),
        lambda z: max(z**2, mpf("0.00001")),
        mpf(0),
        SEVENTH**2,
        {64: 8},
    ),
    Fit(
        "SIN",
        "(sin(y) - y) / y^3 in z = y^2, for |y| <= pi / 4",
        series_safe(lambda z: (mpmath.sin(root(z)) - root(z)) / root(z) ** 3, mpf(-1) / 6),
        lambda z: max(z, mpf("0.001")),
        mpf(0),
        QUARTER**2,
        {32: 2, 64: 5},
    ),
    Fit(
        "COS",
        "(cos(y) - 1 + y^2 / 2) / y^4 in z = y^2, for |y| <= pi / 4",
        series_safe(lambda z: (mpmath.cos(root(z)) - 1 + z / 2) / z**2, mpf(1) / 24),
        lambda z: max(z**2, mpf("0.0001")),
        mpf(0),
        QUARTER**2,
        {32: 2, 64: 5},
    ),
    Fit(
        "ATAN",
        "(atan(t) - t) / t^3 in z = t^2, for |t| <= tan(pi / 8)",
        series_safe(lambda z: (mpmath.atan(root(z)) - root(z)) / root(z) ** 3, mpf(-1) / 3),
        lambda z: max(z, mpf("0.0005")),
        mpf(0),
        TAN_EIGHTH**2,
        {32: 5, 64: 12},
    ),
    Fit(
        "SINH",
        "(sinh(x) - x) / x^3 in z = x^2, for |x| <= 1",
        series_safe(lambda z: (mpmath.sinh(root(z)) - root(z)) / root(z) ** 3, mpf(1) / 6),
        lambda z: max(z / (mpmath.sinh(root(z)) / root(z) if z else 1), mpf("0.0005")),
        mpf(0),
        mpf("1.0001"),
        {32: 3},
    ),
    Fit(
        "ASIN",
        "(asin(t) - t) / t^3 in z = t^2, for |t| <= 1/2",
        series_safe(lambda z: (mpmath.asin(root(z)) - root(z)) / root(z) ** 3, mpf(1) / 6),
        lambda z: max(z, mpf("0.0005")),
        mpf(0),
        mpf("0.2501"),
        {32: 5, 64: 12},
    ),
    Fit(
        "ATAN_SHORT",
        "(atan(t) - t) / t^3 in z = t^2, for 0 <= t <= 1, for float32",
        series_safe(lambda z: (mpmath.atan(root(z)) - root(z)) / root(z) ** 3, mpf(-1) / 3),
        lambda z: max(z / (mpmath.atan(root(z)) / root(z) if z else 1), mpf("0.0005")),
        mpf(0),
        mpf("1.0001"),
        {64: 9},
    ),
    Fit(
        "LOG2_SHORT",
        "log2(1 + f) / f for 1 + f in [sqrt(1/2), sqrt(2)], for float32",
        series_safe(lambda f: mpmath.log1p(f) / f / mpmath.log(2), 1 / mpmath.log(2)),
        series_safe(lambda f: f * mpmath.log(2) / mpmath.log1p(f), mpmath.log(2)),
        1 / mpmath.sqrt(2) - 1,
        ROOT,
        {64: 13},
    ),
    Fit(
        "EXP2_SHORT",
        "2^r for |r| <= 1/2, for float32",
        lambda r: mpf(2) ** r,
        lambda r: mpf(2) ** -r,
        mpf("-0.50001"),
        mpf("0.50001"),
        {32: 5, 64: 6},
    ),
    Fit(
        "ERF",
        "erf(x) / x - 1 in z = x^2, for |x| <= 1",
        series_safe(lambda z: mpmath.erf(root(z)) / root(z) - 1, 2 / mpmath.sqrt(mpmath.pi) - 1),
        lambda z: mpf(1),
        mpf(0),
        mpf("1.0001"),
        {32: 6, 64: 12},
    ),
    Fit(
        "ERFC_LOG2",
        "log2(1 - erf(x)), for 1 <= x <= 4",
        lambda x: mpmath.log(mpmath.erfc(x), 2),
        lambda x: mpmath.erfc(x) * mpmath.log(2),
        mpf(1),
        mpf(4),
        {32: 6},
    ),
    Fit(
        "ERFC",
        "(1 - erf(x)) exp(x^2) in t = (x - 2) / (x + 2), for 1 <= x <= 6",
        lambda t: mpmath.erfc(2 * (1 + t) / (1 - t)) * mpmath.exp((2 * (1 + t) / (1 - t)) ** 2),
        lambda t: mpmath.exp(-((2 * (1 + t) / (1 - t)) ** 2)),
        mpf(-1) / 3,
        mpf("0.5"),
        {64: 15},
    ),
)


def rounded(value: mpf, bits: int) -> float:
    """A number rounded to float32 or float64."""
    return float(value) if bits == 64 else struct.unpack("f", struct.pack("f", float(value)))[0]


def lines() -> Iterator[str]:
    yield '"""Coefficients of polynomials, lowest power first. Printed by benchmarks/derive_math.py: do not edit."""'
    yield ""
    yield "from __future__ import annotations"
    for fit in FITS:
        for bits, degree in fit.degree.items():
            coefficients, worst = remez(fit, degree)
            yield ""
            yield f"# {fit.meaning}; error 2^{mpmath.nstr(mpmath.log(worst, 2), 4)}"
            yield f"{fit.name}_{bits} = ("
            yield from (f"    {rounded(coefficient, bits)!r}," for coefficient in coefficients)
            yield ")"
    yield ""
    yield "# The binary digits of 2 / pi behind the point, as one integer of 1280 bits."
    with mpmath.workprec(1400):
        digits = int(mpmath.floor(2 / mpmath.pi * mpf(2) ** 1280))
    text = f"{digits:0320x}"
    yield "TWO_OVER_PI = int("
    yield from (f'    "{text[start : start + 64]}"' for start in range(0, len(text), 64))
    yield "    , 16,"
    yield ")"


if __name__ == "__main__":
    print("\n".join(lines()))
