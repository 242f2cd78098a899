"""The C ABI, with callbacks in the place of native code."""

from __future__ import annotations

import ctypes
import functools
import threading

import numpy as np
import pytest

from inlaid_runtime import aligned_empty
from inlaid_runtime.artifact import Artifact, DimSource, KernelInfo, Signature, TensorSpec
from inlaid_runtime.errors import KernelFault
from inlaid_runtime.execution.host import REGION, SIGNALLED, CFunctionKernel, Context, HostRuntime
from inlaid_runtime.types import dtype

F32 = dtype("float32")


def artifact(inputs=2, outputs=1, **facts) -> Artifact:
    specs = tuple(TensorSpec(f"t{index}", (4,), F32) for index in range(inputs + outputs))
    signature = Signature(specs[:inputs], specs[inputs:], (DimSource("n", 0), DimSource("?k", None, 0, 4)))
    return Artifact("region", "fmt", 3, b"", signature, **facts)


def floats(pointer, index=0):
    base = ctypes.cast(pointer, ctypes.POINTER(ctypes.c_void_p))[index]
    return np.ctypeslib.as_array(ctypes.cast(base, ctypes.POINTER(ctypes.c_float)), (4,))


def kernel(function, user=None, **facts):
    callback = REGION(function)
    constants = [np.full(4, 10, np.float32)]
    return CFunctionKernel(artifact(**facts), ctypes.cast(callback, ctypes.c_void_p).value, constants, callback, user)


def arrays(count):
    aligned_arrays = [aligned_empty((4,), "float32") for _ in range(count)]
    for index, array in enumerate(aligned_arrays):
        array[...] = np.arange(4) + index
    return aligned_arrays


def test_arguments_arrive_and_dims_come_back():
    def region(inputs, outputs, constants, dims, workspace, context):
        assert workspace % 64 == 0
        floats(outputs)[...] = floats(inputs, 0) + floats(inputs, 1) + floats(constants)
        sizes = ctypes.cast(dims, ctypes.POINTER(ctypes.c_int64))
        assert (sizes[0], sizes[1]) == (4, 0)
        sizes[1] = 3
        assert ctypes.cast(context, ctypes.POINTER(Context)).contents.user == 4711
        return 0

    run = kernel(region, user=4711)
    a, b, y = arrays(3)
    dims = np.array([4, 0], np.int64)
    run.invoke([a, b], [y], aligned_empty((64,), "uint8"), dims)
    np.testing.assert_array_equal(y, a + b + 10)
    assert dims.tolist() == [4, 3]


def test_an_error_code_becomes_a_fault_with_its_message():
    def region(inputs, outputs, constants, dims, workspace, context):
        ctypes.cast(context, ctypes.POINTER(Context)).contents.message = b"index 7 is out of range 0 to 3 in \xff"
        return 2

    run = kernel(region)
    with pytest.raises(KernelFault, match="region region: index 7 is out of range 0 to 3 in \ufffd"):
        run.invoke(arrays(2), arrays(1), aligned_empty((0,), "uint8"), np.zeros(2, np.int64))
    silent = kernel(lambda *_: 5)
    with pytest.raises(KernelFault, match="error code 5"):
        silent.invoke(arrays(2), arrays(1), aligned_empty((0,), "uint8"), np.zeros(2, np.int64))


def test_only_the_main_thread_asks_for_signals():
    signals = {}

    def region(inputs, outputs, constants, dims, workspace, context):
        signalled = ctypes.cast(context, ctypes.POINTER(Context)).contents.signalled
        signals[threading.current_thread() is threading.main_thread()] = signalled and SIGNALLED(signalled)()
        return 0

    run = kernel(region)
    call = functools.partial(run.invoke, arrays(2), arrays(1), aligned_empty((0,), "uint8"), np.zeros(2, np.int64))
    call()
    thread = threading.Thread(target=call)
    thread.start()
    thread.join()
    assert signals == {True: 0, False: None}


def test_a_region_that_runs_again_inside_itself_has_arguments_of_its_own():
    """As where the handler of a signal runs it."""
    depths = []

    def region(inputs, outputs, constants, dims, workspace, context):
        depths.append(len(depths))
        if len(depths) == 1:
            c, d, z = arrays(3)
            run.invoke([d, c], [z], aligned_empty((0,), "uint8"), np.zeros(2, np.int64))
            assert z.tolist() == d.tolist()
        floats(outputs)[...] = floats(inputs)
        return 0

    run = kernel(region)
    a, b, y = arrays(3)
    run.invoke([a, b], [y], aligned_empty((0,), "uint8"), np.zeros(2, np.int64))
    assert y.tolist() == a.tolist() and depths == [0, 1]


def test_kernels_are_timed_by_the_counter_of_the_region():
    def region(inputs, outputs, constants, dims, workspace, context):
        clock = ctypes.cast(context, ctypes.POINTER(Context)).contents.clock
        if clock is not None:
            for index, tick in enumerate((1000, 1300, 1400)):
                ctypes.cast(clock, ctypes.POINTER(ctypes.c_uint64))[index] = tick
        return 0

    parts = (KernelInfo("conv", ("n0", "n1")), KernelInfo("relu", ("n2",)))
    run = kernel(region, kernels=parts)
    first, second = run.profile(arrays(2), arrays(1), aligned_empty((0,), "uint8"), np.zeros(2, np.int64))
    assert (first.kernel, first.start, second.kernel) == (0, 0.0, 1)
    assert second.start == first.seconds
    assert first.seconds == pytest.approx(3 * second.seconds)
    assert kernel(region).profile(arrays(2), arrays(1), aligned_empty((0,), "uint8"), np.zeros(2, np.int64)) == []


def test_threads_have_arguments_of_their_own():
    barrier = threading.Barrier(4)

    def region(inputs, outputs, constants, dims, workspace, context):
        barrier.wait(10)
        floats(outputs)[...] = floats(inputs, 0)
        return 0

    run = kernel(region)
    results = {}

    def work(number):
        a, b, y = arrays(3)
        a[...] = number
        run.invoke([a, b], [y], aligned_empty((0,), "uint8"), np.zeros(2, np.int64))
        results[number] = y

    threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert all((results[number] == number).all() for number in range(4))


class Nothing(HostRuntime):
    def load(self, artifact, constants):
        raise AssertionError


def test_what_a_host_runtime_checks():
    runtime = Nothing("fmt", 3, ["avx2", "fma"])
    assert runtime.check(artifact(requires=("fma",))) is None
    assert runtime.check(artifact(requires=("fma", "amx", "vnni"))) == "this machine lacks amx, vnni"
    assert Nothing("fmt", 2).check(artifact()) == "expected fmt version 2, got version 3; compile the model again"
    assert Nothing("elf", 3).check(artifact()) == "expected code in format elf, got fmt"
