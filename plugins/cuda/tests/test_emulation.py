"""Emulated kernels: barriers, warp collectives, orders of threads, shared memory."""

from __future__ import annotations

import threading

import numpy as np
import pytest

from inlaid_cuda.driver import DriverError, Status
from inlaid_cuda.emulation.driver import Order

from .host import Machine

pytestmark = pytest.mark.usefixtures("host_compiler")


@pytest.fixture(params=Order, ids=lambda order: order.name.lower())
def machine(request):
    return Machine(request.param, seed=7)


def kernel(body, parameters, threads=1024, helpers=""):
    return f'{helpers}\nextern "C" __global__ void __launch_bounds__({threads}) k({parameters}) {{\n{body}\n}}\n'


def test_indices(machine):
    """Each thread of each block runs once with its indices."""
    body = """
        int thread = threadIdx.x + blockDim.x * (threadIdx.y + blockDim.y * threadIdx.z);
        int block = blockIdx.x + gridDim.x * (blockIdx.y + gridDim.y * blockIdx.z);
        y[block * (blockDim.x * blockDim.y * blockDim.z) + thread] += 1000 * block + thread;"""
    (actual,) = machine.run(kernel(body, "int *y"), (2, 3, 2), (4, 2, 3), np.zeros((12, 24), np.int32))
    np.testing.assert_array_equal(actual, 1000 * np.arange(12)[:, None] + np.arange(24))


@pytest.mark.parametrize("threads", [1, 7, 32, 100, 1024])
def test_barriers(machine, threads):
    """Neighbors exchange values many times while other values live in registers."""
    body = """
        __shared__ int a[1024];
        int t = threadIdx.x, n = blockDim.x, own = x[blockIdx.x * n + t];
        for (int i = 0; i < 20; i++) {
            a[t] = own;
            __syncthreads();
            own = a[(t + 1) % n] + i;
            __syncthreads();
        }
        x[blockIdx.x * n + t] = own;"""
    x = np.arange(3 * threads, dtype=np.int32).reshape(3, threads)
    (actual,) = machine.run(kernel(body, "int *x"), (3,), (threads,), x)
    np.testing.assert_array_equal(actual, np.roll(x, -20, axis=1) + sum(range(20)))


def test_a_missing_barrier_shows():
    """In some order, a thread reads an element before another has written it."""
    body = """
        __shared__ int a[64];
        a[threadIdx.x] = threadIdx.x;
        y[threadIdx.x] = a[63 - threadIdx.x];"""
    expected = np.arange(64, dtype=np.int32)[::-1]
    results = [Machine(order, 3).run(kernel(body, "int *y"), (1,), (64,), np.zeros(64, np.int32))[0] for order in Order]
    assert not any((actual == expected).all() for actual in results)
    assert not (results[0] == results[2]).all() and not (results[1] == results[2]).all()


def test_shared_memory_begins_poisoned(machine):
    """Static and dynamic shared memory, in each block; arrays do not overlap, within and across kernels."""
    body = """
        __shared__ float a[8];
        __shared__ int b[8];
        int t = threadIdx.x;
        y[(blockIdx.x * 8 + t) * 2] = a[t] != a[t];
        y[(blockIdx.x * 8 + t) * 2 + 1] = b[t];
        a[t] = b[t] = t;"""
    (actual,) = machine.run(kernel(body, "int *y"), (3,), (8,), np.zeros((24, 2), np.int32))
    np.testing.assert_array_equal(actual, [[1, -1]] * 24)


def test_threads_may_return_before_a_barrier(machine):
    """The remaining threads synchronize at barriers."""
    body = """
        __shared__ int a[64];
        int t = threadIdx.x;
        if (t >= n) return;
        a[t] = t;
        __syncthreads();
        y[t] = a[n - 1 - t];"""
    (actual,) = machine.run(kernel(body, "int *y, int64_t n"), (1,), (64,), np.zeros(50, np.int32), 50)
    np.testing.assert_array_equal(actual, np.arange(50)[::-1])


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ("if (threadIdx.x < 5) __syncthreads(); else { \n__syncthreads(); }", r"barrier of line 4, .*barrier of line 5"),
        ("if (threadIdx.x == 40) __syncwarp(); else __syncthreads();", r"barrier of line 4, .* warp collective of line 4"),
        ("if (threadIdx.x) __syncwarp(); else\n __ballot_sync(~0u, 1);", r"warp collective of line"),
        ("__shfl_sync(1u, 1, 0);", r"warp collective of line 4"),
    ],
)
def test_threads_that_diverge(machine, body, message):
    """Divergence is an error that names both places, not a hang, and loses the context."""
    with pytest.raises(DriverError, match=rf"kernel k: threads of block \(0, 0, 0\) diverge: .*{message}") as caught:
        machine.run(kernel(body, "int *y"), (1,), (64,), np.zeros(1, np.int32))
    assert caught.value.status == Status.LAUNCH_FAILED
    with pytest.raises(DriverError, match="diverge"):
        machine.context.synchronize(machine.stream)


def lanes(source, width=32, count=64):
    """Source lane of each of `count` threads, by its lane and segment."""
    lane = np.arange(count) % 32
    return np.arange(count) - lane + source(lane, lane // width * width)


SHUFFLES = {
    "__shfl_sync": lambda by, width: lambda lane, first: first + by % width,
    "__shfl_up_sync": lambda by, width: lambda lane, first: np.where(lane - by < first, lane, lane - by),
    "__shfl_down_sync": lambda by, width: lambda lane, first: np.where(lane + by >= first + width, lane, lane + by),
    "__shfl_xor_sync": lambda by, width: lambda lane, first: np.where(lane ^ by >= first + width, lane, lane ^ by),
}


@pytest.mark.parametrize("kind", ["int32", "float32", "int64", "float64"])
@pytest.mark.parametrize("name", SHUFFLES)
def test_shuffles(machine, name, kind):
    c_type = {"int32": "int", "float32": "float", "int64": "long", "float64": "double"}[kind]
    x = np.random.default_rng(0).integers(-99, 99, 64).astype(kind)
    cases = [(by, width) for width in (4, 8, 32) for by in (0, 1, 3, 4, 16) if by < width or width == 8]
    body = f"""
        {c_type} own = x[threadIdx.x];
        {"".join(f"y[{number} * 64 + threadIdx.x] = {name}(~0u, own, {by}, {width});" for number, (by, width) in enumerate(cases))}
        y[{len(cases)} * 64 + threadIdx.x] = {name}(0xffffffff, own, 5);"""
    shape = (len(cases) + 1, 64)
    _, actual = machine.run(kernel(body, f"const {c_type} *x, {c_type} *y"), (1,), (64,), x, np.zeros(shape, kind))
    for (by, width), row in zip([*cases, (5, 32)], actual, strict=True):
        np.testing.assert_array_equal(row, x[lanes(SHUFFLES[name](by, width), width)], err_msg=f"{by} of {width}")


def test_votes_and_partial_warps(machine):
    """A block of 40 threads has a warp of 8; values of missing lanes are poison."""
    body = """
        int t = threadIdx.x;
        y[t * 4] = __ballot_sync(0xffffffff, x[t] > 0);
        y[t * 4 + 1] = __any_sync(0xffffffff, x[t] > 90);
        y[t * 4 + 2] = __all_sync(0xffffffff, x[t] > -90);
        y[t * 4 + 3] = __shfl_down_sync(0xffffffff, x[t], 16);"""
    x = np.random.default_rng(1).integers(-99, 99, 40).astype(np.int32)
    _, actual = machine.run(kernel(body, "int *x, int *y"), (1,), (40,), x, np.zeros((40, 4), np.int32))
    for first, last in ((0, 32), (32, 40)):
        values = x[first:last]
        votes = sum(1 << lane for lane, value in enumerate(values) if value > 0)
        assert (actual[first:last, 0].astype(np.uint32) == votes).all()
        assert (actual[first:last, 1] == (values > 90).any()).all() and (actual[first:last, 2] == (values > -90).all()).all()
    np.testing.assert_array_equal(actual[:16, 3], x[16:32])
    np.testing.assert_array_equal(actual[16:32, 3], x[16:32])
    np.testing.assert_array_equal(actual[32:, 3], -1)


def test_groups_of_lanes(machine):
    """Halves of a warp diverge, each with its own mask."""
    body = """
        int t = threadIdx.x, own = t;
        if (t < 16) for (int i = 1; i < 16; i *= 2) own += __shfl_xor_sync(0xffffu, own, i);
        else own = __shfl_sync(0xffff0000u, own, 20);
        __syncwarp();
        y[t] = own;"""
    (actual,) = machine.run(kernel(body, "int *y"), (1,), (32,), np.zeros(32, np.int32))
    np.testing.assert_array_equal(actual, [120] * 16 + [20] * 16)


def test_a_collective_of_a_warp(machine):
    """A matrix product on fragments laid out as for mma.sync."""
    helpers = """
        struct Operands { float a, b, c; };
        static void multiply(Operands *const *lanes, unsigned members) {
            for (int i = 0; i < 4; i++) for (int j = 0; j < 8; j++)
                for (int k = 0; k < 4; k++) lanes[i * 8 + j]->c += lanes[i * 8 + k]->a * lanes[k * 8 + j]->b;
        }"""
    body = """
        int t = threadIdx.x, lane = t % 32;
        Operands own = {a[t], b[t], 0};
        for (int i = 0; i < 3; i++) warp_gather(0xffffffffu, own, multiply);
        c[t] = own.c;"""
    a, b = np.random.default_rng(2).integers(-4, 5, (2, 2, 4, 8)).astype(np.float32)
    source = kernel(body, "float *a, float *b, float *c", helpers=helpers)
    *_, actual = machine.run(source, (1,), (64,), a, b, np.zeros((2, 4, 8), np.float32))
    np.testing.assert_array_equal(actual, 3 * (a[:, :, :4] @ b))


def test_atomics(machine):
    """Contributions of all threads add up."""
    body = """
        atomicAdd(&y[0], x[threadIdx.x]); atomicMin(&y[1], x[threadIdx.x]); atomicMax(&y[2], x[threadIdx.x]);
        atomicCAS(&y[3], 0, x[threadIdx.x]); int old = atomicExch(&y[4], 1); atomicAdd(&y[5], old);"""
    x = np.random.default_rng(3).integers(1, 99, 96).astype(np.int32)
    _, actual = machine.run(kernel(body, "int *x, int *y"), (1,), (96,), x, np.array([0, 99, 0, 0, 0, 0], np.int32))
    assert actual.tolist() == [x.sum(), x.min(), x.max(), actual[3], 1, 95] and actual[3] in x


def test_parameters_and_facts(machine):
    """Properties of a kernel, and launches with wrong arguments or extents."""
    context = machine.context
    module = context.load(kernel("__shared__ double a[5]; y[0] = n + a[0];", "double *y, long n", threads=64).encode())
    facts = context.function_facts(function := context.function(module, "k"))
    assert (facts.threads, facts.shared, facts.parameters) == (64, 40, 2)
    with pytest.raises(DriverError, match=r"CUDA_ERROR_NOT_FOUND \(the module lacks kernel other"):
        context.function(module, "other")
    for grid, threads, arguments in (((1, 1, 1), (65, 1, 1), [1, 2]), ((1, 1, 1), (1, 1, 1), [1]), ((0, 1, 1), (1, 1, 1), [1, 2])):
        with pytest.raises(DriverError, match="CUDA_ERROR_INVALID_VALUE"):
            context.launch([context.prepare(function, grid, threads, arguments)], machine.stream)


def test_memory_is_freed_during_an_allocation(device):
    """The garbage collector may free device memory while an allocation holds the locks."""
    buffer = device.allocate(64)

    def free_inside():
        with device._lock, device.context._lock:
            device.free(buffer)

    thread = threading.Thread(target=free_inside, daemon=True)
    thread.start()
    thread.join(20)
    assert not thread.is_alive() and not device.live
