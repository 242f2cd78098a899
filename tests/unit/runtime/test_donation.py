"""Outputs and states that take over the buffers of inputs."""

from __future__ import annotations

import numpy as np
import pytest

from inlaid_runtime import aligned_empty
from inlaid_runtime.artifact.plan import Invoke, Loop, Move, Plan
from inlaid_runtime.errors import PackageError

from .plans import f32


def bump_region(lab):
    """A region that adds x to a buffer that it updates."""

    def bump(state, x, total):
        assert state is total
        total += x

    lab.region("bump", bump, [((2,), "float32")] * 2, [((2,), "float32")], aliases=((0, 0),))


@pytest.mark.parametrize("donate", [False, True])
def test_an_output_that_takes_over_an_input(lab, value, donate):
    bump_region(lab)
    plan = Plan(
        "main",
        (value("input", (2,)), value("input", (2,)), value("output", (2,))),
        (("held", 0), ("x", 1)),
        (("total", 2),),
        (Move(0, 2, donate), Invoke("bump", (2, 1), (2,))),
    )
    model = lab.executable(plan)
    state = aligned_empty((2,), np.dtype(np.float32))
    state[...] = 5
    total = model.run({"held": state, "x": f32(2)})["total"]
    np.testing.assert_array_equal(total, [5, 6])
    np.testing.assert_array_equal(state, [5, 6] if donate else [5, 5])
    assert (total is state) == donate and model.donated == (("held",) if donate else ())


def test_states_of_loops_are_updated_in_arrays_of_the_loop(lab, value):
    bump_region(lab)
    body = Plan(
        "body",
        (
            value("input", (), "int64"),
            value("input", (2,)),
            value("constant", (), "bool", name="on"),
            value("output", (2,)),
            value("output", (), "bool"),
        ),
        (("step", 0), ("state", 1)),
        (("go", 4), ("new", 3)),
        (Move(2, 4), Move(1, 3, donate=True), Invoke("bump", (3, 3), (3,))),
    )
    outer = Plan(
        "main",
        (value("input", (), "int64"), value("input", (2,)), value("output", (2,))),
        (("trips", 0), ("state", 1)),
        (("final", 2),),
        (Loop("body", 0, None, (1,), (), (), (2,)),),
    )
    model = lab.executable(outer, body, weights={"on": np.array(True)})
    state = f32(2)
    for trips in range(4):
        np.testing.assert_array_equal(model.run({"trips": np.int64(trips), "state": state})["final"], state * 2**trips)
        np.testing.assert_array_equal(state, f32(2))


@pytest.mark.parametrize(
    ("instructions", "message"),
    [
        ((Move(0, 2, donate=True), Invoke("bump", (2, 0), (2,))), "value 0 is read after its buffer was reused"),
        ((Invoke("bump", (0, 1), (2,)),), "input 0 and output 0 must be the same value"),
        ((Move(3, 2, donate=True), Invoke("bump", (2, 1), (2,))), "value 3 is not owned by the plan"),
        ((Move(0, 4), Move(4, 2, donate=True), Invoke("bump", (2, 1), (2,))), "value 2 must be at the arena offset of value 4"),
    ],
)
def test_plans_that_give_away_what_is_not_theirs(lab, value, instructions, message):
    bump_region(lab)
    values = (
        value("input", (2,)),
        value("input", (2,)),
        value("output", (2,)),
        value("constant", (2,), name="w"),
        value("arena", (2,)),
    )
    plan = Plan("main", values, (("held", 0), ("x", 1)), (("total", 2),), instructions, 64)
    with pytest.raises(PackageError, match=message):
        lab.executable(plan, weights={"w": f32(2)})
