"""Printed CUDA C++: text and memory accesses of kernels."""

from __future__ import annotations

import re

import numpy as np
import pytest
from tests.threads.printed import SCOPES
from tests.threads.programs import AXPY, SHARING

from inlaid.codegen.launch_plan import ThreadKernel
from inlaid.codegen.threads.kernel import print_thread_kernel, thread_source
from inlaid.tensor.parse import parse
from inlaid.tensor.transform.launches import split_launches
from inlaid_cuda.cubin import resources
from inlaid_cuda.dialect import DIALECT
from inlaid_runtime.types import MemoryScope

from .host import check

AXPY_TEXT = """\
extern "C" __global__ void __launch_bounds__(1, 1) axpy_0(uint8_t *restrict b0, int64_t o0,
        uint8_t *restrict b1, int64_t o1, uint8_t *restrict b2, int64_t o2, uint8_t *restrict b3, int64_t o3,
        int64_t n) {
    const float *a = (const float *)(b0 + o0);
    const float *x = (const float *)(b1 + o1);
    const float *y = (const float *)(b2 + o2);
    float *z = (float *)(b3 + o3);
    const int32_t b = (int32_t)blockIdx.x;
    {
        const float32x8 v1 = inlaid_load<float, 8, 16>(y + b * 8);
        const float32x8 v2 = inlaid_load<float, 8, 16>(x + b * 8);
        const float32x8 v3 = inlaid_splat<float, 8>(a[0]) * v2 + v1;
        inlaid_store<16>(z + b * 8, v3);
    }
}
"""
SHARING_TEXT = """\
extern "C" __global__ void __launch_bounds__(8, 1) sharing_0(uint8_t *restrict b0, int64_t o0, uint8_t *b1,
        int64_t o1, uint8_t *b2, int64_t o2) {
    const float *x = (const float *)(b0 + o0);
    float *y = (float *)(b1 + o1);
    int8_t *z = (int8_t *)(b2 + o2);
    alignas(16) __shared__ int64_t arena[4];
    float *a = (float *)((uint8_t *)arena + 0);
    int8_t *b = (int8_t *)((uint8_t *)arena + 0);
    const int32_t i = (int32_t)blockIdx.x;
    const int32_t threadIdx_x = (int32_t)threadIdx.x;
    a[threadIdx_x] = x[threadIdx_x];
    __syncthreads();
    y[threadIdx_x] = a[threadIdx_x * (-1) + 7];
    __syncthreads();
    b[threadIdx_x] = 7;
    __syncthreads();
    z[threadIdx_x] = b[threadIdx_x * (-1) + 7];
}
"""
HALVES = """
program halves(x: float16[32], y: bfloat16[32]) -> (z: float16[32]):
  for b in 4, thread, "blockIdx.x":
    for lane in 8, vectorized:
      z[((b * 8) + lane)] = cast(float16, (cast(float32, x[((b * 8) + lane)]) + cast(float32, y[((b * 8) + lane)])))
"""
LARGE = """
program large(x: float32[16384]) -> (y: float32[16384]):
  for b in 1, thread, "blockIdx.x":
    alloc s: float32[16384] in "shared"
    for t in 32, thread, "threadIdx.x":
      for i in 512:
        s[((i * 32) + t)] = x[((i * 32) + t)]
    for u in 32, thread, "threadIdx.x":
      for k in 512:
        y[((k * 32) + u)] = s[(16383 + (((k * 32) + u) * -1))]
"""


def print_kernel(program, scopes=SCOPES):
    (kernel,) = split_launches(parse(program), scopes).kernels.items()
    return print_thread_kernel(ThreadKernel(*kernel, 0), DIALECT)


@pytest.mark.parametrize(("program", "text"), [(AXPY, AXPY_TEXT), (SHARING, SHARING_TEXT)])
def test_a_kernel_reads_well(program, text):
    printed = print_kernel(program)
    assert printed.text == text and not printed.reports and printed.shared == 0


def test_helpers_are_those_that_a_kernel_uses():
    source = thread_source([print_kernel(AXPY)], DIALECT)
    assert "typedef inlaid_vector<float, 8> float32x8;" in source and "float32x4" not in source
    assert "#include" not in source


@pytest.mark.parametrize(
    ("index", "size", "aligned"),
    [
        ("((b * 8) + lane)", 64, 16),
        ("((b * 8) + (lane + 4))", 68, 16),
        ("((b * 8) + (lane + 2))", 66, 8),
        ("((b * 8) + (lane + 1))", 65, 4),
        ("((b * 10) + lane)", 80, 8),
        ("((b * n) + lane)", 800, 4),
    ],
)
def test_accesses_are_as_wide_as_alignment_allows(index, size, aligned):
    program = f"""
program run(x: float32[{size}], s: float32[n]) -> (y: float32[64]):
  size n: 8..100
  for b in 8, thread, "blockIdx.x":
    for lane in 8, vectorized:
      y[((b * 8) + lane)] = x[{index}]
"""
    text = print_kernel(program).text
    assert re.findall(r"inlaid_load<float, 8, (\d+)>", text) == [str(aligned)] and "inlaid_store<16>(y" in text


def test_narrow_floats_are_converted_by_instructions():
    text = print_kernel(HALVES).text
    for call in ("inlaid_lanes<inlaid_from_float16, float>", "inlaid_lanes<inlaid_from_bfloat16, float>"):
        assert call in text
    assert "inlaid_lanes<inlaid_to_float16, uint16_t>" in text and "inlaid_load<uint16_t, 8, 16>" in text


def test_shared_memory_beyond_what_a_kernel_may_declare(nvrtc):
    """It is dynamic; the cubin declares none."""
    scope = MemoryScope("shared", "block", 96 << 10, 16)
    printed = print_kernel(LARGE, (scope,))
    assert printed.shared == 64 << 10 and "INLAID_LAUNCHED(int64_t, arena);" in printed.text
    assert resources(nvrtc.compile(thread_source([printed], DIALECT), "region", "sm_80").cubin)["large_0"].shared == 0


@pytest.mark.usefixtures("host_compiler")
def test_shared_memory_of_a_launch():
    x = np.arange(16384, dtype=np.float32)
    check([parse(LARGE)], [[x]], (MemoryScope("shared", "block", 96 << 10, 16),))
