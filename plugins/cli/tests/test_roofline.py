"""The roofline page: kernels by intensity under the roofs of their targets."""

from __future__ import annotations

import re

import pytest

from inlaid.plugins import Capabilities
from inlaid_cli.roofline import HEIGHT, roofline_page
from inlaid_runtime.execution.profile import Event, Profile

LIMITS = {"x86": Capabilities((), peak=1e11, bandwidth=1e10), "dsp": Capabilities((), peak=1e9, bandwidth=1e9)}


def event(name: str, operations: int, size: int, seconds: float, target: str = "x86") -> Event:
    return Event(name, target, ("node/<a>",), 0.0, seconds, "r", "kernel", operations, size)


def test_kernels_are_drawn_and_listed() -> None:
    profile = Profile(
        (event("mul", 10**6, 10**5, 2e-5), event("copy", 0, 10**6, 1e-3), event("fir", 10**6, 10**6, 1e-3, "dsp")), 1.0
    )
    page = roofline_page(profile, LIMITS, "a & b")
    assert "Roofline: a &amp; b" in page and "node/&lt;a&gt;" in page
    assert len(re.findall("<circle", page)) == 2, "what computes nothing has no place on the axes"
    assert len(re.findall("<polyline", page)) == 2
    # 10 operations for a byte, at the ridge: 1e-5 seconds would be the roof.
    assert "mul: 50.0 GFLOP/s, 50 % of the roof" in page
    assert "fir: 1.0 GFLOP/s, 100 % of the roof" in page
    assert all(0 <= float(y) <= HEIGHT for y in re.findall(r'cy="([\d.-]+)"', page))


@pytest.mark.parametrize(
    "events", [(), (event("none", 0, 8, 0.0),), (event("fast", 10**15, 8, 1e-9),), (event("slow", 1, 10**9, 9.0),)]
)
def test_any_profile_has_a_page(events) -> None:
    assert "</html>" in roofline_page(Profile(events, 0.0), LIMITS, "model")
