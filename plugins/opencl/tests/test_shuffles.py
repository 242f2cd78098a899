"""Reductions by shuffles, as OpenCL C: on a device without them, which exchanges values in local memory instead."""

import re

import numpy as np
import pytest
from tests.threads.printed import region_of
from tests.unit.schedules.threads.held import SHUFFLES, inputs_for, kernel, offer_of

from inlaid import arith, ops
from inlaid.codegen.launch_plan import thread_region
from inlaid.codegen.threads.kernel import print_thread_kernel, thread_source
from inlaid.lowering.finish import finish
from inlaid.schedules.threads.rows import ThreadRowsRule
from inlaid.tensor import interp
from inlaid_opencl.dialect import DIALECT
from inlaid_opencl.needs import needs_of

from .pocl import Compiled

LANES = 8
N, M = arith.SizeVar("n", 1, 64), arith.SizeVar("m", 1, 512)
EXCHANGED = """
#define inlaid_shuffle(value, lane, width) ({ \\
    size_t own = get_local_id(0) + get_local_size(0) * (get_local_id(1) + get_local_size(1) * get_local_id(2)); \\
    __typeof__((value) + 0) kept = (value); \\
    *(__local __typeof__((value) + 0) *)(exchanged + own) = kept; \\
    barrier(CLK_LOCAL_MEM_FENCE); \\
    size_t other = (own & ~(size_t)(width - 1)) + ((size_t)(lane) & (width - 1)); \\
    __typeof__((value) + 0) found = *(__local __typeof__((value) + 0) *)(exchanged + other); \\
    barrier(CLK_LOCAL_MEM_FENCE); \\
    found; })
"""


def emulated(source: str) -> str:
    """The source with shuffles through local memory."""
    assert DIALECT.helpers["inlaid_shuffle"] in source
    source = source.replace(DIALECT.helpers["inlaid_shuffle"], EXCHANGED)
    return re.sub(r"(__kernel[^{]*\{)", r"\1\n    __local ulong exchanged[32];", source)


CASES = {
    "sum": lambda x: ops.reduce_sum(x, axes=(1,), keepdims=False),
    "max": lambda x: ops.reduce_max(x, axes=(1,), keepdims=True),
    "argmax": lambda x: ops.argmax(x, axis=1),
    "softmax": lambda x: ops.softmax(x, axis=1),
    "whole": lambda x: ops.reduce_sum(x, axes=(0, 1), keepdims=False),
}
KERNELS = (
    ("sum", (5, 100), "float32", LANES),
    ("sum", (6, 64), "uint8", 32),
    ("max", (9, 63), "int16", 2),
    ("max", (N, 64), "float64", 32),
    ("argmax", (N, M), "float32", 4),
    ("softmax", (7, 130), "float16", 32),
    ("softmax", (N, M), "float32", LANES),
    ("whole", (8, 16), "int64", 32),
)
"""Operators, shapes, element types, and the threads that share a row."""


def test_computes_the_same():
    programs, arrays, sizes = [], [], {N: 6, M: 101}
    for name, shape, dtype, team in KERNELS:
        program = kernel(CASES[name], (shape, dtype))
        _, offer = offer_of(program, SHUFFLES, ThreadRowsRule(), team=team, pieces=1)
        programs.append((program, finish(offer.schedule(program), able=SHUFFLES)))
        arrays.append(inputs_for(program, sizes)[0])
    wanted = [interp.run(program, [array])[0] for (program, _), array in zip(programs, arrays, strict=True)]
    finished = [program for _, program in programs]
    shapes = [[arith.evaluate(arith.wrap(dim), sizes) for dim in program.inputs[0].shape] for program in finished]
    compiled = Compiled(region_of(finished), SHUFFLES.scopes, LANES, emulated)
    results = [np.zeros_like(array) for array in wanted]
    compiled.run([array.reshape(shape) for array, shape in zip(arrays, shapes, strict=True)], results)
    for case, found, expected in zip(KERNELS, results, wanted, strict=True):
        if expected.dtype.kind == "f":
            tolerance = 2e-3 if expected.dtype == np.float16 else 1e-5
            np.testing.assert_allclose(found, expected, rtol=tolerance, atol=1e-6, err_msg=f"{case}")
        else:
            np.testing.assert_array_equal(found, expected, err_msg=f"{case}")


@pytest.mark.parametrize(("team", "barriers"), [(LANES, 0), (32, 4)])
def test_barriers_between_subgroups_alone(team, barriers):
    """A softmax of rows of one subgroup waits for nothing, and has no local memory."""
    program = kernel(CASES["softmax"], ((7, 130), "float32"))
    _, offer = offer_of(program, SHUFFLES, ThreadRowsRule(), team=team)
    region = thread_region(region_of([finish(offer.schedule(program), able=SHUFFLES)]), SHUFFLES.scopes, LANES)
    (text,) = (print_thread_kernel(item, DIALECT) for item in region.kernels)
    assert text.text.count("barrier(") == barriers and ("__local" in text.text) == (barriers > 0)
    needs = needs_of(region.kernels, thread_source([text], DIALECT))
    assert "cl_khr_subgroup_shuffle" in needs and f"shuffled-lanes={LANES}" in needs
