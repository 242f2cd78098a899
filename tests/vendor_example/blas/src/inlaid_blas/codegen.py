"""Code generator: a region becomes C that calls cblas_sgemm for each matrix, with bias before and relu after."""

import math

from inlaid.codegen.c import pointer, region_source
from inlaid.plugins import Codegen
from inlaid_blas.runtime import FORMAT, VERSION

BEFORE = """
typedef void (*sgemm_t)(int, int, int, int32_t, int32_t, int32_t, float, const float *, int32_t, const float *, int32_t, float,
    float *, int32_t);
"""
BIAS = """
    for (int64_t i = 0; i < {size}; i++) {y}[i] = {bias}[i % {n}];"""
PRODUCT = """
    for (int64_t i = 0; i < {count}; i++)
        sgemm(101, 111, 111, {m}, {n}, {k}, 1.0f, {a} + i * {m}LL * {k}, {k}, {b} + i * {k}LL * {n}, {n}, {beta},
            {y} + i * {m}LL * {n}, {n});"""
RELU = """
    for (int64_t i = 0; i < {size}; i++) {y}[i] = {y}[i] < 0 ? 0 : {y}[i];"""


class BlasCodegen(Codegen):
    def compile(self, unit, context):
        program = context.steps(unit)
        products = "".join(_product(step, program.buffers) for step in program.steps)
        body = f"    sgemm_t sgemm = (sgemm_t)context->user;{products}"
        return program.artifact(FORMAT, VERSION, region_source(program.name, body, BEFORE))


def _product(step, buffers):
    """Return the C statements of a step. Matrices with the same right operand are multiplied as one."""
    y, a, b = (buffers[number] for number in (step.outputs[0], step.buffer("a"), step.buffer("b")))
    count = math.prod(b.shape[:-2])
    facts = {"size": math.prod(y.shape), "count": count, "m": math.prod(y.shape[:-1]) // count, "n": y.shape[-1], "k": b.shape[-2]}
    facts |= {"y": pointer(y), "a": pointer(a), "b": pointer(b), "beta": "1.0f" if "bias" in step else "0.0f"}
    bias = BIAS.format(bias=pointer(buffers[step.buffer("bias")]), **facts) if "bias" in step else ""
    return bias + PRODUCT.format(**facts) + (RELU.format(**facts) if "relu" in step else "")
