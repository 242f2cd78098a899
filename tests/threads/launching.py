"""Tests of launched regions, shared by the plugins for devices with threads.

A plugin imports them and defines fixtures `device`, `queue`, `language`, and `loaded`, which loads an artifact.
"""

import dataclasses
import gc
import threading
from pathlib import Path

import numpy as np
import pytest
from tests.threads.handmade import K, Run, scaled

from inlaid_runtime.arith import at_least
from inlaid_runtime.errors import InputError, KernelFault, Unsupported


def test_launches_at_several_sizes(device, queue, language, loaded):
    kernel = loaded(language.scaled()).launching
    for size in (100, 1, 64, 100):
        run = Run(device, queue, np.arange(size), workspace=4 * size)
        run.launch(kernel, [size])
        np.testing.assert_array_equal(run.result(), scaled(run.x))
        run.free()


def test_a_run_of_nothing(device, queue, language, loaded):
    run = Run(device, queue, [])
    run.launch(loaded(language.scaled()).launching, [0])
    assert run.result().size == 0
    run.free()


def test_an_index_out_of_range(device, queue, language, loaded):
    kernel = loaded(language.lookup()).launching
    right, wrong = Run(device, queue, [0, 1, 2]), Run(device, queue, [0, 7, 2])
    for _ in range(2):
        wrong.launch(kernel, [3])
        right.launch(kernel, [3])
        with pytest.raises(KernelFault, match="region region: an index is out of range in kernel kernel0") as caught:
            right.result()
        assert caught.value.node == "node0"
        right.launch(kernel, [3])
        np.testing.assert_array_equal(right.result(), [0, 10, 20])
    for run in (right, wrong):
        run.free()


def test_a_fault_is_raised_by_the_event_behind_it(device, queue, language, loaded):
    kernel, wrong = loaded(language.lookup()).launching, Run(device, queue, [9])
    before = device.event(queue)
    wrong.launch(kernel, [1])
    behind = device.event(queue)
    device.event(queue)
    device.synchronize(before)
    with pytest.raises(KernelFault):
        device.synchronize(behind)
    device.synchronize(device.event(queue))
    wrong.free()


@pytest.mark.parametrize("later", [False, True])
def test_sizes_that_a_region_works_out(device, queue, language, loaded, later):
    kernel = loaded(language.counted(later)).launching
    for x in ([1, -1, 2, 3], [-1, -1], [5]):
        run, dims = Run(device, queue, x, workspace=64), np.array([len(x), 0])
        kernel.launch(run.inputs, run.outputs, run.workspace, dims, queue)
        result, count = run.result(), sum(value > 0 for value in x)
        assert dims.tolist() == [len(x), count]
        assert not later or (result[:count] == count).all()
        run.free()


def test_a_size_beyond_its_bound(device, queue, language, loaded):
    artifact = language.counted(later=True)
    dims = (artifact.signature.dims[0], dataclasses.replace(artifact.signature.dims[1], upper=1))
    kernel = loaded(dataclasses.replace(artifact, signature=dataclasses.replace(artifact.signature, dims=dims))).launching
    run = Run(device, queue, [1, 2], workspace=64)
    with pytest.raises(KernelFault, match=r"computed size \?k must be 0 to 1, got 2"):
        run.launch(kernel, [2, 0])
    run.free()


@pytest.mark.parametrize("later", [False, True])
def test_a_violation_ends_the_launches(device, queue, language, loaded, later):
    """The launch after the one that computes a size does not run if the size violates a constraint."""
    least = dataclasses.replace(at_least(K, 2, "the count"), operator="sort", node="node9")
    kernel = loaded(dataclasses.replace(language.counted(later), constraints=(least,))).launching
    run, dims = Run(device, queue, [1, -1, -1], workspace=64), np.array([3, 0])
    device.upload(np.full(3, 7, np.float32), run.outputs[0], queue)
    with pytest.raises(InputError, match=r"the count must be >= 2, got 1 where \?k is 1 \(operator sort, at node9\)"):
        kernel.launch(run.inputs, run.outputs, run.workspace, dims, queue)
    assert (run.result() == 7).all()
    run.free()
    run, dims = Run(device, queue, [1, -1, 1], workspace=64), np.array([3, 0])
    kernel.launch(run.inputs, run.outputs, run.workspace, dims, queue)
    run.result()
    assert dims.tolist() == [3, 2]
    run.free()


def test_times(device, queue, language, loaded):
    region, run = loaded(language.scaled()), Run(device, queue, np.arange(1000), workspace=4000)
    times = region.timed_launch(run.inputs, run.outputs, run.workspace, np.array([1000]), queue)
    np.testing.assert_array_equal(run.result(), scaled(run.x))
    first, second = times()
    assert (first.kernel, second.kernel) == (0, 1)
    assert first.start == 0 < first.seconds <= second.start and second.seconds > 0
    counts = loaded(language.counted(later=False))
    sized, dims = Run(device, queue, [1, -1], workspace=64), np.array([2, 0])
    times = counts.timed_launch(sized.inputs, sized.outputs, sized.workspace, dims, queue)
    sized.result()
    assert dims.tolist() == [2, 1] and [time.kernel for time in times()] == [0]
    for each in (run, sized):
        each.free()


def test_threads_with_queues_of_their_own(device, language, loaded):
    kernel, wrong = loaded(language.scaled()).launching, []
    rounds = threading.Barrier(3)

    def work(number):
        queue = device.queue()
        rounds.wait()
        for turn in range(30):
            run = Run(device, queue, np.arange(20 + turn % 3) * number, workspace=400)
            run.launch(kernel, [20 + turn % 3])
            if (run.result() != scaled(run.x)).any():
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


def test_a_thousand_runs_do_not_grow(device, queue, language, loaded):
    kernels = [
        (loaded(language.scaled()).launching, 100, 1),
        (loaded(language.lookup()).launching, 100, 1),
        (loaded(language.counted(True)).launching, 100, 2),
    ]
    runs = [Run(device, queue, np.arange(size) % 90, workspace=400) for _, size, _ in kernels]

    def once():
        for (kernel, size, dims), run in zip(kernels, runs, strict=True):
            run.launch(kernel, [size, 0][:dims])
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


def test_loading_does_not_grow(device, queue, language, loaded):
    live = device.live
    for artifact in [language.lookup(), language.scaled()] * 5:
        kernel, run = loaded(artifact).launching, Run(device, queue, [0, 1], workspace=8)
        run.launch(kernel, [2])
        run.result()
        run.free()
        del kernel
        gc.collect()
        assert device.live == live


def test_code_that_does_not_fit_its_plan(device, language, loaded):
    with pytest.raises(Unsupported, match="it lacks kernel other"):
        loaded(language.single(name="other"))
    with pytest.raises(Unsupported, match="kernel k must have 2 parameters, got 1"):
        loaded(language.single(reports=True))


def test_a_buffer_outside_its_storage(device, queue, language, loaded):
    run = Run(device, queue, [0], workspace=64)
    with pytest.raises(
        KernelFault, match="accesses 1 bytes at byte 128 of its arena, which must be a multiple of 16 and within 64 bytes"
    ):
        loaded(language.outside()).launching.launch([], [], run.workspace, np.zeros(0, np.int64), queue)
    run.free()
