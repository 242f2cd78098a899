"""Branches, loops and calls of plans: values that a device alone uses stay in its memory."""

from __future__ import annotations

import gc
from dataclasses import replace

import numpy as np
import pytest

from inlaid import ops
from inlaid.driver.compile import compile_module
from inlaid.graph import ir
from inlaid.graph.interp import evaluate
from inlaid_runtime.artifact.plan import Loop
from inlaid_runtime.errors import KernelFault, PackageError
from inlaid_runtime.execution.device_memory import DeviceArray
from inlaid_runtime.execution.executable import Executable
from inlaid_runtime.types import FunctionType, TensorType

STEP = TensorType((), "int64")
TRUE = ir.constant(np.array(True))


def tensor(*shape):
    return TensorType(shape, "float32")


def x(*shape, seed=0):
    return np.random.default_rng(seed).uniform(-1, 1, shape).astype(np.float32)


def load(function, registry, target="discrete", **functions):
    module = ir.Module({"main": function, **functions})
    return Executable(compile_module(module, [target], registry).package, registry=registry)


def moved(machine, executable, *inputs):
    """Copies up and down in a run on inputs in their order, and what it gives."""
    before = replace(machine.counters)
    outputs = executable.run(dict(zip((spec.name for spec in executable.inputs), inputs, strict=True)))
    return (machine.counters.up - before.up, machine.counters.down - before.down), list(outputs.values())


def recurrence(rounds, width):
    """A loop of `rounds`: state carried, rows scanned, a weight captured, rows stacked."""
    start, rows, weight = (
        ir.var("start", tensor(3, width)),
        ir.var("rows", tensor(rounds, width)),
        ir.var("w", tensor(width, width)),
    )
    step, state, row = ir.var("step", STEP), ir.var("state", tensor(3, width)), ir.var("row", tensor(width))
    after = ops.tanh(ops.add(ops.matmul(state, ops.neg(weight)), row))
    body = ir.function([step, state, row], ir.tuple_([TRUE, after, ops.reduce_sum(after, axes=(0,))]))
    looped = ir.loop(body, state=[ops.relu(start)], scanned=[rows])
    result = ir.tuple_([ops.neg(ir.tuple_item(looped, 0)), ops.neg(ir.tuple_item(looped, 1))])
    return ir.function([start, rows, weight], result)


@pytest.mark.parametrize("width", [4, 16])
def test_a_loop_does_not_return_to_the_host(registry, machines, width):
    """Rows of 64 bytes are read and written where they lie, others by way of one that kernels may use."""
    counts = []
    for rounds in (0, 1, 2, 7, 8):
        function = recurrence(rounds, width)
        executable = load(function, registry)
        feeds = {"start": x(3, width), "rows": x(rounds, width, seed=1), "w": x(width, width, seed=2)}
        for _ in range(3):
            count, outputs = moved(machines[0], executable, *feeds.values())
            for actual, expected in zip(outputs, evaluate(function, list(feeds.values())), strict=True):
                np.testing.assert_allclose(actual, expected, rtol=1e-5, atol=1e-6)
        counts.append(count)
    assert len(set(counts[1:])) == 1 and counts[-1] == (3, 2)  # three inputs go up and two results come down, however many rounds


def test_a_condition_alone_comes_down(registry, machines):
    """What decides whether the loop goes on is read by the host; the state stays."""
    start = ir.var("start", tensor(3, 4))
    step, state = ir.var("step", STEP), ir.var("state", tensor(3, 4))
    after = ops.mul(state, ir.constant(np.float32(2)))
    going = ops.less(ops.reduce_max(after, axes=(0, 1)), ir.constant(np.float32(100)))
    loop = ir.loop(ir.function([step, state], ir.tuple_([going, after])), state=[start], trip_count=ir.constant(np.int64(50)))
    function = ir.function([start], ops.neg(ir.tuple_item(loop, 0)))
    executable = load(function, registry)
    for scale, rounds in ((1, 7), (0.1, 10), (60, 1)):
        x_array = np.full((3, 4), scale, np.float32)
        count, (actual,) = moved(machines[0], executable, x_array)
        np.testing.assert_allclose(actual, evaluate(function, [x_array]), rtol=1e-6)
        assert count == (1, rounds + 1)


def test_branches(registry, machines):
    value, weight = ir.var("x", tensor(3, 4)), ir.var("w", tensor(3, 4))
    shared_value = ops.relu(weight)
    positive = ops.less(ir.constant(np.float32(0)), ops.reduce_sum(value, axes=(0, 1)))
    chosen = ir.if_(positive, ops.add(ops.exp(value), shared_value), ops.mul(value, shared_value))
    function = ir.function([value, weight], ops.neg(chosen))
    executable = load(function, registry)
    for sign in (1, -1, 1):
        arrays = [np.abs(x(3, 4)) * np.float32(sign), x(3, 4, seed=1)]
        count, (actual,) = moved(machines[0], executable, *arrays)
        np.testing.assert_allclose(actual, evaluate(function, arrays), rtol=1e-6)
        assert count == (2, 2)  # the condition and the result


def test_branches_that_give_what_they_take(registry, machines):
    """A branch may give a constant or what it is given, and one that the host computes is brought up."""
    value = ir.var("x", tensor(3, 4))
    shared_value = ops.relu(value)
    total = ops.reduce_sum(value, axes=(0, 1))
    first = ir.if_(ops.less(ir.constant(np.float32(0)), total), shared_value, ir.constant(np.ones((3, 4), np.float32)))
    second = ir.if_(ops.less(total, ir.constant(np.float32(1))), ops.tanh(shared_value), ops.exp(shared_value))
    function = ir.function([value], ops.neg(ops.add(ops.abs(first), ops.abs(second))))
    executable = load(function, registry, "discrete:without=tanh")
    for scale in (1, -1, 0.01, 3):
        x_array = np.abs(x(3, 4)) * np.float32(scale)
        (actual,) = executable.run({"x": x_array}).values()
        np.testing.assert_allclose(actual, evaluate(function, [x_array]), rtol=1e-6)


def test_calls(registry, machines):
    """A function that is called takes and gives on the device; one that calls itself does so by the host."""
    value, inner = ir.var("x", tensor(3, 4)), ir.var("y", tensor(3, 4))
    type_ = FunctionType((tensor(3, 4),), tensor(3, 4))
    small = ops.less(ops.reduce_max(ops.abs(inner), axes=(0, 1)), ir.constant(np.float32(10)))
    again = ir.function([inner], ir.if_(small, ir.call(ir.global_var("again", type_), (ops.add(inner, inner),)), inner))
    for name, body in (("twice", ir.function([inner], ops.exp(ops.neg(inner)))), ("again", again)):
        called = ir.call(ir.global_var(name, type_), (ops.add(ops.relu(value), ir.constant(np.float32(1))),))
        module = ir.Module({"main": ir.function([value], ops.neg(called)), name: body})
        executable = Executable(compile_module(module, ["discrete"], registry).package, registry=registry)
        count, (actual,) = moved(machines[0], executable, x(3, 4))
        np.testing.assert_allclose(actual, evaluate(module, [x(3, 4)]), rtol=1e-5)
        assert (count == (1, 1)) == (name == "twice")


def swapped(depth):
    """Two states of which each becomes the other, one with an element more set."""
    left, right = ir.var("left", tensor(4, 4)), ir.var("right", tensor(4, 4))
    step, a, b = ir.var("step", STEP), ir.var("a", tensor(4, 4)), ir.var("b", tensor(4, 4))
    at = ops.reshape(ops.mod(step, ir.constant(np.int64(4))), shape=(1, 1))
    row = ir.constant(np.full((1, 4), 7, np.float32))
    body = ir.function([step, a, b], ir.tuple_([TRUE, ops.scatter_nd(b, at, row), ops.transpose(a, perm=(1, 0))]))
    loop = ir.loop(body, state=[left, right], trip_count=ir.constant(np.int64(depth)))
    return ir.function([left, right], ir.tuple_([ir.tuple_item(loop, 0), ir.tuple_item(loop, 1)]))


@pytest.mark.parametrize("target", ["discrete", "x86:threads=1", "reference"])
@pytest.mark.parametrize("depth", [1, 2, 3, 6])
def test_states_that_change_places(registry, machines, target, depth):
    function = swapped(depth)
    executable = load(function, registry, target)
    arrays = [x(4, 4), x(4, 4, seed=1)]
    for _ in range(2):
        outputs = executable.run(dict(zip(("left", "right"), arrays, strict=True))).values()
        for actual, expected in zip(outputs, evaluate(function, arrays), strict=True):
            np.testing.assert_array_equal(actual, expected)


def test_a_table_is_updated_in_place(registry, machines):
    """A loop-carried scatter copies its table once, however many rounds there are."""
    for rounds in (1, 5):
        table, numbers = ir.var("table", tensor(64, 16)), ir.var("numbers", TensorType((rounds, 16), "int64"))
        step, state, number = ir.var("step", STEP), ir.var("state", tensor(64, 16)), ir.var("number", TensorType((16,), "int64"))
        at, one = ops.reshape(number, shape=(16, 1)), ir.constant(np.ones((16, 16), np.float32))
        body = ir.function([step, state, number], ir.tuple_([TRUE, ops.scatter_nd(state, at, one, reduction="add")]))
        function = ir.function([table, numbers], ir.tuple_item(ir.loop(body, state=[table], scanned=[numbers]), 0))
        executable = load(function, registry)
        arrays = [x(64, 16), np.random.default_rng(0).integers(0, 64, (rounds, 16))]
        machines[0].counters.beside = 0
        count, (actual,) = moved(machines[0], executable, *arrays)
        np.testing.assert_allclose(actual, evaluate(function, arrays), rtol=1e-6)
        assert count == (2, 1) and machines[0].counters.beside == 1


def test_faults_and_memory(registry, machines):
    """A fault in the body is raised by name, and the next runs are right, in the same memory."""
    function = recurrence(3, 4)
    executable = load(function, registry)
    feeds = {"start": x(3, 4), "rows": x(3, 4, seed=1), "w": x(4, 4, seed=2)}
    executable.run(feeds)
    live = machines[0].live
    launches = 0

    def mishap(step):
        nonlocal launches
        launches += step == "launch"
        if launches == 3:
            raise KernelFault("a mishap")

    machines[0].mishap = mishap
    with pytest.raises(KernelFault, match="a mishap"):
        executable.run(feeds)
    machines[0].mishap = lambda step: None
    for turn in range(100):
        outputs = executable.run(feeds, keep_on_device=turn % 2 == 0).values()
        for actual, expected in zip(outputs, evaluate(function, list(feeds.values())), strict=True):
            np.testing.assert_allclose(
                actual.numpy() if isinstance(actual, DeviceArray) else actual, expected, rtol=1e-5, atol=1e-6
            )
        del outputs, actual
    gc.collect()
    assert machines[0].live == live


def test_plans_with_values_in_other_memories_are_refused(registry, machines):
    package = compile_module(ir.Module({"main": recurrence(3, 4)}), ["discrete"], registry).package
    plans = package.program.plans
    main = plans["main"]
    (index,) = (index for index, item in enumerate(main.instructions) if isinstance(item, Loop))
    loop = main.instructions[index]

    def refused(message, name, **changes):
        program = replace(package.program, plans={**plans, name: replace(plans[name], **changes)})
        with pytest.raises(PackageError, match=message):
            Executable(replace(package, program=program), registry=registry)

    def instead(**changes):
        return (*main.instructions[:index], replace(loop, **changes), *main.instructions[index + 1 :])

    refused("expected 3 values, got 0", "main", instructions=instead(spare=()))
    refused("is written twice", "main", instructions=instead(spare=(loop.outputs[0], *loop.spare[1:])))
    body = plans[loop.body]
    values = [replace(value, device="") if value.storage == "input" else value for value in body.values]
    refused("with values in its memories", loop.body, values=tuple(values))
