"""Regions whose kernels are written by hand: their launches, sizes, faults and times."""

import numpy as np
import pyopencl as cl
import pytest
from tests.threads.handmade import OPENCL, Run, scaled
from tests.threads.launching import *  # noqa: F403 (tests of every device with threads)

from inlaid_opencl import sessions
from inlaid_opencl.runtime import OpenCLRuntime
from inlaid_runtime.errors import KernelFault, OutOfMemory
from inlaid_runtime.execution.launch_regions import MAX_BOUND_SETS

from .failing import failing

pytestmark = pytest.mark.usefixtures("tidy")


def load(artifact):
    return OpenCLRuntime(0).load(artifact, artifact.constants)


@pytest.fixture
def loaded():
    return load


@pytest.fixture
def language():
    return OPENCL


def test_a_repeated_run_only_enqueues(device, queue, monkeypatch):
    kernel, run = load(OPENCL.scaled()).launching, Run(device, queue, np.arange(10), workspace=40)
    run.launch(kernel, [10])
    with monkeypatch.context() as patch:
        patch.setattr(sessions.KernelSession, "bind", None)
        for _ in range(3):
            run.launch(kernel, [10])
    np.testing.assert_array_equal(run.result(), scaled(run.x))
    run.free()


def test_kernel_objects_are_bounded(device, queue, monkeypatch):
    kernel_numbers = []
    real = sessions.RegionCode.new_kernel
    monkeypatch.setattr(sessions.RegionCode, "new_kernel", lambda code, number: kernel_numbers.append(number) or real(code, number))
    kernel, runs = load(OPENCL.scaled()).launching, []
    for size in range(1, 50):
        runs.append(Run(device, queue, np.full(size, size), workspace=4 * size))
        runs[-1].launch(kernel, [size])
    assert len(kernel_numbers) <= 2 * MAX_BOUND_SETS
    for run in runs:
        np.testing.assert_array_equal(run.result(), scaled(run.x))
        run.free()


def test_sizes_beyond_the_device(device, queue):
    limit = device.device.max_work_group_size
    with pytest.raises(
        KernelFault, match=f"must have at most {limit} work-items, .* got {limit + 1} x 1 x 1 for kernel kernel0"
    ) as caught:
        load(OPENCL.single(threads=(limit + 1, 1, 1))).launching.launch([], [], None, np.zeros(0, np.int64), queue)
    assert caught.value.node == "node0" and "option kind" in str(caught.value)
    count = (1 << 40) + 1
    device.largest_grid, before = count - 1, device.largest_grid
    try:
        with pytest.raises(KernelFault, match=f"at most {count - 1} x .* work-groups, got 1 x {count} x 1"):
            load(OPENCL.single(grid=(1, count, 1))).launching.launch([], [], None, np.zeros(0, np.int64), queue)
    finally:
        device.largest_grid = before
    device.synchronize(device.event(queue))


@pytest.mark.parametrize(
    ("code", "kind"), [(cl.status_code.OUT_OF_RESOURCES, OutOfMemory), (cl.status_code.INVALID_WORK_GROUP_SIZE, KernelFault)]
)
def test_a_launch_that_the_driver_refuses(device, queue, monkeypatch, code, kind):
    kernel, run = load(OPENCL.scaled()).launching, Run(device, queue, np.arange(10), workspace=40)
    with monkeypatch.context() as patch:
        patch.setattr(cl, "enqueue_nd_range_kernel", failing(code))
        with pytest.raises(kind, match="launching region region"):
            run.launch(kernel, [10])
    run.launch(kernel, [10])
    np.testing.assert_array_equal(run.result(), scaled(run.x))
    run.free()
