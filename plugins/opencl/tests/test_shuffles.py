"""Reductions by shuffles: on the subgroups of a device, and emulated in local memory for devices without subgroups."""

import re

import numpy as np
import pytest
from tests.threads.printed import make_region
from tests.unit.schedules.threads.interpreter_checks import SHUFFLES, first_offer, inputs_for, kernel

import inlaid
from inlaid import ops
from inlaid.codegen.launch_plan import thread_region
from inlaid.codegen.threads.kernel import print_thread_kernel, thread_source
from inlaid.graph import ir as graph
from inlaid.lowering.kernels.finish import finish
from inlaid.schedules.threads.rows import ThreadRowsRule
from inlaid.tensor import interp
from inlaid_opencl.dialect import DIALECT
from inlaid_opencl.needs import code_requirements
from inlaid_opencl.subgroups import shuffled_lanes
from inlaid_runtime import arith
from inlaid_runtime.types import TensorType

from .pocl import Compiled
from .row_kernels import CASES, KERNELS, LANES, M, N, row_programs

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


def test_computes_the_same():
    sizes, programs = {N: 6, M: 101}, list(row_programs())
    arrays = [inputs_for(program, sizes)[0] for program, _ in programs]
    references = [interp.run(program, [array])[0] for (program, _), array in zip(programs, arrays, strict=True)]
    finished = [program for _, program in programs]
    shapes = [[arith.evaluate(arith.wrap(dim), sizes) for dim in program.inputs[0].shape] for program in finished]
    compiled = Compiled(make_region(finished), SHUFFLES.scopes, LANES, emulated)
    results = [np.zeros_like(array) for array in references]
    compiled.run([array.reshape(shape) for array, shape in zip(arrays, shapes, strict=True)], results)
    for case, actual, expected in zip(KERNELS, results, references, strict=True):
        if expected.dtype.kind == "f":
            tolerance = 2e-3 if expected.dtype == np.float16 else 1e-5
            np.testing.assert_allclose(actual, expected, rtol=tolerance, atol=1e-6, err_msg=f"{case}")
        else:
            np.testing.assert_array_equal(actual, expected, err_msg=f"{case}")


@pytest.mark.parametrize(("team", "barriers"), [(LANES, 0), (32, 4)])
def test_barriers_between_subgroups_alone(team, barriers):
    """A softmax of rows of one subgroup waits for nothing, and has no local memory."""
    program = kernel(CASES["softmax"], ((7, 130), "float32"))
    _, offer = first_offer(program, SHUFFLES, ThreadRowsRule(), team=team)
    region = thread_region(make_region([finish(offer.schedule(program), able=SHUFFLES)]), SHUFFLES.scopes, LANES)
    (text,) = (print_thread_kernel(item, DIALECT) for item in region.kernels)
    assert text.text.count("barrier(") == barriers and ("__local" in text.text) == (barriers > 0)
    needs = code_requirements(region.kernels, thread_source([text], DIALECT))
    assert "cl_khr_subgroup_shuffle" in needs and f"shuffled-lanes={LANES}" in needs


@pytest.mark.parametrize("shape", [(7, 130), (1, 4096), (300, 64), (3, 17)])
def test_subgroups_of_a_device(device, shape):
    lanes = shuffled_lanes(device.device)
    if not lanes:
        pytest.skip(f"{device.name} lists no subgroups with shuffles")
    x = graph.var("x", TensorType(shape, "float32"))
    results = (ops.reduce_max(x, axes=(1,), keepdims=False), ops.reduce_sum(ops.round(x), axes=(1,), keepdims=True))
    module = graph.Module({"main": graph.function((x,), graph.tuple_([*results, ops.argmax(x, axis=1)]))})
    executable = inlaid.compile(module, targets=[f"opencl:kind=gpu,subgroup={lanes}"], cache=False)
    values = np.random.default_rng(0).uniform(-9, 9, shape).astype(np.float32)
    largest, total, argmax = executable.run({"x": values}).values()
    np.testing.assert_array_equal(largest, values.max(1))
    np.testing.assert_array_equal(total, np.rint(values).sum(1, keepdims=True))
    np.testing.assert_array_equal(argmax.reshape(-1), values.argmax(1))
