"""Branches inside regions: `If` in bodies of loops and in models, nested, over symbolic sizes, held to the reference."""

from __future__ import annotations

from random import Random

import numpy as np
import pytest

import inlaid
from inlaid import ops
from inlaid.driver.compile import build_package
from inlaid.graph import ir as graph
from inlaid.lowering.region import RegionSource, lower_region
from inlaid.plugins import Capabilities
from inlaid.tensor.scheduling.rule import KernelContext, Offer, Version
from inlaid_runtime import arith
from inlaid_runtime.arith import SizeVar
from inlaid_runtime.artifact.plan import Branch, Invoke, Loop
from inlaid_runtime.errors import KernelFault
from inlaid_runtime.types import ROW_MAJOR, TensorType
from inlaid_x86_runtime.options import X86Options
from inlaid_x86_runtime.runtime import X86Runtime

from .native import compile_region

pytestmark = pytest.mark.usefixtures("host")

F32, I64, BOOL = "float32", "int64", "bool"
TRUE = graph.constant(np.array(True))
ZERO, TWO = (graph.constant(np.int64(value)) for value in (0, 2))


def variable(name, shape=(), dtype=F32):
    return graph.var(name, TensorType(shape, dtype))


def random(*shape):
    return np.random.default_rng(sum(shape)).standard_normal(shape).astype(np.float32)


def check(function, *feeds, target="x86:threads=1", regions=1):
    """The executor does nothing but run so many regions, and the results are the reference's."""
    package = build_package(graph.Module({"main": function}), [target])
    steps = [item for plan in package.program.plans.values() for item in plan.instructions]
    assert not any(isinstance(item, (Branch, Loop)) for item in steps)
    assert sum(isinstance(item, Invoke) for item in steps) == regions
    native, reference = (inlaid.compile(function, targets=[name]) for name in (target, "reference"))
    for feed in feeds:
        expected, actual = reference.run(feed), native.run(feed)
        for name, value in expected.items():
            np.testing.assert_allclose(actual[name], value, rtol=1e-4, atol=1e-4)
            assert actual[name].dtype == value.dtype and actual[name].shape == value.shape
    return native


def stepping(rows, *, scanned=False):
    """Two states that change places or are mixed, by turns, and a third that an inner branch keeps or renews."""
    trips, a, b, w = variable("trips", (), I64), variable("a", (rows, 8)), variable("b", (rows, 8)), variable("w", (8, 8))
    step, s, t, u = variable("step", (), I64), *(variable(name, (rows, 8)) for name in "stu")
    even = ops.equal(ops.mod(step, TWO), ZERO)
    late = ops.less(graph.constant(np.int64(3)), step)
    mixed = ops.tanh(ops.matmul(ops.add(s, t), w))
    renewed = graph.if_(late, ops.add(mixed, u), u)
    choice = graph.if_(even, graph.tuple_([t, s, u]), graph.tuple_([mixed, ops.mul(s, s), renewed]))
    states = [graph.tuple_item(choice, index) for index in range(3)]
    output = graph.if_(late, ops.reduce_sum(states[0], axes=(1,)), ops.reduce_max(s, axes=(1,)))
    going = graph.if_(even, TRUE, ops.less(step, graph.constant(np.int64(9))))
    row = [variable("row", (rows, 8))] if scanned else []
    if scanned:
        states[2] = ops.add(states[2], row[0])
    body = graph.function([step, s, t, u, *row], graph.tuple_([going, *states, *([output] if scanned else [])]))
    scanned_inputs = [variable("rows", (SizeVar("length"), rows, 8))] if scanned else []
    looped = graph.loop(body, state=[a, b, a], scanned=scanned_inputs, trip_count=None if scanned else trips)
    count = 4 if scanned else 3
    results = graph.tuple_([graph.tuple_item(looped, index) for index in range(count)])
    return graph.function([*scanned_inputs, a, b, w] if scanned else [trips, a, b, w], results)


def test_branches_in_a_loop_with_states():
    feeds = [
        {"trips": np.int64(trips), "a": random(3, 8), "b": random(8, 3).T.copy(), "w": random(8, 8)} for trips in (0, 1, 2, 7, 40)
    ]
    check(stepping(3), *feeds)


def test_branches_in_a_loop_over_symbolic_sizes():
    function = stepping(SizeVar("n"))
    feeds = [
        {"trips": np.int64(trips), "a": random(n, 8), "b": random(n, 8) + 1, "w": random(8, 8)}
        for n in (0, 1, 5, 33)
        for trips in (3, 8)
    ]
    check(function, *feeds)


def test_every_access_is_checked():
    feed = {"trips": np.int64(9), "a": random(3, 8), "b": random(3, 8), "w": random(8, 8)}
    check(stepping(3), feed, target="x86:threads=1,check=true")


def nest(draw, flags, values, depth):
    """A random value over others, with branches inside of one another."""
    if not depth:
        a, b = draw.choice(values), draw.choice(values)
        return draw.choice([lambda: a, lambda: ops.add(a, b), lambda: ops.matmul(a, ops.tanh(b)), lambda: ops.neg(a)])()
    more = [*values, nest(draw, flags, values, 0)]
    arms = [nest(draw, flags, more, depth - 1) for _ in range(2)]
    return ops.add(graph.if_(draw.choice(flags), *arms), draw.choice(more))


@pytest.mark.parametrize("seed", range(6))
def test_models_of_branches_are_one_region(seed):
    draw = Random(seed)
    flags, x = [variable(f"c{number}", (), BOOL) for number in range(3)], variable("x", (6, 6))
    value = nest(draw, [*flags, ops.logical_and(flags[0], flags[1])], [x, ops.mul(x, x)], 3)
    choice = graph.if_(flags[0], graph.if_(flags[1], value, ops.neg(value)), graph.if_(flags[2], x, value))
    function = graph.function([x, *flags], graph.tuple_([choice]))
    feeds = [{"x": random(6, 6), **{f"c{number}": np.array(bool(case >> number & 1)) for number in range(3)}} for case in range(8)]
    check(function, *feeds)


def test_a_fault_in_an_arm():
    """It comes only where the arm runs, and names its kernel."""
    table, index, flag = variable("table", (5, 2)), variable("index", (3,), I64), variable("flag", (), BOOL)
    arm = ops.take(table, index, axis=0)
    function = graph.function(
        [table, index, flag], graph.tuple_([graph.if_(flag, arm, graph.constant(np.ones((3, 2), np.float32)))])
    )
    good, bad = ({"table": random(5, 2), "index": np.array([0, last, 2])} for last in (4, 5))
    native = check(function, {**good, "flag": np.array(True)}, {**bad, "flag": np.array(False)})
    with pytest.raises(KernelFault, match="an index is out of range in kernel take"):
        native.run({**bad, "flag": np.array(True)})


def test_the_profile_counts_no_time_for_an_arm_that_does_not_run():
    x, flag = variable("x", (64, 64)), variable("flag", (), BOOL)
    heavy = ops.matmul(ops.matmul(x, x), x)
    native = inlaid.compile(graph.function([x, flag], graph.if_(flag, ops.tanh(x), heavy)), targets=["x86:threads=1"])
    for condition, idle in ((True, "matmul"), (False, "tanh")):
        events = native.profile({"x": random(64, 64), "flag": np.array(condition)}).events
        times = [event.seconds for event in events if event.name.startswith(idle)]
        assert times and not any(times)
        assert all(event.seconds >= 0 for event in events)


def test_arms_that_ask_something_of_sizes_stay_with_the_executor():
    """A window larger than what it slides over is an error only where the arm runs."""
    x, flag = variable("x", (1, 1, SizeVar("n"))), variable("flag", (), BOOL)
    shorter = ops.reduce_sum(ops.conv(x, graph.constant(np.ones((1, 1, 4), np.float32))), axes=(2,))
    function = graph.function([x, flag], graph.tuple_([graph.if_(flag, shorter, ops.reduce_max(x, axes=(2,)))]))
    native = inlaid.compile(function, targets=["x86:threads=1"])
    for n, condition in ((8, True), (8, False), (2, False)):
        (value,) = native.run({"x": np.ones((1, 1, n), np.float32), "flag": np.array(condition)}).values()
        assert value.item() == (4.0 * (n - 3) if condition else 1.0)


@pytest.mark.parametrize("rows", [0, 1, 2, 7, 8, 50])
def test_versions_of_a_kernel(rows):
    """The kernel that runs is that of the first condition that holds: each version adds a number of its own."""
    n = SizeVar("n")
    x = variable("x", (n, 4))

    class Rule:
        name = "versions"

        def offer(self, program, context, facts):
            size = program.outputs[0].shape[0]

            def make_schedule(number):
                source = lowered_alone(number).kernels[0]
                return lambda program: source

            versions = (
                Version(arith.compare("==", size, 1), make_schedule(1)),
                Version(arith.compare("<", size, 8), make_schedule(2)),
            )
            return Offer((ROW_MAJOR,) * 2, make_schedule(3), versions=versions)

    def lowered_alone(number):
        return lowered(ops.add(x, graph.constant(np.float32(number))), ())

    def lowered(value, rules):
        context = KernelContext(Capabilities((F32,), vector_bits=256, vector_registers=16, branches=True))
        return lower_region(RegionSource("region", graph.function([x], graph.tuple_([value]))), rules, context)

    region = lowered(ops.neg(x), (Rule(),))
    options = X86Options(threads=1)
    kernel = X86Runtime(options).load(compile_region(region, options), {}).kernel
    array = random(rows, 4)
    output = np.empty_like(array)
    kernel.invoke([array], [output], np.empty(64, np.uint8), np.array([rows], np.int64))
    np.testing.assert_array_equal(output, array + np.float32(1 if rows == 1 else 2 if rows < 8 else 3))
