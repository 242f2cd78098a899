"""Launches recorded as CUDA graphs, of handmade regions and of whole models, with a delaying driver."""

import gc

import numpy as np
import pytest
from tests.threads.handmade import CUDA, Run, scaled

import inlaid
from inlaid import ops
from inlaid.graph import ir
from inlaid_cuda.driver import Status
from inlaid_runtime.arith import SizeVar
from inlaid_runtime.errors import DeviceLost, KernelFault
from inlaid_runtime.types import TensorType

pytestmark = pytest.mark.usefixtures("tidy")
TARGET = "cuda:arch=host"


def record(device, queue, *launches):
    device.begin_capture(queue)
    for run, kernel, dims in launches:
        run.launch(kernel, dims)
    return device.end_capture(queue)


def test_a_graph_runs_on_what_its_memory_holds_by_then(device, queue, loaded):
    kernel, run, other = loaded(CUDA.scaled()).launching, Run(device, queue, np.arange(5), workspace=20), device.queue()
    recording = record(device, queue, (run, kernel, [5]), (run, kernel, [5]))
    assert len(recording.launches) == 4 and not device.context.counted["launch"]
    for value, where in ((1, queue), (2, other), (3, queue)):
        run.x[:] = value
        device.upload(run.x, run.inputs[0], where)
        device.replay(recording, where)
        run.queue = where
        np.testing.assert_array_equal(run.result(), scaled(run.x))
    device.discard(recording)
    device.discard(recording)
    device.release(other)
    run.free()


def test_a_graph_outlives_the_queue_and_the_region_that_it_was_recorded_with(device, queue, loaded):
    kernel, recording_queue = loaded(CUDA.lookup()).launching, device.queue()
    run = Run(device, recording_queue, [0, 7])
    recording = record(device, recording_queue, (run, kernel, [2]))
    device.synchronize(device.event(recording_queue))
    device.release(recording_queue)
    del kernel
    gc.collect()
    run.queue = queue
    device.replay(recording, queue)
    with pytest.raises(KernelFault, match="an index is out of range in kernel kernel0"):
        run.result()
    device.upload(np.array([0, 1], np.float32), run.inputs[0], queue)
    device.replay(recording, queue)
    np.testing.assert_array_equal(run.result(), [0, 10])
    device.discard(recording)
    run.free()


def test_what_is_not_recorded(device, queue, loaded):
    reads, run = loaded(CUDA.counted(later=True)).launching, Run(device, queue, [1, -1], workspace=64)
    assert record(device, queue, (run, reads, [2, 0])) is None
    assert record(device, queue) is None
    device.synchronize(device.event(queue))
    run.launch(reads, [2, 0])
    assert run.result()[0] == 1
    run.free()


def test_a_graph_that_the_driver_does_not_make(device, queue, loaded):
    kernel, run = loaded(CUDA.scaled()).launching, Run(device, queue, np.arange(5), workspace=20)
    device.context.fail(0, fails=("graph",))
    assert record(device, queue, (run, kernel, [5])) is None
    run.launch(kernel, [5])
    np.testing.assert_array_equal(run.result(), scaled(run.x))
    device.context.fail(0, Status.ILLEGAL_ADDRESS, fails=("graph",))
    with pytest.raises(DeviceLost, match="creating a graph of 2 launches on host"):
        record(device, queue, (run, kernel, [5]))
    device.context.heal()
    device.lost = ""
    run.free()


# --- whole models -------------------------------------------------------------------------------------------------------------

N = SizeVar("n")
WEIGHTS = np.random.default_rng(0).uniform(-1, 1, (7, 5)).astype(np.float32)


def model():
    """Compile two kernels over n rows."""
    x = ir.var("x", TensorType((N, 7), "float32"))
    return ir.function([x], ops.softmax(ops.relu(ops.matmul(x, ir.constant(WEIGHTS))), axis=1))


def compiled(function, targets=(TARGET,), **more):
    return inlaid.compile(ir.Module({"main": function}), targets=[*targets], cache=False, **more)


def rows(count, seed=0):
    return np.random.default_rng(seed).uniform(-1, 1, (count, 7)).astype(np.float32)


def check(executable, x, feed=None):
    (actual,) = executable.run({"x": x if feed is None else feed}).values()
    hidden = np.exp(np.maximum(x.astype(np.float64) @ WEIGHTS, 0))
    np.testing.assert_allclose(actual, hidden / hidden.sum(1, keepdims=True), rtol=1e-5)


def test_a_model_that_is_met_again_is_one_graph_and_one_call(device):
    executable, context = compiled(model()), device.context
    for seed in range(3):
        check(executable, rows(4, seed))
    before = context.counted.copy()
    for seed in range(5):
        check(executable, rows(4, seed))
    counted = context.counted - before
    assert (counted["launch_graph"], counted["upload"], counted["download"]) == (5, 5, 5)
    assert not {"launch", "prepare", "graph", "event", "allocate", "synchronize"} & counted.keys()


def test_graphs_of_several_sizes_and_buffers(device):
    executable, context = compiled(model()), device.context
    tensors = {count: executable.to_device("x", rows(count, count)) for count in (1, 4, 9)}
    for _ in range(4):
        for count, tensor in tensors.items():
            check(executable, rows(count, count), tensor)
    before = context.counted.copy()
    for count, tensor in tensors.items():
        check(executable, rows(count, count), tensor)
    counted = context.counted - before
    assert counted["launch_graph"] == 3 and not counted["launch"] and len(context.graphs) == 3


def test_many_sizes_do_not_gather_graphs(device):
    executable = compiled(model())
    for count in [*range(1, 30)] * 3:
        check(executable, rows(count, count))
    assert len(device.context.graphs) <= 16


def test_a_fault_in_a_graph_names_kernel_and_node(device):
    x, i = ir.var("x", TensorType((5, 3), "float32")), ir.var("i", TensorType((4,), "int64"))
    executable = compiled(ir.function((x, i), ops.neg(ops.take(x, i, axis=0))))
    table, right, wrong = np.arange(15, dtype=np.float32).reshape(5, 3), np.array([0, 4, 2, 2]), np.array([0, 5, 2, 2])
    for turn in range(4):
        (actual,) = executable.run({"x": table, "i": right}).values()
        np.testing.assert_array_equal(actual, -table[right])
        with pytest.raises(KernelFault, match="an index is out of range in kernel") as caught:
            executable.run({"x": table, "i": wrong})
        assert caught.value.plugin == "cuda", turn


def test_a_decode_loop_keeps_its_cache_on_the_device(device):
    """The cache is updated in place: only the new row and its index are uploaded, only fault flags downloaded."""
    cache_param, at, row = (
        ir.var(name, TensorType(shape, dtype))
        for name, shape, dtype in (("cache", (8, 16), "float32"), ("at", (1, 1), "int64"), ("row", (1, 16), "float32"))
    )
    executable = compiled(ir.function([cache_param, at, row], ops.scatter_nd(cache_param, at, ops.tanh(row))), donate=["cache"])
    expected = np.zeros((8, 16), np.float32)
    cache = executable.to_device("cache", expected)
    address, context = cache.tensor.buffer.address, device.context
    for step in range(8):
        new_row = rows(1, step)[:, :1].repeat(16, 1)
        before, live = context.counted.copy(), device.live
        (updated,) = executable.run({"cache": cache, "at": np.array([[step]]), "row": new_row}, keep_on_device=True).values()
        counted = context.counted - before
        expected[step] = np.tanh(new_row)
        assert updated is cache and updated.tensor.buffer.address == address
        assert (counted["upload"], counted["download"], counted["copy"]) == (2, 1, 0)
        if step > 2:
            assert device.live == live and counted["launch_graph"] and not counted["launch"] + counted["allocate"]
    np.testing.assert_allclose(cache.numpy(), expected, rtol=1e-6)


def test_a_thousand_runs_do_not_grow(device):
    executable = compiled(model())
    for turn in range(40):
        executable.run({"x": rows(1 + turn % 3)})
    gc.collect()
    before, live = device.context.open_handles(), device.live
    for turn in range(1000):
        executable.run({"x": rows(1 + turn % 3)}, keep_on_device=turn % 3 == 0)
    gc.collect()
    assert (device.context.open_handles(), device.live) == (before, live)


def test_a_model_over_two_targets(device, monkeypatch):
    """The float64 region runs on the host, between two regions on the device."""
    from inlaid_cuda import capabilities

    monkeypatch.setattr(capabilities, "DTYPES", {name: None for name in capabilities.DTYPES if name != "float64"})
    x = ir.var("x", TensorType((8, 16), "float32"))
    y = ops.relu(x)
    back = ops.cast(ops.exp(ops.cast(y, dtype="float64")), dtype="float32")
    executable = compiled(ir.function([x], ir.tuple_([ops.add(back, y), ops.mul(back, y)])), (TARGET, "x86"))
    assert {region.target.split(":")[0] for region in executable.regions} == {"cuda", "x86"}
    for seed in range(5):
        feed = np.random.default_rng(seed).uniform(-1, 1, (8, 16)).astype(np.float32)
        added, multiplied = executable.run({"x": feed}).values()
        expected = np.maximum(feed, 0)
        np.testing.assert_allclose(added, np.exp(expected) + expected, rtol=1e-5)
        np.testing.assert_allclose(multiplied, np.exp(expected) * expected, rtol=1e-5)
