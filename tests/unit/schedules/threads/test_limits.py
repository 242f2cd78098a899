"""Schedules stay within the threads per block, the shared memory and the subgroups that a device declares."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from inlaid import ops
from inlaid.plugins import Capabilities, MemoryScope, Threads
from inlaid.tensor import ir
from inlaid.tensor.analysis.memory_scopes import LANES, SUBGROUP
from inlaid.tensor.transform.launches import SplitProgram
from inlaid_runtime import arith

from .interpreter_checks import check_against_interpreter, kernel, make_launches
from .threaded import Threaded

N = arith.SizeVar("n", 1, 5000)


def device(block: int, capacity: int, subgroup: int, shuffles: bool = False) -> Capabilities:
    """A device with as many threads per block, bytes of shared memory, and threads per subgroup."""
    scope = MemoryScope("shared", "block", capacity, 16)
    threads = Threads(block=block, subgroup=subgroup, shuffles=shuffles, resident=2048)
    return Capabilities(("float64",), (scope,), threads=threads, stack_bytes=0)


DEVICES = {
    "small blocks": device(64, 4 << 10, 32),
    "little memory": device(1024, 8 << 10, 32),
    "least memory": device(256, 64, 32),
    "wide subgroups": device(32, 4 << 10, 64),
    "shuffles": device(64, 1 << 10, 16, shuffles=True),
    "shuffles of more than a block": device(4, 512, 8, shuffles=True),
}
RULES: dict[str, Callable[[], ir.LoopProgram]] = {
    "softmax": lambda: kernel(lambda x: ops.softmax(x, axis=1), ((70, 1030), "float64")),
    "softmax of symbolic rows": lambda: kernel(lambda x: ops.softmax(x, axis=1), ((70, N), "float64")),
    "softmax of columns": lambda: kernel(lambda x: ops.softmax(x, axis=0), ((2000, 70), "float64")),
    "sum": lambda: kernel(lambda x: ops.reduce_sum(x, axes=(1,), keepdims=False), ((9, 5000), "float64")),
    "whole": lambda: kernel(lambda x: ops.reduce_sum(x, axes=(0, 1), keepdims=False), ((90, 500), "float64")),
    "product": lambda: kernel(ops.matmul, ((128, 64), "float64"), ((64, 96), "float64")),
    "product of few rows": lambda: kernel(ops.matmul, ((2, 640), "float64"), ((640, 96), "float64")),
    "transpose": lambda: kernel(lambda x: ops.transpose(x, perm=(1, 0)), ((100, 70), "float64")),
    "relu": lambda: kernel(ops.relu, ((1000, 7), "float64")),
}
OPERATORS: dict[str, Callable[[Capabilities], Threaded]] = {
    "scan": lambda able: Threaded(ops.cumsum, able, ((3, 20000), "float64"), axis=1),
    "order": lambda able: Threaded(ops.topk, able, ((3, 5000), "float64"), k=9, axis=1, largest=True),
    "positions": lambda able: Threaded(ops.nonzero, able, ((5000,), "float64")),
}


def check_limits(split: SplitProgram, able: Capabilities) -> None:
    """No kernel exceeds a limit. Memory was checked when the launches were split."""
    assert able.threads is not None
    for item in split.kernels.values():
        count = 1
        for extent in item.threads.values():
            count *= arith.evaluate(extent, {N: 4097})
        assert count <= able.threads.block, item.program.name
        local = [buffer for buffer in item.offsets if buffer.scope == "shared"]
        ends = [item.offsets[buffer] + arith.product(buffer.shape) * buffer.dtype.bytes for buffer in local]
        assert max(ends, default=0) <= able.scopes[0].capacity, item.program.name
        if any(isinstance(stmt, ir.Alloc) and stmt.buffer.scope == SUBGROUP for stmt in ir.walk_stmts(item.program.body)):
            assert arith.evaluate(item.threads[LANES], {}) <= able.threads.subgroup, item.program.name


@pytest.mark.parametrize("able", DEVICES.values(), ids=DEVICES)
def test_rules(able):
    for make in RULES.values():
        check_limits(make_launches(make(), able), able)


@pytest.mark.parametrize("able", DEVICES.values(), ids=DEVICES)
def test_operators_with_kernels_of_their_own(able):
    for make in OPERATORS.values():
        check_limits(make(able).split, able)


@pytest.mark.parametrize("able", DEVICES.values(), ids=DEVICES)
def test_small_devices_compute_the_same(able):
    """Softmax is inexact; the sums of small integers are exact."""
    softmax = kernel(lambda x: ops.softmax(x, axis=1), ((3, 70), "float64"))
    check_against_interpreter(softmax, able, tolerance=1e-12)
    for axis in (0, 1):
        total = kernel(lambda x, axis=axis: ops.reduce_sum(x, axes=(axis,), keepdims=False), ((33, 20), "float64"))
        check_against_interpreter(total, able)
