"""Reductions by shuffles, as CUDA C++ on the host."""

from __future__ import annotations

import numpy as np
import pytest
from tests.threads.printed import make_region
from tests.unit.schedules.threads.interpreter_checks import SHUFFLES, first_offer, inputs_for, kernel

from inlaid import ops
from inlaid.lowering.kernels.finish import finish
from inlaid.schedules.threads.rows import ThreadRowsRule
from inlaid.tensor import interp
from inlaid_cuda.nvrtc import compile_cached

from .host import EveryOrder

WARP = 32
CASES = {
    "sum": (lambda x: ops.reduce_sum(x, axes=(1,), keepdims=False), (5, 100), "int32"),
    "max": (lambda x: ops.reduce_max(x, axes=(1,), keepdims=True), (9, 63), "int16"),
    "any": (lambda x: ops.reduce_max(x, axes=(1,), keepdims=True), (9, 70), "bool"),
    "argmax": (lambda x: ops.argmax(x, axis=1), (6, 64), "float64"),
    "softmax": (lambda x: ops.softmax(x, axis=1), (7, 130), "float16"),
}


@pytest.mark.usefixtures("host_compiler")
@pytest.mark.parametrize("name", CASES)
def test_computes_the_same(name, nvrtc):
    body, shape, dtype = CASES[name]
    program = kernel(body, (shape, dtype))
    _, offer = first_offer(program, SHUFFLES, ThreadRowsRule(), team=WARP, pieces=1)
    finished = finish(offer.schedule(program), able=SHUFFLES)
    arrays = inputs_for(program, {})
    references = interp.run(program, arrays)
    results = [np.zeros_like(array) for array in references]
    compiled = EveryOrder(make_region([finished]), SHUFFLES.scopes, SHUFFLES.threads.subgroup)
    assert "inlaid_shuffle(" in compiled.source
    compile_cached(nvrtc, compiled.source, "region", "sm_80")
    assert not compiled.run(arrays, results)
    for actual, expected in zip(results, references, strict=True):
        if expected.dtype.kind == "f":
            np.testing.assert_allclose(actual, expected, rtol=2e-3 if expected.dtype == np.float16 else 1e-6)
        else:
            np.testing.assert_array_equal(actual, expected)
