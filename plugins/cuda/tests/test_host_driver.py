"""The emulated device: compilation, memory, handles."""

from __future__ import annotations

import re

import numpy as np
import pytest

from inlaid_cuda.driver import DriverError, Status
from inlaid_cuda.emulation import build
from inlaid_runtime.cache import MemoryCache
from inlaid_runtime.errors import CompileError, TargetError

from .host import Machine

pytestmark = pytest.mark.usefixtures("host_compiler")
ADD = 'extern "C" __global__ void __launch_bounds__(8) add(float *y, long n) { y[threadIdx.x + n] += 1; }\n'


def test_a_library_is_compiled_once(monkeypatch):
    store = MemoryCache()
    library = build.compile_source(ADD, store)
    with monkeypatch.context() as patch:
        patch.setattr(build, "_compile", lambda *args: pytest.fail("expected the library to be kept"))
        assert build.compile_source(ADD, store) == library
        with pytest.raises(pytest.fail.Exception):
            build.compile_source(ADD + "// another\n", store)
    kernel = build.Kernel.in_dll(build.load_library(library), "inlaid_kernel_add")
    assert (kernel.threads, kernel.arguments, kernel.shared_bytes) == (8, 2, 0)


def test_source_that_is_refused():
    """The message has line numbers of the original source."""
    with pytest.raises(CompileError, match=r"(?s)failed: .*kernels.cu:3:.*lost"):
        build.compile_source(ADD + "\n" + ADD.replace("add(", "more(").replace("y[", "lost["), MemoryCache())
    with pytest.raises(CompileError, match="frame"):
        build.compile_source(ADD.replace("y[", "volatile char all[100000]; all[n] = 1; y["), MemoryCache())


def test_no_compiler(monkeypatch):
    monkeypatch.setattr(build, "find_compiler", lambda: None)
    with pytest.raises(TargetError, match=r"needs Linux and a C\+\+ compiler, found none of c\+\+, g\+\+, clang\+\+") as caught:
        build.compile_source(ADD, MemoryCache())
    assert "apt-get install g++" in str(caught.value)


def test_memory_is_counted_and_begins_poisoned():
    context = (machine := Machine(memory=1000)).context
    first = context.allocate(600)
    assert first % 256 == 0 and context.memory() == (400, 1000)
    assert np.isnan(machine.download(first, np.zeros(150, np.float32))).all()
    with pytest.raises(DriverError, match=re.escape("CUDA_ERROR_OUT_OF_MEMORY (400 bytes are free, got 401)")) as caught:
        context.allocate(401)
    assert caught.value.status == Status.OUT_OF_MEMORY
    context.free(first)
    assert context.memory() == (1000, 1000)
    with pytest.raises(DriverError, match="CUDA_ERROR_INVALID_VALUE"):
        context.free(first)


@pytest.mark.parametrize("address", [-1, 8])
def test_kernels_that_write_out_of_bounds(address):
    """The error is raised when the stream is synchronized."""
    context = (machine := Machine()).context
    y = machine.upload(np.zeros(8, np.float32))
    function = context.function(context.load(ADD.encode()), "add")
    context.launch([context.prepare(function, (1, 1, 1), (8, 1, 1), [y, 0])], machine.stream)
    context.synchronize(machine.stream)
    context.launch([context.prepare(function, (1, 1, 1), (1, 1, 1), [y, address])], machine.stream)
    with pytest.raises(DriverError, match="has written outside an allocation of 32 bytes") as caught:
        context.synchronize(machine.stream)
    assert caught.value.status == Status.ILLEGAL_ADDRESS


@pytest.mark.parametrize("program", [b"\xff\xff", b"no C++"])
def test_modules_that_do_not_load(program):
    with pytest.raises(DriverError, match=r"CUDA_ERROR_INVALID_(IMAGE|SOURCE)"):
        Machine().context.load(program)


def test_graphs_run_their_launches_in_order():
    context = (machine := Machine()).context
    y = machine.upload(np.zeros(8, np.float32))
    function = context.function(context.load(ADD.encode()), "add")
    graph = context.graph([context.prepare(function, (1, 1, 1), (threads, 1, 1), [y, 0]) for threads in (8, 4, 2)])
    for _ in range(2):
        context.launch_graph(graph, machine.stream)
    np.testing.assert_array_equal(machine.download(y, np.zeros(8, np.float32)), [6, 6, 4, 4, 2, 2, 2, 2])
    context.destroy_graph(graph)
