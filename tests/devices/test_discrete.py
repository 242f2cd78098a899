"""Device memory, on an accelerator whose queues run late and whose buffers nobody can look into."""

from __future__ import annotations

import gc
import threading
from dataclasses import replace

import numpy as np
import pytest

from inlaid import ops
from inlaid.driver import compile_module
from inlaid.graph import ir
from inlaid.graph.interp import evaluate
from inlaid_runtime.arith import SizeVar
from inlaid_runtime.artifact.plan import Bind, Move, Value, Wait
from inlaid_runtime.errors import DeviceLost, InputError, KernelFault, OutOfMemory, PackageError, PluginError
from inlaid_runtime.execution.device_memory import DeviceArray, DeviceWork
from inlaid_runtime.execution.executable import Executable
from inlaid_runtime.execution.package import read_package
from inlaid_runtime.types import TensorType, dtype

F32 = np.dtype("float32")


def compiled(module, targets, registry, devices=None):
    """A module, ready to run on devices by number."""
    return Executable(compile_module(module, targets, registry).package, registry=registry, devices=devices)


def model(*names: str) -> ir.Module:
    """A chain of operators over float32[n, 4]."""
    x = ir.var("x", TensorType((SizeVar("n"), 4), "float32"))
    value: ir.Expr = x
    for name in names:
        value = getattr(ops, name)(value)
    return ir.Module({"main": ir.function((x,), value)})


def X(rows=3):
    return np.random.default_rng(rows).uniform(-1, 1, (rows, 4)).astype(np.float32)


def test_a_region_runs_in_memory_of_its_own(registry, machines):
    executable = compiled(model("relu", "neg", "exp"), ["discrete"], registry)
    for rows in (3, 1, 7, 0, 3):
        x = X(rows)
        (actual,) = executable.run({"x": x}).values()
        np.testing.assert_array_equal(actual, np.exp(-np.maximum(x, 0)))
    assert machines[0].counters.launches and not machines[1].counters.launches


def fork() -> ir.Module:
    """relu(x) goes to two regions, of which one reads what a tanh makes of it."""
    x = ir.var("x", TensorType((3, 4), "float32"))
    shared = ops.relu(x)
    return ir.Module({"main": ir.function((x,), ops.add(ops.neg(shared), ops.tanh(shared)))})


def forked(x):
    return -np.maximum(x, 0) + np.tanh(np.maximum(x, 0))


def test_regions_of_one_device_exchange_nothing_with_the_host(registry, machines):
    executable = compiled(fork(), ["discrete:without=tanh"], registry)
    assert len(executable.regions) == 3
    (actual,) = executable.run({"x": X()}).values()
    np.testing.assert_allclose(actual, forked(X()), rtol=1e-6)
    counters = machines[0].counters
    # x and the tanh go up, the relu and the result come down; from region to region nothing moves.
    assert (counters.up, counters.down, counters.beside, counters.launches) == (2, 2, 0, 2)


def test_two_devices_of_one_kind(registry, machines):
    executable = compiled(fork(), ["discrete:without=tanh", "discrete:unit=1"], registry, devices={"discrete:unit=1": 1})
    for rows in range(5):
        x = X(3) * rows
        (actual,) = executable.run({"x": x}).values()
        np.testing.assert_allclose(actual, forked(x), rtol=1e-6)
    assert machines[0].counters.launches == 10 and machines[1].counters.launches == 5


def test_inputs_and_results_stay_on_the_device(registry, machines):
    executable = compiled(model("relu", "neg"), ["discrete"], registry)
    device_input = executable.to_device("x", X())
    assert (
        isinstance(device_input, DeviceArray)
        and device_input.shape == (3, 4)
        and device_input.dtype == F32
        and device_input.nbytes == 48
    )
    before = machines[0].counters.up, machines[0].counters.down
    value = {"x": device_input}
    for _ in range(3):
        (device_output,) = executable.run(value, keep_on_device=True).values()
        value = {"x": device_output}
    assert (machines[0].counters.up, machines[0].counters.down) == before
    assert isinstance(device_output, DeviceArray) and repr(device_output) == "<DeviceArray float32[3, 4] on discrete>"
    np.testing.assert_array_equal(device_output.numpy(), np.zeros((3, 4)))
    np.testing.assert_array_equal(device_input.numpy(), X())
    device_input.assign(-X())
    (actual,) = executable.run({"x": device_input}).values()
    np.testing.assert_array_equal(actual, -np.maximum(-X(), 0))
    with pytest.raises(InputError, match="expected an array of its shape"):
        device_input.assign(X(5))
    with pytest.raises(InputError, match="got dtype float64"):
        executable.run({"x": DeviceArray.empty(device_input.memory, (3, 4), np.dtype("float64"))})
    with pytest.raises(InputError, match="are mutually exclusive"):
        executable.run({"x": device_input}, out={}, keep_on_device=True)


def test_what_the_host_reads_too_comes_down(registry, machines):
    """An input in a device's memory that the host reads as well is copied there, and a result that it reads is an array."""
    x = ir.var("x", TensorType((3, 4), "float32"))
    shared = ops.relu(x)
    body = ir.tuple_((shared, ops.tanh(shared), ops.tanh(x)))
    executable = compiled(ir.Module({"main": ir.function((x,), body)}), ["discrete:without=tanh"], registry)
    assert executable.to_device("x", X()) is not None
    outputs = list(executable.run({"x": X()}, keep_on_device=True).values())
    for actual, expected in zip(outputs, (np.maximum(X(), 0), np.tanh(np.maximum(X(), 0)), np.tanh(X())), strict=True):
        np.testing.assert_allclose(actual.numpy() if isinstance(actual, DeviceArray) else actual, expected, rtol=1e-6)


def test_arrays_of_another_executable(registry, machines):
    """A `DeviceArray` is read where it lies by executables that have the same device, and copied by others."""
    first, second = (compiled(model("relu"), ["discrete"], registry, devices={"discrete": number}) for number in (0, 1))
    (device_output,) = first.run({"x": X()}, keep_on_device=True).values()
    (actual,) = second.run({"x": device_output}).values()
    np.testing.assert_array_equal(actual, np.maximum(X(), 0))
    reference = compiled(model("neg"), ["reference"], registry)
    (actual,) = reference.run({"x": device_output}).values()
    np.testing.assert_array_equal(actual, -np.maximum(X(), 0))


def test_results_in_arrays_of_the_caller(registry, machines):
    executable = compiled(model("relu"), ["discrete"], registry)
    (name,) = (spec.name for spec in executable.outputs)
    out = np.full((3, 4), np.nan, np.float32)
    outputs = executable.run({"x": X()}, out={name: out})
    assert outputs[name] is out
    np.testing.assert_array_equal(out, np.maximum(X(), 0))


def test_results_in_arrays_on_the_device(registry, machines):
    """Inputs and outputs that stay bound, as in a serving loop, move nothing and allocate nothing."""
    executable = compiled(model("relu", "neg"), ["discrete"], registry)
    (name,) = (spec.name for spec in executable.outputs)
    device_input = executable.to_device("x", X())
    (out,) = executable.run({"x": device_input}, keep_on_device=True).values()
    before, live = replace(machines[0].counters), machines[0].live
    for sign in (1, -1):
        device_input.assign(X() * np.float32(sign))
        assert executable.run({"x": device_input}, out={name: out})[name] is out
        np.testing.assert_array_equal(out.numpy(), -np.maximum(X() * sign, 0))
    counters = machines[0].counters
    assert (counters.up - before.up, counters.down - before.down) == (2, 2)  # those of assign and numpy
    assert machines[0].live == live
    assert executable.run({"x": out}, out={name: out})[name] is out  # read and written
    np.testing.assert_array_equal(out.numpy(), np.zeros((3, 4)))
    other = DeviceArray.empty(device_input.memory, (5, 4), F32)
    with pytest.raises(InputError, match="must have shape"):
        executable.run({"x": device_input}, out={name: other})
    host = compiled(model("relu", "neg"), ["reference"], registry)
    (actual,) = host.run({"x": -X()}, out={next(spec.name for spec in host.outputs): out}).values()
    assert actual is out
    np.testing.assert_array_equal(out.numpy(), -np.maximum(-X(), 0))


def test_sizes_that_a_kernel_works_out(registry, machines):
    x = ir.var("x", TensorType((12,), "float32"))
    where = ops.nonzero(ops.less(ir.constant(np.float32(0)), x))
    executable = compiled(ir.Module({"main": ir.function((x,), where)}), ["discrete"], registry)
    assert {region.target for region in executable.regions} == {"discrete"}
    for seed in range(6):
        x = np.random.default_rng(seed).uniform(-1, 1, 12).astype(np.float32)
        (actual,) = executable.run({"x": x}).values()
        np.testing.assert_array_equal(actual.reshape(-1), np.flatnonzero(x > 0))
    (device_output,) = executable.run({"x": x}, keep_on_device=True).values()
    np.testing.assert_array_equal(device_output.numpy().reshape(-1), np.flatnonzero(x > 0))


def test_branches_and_loops(registry, machines):
    """Plans that a plan runs take and give values of the host's."""
    x = ir.var("x", TensorType((3, 4), "float32"))
    positive = ops.less(ir.constant(np.float32(0)), ops.reduce_sum(x, axes=(0, 1)))
    body = ir.if_(positive, ops.exp(ops.relu(x)), ops.neg(x))
    executable = compiled(ir.Module({"main": ir.function((x,), ops.abs(body))}), ["discrete"], registry)
    for sign in (1, -1, 1):
        x = np.abs(X()) * np.float32(sign)
        (actual,) = executable.run({"x": x}).values()
        np.testing.assert_allclose(actual, np.exp(x) if sign > 0 else -x, rtol=1e-6)


def test_memory_does_not_grow(registry, machines):
    executable = compiled(model("relu", "neg"), ["discrete"], registry)
    executable.run({"x": X(8)})
    live = machines[0].live
    assert live
    for turn in range(1000):
        executable.run({"x": X(1 + turn % 8)}, keep_on_device=turn % 3 == 0)
    gc.collect()
    assert machines[0].live == live
    del executable
    gc.collect()
    assert machines[0].live == 0


def test_threads(registry, machines):
    executable = compiled(fork(), ["discrete:without=tanh"], registry)
    wrong = []

    def work(number):
        for turn in range(20):
            x = X(3) * (number * 20 + turn)
            (actual,) = executable.run({"x": x}).values()
            if not np.allclose(actual, forked(x), rtol=1e-6):
                wrong.append((number, turn))

    threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


@pytest.mark.parametrize("step", ["upload", "launch", "download"])
@pytest.mark.parametrize("kind", [KernelFault, OutOfMemory])
def test_faults_are_raised_by_name_and_the_next_run_is_right(registry, machines, step, kind):
    executable = compiled(fork(), ["discrete:without=tanh"], registry)

    def mishap(now):
        if now == step:
            raise kind(f"a mishap at the {now}")

    machines[0].mishap = mishap
    with pytest.raises(kind, match=f"a mishap at the {step}") as caught:
        executable.run({"x": X()})
    assert caught.value.plugin == "discrete"
    machines[0].mishap = lambda now: None
    (actual,) = executable.run({"x": X()}).values()
    np.testing.assert_allclose(actual, forked(X()), rtol=1e-6)


def test_a_device_without_room(registry, machines):
    executable = compiled(model("relu"), ["discrete"], registry)
    machines[0].capacity = 4096
    executable.run({"x": X()})
    with pytest.raises(OutOfMemory, match="bytes left"):
        executable.run({"x": X(1000)})
    (actual,) = executable.run({"x": X()}).values()
    np.testing.assert_array_equal(actual, np.maximum(X(), 0))


def test_a_lost_device(registry, machines):
    executable = compiled(model("relu"), ["discrete"], registry)
    machines[0].lost = True
    with pytest.raises(DeviceLost, match="does not answer"):
        executable.run({"x": X()})
    with pytest.raises(DeviceLost):
        executable.run({"x": X()})
    other = compiled(model("relu"), ["discrete"], registry, devices={"discrete": 1})
    (actual,) = other.run({"x": X()}).values()
    np.testing.assert_array_equal(actual, np.maximum(X(), 0))


def test_a_package(registry, machines, tmp_path):
    compiled(fork(), ["discrete:without=tanh"], registry).save(tmp_path / "fork.inlaid")
    loaded = Executable(read_package(tmp_path / "fork.inlaid"), registry=registry, devices={"discrete": 1})
    (actual,) = loaded.run({"x": X()}).values()
    np.testing.assert_allclose(actual, forked(X()), rtol=1e-6)
    assert machines[1].counters.launches == 2


def test_profiles(registry, machines):
    executable = compiled(fork(), ["discrete:without=tanh"], registry)
    profile = executable.profile({"x": X()})
    outer = [event for event in profile.events if not event.region]
    assert [event.kind for event in outer].count("region") == 3 and sum(event.seconds for event in outer) <= profile.seconds
    copies = [event for event in outer if event.kind == "copy"]
    assert {event.name for event in copies} == {"copy up", "copy down"} and all(event.bytes == X().nbytes for event in copies)


def test_plans_that_cheat_are_refused(registry, machines):

    package = compiled(fork(), ["discrete:without=tanh"], registry).package
    plan = package.program.plans["main"]

    def load(**changes):
        changed = replace(package.program, plans={"main": replace(plan, **changes)})
        return Executable(replace(package, program=changed), registry=registry)

    load()
    without = tuple(item for item in plan.instructions if not isinstance(item, Wait))
    with pytest.raises(PackageError, match="before its device has computed it"):
        load(instructions=without)
    first = next(index for index, item in enumerate(plan.instructions) if isinstance(item, Move))
    with pytest.raises(PackageError, match="before it is written"):
        load(instructions=plan.instructions[:first] + plan.instructions[first + 1 :])
    values = tuple(replace(value, device="") for value in plan.values)
    with pytest.raises(PluginError, match="loads regions that use device memory"):
        load(values=values)
    with pytest.raises(PackageError, match="does not fit an arena"):
        load(arenas=dict.fromkeys(plan.arenas, 0)).run({"x": X()})
    with pytest.raises(PackageError, match="cannot be on a device"):
        load(values=tuple(replace(value, device="discrete") for value in plan.values))
    with pytest.raises(PackageError, match=r"device 'discrete.*' has no arena"):
        load(arenas={})
    with pytest.raises(PackageError, match="no region runs on device 'other'"):
        load(arenas={**plan.arenas, "other": 64})
    with pytest.raises(PackageError, match="device 'other' has no arena"):
        load(instructions=(Wait("other"), *plan.instructions))
    (host,) = {info.target for info in package.program.regions} - set(plan.arenas)
    with pytest.raises(PackageError, match=r"no region of .* uses device memory"):
        load(arenas={**plan.arenas, host: 64})
    up = plan.instructions[first]
    assert plan.values[up.target].device
    witness = Value("arena", dtype("bool"), (SizeVar("?late"), 0))
    with pytest.raises(PackageError, match=f"value {up.target} is on discrete"):
        load(values=(*plan.values, witness), instructions=(up, Bind(up.target, len(plan.values), "late", "")))


def test_copies_between_tensors_of_other_types_are_refused(registry, machines):
    """A called plan may return other shapes than its caller has room for."""
    device_array = compiled(model("relu"), ["discrete"], registry).to_device("x", X())
    work, host = DeviceWork(device_array.memory), np.zeros((3, 4), np.float32)
    for other in (replace(device_array.tensor, shape=(2, 4)), replace(device_array.tensor, dtype=np.dtype("float64"))):
        for copy in (
            lambda other=other: work.copy(device_array.tensor, other),
            lambda other=other: work.copy(other, device_array.tensor),
            lambda other=other: work.upload(host, other),
            lambda other=other: work.download(other, host),
            lambda other=other: work.upload_apart(host, other, 0),
        ):
            with pytest.raises(KernelFault, match=r"expected a value of float.. and shape \(., 4\), got float"):
                copy()
    array_copy = device_array.copy()
    work.copy(device_array.tensor, array_copy.tensor)
    work.wait()


@pytest.mark.parametrize("seed", range(12))
def test_random_cuts(registry, machines, seed):
    """Random graphs of which the device takes some operators, with results kept or not."""
    dice = np.random.default_rng(seed)
    x = ir.var("x", TensorType((3, 4), "float32"))
    values: list[ir.Expr] = [x]
    for _ in range(14):
        name = dice.choice(["relu", "neg", "tanh", "sin", "add", "mul"])
        args = [values[dice.integers(len(values))] for _ in range(2 if name in ("add", "mul") else 1)]
        values.append(getattr(ops, name)(*args))
    chosen = [values[dice.integers(1, len(values))] for _ in range(dice.integers(1, 4))]
    function = ir.function((x,), ir.tuple_((*chosen, values[-1])))
    targets = [["discrete:without=tanh+sin"], ["discrete:without=tanh", "discrete:unit=1,without=sin"]][seed % 2]
    executable = compiled(ir.Module({"main": function}), targets, registry)
    expected = evaluate(function, [X()])
    for keep in (False, True):
        outputs = executable.run({"x": X()}, keep_on_device=keep).values()
        for actual, expected_output in zip(outputs, expected, strict=True):
            np.testing.assert_allclose(
                actual.numpy() if isinstance(actual, DeviceArray) else actual, expected_output, rtol=1e-5, atol=1e-6
            )


def test_inputs_are_copied_beside_kernels(registry, machines):
    """The second input may arrive after the first kernel has run, and never after the one that reads it."""
    x, y = (ir.var(name, TensorType((3, 4), "float32")) for name in "xy")
    first = ops.relu(x)
    body = ops.add(ops.add(ops.tanh(first), y), first)
    executable = compiled(ir.Module({"main": ir.function((x, y), body)}), ["discrete:without=tanh"], registry)
    orders = set()
    for turn in range(40):
        machines[0].log.clear()
        (actual,) = executable.run({"x": X() * turn, "y": X(3) - turn}).values()
        shared_value = np.maximum(X() * turn, 0)
        np.testing.assert_allclose(actual, np.tanh(shared_value) + (X(3) - turn) + shared_value, rtol=1e-6)
        orders.add(tuple(step for step, _ in machines[0].log))
        (kernels,) = {queue for step, queue in machines[0].log if step == "launch"}
        assert {queue for step, queue in machines[0].log[:2] if step == "upload"} and kernels
    assert len(orders) > 1  # the queues are out of step
    copied = [queue for step, queue in machines[0].log if step == "upload"]
    assert len(copied) == 3 and copied.count(kernels) == 1  # only what the host makes is copied in line with kernels
    assert machines[0].counters.pinned


class Foreign:
    """A tensor of another library, which knows DLPack alone."""

    def __init__(self, array):
        self.array = array

    def __dlpack__(self, **options):
        return self.array.__dlpack__(**options)

    def __dlpack_device__(self):
        return self.array.__dlpack_device__()


def test_tensors_of_other_libraries_pass_without_a_copy(registry, machines):
    executable = compiled(model("relu"), ["discrete"], registry)
    (device_output,) = executable.run({"x": X()}, keep_on_device=True).values()
    before = replace(machines[0].counters)
    (actual,) = executable.run({"x": Foreign(device_output)}, keep_on_device=True).values()
    assert (machines[0].counters.up, machines[0].counters.down) == (before.up, before.down)
    np.testing.assert_array_equal(actual.numpy(), np.maximum(X(), 0))
    live = machines[0].live
    capsule = device_output.__dlpack__()
    del device_output, actual
    gc.collect()
    assert machines[0].live == live - 48  # the capsule has the other
    del capsule
    gc.collect()
    assert machines[0].live == live - 96
    x = Foreign(X())
    (actual,) = executable.run({"x": x}).values()  # one in host memory is copied
    np.testing.assert_array_equal(actual, np.maximum(X(), 0))
