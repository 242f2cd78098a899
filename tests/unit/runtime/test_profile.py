"""Profiles: by kernel where the target times them, by region otherwise."""

from __future__ import annotations

import itertools
import json

import numpy as np
import pytest

from inlaid_runtime import Profile
from inlaid_runtime.artifact.plan import Invoke, Plan
from inlaid_runtime.execution.profile import Event


@pytest.fixture
def model(lab, value):
    def fill(x, y):
        y[...] = x

    for symbol, kind in (("plain", "fill"), ("timed", "timed")):
        lab.region(symbol, fill, [((2,), "float32")], [((2,), "float32")], kind=kind)
    plan = Plan(
        "main",
        (value("input", (2,)), value("arena", (2,)), value("arena", (2,), offset=64), value("output", (2,))),
        (("x", 0),),
        (("y", 3),),
        (Invoke("plain", (0,), (1,)), Invoke("timed", (1,), (2,)), Invoke("plain", (2,), (3,))),
        128,
    )
    return lab.executable(plan)


def test_events_and_rows(model):
    profile = model.profile({"x": np.ones(2, np.float32)})
    assert [event.name for event in profile.events] == ["plain", "timed", "timed.a", "timed.b", "plain"]
    region, part, last = profile.events[1:4]
    assert part.start == region.start
    assert last.start == region.start + 0.25
    assert last.region == "timed"
    assert sum(event.seconds for event in profile.events if not event.region) <= profile.seconds
    rows = {row.name: row for row in profile.rows()}
    assert list(rows) == ["timed.b", "timed.a", "plain"]
    assert rows["plain"].calls == 2
    assert rows["timed.b"].nodes == ("node_b",)


def test_the_table(model):
    text = str(model.profile({"x": np.ones(2, np.float32)}))
    assert "timed.b: node_b" in text
    assert "plain: node of plain" in text
    assert text.splitlines()[-1].endswith("100.0%  whole run")


def test_the_chrome_trace(tmp_path):
    profile = Profile(
        (
            Event("r", "x86", ("a", "b"), 0.5, 0.25),
            Event("k", "x86", ("a",), 0.5, 0.125, "r", "kernel", 250_000_000, 125_000_000),
            Event("copy up", "x86", (), 0.25, 0.25, kind="copy", bytes=1 << 28),
            Event("s", "reference", (), 1.0, 0.5),
        ),
        2.0,
    )
    profile.save_chrome_trace(tmp_path / "trace.json")
    trace = json.loads((tmp_path / "trace.json").read_text())
    names = {event["args"]["name"]: event["tid"] for event in trace["traceEvents"] if event["ph"] == "M"}
    assert set(names) == {"x86", "x86 kernels", "x86 copies", "reference"}
    events = [event for event in trace["traceEvents"] if event["ph"] == "X"]
    assert [(event["name"], event["cat"], event["ts"], event["dur"]) for event in events] == [
        ("r", "region", 5e5, 2.5e5),
        ("k", "kernel", 5e5, 1.25e5),
        ("copy up", "copy", 2.5e5, 2.5e5),
        ("s", "region", 1e6, 5e5),
    ]
    assert [event["tid"] for event in events] == [names[lane] for lane in ("x86", "x86 kernels", "x86 copies", "reference")]
    assert events[0]["args"] == {"nodes": ["a", "b"]}
    assert events[1]["args"] == {"nodes": ["a"], "GFLOP/s": 2.0, "GB/s": 1.0}
    assert events[2]["args"] == {"nodes": [], "GB/s": 1.074}


def test_events_that_follow_one_another_do_not_overlap_in_the_trace():
    ends = [0.0, 1.4e-6, 1e-6 + 1 / 3, 0.7, 1.1]
    profile = Profile(tuple(Event("k", "x86", (), a, b - a) for a, b in itertools.pairwise(ends)), 2.0)
    times = [event for event in json.loads(profile.chrome_trace())["traceEvents"] if event["ph"] == "X"]
    assert all(first["ts"] + first["dur"] == second["ts"] for first, second in itertools.pairwise(times))


def test_an_empty_profile():
    assert Profile((), 0.0).rows() == ()
    assert "whole run" in Profile((), 0.0).table()


def test_a_region_of_many_nodes_takes_one_line():
    profile = Profile((Event("r", "x86", tuple(f"n{index}" for index in range(30)), 0.0, 1.0),), 1.0)
    assert "n6, n7 and 22 more" in profile.table()
