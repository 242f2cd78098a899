"""Tensors on a device whose sizes a plan binds during the run."""

from __future__ import annotations

import gc
import json
import threading
from dataclasses import replace

import numpy as np
import pytest

from inlaid import ops
from inlaid.driver.compile import compile_module
from inlaid.graph import ir
from inlaid.graph.interp import evaluate
from inlaid_runtime.artifact.plan import Move
from inlaid_runtime.artifact.touched import written_by
from inlaid_runtime.errors import KernelFault, OutOfMemory, PackageError
from inlaid_runtime.execution.device_memory import DeviceArray
from inlaid_runtime.execution.executable import Executable
from inlaid_runtime.types import TensorType

SCALAR = TensorType((), "int64")
TRUE = ir.constant(np.array(True))
ROW = np.array([0.5, -1.5, 2.0], np.float32)


def load(function, registry, targets=("discrete",), **options):
    return Executable(compile_module(ir.Module({"main": function}), list(targets), registry, **options).package, registry=registry)


def sized(value, count, name="count"):
    """The rows `value` as often as the scalar `count` says, and the size that is bound to it."""
    witness = ops.bind_size(count, message=name)
    size = witness.type.shape[0]
    return ops.tile(ops.after(value, witness), repeats=(size, 1)), size


def inputs():
    return ir.var("x", TensorType((1, 3), "float32")), ir.var("count", SCALAR)


def feed(count, scale=1.0):
    return [ROW.reshape(1, 3) * np.float32(scale), np.array(count)]


def check(executable, function, arrays):
    """Compare a run with the interpreter, results on the device included."""
    expected = evaluate(function, arrays)
    expected = expected if isinstance(expected, tuple) else (expected,)
    names = [spec.name for spec in executable.inputs]
    for keep in (False, True):
        outputs = executable.run(dict(zip(names, arrays, strict=True)), keep_on_device=keep)
        for actual, expected_output in zip(outputs.values(), expected, strict=True):
            np.testing.assert_allclose(
                actual.numpy() if isinstance(actual, DeviceArray) else actual, expected_output, rtol=1e-5, atol=1e-6
            )


def moved(machine, executable, *arrays):
    """Copies of elements up and down in a run."""
    before = replace(machine.counters)
    executable.run(dict(zip((spec.name for spec in executable.inputs), arrays, strict=True)))
    return machine.counters.up - before.up, machine.counters.down - before.down


def twice():
    """A size that an input gives, and one that the device works out from a tensor of that size; the first tensor is read last."""
    x, count = inputs()
    rows, _ = sized(x, count)
    first = ops.exp(rows)
    total = ops.cast(ops.reduce_sum(ops.abs(rows), axes=(0, 1)), dtype="int64")
    again, _ = sized(ops.relu(x), ops.mod(total, ir.constant(np.int64(7))), "again")
    second = ops.neg(again)
    return ir.function([x, count], ir.tuple_([ops.abs(second), ops.tanh(first), ops.reduce_sum(second, axes=(0, 1))]))


TARGETS = [("discrete",), ("discrete:without=tanh+relu",), ("discrete:without=tanh+exp", "discrete:unit=1,without=neg")]


@pytest.mark.parametrize("targets", TARGETS, ids=["device", "device and host", "two devices"])
def test_sizes_of_any_order(registry, machines, targets):
    """Blocks grow and are used again; sizes of 0 take no memory."""
    function = twice()
    executable = load(function, registry, targets)
    for count in (1, 0, 5, 2, 300, 0, 7, 301, 1000):
        check(executable, function, feed(count))


def test_only_scalars_come_down(registry, machines):
    executable = load(twice(), registry)
    assert {region.target for region in executable.regions} == {"discrete"}
    assert moved(machines[0], executable, *feed(5)) == (1, 4)  # the size and three results


def chosen():
    """Branches that take a tensor of a late size, and give one of another."""
    x, count = inputs()
    rows, _ = sized(x, count)
    exponentials = ops.exp(rows)
    is_long = ops.less(ir.constant(np.int64(3)), count)
    result = ir.if_(is_long, ops.neg(exponentials), ops.tile(ops.abs(exponentials), repeats=(2, 1)))
    return ir.function([x, count], ir.tuple_([ops.relu(result), ops.tanh(exponentials)]))


def looped():
    """A loop that captures a tensor of a late size, carries another, scans and stacks its rows."""
    x, count = inputs()
    rows, size = sized(x, count)
    exponentials, other = ops.exp(rows), ops.neg(rows)
    step, state, row = (
        ir.var("step", SCALAR),
        ir.var("state", TensorType((size, 3), "float32")),
        ir.var("row", TensorType((3,), "float32")),
    )
    after = ops.tanh(ops.add(ops.mul(state, exponentials), row))
    body = ir.function([step, state, row], ir.tuple_([TRUE, after, ops.reduce_sum(after, axes=(0,))]))
    loop = ir.loop(body, state=[other], scanned=[ops.abs(rows)])
    return ir.function(
        [x, count], ir.tuple_([ops.relu(ir.tuple_item(loop, 0)), ops.neg(ir.tuple_item(loop, 1)), ops.abs(exponentials)])
    )


def repeated():
    """A size that each iteration of a loop binds anew."""
    x, count = inputs()
    start = ops.exp(x)
    step, state = ir.var("step", SCALAR), ir.var("state", TensorType((1, 3), "float32"))
    rows, _ = sized(ops.neg(state), ops.mod(ops.mul(step, count), ir.constant(np.int64(5))))
    after = ops.tanh(ops.sub(ops.reduce_sum(ops.abs(rows), axes=(0,), keepdims=True), state))
    body = ir.function([step, state], ir.tuple_([TRUE, after]))
    loop = ir.loop(body, state=[start], trip_count=ops.add(count, ir.constant(np.int64(2))))
    return ir.function([x, count], ops.abs(ir.tuple_item(loop, 0)))


@pytest.mark.parametrize("targets", TARGETS, ids=["device", "device and host", "two devices"])
@pytest.mark.parametrize("make_function", [chosen, looped, repeated])
def test_plans_inside_plans(registry, machines, make_function, targets):
    function = make_function()
    executable = load(function, registry, targets)
    for count in (1, 4, 0, 7, 3, 40, 2):
        check(executable, function, feed(count, 0.5))


def test_branches_keep_late_sizes_on_the_device(registry, machines):
    executable = load(chosen(), registry)
    for count in (2, 5):
        assert moved(machines[0], executable, *feed(count)) == (
            2,
            3,
        )  # x and the count go up; the condition and two results come down


def test_a_capture_goes_up_once(registry, machines):
    """However many iterations a loop has, what it captures stays on the device; state of a late size passes by the host."""
    x, count = inputs()
    rows, _ = sized(x, count)
    exponentials = ops.exp(rows)
    step, state = ir.var("step", SCALAR), ir.var("state", TensorType((1, 3), "float32"))
    after = ops.add(state, ops.reduce_max(ops.mul(exponentials, state), axes=(0,), keepdims=True))
    loop = ir.loop(ir.function([step, state], ir.tuple_([TRUE, after])), state=[ops.neg(x)], trip_count=count)
    function = ir.function([x, count], ir.tuple_([ir.tuple_item(loop, 0), ops.abs(exponentials)]))
    executable = load(function, registry)
    for rounds in (2, 7):
        check(executable, function, feed(rounds, 0.1))
        assert moved(machines[0], executable, *feed(rounds)) == (1, 2)


def test_an_update_in_place(registry, machines):
    """A tensor of a late size is updated in its block where nothing reads it later, and in a copy otherwise."""
    for read_later in (False, True):
        x, count = inputs()
        rows, _ = sized(x, count)
        exponentials = ops.exp(rows)
        updated = ops.scatter_nd(exponentials, ir.constant(np.array([[1]])), ir.constant(np.full((1, 3), 7, np.float32)))
        function = ir.function([x, count], ir.tuple_([ops.neg(updated), *([ops.abs(exponentials)] if read_later else [])]))
        executable = load(function, registry)
        for size in (2, 5, 90):
            check(executable, function, feed(size))


@pytest.mark.parametrize("make_function", [twice, chosen, looped])
def test_memory(registry, machines, make_function):
    """Blocks grow to the largest run and stay; all is given back with the executable."""
    function = make_function()
    executable = load(function, registry)
    executable.run(dict(zip(("x", "count"), feed(40), strict=True)))
    live = machines[0].live
    for turn in range(1000 if make_function is twice else 12):
        executable.run(dict(zip(("x", "count"), feed(turn * 7 % 41 if turn % 4 else 5), strict=True)), keep_on_device=turn % 3 == 0)
    gc.collect()
    assert machines[0].live <= live + 8192  # the second size of `twice` differs
    if make_function is not looped:
        executable.run(dict(zip(("x", "count"), feed(4000), strict=True)))
        assert machines[0].live > live + 40_000
    del executable
    gc.collect()
    assert machines[0].live == 0


def test_values_that_do_not_live_at_once_share_memory(registry, machines):
    """Of a chain of regions between host operators only two tensors live at once."""
    x, count = inputs()
    value, _ = sized(x, count)
    for _ in range(6):
        value = ops.tanh(ops.neg(value))
    executable = load(ir.function([x, count], value), registry, ("discrete:without=tanh",))
    executable.run(dict(zip(("x", "count"), feed(1000), strict=True)))
    assert machines[0].live < 3 * 12_000 + 8192


def test_faults(registry, machines):
    """A size that does not fit is an error that names what is at fault; the next run is right."""
    function = twice()
    executable = load(function, registry)
    machines[0].capacity = 100_000
    for count, error, message in ((10_000, OutOfMemory, "bytes left"), (-1, KernelFault, "count must be 0 to")):
        check(executable, function, feed(3))
        with pytest.raises(error, match=message):
            executable.run(dict(zip(("x", "count"), feed(count), strict=True)))
    for step in ("upload", "launch", "download"):

        def mishap(now, step=step):
            if now == step:
                raise KernelFault(f"a mishap at the {now}")

        machines[0].mishap = mishap
        with pytest.raises(KernelFault, match="a mishap"):
            executable.run(dict(zip(("x", "count"), feed(5), strict=True)))
        machines[0].mishap = lambda now: None
        check(executable, function, feed(5))


def test_threads(registry, machines):
    function = chosen()
    executable = load(function, registry)
    failed = []

    def work(number):
        try:
            for turn in range(8):
                check(executable, function, feed((number * 5 + turn * 3) % 11))
        except AssertionError as error:
            failed.append(error)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failed


def test_profiles(registry, machines):
    """Regions, kernels and copies of late sizes are named and timed."""
    executable = load(twice(), registry)
    profile = executable.profile(dict(zip(("x", "count"), feed(5), strict=True)))
    assert {event.kind for event in profile.events} == {"region", "kernel", "copy"}
    assert {event.target for event in profile.events} == {"discrete"}
    trace = json.loads(profile.chrome_trace())
    assert sum(event.get("cat") == "copy" for event in trace["traceEvents"]) == sum(e.kind == "copy" for e in profile.events)


def test_plans_that_give_a_block_away_are_refused(registry, machines):
    package = load(twice(), registry).package
    plan = package.program.plans["main"]
    late = next(number for number, value in enumerate(plan.values) if value.storage == "dynamic" and value.device)
    value = plan.values[late]
    instructions = list(plan.instructions)
    index = next(step for step, item in enumerate(instructions) if late in written_by(item)) + 1
    instructions.insert(index, Move(late, len(plan.values), donate=True))
    changed = replace(plan, values=(*plan.values, replace(value, storage="arena")), instructions=tuple(instructions))
    with pytest.raises(PackageError, match="must be in a device block"):
        Executable(replace(package, program=replace(package.program, plans={"main": changed})), registry=registry)
