"""Regions with handwritten kernels, with a delaying driver."""

import numpy as np
import pytest
from tests.threads.handmade import CUDA, Run, scaled
from tests.threads.launching import *  # noqa: F403 (tests of every device with threads)

from inlaid_runtime.errors import KernelFault, Unsupported
from inlaid_runtime.execution.launch_regions import MAX_BOUND_SETS

pytestmark = pytest.mark.usefixtures("tidy")


@pytest.fixture
def language():
    return CUDA


def test_a_repeated_run_only_launches(device, queue, loaded):
    kernel, runs = loaded(CUDA.scaled()).launching, [Run(device, queue, np.arange(10), workspace=40) for _ in range(2)]
    for run in runs:
        run.launch(kernel, [10])
    before = device.context.counted.copy()
    for run in runs * 3:
        run.launch(kernel, [10])
    assert device.context.counted - before == {"launch": 6}
    for run in runs:
        np.testing.assert_array_equal(run.result(), scaled(run.x))
        run.free()


def test_prepared_launches_are_bounded(device, queue, loaded):
    kernel = loaded(CUDA.scaled()).launching
    for size in range(1, 30):
        run = Run(device, queue, np.full(size, size), workspace=4 * size)
        run.launch(kernel, [size])
        np.testing.assert_array_equal(run.result(), scaled(run.x))
        run.free()
    assert len(queue.sessions[kernel].bound) <= MAX_BOUND_SETS


def launch(kernel, queue):
    kernel.launching.launch([], [], None, np.zeros(0, np.int64), queue)


def test_sizes_beyond_the_device(device, queue, loaded):
    with pytest.raises(
        KernelFault, match="must have at most 1024 threads, 1024 x 1024 x 64 along its axes, got 1025 x 1 x 1"
    ) as caught:
        launch(loaded(CUDA.single(threads=(1025, 1, 1))), queue)
    assert caught.value.node == "node0" and "option arch" in str(caught.value)
    with pytest.raises(KernelFault, match=r"a grid of .* at most 2147483647 x 65535 x 65535 blocks, got 1 x 65536 x 1") as caught:
        launch(loaded(CUDA.single(grid=(1, 65536, 1))), queue)
    assert caught.value.node == "node0"
    bounded = 'extern "C" __global__ void __launch_bounds__(64) k(long n) {}'
    with pytest.raises(KernelFault, match="a block of kernel kernel0 must have at most 64 threads, got 65 x 1 x 1") as caught:
        launch(loaded(CUDA.single(bounded, threads=(65, 1, 1))), queue)
    assert caught.value.node == "node0" and "option arch" in str(caught.value)


@pytest.mark.parametrize("source", ["__shared__ volatile float a[60000]; a[n] = n;", ""])
def test_shared_memory_beyond_the_device(device, loaded, source):
    shared = 0 if source else 240000
    with pytest.raises(Unsupported, match=r"kernel k needs 240000 bytes of shared memory, but a block of .* has 232448"):
        loaded(CUDA.single(f"KERNEL k(long n) {{ {source} }}", shared=shared))


def test_a_launch_that_allocates_shared_memory(device, queue, loaded):
    source = "KERNEL k(long n) { INLAID_LAUNCHED(float, a); a[19999] = n; if (a[19999] != n) __builtin_trap(); }"
    kernel = loaded(CUDA.single(source, threads=(32, 1, 1), shared=80000))
    launch(kernel, queue)
    device.synchronize(device.event(queue))


def test_damaged_bytes_of_shared_memory(loaded):
    with pytest.raises(Unsupported, match=r"kernels\[0\].shared: expected bytes >= 0, got -1"):
        loaded(CUDA.single(shared=-1))
