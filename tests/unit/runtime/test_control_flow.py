"""Branches, calls and loops of plans, and the sizes that inner plans know."""

from __future__ import annotations

import numpy as np
import pytest

from inlaid_runtime.arith import SizeVar
from inlaid_runtime.artifact.plan import Branch, Call, Invoke, Loop, Move, Plan
from inlaid_runtime.errors import KernelFault

from .plans import f32, make_plan, unary

N = SizeVar("n")
K = SizeVar("?k", 0, N)


def test_branches_and_calls(lab, value):
    unary(lab, "double", lambda x: 2 * x)
    unary(lab, "negate", lambda x: -x)
    main = Plan(
        "main",
        (value("input", (2,)), value("input", (), "bool"), value("arena", (2,)), value("output", (2,))),
        (("x", 0), ("flag", 1)),
        (("y", 3),),
        (Branch(1, "then", "otherwise", (0,), (2,)), Call("then", (2,), (3,))),
        64,
    )
    model = lab.executable(main, make_plan("then", value, "double"), make_plan("otherwise", value, "negate"))
    x = f32(2)
    np.testing.assert_array_equal(model.run({"x": x, "flag": np.array(True)})["y"], 4 * x)
    np.testing.assert_array_equal(model.run({"x": x, "flag": False})["y"], -2 * x)


def test_a_branch_may_end_in_different_sizes(lab, value):
    joined = SizeVar("?j")
    lab.region("half", lambda x: x[:1], [((2,), "float32")], [((1,), "float32")], kind="free")
    then = Plan("then", (value("input", (2,)), value("output", (1,))), (("x", 0),), (("y", 1),), (Invoke("half", (0,), (1,)),))
    other = Plan("otherwise", (value("input", (2,)), value("output", (2,))), (("x", 0),), (("y", 1),), (Move(0, 1),))
    main = Plan(
        "main",
        (value("input", (2,)), value("input", (), "bool"), value("dynamic", (joined,))),
        (("x", 0), ("flag", 1)),
        (("y", 2),),
        (Branch(1, "then", "otherwise", (0,), (2,)),),
    )
    model = lab.executable(main, then, other)
    assert model.run({"x": f32(2), "flag": True})["y"].shape == (1,)
    assert model.run({"x": f32(2), "flag": False})["y"].shape == (2,)


def test_recursion_ends_or_is_refused(lab, value):
    unary(lab, "less", lambda x: x - 1)
    lab.region("positive", lambda x: np.asarray(x[0] > 0), [((2,), "float32")], [((), "bool")], kind="free")
    main = Plan(
        "main",
        (value("input", (2,)), value("arena", (2,)), value("arena", (), "bool", offset=64), value("output", (2,))),
        (("x", 0),),
        (("y", 3),),
        (Invoke("less", (0,), (1,)), Invoke("positive", (1,), (2,)), Branch(2, "main", "end", (1,), (3,))),
        128,
    )
    end = Plan("end", (value("input", (2,)), value("output", (2,))), (("x", 0),), (("y", 1),), (Move(0, 1),))
    model = lab.executable(main, end)
    np.testing.assert_array_equal(model.run({"x": np.array([5, 6], np.float32)})["y"], [0, 1])
    with pytest.raises(KernelFault, match="are nested too deeply"):
        model.run({"x": np.array([1e6, 0], np.float32)})


def loop_model(lab, value, *, trips=True, stacked=(3, 2), state_storage="output"):
    """state += slice + captured; stops when the state exceeds 100; stacks the new state."""

    def body(i, s, x, c, go, new, out):
        new[...] = s + x + c
        out[...] = new * 10
        go[...] = new[0] < 100

    pair, scalar = ((2,), "float32"), ((), "int64")
    lab.region("body", body, [scalar, pair, pair, pair], [((), "bool"), pair, pair])
    inner = Plan(
        "body",
        (
            value("input", (), "int64"),
            *(value("input", (2,)) for _ in range(3)),
            value("output", (), "bool"),
            value("output", (2,)),
            value("output", (2,)),
        ),
        tuple((f"i{k}", k) for k in range(4)),
        tuple((f"o{k}", k) for k in range(4, 7)),
        (Invoke("body", (0, 1, 2, 3), (4, 5, 6)),),
    )
    outer = Plan(
        "main",
        (
            value("input", (), "int64"),
            value("input", (2,)),
            value("input", (SizeVar("t"), 2)),
            value("input", (2,)),
            value(state_storage, (2,)),
            value("output", stacked),
        ),
        (("trips", 0), ("s", 1), ("xs", 2), ("c", 3)),
        (("final", 4), ("all", 5)),
        (Loop("body", 0 if trips else None, None, (1,), (2,), (3,), (4, 5)),),
    )
    return lab.executable(outer, inner)


@pytest.mark.parametrize("count", [0, 1, 2, 3, 4])
def test_a_loop_of_unknown_length(lab, value, count):
    model = loop_model(lab, value, stacked=(SizeVar("?t"), 2))
    state, xs, c = f32(2), f32(3, 2), np.array([1, 1], np.float32)
    result = model.run({"trips": np.int64(count), "s": state, "xs": xs, "c": c})
    expected, stacked = state, []
    for x in xs[:count]:
        expected = expected + x + c
        stacked.append(expected * 10)
    np.testing.assert_array_equal(result["final"], expected)
    np.testing.assert_array_equal(result["all"], np.array(stacked, np.float32).reshape(-1, 2))
    assert not np.shares_memory(result["final"], state)
    np.testing.assert_array_equal(state, f32(2))


def test_a_loop_of_known_length_that_stops_early_is_a_fault(lab, value):
    model = loop_model(lab, value, trips=False)
    inputs = {"trips": 9, "s": f32(2), "xs": f32(3, 2), "c": f32(2)}
    assert model.run(inputs)["all"].shape == (3, 2)
    with pytest.raises(KernelFault, match="expected 3 iterations of a loop, got 1"):
        model.run({**inputs, "s": np.array([200, 0], np.float32)})


def test_inner_plans_know_the_sizes_around_them(lab, value):
    """The branch makes (n, 2) from (n * 2,), which does not show n."""
    lab.region("pair", lambda x: x.reshape(-1, 2), [((N,), "float32")], [((N, 2), "float32")], dims=[("n", 0, 0)], kind="free")
    then = Plan(
        "then", (value("input", (N * 2,)), value("output", (N, 2))), (("x", 0),), (("y", 1),), (Invoke("pair", (0,), (1,)),)
    )
    main = Plan(
        "main",
        (value("input", (N,)), value("input", (N * 2,)), value("input", (), "bool"), value("output", (N, 2))),
        (("a", 0), ("b", 1), ("flag", 2)),
        (("y", 3),),
        (Branch(2, "then", "then", (1,), (3,)),),
    )
    model = lab.executable(main, then)
    for n in (2, 3):
        assert model.run({"a": f32(n), "b": f32(2 * n), "flag": True})["y"].shape == (n, 2)
