"""Kernels as OpenCL C: how they read, what they report, and what they get from the host."""

from __future__ import annotations

import numpy as np
import pytest
from tests.threads.printed import SCOPES, make_region
from tests.threads.programs import AXPY, SHARING

from inlaid import ops
from inlaid.codegen.launch_plan import ThreadKernel
from inlaid.codegen.threads.kernel import print_thread_kernel, thread_source
from inlaid.graph import ir as graph
from inlaid.lowering.kernels.finish import finish
from inlaid.lowering.region import RegionSource, lower_region
from inlaid.plugins import Capabilities
from inlaid.tensor.parse import parse
from inlaid.tensor.scheduling.rule import KernelContext
from inlaid.tensor.transform.launches import split_launches
from inlaid_opencl.dialect import DIALECT
from inlaid_runtime.arith import SizeVar
from inlaid_runtime.types import TensorType

from .pocl import Compiled, check

AXPY_TEXT = """\
__kernel __attribute__((reqd_work_group_size(1, 1, 1))) void axpy_0(__global uint8_t *restrict b0, int64_t o0,
        __global uint8_t *restrict b1, int64_t o1, __global uint8_t *restrict b2, int64_t o2,
        __global uint8_t *restrict b3, int64_t o3, int64_t n) {
    __global const float *a = (__global const float *)(b0 + o0);
    __global const float *x = (__global const float *)(b1 + o1);
    __global const float *y = (__global const float *)(b2 + o2);
    __global float *z = (__global float *)(b3 + o3);
    const int32_t b = (int32_t)get_group_id(0);
    {
        const float8 v1 = inlaid_load_float8(__global, y + b * 8);
        const float8 v2 = inlaid_load_float8(__global, x + b * 8);
        const float8 v3 = (float8)(a[0]) * v2 + v1;
        inlaid_store_float8(__global, z + b * 8, v3);
    }
}
"""
SCATTER = """
program scatter(x: int64[32], at: int64[32]) -> (y: int64[32]):
  for b in 1, thread, "blockIdx.x":
    alloc s: int64[32] in "shared"
    for t in 32, thread, "threadIdx.x":
      let p = at[t] in 0..31:
        s[p] = x[t]
    for u in 32, thread, "threadIdx.x":
      y[u] = s[(31 + (u * -1))]
"""
GATHER = """
program gather(x: float32[100], at: int64[64], m: bool[64]) -> (y: float32[64]):
  for b in 8, thread, "blockIdx.x":
    for lane in 8, vectorized:
      y[((b * 8) + lane)] = float32(1.0)
      if m[((b * 8) + lane)]:
        y[((b * 8) + lane)] = x[checked(at[((b * 8) + lane)], 0, 99)]
"""

LOOP = """
program loop(x: int32[4, 8], n: int32[4]) -> (y: int32[4, 8]):
  for b in 4, thread, "blockIdx.x":
    alloc s: int32[2, 8] in "shared"
    alloc k: int32[] in "shared"
    for t in 8, thread, "threadIdx.x":
      s[0, t] = x[b, t]
    k[] = int32(0)
    while (k[] < n[b]):
      for u in 8, thread, "threadIdx.x":
        s[1, u] = (s[0, ((u + 1) % 8)] + int32(1))
      for v in 8, thread, "threadIdx.x":
        s[0, v] = s[1, v]
      k[] = (k[] + int32(1))
    if (int32(1) < n[b]):
      for w in 8, thread, "threadIdx.x":
        s[1, w] = s[0, (7 + (w * -1))]
      for z in 8, thread, "threadIdx.x":
        s[0, z] = s[1, z]
    for q in 8, thread, "threadIdx.x":
      y[b, q] = s[0, q]
"""


def print_kernel(program):
    (kernel,) = split_launches(parse(program), SCOPES).kernels.items()
    return print_thread_kernel(ThreadKernel(*kernel, 0), DIALECT)


def test_a_kernel_reads_well():
    printed = print_kernel(AXPY)
    assert printed.text == AXPY_TEXT and not printed.reports
    source = thread_source([printed], DIALECT)
    assert "#define inlaid_load_float8" in source and "inlaid_load_float4" not in source and "inlaid_floordiv" not in source
    x = np.arange(24, dtype=np.float32)
    check([parse(AXPY)], [[np.array(3, np.float32), x, x[::-1].copy()]])


def test_a_bad_index_is_reported_and_nothing_is_done():
    """Under a mask, and beside a barrier that all threads reach all the same."""
    x, at = np.arange(32), np.arange(32)[::-1].copy()
    values, places = np.arange(100, dtype=np.float32), np.arange(64) % 7 * 14
    mask = np.arange(64) % 3 != 0
    check([parse(SCATTER), parse(GATHER)], [[x, at], [values, places, mask]])
    places[3] = 100  # where the mask leaves it out
    check([parse(GATHER)], [[values, places, mask]])
    for program, inputs, results, bad in (
        (SCATTER, [x, at], [np.zeros(32, np.int64)], (at, 5)),
        (GATHER, [values, places, mask], [np.zeros(64, np.float32)], (places, 4)),
    ):
        compiled = Compiled(make_region([parse(program)]))
        for value in (-1, 100, 2**40, -(2**40)):
            bad[0][bad[1]] = value
            assert compiled.run(inputs, results)


def test_barriers_in_loops_that_data_ends():
    check([parse(LOOP)], [[np.arange(32, dtype=np.int32).reshape(4, 8), np.array([0, 1, 2, 5], np.int32)]])


def test_buffers_share_memory():
    """Whose lives do not overlap: bytes of one array."""
    printed = print_kernel(SHARING)
    assert "__local int64_t arena[4];" in printed.text
    check([parse(SHARING)], [[np.arange(8, dtype=np.float32)]])


def test_loops_of_the_host_and_sizes_that_kernels_work_out():
    """Variables of loops around launches are scalars; what a kernel works out is read back."""
    host = """
program host(x: int32[4, 8]) -> (y: int32[4, 8]):
  for i in 4:
    for b in 8, thread, "blockIdx.x":
      y[i, b] = (x[i, b] + index(int32, i))
"""
    check([parse(host)], [[np.arange(32, dtype=np.int32).reshape(4, 8)]])
    x = graph.var("x", TensorType((9,), "int64"))
    able = Capabilities(("int64", "bool"))
    body = graph.function([x], graph.tuple_([ops.nonzero(x)]))
    region = lower_region(RegionSource("region", body), (), KernelContext(able), finish=finish)
    compiled, result = Compiled(region), np.zeros((1, 9), np.int64)
    assert not compiled.run([np.array([0, 3, 0, 1, 1, 0, 0, 0, 2])], [result])
    assert result.reshape(-1)[:4].tolist() == [1, 3, 4, 8]


@pytest.mark.parametrize("rows", [1, 7])
def test_symbolic_sizes_and_an_arena(rows):
    x = graph.var("x", TensorType((SizeVar("n", 1), 5), "float32"))
    body = ops.softmax(ops.matmul(x, graph.constant(np.ones((5, 3), np.float32))), axis=0)
    source = RegionSource("region", graph.function([x], graph.tuple_([body])))
    compiled = Compiled(lower_region(source, (), KernelContext(Capabilities(("float32",))), finish=finish))
    array = np.random.default_rng(rows).normal(size=(rows, 5)).astype(np.float32)
    result = np.zeros((rows, 3), np.float32)
    assert not compiled.run([array], [result])
    logits = array @ np.ones((5, 3), np.float32)
    expected = np.exp(logits - logits.max(0))
    np.testing.assert_allclose(result, expected / expected.sum(0), rtol=1e-5)
