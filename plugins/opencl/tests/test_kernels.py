"""Regions whose kernels are written by hand: their launches, sizes, faults and times."""

import dataclasses
import gc
import threading
from pathlib import Path

import numpy as np
import pyopencl as cl
import pytest

from inlaid.errors import KernelFault, OutOfMemory, Unsupported
from inlaid.runtime.launch_regions import KEPT
from inlaid.runtime.launches import Launch, LaunchPlan, Place, Size, Step
from inlaid_opencl import sessions
from inlaid_opencl.runtime import OpenCLRuntime

from .failing import failing
from .handmade import Run, artifact, counted, lookup, scaled

pytestmark = pytest.mark.usefixtures("tidy")


def loaded(made):
    return OpenCLRuntime(0).load(made, made.constants)


def expected(x):
    return 3 * (2 * np.asarray(x, np.float32) + 0.5) + 0.5


def test_launches_at_several_sizes(device, queue):
    kernel = loaded(scaled()).launching
    for size in (100, 1, 64, 100):
        run = Run(device, queue, np.arange(size), workspace=4 * size)
        run.launch(kernel, np.array([size]))
        np.testing.assert_array_equal(run.result(), expected(run.x))
        run.free()


def test_a_run_of_nothing(device, queue):
    run = Run(device, queue, [])
    run.launch(loaded(scaled()).launching, np.array([0]))
    assert run.result().size == 0
    run.free()


def test_a_repeated_run_only_enqueues(device, queue, monkeypatch):
    kernel, run = loaded(scaled()).launching, Run(device, queue, np.arange(10), workspace=40)
    run.launch(kernel, np.array([10]))
    with monkeypatch.context() as patch:
        patch.setattr(sessions.KernelSession, "bind", None)
        for _ in range(3):
            run.launch(kernel, np.array([10]))
    np.testing.assert_array_equal(run.result(), expected(run.x))
    run.free()


def test_kernel_objects_are_bounded(device, queue, monkeypatch):
    made = []
    real = sessions.RegionCode.new_kernel
    monkeypatch.setattr(sessions.RegionCode, "new_kernel", lambda code, number: made.append(number) or real(code, number))
    kernel, runs = loaded(scaled()).launching, []
    for size in range(1, 50):
        runs.append(Run(device, queue, np.full(size, size), workspace=4 * size))
        runs[-1].launch(kernel, np.array([size]))
    assert len(made) <= 2 * KEPT
    for run in runs:
        np.testing.assert_array_equal(run.result(), expected(run.x))
        run.free()


def test_an_index_out_of_range(device, queue):
    kernel = loaded(lookup()).launching
    right, wrong = Run(device, queue, [0, 1, 2]), Run(device, queue, [0, 7, 2])
    for _ in range(2):
        wrong.launch(kernel, np.array([3]))
        right.launch(kernel, np.array([3]))
        with pytest.raises(KernelFault, match="region region: an index is out of range in kernel kernel0") as caught:
            right.result()
        assert caught.value.node == "node0"
        right.launch(kernel, np.array([3]))
        np.testing.assert_array_equal(right.result(), [0, 10, 20])
    for run in (right, wrong):
        run.free()


def test_a_fault_is_raised_by_the_event_behind_it(device, queue):
    kernel, wrong = loaded(lookup()).launching, Run(device, queue, [9])
    before = device.event(queue)
    wrong.launch(kernel, np.array([1]))
    behind = device.event(queue)
    device.event(queue)
    device.synchronise(before)
    with pytest.raises(KernelFault):
        device.synchronise(behind)
    device.synchronise(device.event(queue))
    wrong.free()


@pytest.mark.parametrize("later", [False, True])
def test_sizes_that_a_region_works_out(device, queue, later):
    kernel = loaded(counted(later)).launching
    for x in ([1, -1, 2, 3], [-1, -1], [5]):
        run, dims = Run(device, queue, x, workspace=64), np.array([len(x), 0])
        run.launch(kernel, dims)
        found, count = run.result(), sum(value > 0 for value in x)
        assert dims.tolist() == [len(x), count]
        assert not later or (found[:count] == count).all()
        run.free()


def test_a_size_beyond_its_bound(device, queue):
    made = counted(later=True)
    dims = (made.signature.dims[0], dataclasses.replace(made.signature.dims[1], upper=1))
    kernel = loaded(dataclasses.replace(made, signature=dataclasses.replace(made.signature, dims=dims))).launching
    run = Run(device, queue, [1, 2], workspace=64)
    with pytest.raises(KernelFault, match=r"gave \?k = 2, which may be 0 to 1"):
        run.launch(kernel, np.array([2, 0]))
    run.free()


def test_times(device, queue):
    region, run = loaded(scaled()), Run(device, queue, np.arange(1000), workspace=4000)
    times = region.timed_launch(run.inputs, run.outputs, run.workspace, np.array([1000]), queue)
    np.testing.assert_array_equal(run.result(), expected(run.x))
    first, second = times()
    assert (first.kernel, second.kernel) == (0, 1)
    assert first.start == 0 < first.seconds <= second.start and second.seconds > 0
    counts = loaded(counted(later=False))
    sized, dims = Run(device, queue, [1, -1], workspace=64), np.array([2, 0])
    times = counts.timed_launch(sized.inputs, sized.outputs, sized.workspace, dims, queue)
    sized.result()
    assert dims.tolist() == [2, 1] and [time.kernel for time in times()] == [0]
    for each in (run, sized):
        each.free()


def test_threads_with_queues_of_their_own(device):
    kernel, wrong = loaded(scaled()).launching, []
    rounds = threading.Barrier(3)

    def work(number):
        queue = device.queue()
        rounds.wait()
        for turn in range(30):
            run = Run(device, queue, np.arange(20 + turn % 3) * number, workspace=400)
            run.launch(kernel, np.array([20 + turn % 3]))
            if (run.result() != expected(run.x)).any():
                wrong.append((number, turn))
            run.free()
        device.release(queue)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


def resident():
    status = Path("/proc/self/statm")
    return int(status.read_text().split()[1]) * 4096 if status.exists() else 0


def test_a_thousand_runs_do_not_grow(device, queue):
    kernels = [
        (loaded(scaled()).launching, 100, 1),
        (loaded(lookup()).launching, 100, 1),
        (loaded(counted(True)).launching, 100, 2),
    ]
    runs = [Run(device, queue, np.arange(size) % 90, workspace=400) for _, size, _ in kernels]

    def once():
        for (kernel, size, dims), run in zip(kernels, runs, strict=True):
            run.launch(kernel, np.array([size, 0][:dims]))
            run.result()

    for _ in range(50):
        once()
    gc.collect()
    live, objects, memory = device.live, len(gc.get_objects()), resident()
    for _ in range(1000):
        once()
    gc.collect()
    assert device.live == live
    assert len(gc.get_objects()) - objects < 100
    assert resident() - memory < 16 << 20
    for run in runs:
        run.free()


def test_loading_does_not_grow(device):
    made = scaled()
    live = device.live
    for _ in range(20):
        loaded(made)
    gc.collect()
    assert device.live == live


def grid(source="__kernel void k(long n) {}", grid=(1, 1, 1), threads=(1, 1, 1), name="k", reports=False):
    """A region without buffers: one launch."""
    sizes = tuple(map(Size, (*grid, *threads)))
    launch = Launch(0, (), (0,), (0, 1, 2), (3, 4, 5), 0)
    return artifact(LaunchPlan((name,), (reports,), (), sizes, (Step(launch=launch),)), source, [], [])


def test_sizes_beyond_the_device(device, queue):
    most = device.device.max_work_group_size
    with pytest.raises(
        KernelFault, match=f"must have at most {most} work-items, .* got {most + 1} x 1 x 1 for kernel kernel0"
    ) as caught:
        loaded(grid(threads=(most + 1, 1, 1))).launching.launch([], [], None, np.zeros(0, np.int64), queue)
    assert caught.value.node == "node0" and "option kind" in str(caught.value)
    many = (1 << 40) + 1
    device.largest_grid, before = many - 1, device.largest_grid
    try:
        with pytest.raises(KernelFault, match=f"at most {many - 1} x .* work-groups, got 1 x {many} x 1"):
            loaded(grid(grid=(1, many, 1))).launching.launch([], [], None, np.zeros(0, np.int64), queue)
    finally:
        device.largest_grid = before
    device.synchronise(device.event(queue))


@pytest.mark.parametrize(
    ("code", "kind"), [(cl.status_code.OUT_OF_RESOURCES, OutOfMemory), (cl.status_code.INVALID_WORK_GROUP_SIZE, KernelFault)]
)
def test_a_launch_that_the_driver_refuses(device, queue, monkeypatch, code, kind):
    kernel, run = loaded(scaled()).launching, Run(device, queue, np.arange(10), workspace=40)
    with monkeypatch.context() as patch:
        patch.setattr(cl, "enqueue_nd_range_kernel", failing(code))
        with pytest.raises(kind, match="launching region region"):
            run.launch(kernel, np.array([10]))
    run.launch(kernel, np.array([10]))
    np.testing.assert_array_equal(run.result(), expected(run.x))
    run.free()


def test_code_that_does_not_fit_its_plan(device):
    with pytest.raises(Unsupported, match="it has no kernel other"):
        loaded(grid(name="other"))
    with pytest.raises(Unsupported, match="kernel k takes 1 arguments, and the plan gives 2"):
        loaded(grid(reports=True))


def test_a_buffer_outside_its_storage(device, queue):
    plan = LaunchPlan(
        ("k",),
        (False,),
        (Place("arena", 0, 0),),
        (Size(128), Size(1)),
        (Step(launch=Launch(0, (0,), (), (1, 1, 1), (1, 1, 1), 0)),),
    )
    made = artifact(plan, "__kernel void k(__global uchar *b, long o) { b[o] = 0; }", [], [], workspace={"": 64})
    run = Run(device, queue, [0], workspace=64)
    with pytest.raises(KernelFault, match="a buffer begins at byte 128 of 64 in its arena"):
        loaded(made).launching.launch([], [], run.workspace, np.zeros(0, np.int64), queue)
    run.free()
