"""Interval arithmetic on integers. An interval is (lower, upper), inclusive; None means unbounded on that side."""

from __future__ import annotations

from math import inf

Interval = tuple[int | None, int | None]

EVERYTHING: Interval = (None, None)
TRUTH: Interval = (0, 1)


def add(a: Interval, b: Interval) -> Interval:
    """Return the interval of x + y."""
    return (
        None if a[0] is None or b[0] is None else a[0] + b[0],
        None if a[1] is None or b[1] is None else a[1] + b[1],
    )


def scale(a: Interval, factor: int) -> Interval:
    """Return the interval of x * factor."""
    lower = None if a[0] is None else a[0] * factor
    upper = None if a[1] is None else a[1] * factor
    return (lower, upper) if factor >= 0 else (upper, lower)


def _ends(a: Interval) -> tuple[float, float]:
    return (-inf if a[0] is None else a[0], inf if a[1] is None else a[1])


def _times(x: float, y: float) -> float:
    return 0 if x == 0 or y == 0 else x * y


def _finite(value: float) -> int | None:
    return None if value in (inf, -inf) else int(value)


def mul(a: Interval, b: Interval) -> Interval:
    """Return the interval of x * y."""
    corners = [_times(x, y) for x in _ends(a) for y in _ends(b)]
    return _finite(min(corners)), _finite(max(corners))


def floordiv(a: Interval, b: Interval) -> Interval:
    """Return the interval of x // y for positive y; unbounded if y may be zero or negative."""
    if b[0] is None or b[0] <= 0:
        return EVERYTHING
    lower = None if a[0] is None else _towards(a[0], b, least=True)
    upper = None if a[1] is None else _towards(a[1], b, least=False)
    return lower, upper


def _towards(value: int, divisor: Interval, *, least: bool) -> int:
    """Return the smallest (`least`) or largest `value // y`, for y in `divisor`."""
    assert divisor[0] is not None
    quotient_at_upper = (-1 if value < 0 else 0) if divisor[1] is None else value // divisor[1]
    quotient_at_lower = value // divisor[0]
    return min(quotient_at_lower, quotient_at_upper) if least else max(quotient_at_lower, quotient_at_upper)


def floormod(a: Interval, b: Interval) -> Interval:
    """Return the interval of x % y for positive y; unbounded if y may be zero or negative."""
    if b[0] is None or b[0] <= 0:
        return EVERYTHING
    if b[0] == b[1] and a[0] is not None and a[1] is not None and a[0] // b[0] == a[1] // b[0]:
        return a[0] % b[0], a[1] % b[0]
    if a[0] is not None and a[0] >= 0:
        tops = [top for top in (a[1], None if b[1] is None else b[1] - 1) if top is not None]
        return 0, min(tops) if tops else None
    return 0, None if b[1] is None else b[1] - 1


def minimum(a: Interval, b: Interval) -> Interval:
    """Return the interval of min(x, y)."""
    (a_low, a_high), (b_low, b_high) = _ends(a), _ends(b)
    return _finite(min(a_low, b_low)), _finite(min(a_high, b_high))


def maximum(a: Interval, b: Interval) -> Interval:
    """Return the interval of max(x, y)."""
    (a_low, a_high), (b_low, b_high) = _ends(a), _ends(b)
    return _finite(max(a_low, b_low)), _finite(max(a_high, b_high))


def union(a: Interval, b: Interval) -> Interval:
    """Return the smallest interval that contains both intervals."""
    (a_low, a_high), (b_low, b_high) = _ends(a), _ends(b)
    return _finite(min(a_low, b_low)), _finite(max(a_high, b_high))


def intersect(a: Interval, b: Interval) -> Interval:
    """Return the intersection of two intervals, which must overlap."""
    (a_low, a_high), (b_low, b_high) = _ends(a), _ends(b)
    return _finite(max(a_low, b_low)), _finite(min(a_high, b_high))
