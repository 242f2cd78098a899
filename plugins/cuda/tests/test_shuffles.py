"""Reductions by shuffles, as CUDA C++ on the host."""

from __future__ import annotations

import numpy as np
import pytest
from tests.threads.printed import region_of
from tests.unit.schedules.threads.held import SHUFFLES, inputs_for, kernel, offer_of

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
    _, offer = offer_of(program, SHUFFLES, ThreadRowsRule(), team=WARP, pieces=1)
    finished = finish(offer.schedule(program), able=SHUFFLES)
    given = inputs_for(program, {})
    expected = interp.run(program, given)
    results = [np.zeros_like(array) for array in expected]
    compiled = EveryOrder(region_of([finished]), SHUFFLES.scopes, SHUFFLES.threads.subgroup)
    assert "inlaid_shuffle(" in compiled.source
    compile_cached(nvrtc, compiled.source, "region", "sm_80")
    assert not compiled.run(given, results)
    for found, wanted in zip(results, expected, strict=True):
        if wanted.dtype.kind == "f":
            np.testing.assert_allclose(found, wanted, rtol=2e-3 if wanted.dtype == np.float16 else 1e-6)
        else:
            np.testing.assert_array_equal(found, wanted)
