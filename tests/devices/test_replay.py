"""Recorded launches: what a run meets again on the same memory is replayed, and never on other memory or sizes."""

from __future__ import annotations

import gc

import numpy as np
import pytest

from inlaid import ops
from inlaid.driver.compile import compile_module
from inlaid.graph import ir
from inlaid_runtime.arith import SizeVar
from inlaid_runtime.errors import KernelFault
from inlaid_runtime.execution.executable import Executable
from inlaid_runtime.types import TensorType


def x(rows, seed=0):
    return np.random.default_rng(seed).uniform(-1, 1, (rows, 4)).astype(np.float32)


def expected_output(array):
    return -np.maximum(array, 0) + np.tanh(np.maximum(array, 0))


@pytest.fixture
def executable(registry, machines):
    """Two regions on the device with one of the host's between them, over float32 [n, 4]."""
    x_var = ir.var("x", TensorType((SizeVar("n"), 4), "float32"))
    shared = ops.relu(x_var)
    function = ir.function([x_var], ops.add(ops.neg(shared), ops.tanh(shared)))
    package = compile_module(ir.Module({"main": function}), ["discrete:without=tanh"], registry).package
    return Executable(package, registry=registry)


def run(executable, array):
    (actual,) = executable.run({"x": array}).values()
    np.testing.assert_allclose(actual, expected_output(array if isinstance(array, np.ndarray) else array.numpy()), rtol=1e-6)


def test_what_comes_again_is_replayed(executable, machines):
    for seed in range(6):
        run(executable, x(3, seed))
    counters = machines[0].counters
    # Each of the two launches runs once by itself, and is recorded when it is met again.
    assert (counters.captures, counters.replays, counters.launches) == (2, 10, 12)


def test_each_size_is_recorded_until_the_arena_grows(executable, machines):
    for rows in (3, 3, 3, 8, 8, 8, 3, 1, 3, 8):
        run(executable, x(rows, rows))
        assert len(machines[0].recordings) <= 4
    assert machines[0].counters.replays == 12


def test_other_memory_is_recorded_anew(executable, machines):
    first, second = (executable.to_device("x", x(3, seed)) for seed in range(2))
    for turn in range(8):
        run(executable, (first, second)[turn % 2])
    counters = machines[0].counters
    assert (counters.captures, counters.replays) == (3, 13)  # the second region reads what does not change
    del first
    gc.collect()
    for seed in range(40):
        run(executable, executable.to_device("x", x(3, seed)))
    assert len(machines[0].recordings) <= 16


def test_recordings_go_with_the_executable(registry, machines):
    x_var = ir.var("x", TensorType((3, 4), "float32"))
    package = compile_module(ir.Module({"main": ir.function([x_var], ops.relu(x_var))}), ["discrete"], registry).package
    executable = Executable(package, registry=registry)
    for _ in range(3):
        executable.run({"x": x(3)})
    assert machines[0].recordings
    del executable
    gc.collect()
    assert not machines[0].recordings and machines[0].live == 0


def test_a_device_may_refuse_to_record(executable, machines):
    machines[0].captures = False
    for seed in range(4):
        run(executable, x(3, seed))
    assert machines[0].counters.replays == 0 and machines[0].counters.launches == 8


def test_a_launch_that_fails_while_it_is_recorded(executable, machines):
    run(executable, x(3))
    real = machines[0].launch

    def launch(*args):
        raise KernelFault("a mishap")

    machines[0].launch = launch
    with pytest.raises(KernelFault, match="a mishap"):
        run(executable, x(3))
    machines[0].launch = real
    for seed in range(4):
        run(executable, x(3, seed))
    assert len(machines[0].recordings) == 2


def test_the_rounds_of_a_loop_are_replayed(registry, machines):
    """State lives in two buffers by turns: each of the two kinds of rounds is recorded."""
    start = ir.var("x", TensorType((3, 16), "float32"))
    step, state = ir.var("step", TensorType((), "int64")), ir.var("state", TensorType((3, 16), "float32"))
    body = ir.function([step, state], ir.tuple_([ir.constant(np.array(True)), ops.tanh(ops.neg(state))]))
    loop = ir.loop(body, state=[start], trip_count=ir.constant(np.int64(20)))
    module = ir.Module({"main": ir.function([start], ir.tuple_item(loop, 0))})
    executable = Executable(compile_module(module, ["discrete"], registry).package, registry=registry)
    x_array = np.random.default_rng(0).uniform(-1, 1, (3, 16)).astype(np.float32)
    expected = x_array
    for _ in range(20):
        expected = np.tanh(-expected)
    (actual,) = executable.run({"x": x_array}).values()
    np.testing.assert_allclose(actual, expected, rtol=1e-5)
    assert machines[0].counters.launches == 20 and machines[0].counters.replays >= 16


def test_profiles_name_kernels_and_nodes(registry, machines):
    """A device's kernels say by number how long they took; the profile knows what they are."""
    x_var = ir.var("x", TensorType((3, 4), "float32"))
    first = ops.relu(x_var, span=ir.Span("model", "first"))
    second = ops.exp(first, span=ir.Span("model", "second"))
    package = compile_module(ir.Module({"main": ir.function([x_var], second)}), ["discrete"], registry).package
    executable = Executable(package, registry=registry)
    for _ in range(3):
        executable.run({"x": x(3)})
    profile = executable.profile({"x": x(3)})
    kernels = [event for event in profile.events if event.region]
    assert [event.name for event in kernels] == ["relu", "exp"]
    assert all("first" in event.nodes[0] or "second" in event.nodes[0] for event in kernels)
    assert [row.name for row in profile.rows() if row.nodes and "second" in row.nodes[0]] == ["exp"]
    assert sum(event.seconds for event in kernels) <= profile.seconds
    assert kernels[0].start <= kernels[1].start
