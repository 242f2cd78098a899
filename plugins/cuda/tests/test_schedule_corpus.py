"""Schedules of every rule as CUDA kernels on the host, with threads in every order, compared with the interpreter."""

from __future__ import annotations

import numpy as np
import pytest
from tests.threads.printed import Printed, make_region
from tests.unit.schedules.threads.interpreter_checks import SHARED, THREADS

from inlaid.codegen import launch_plan
from inlaid_cuda.dialect import DIALECT
from inlaid_cuda.emulation.driver import Order
from inlaid_runtime import arith

from .host import Compiled, Machine
from .schedule_corpus import recorded, split

pytestmark = pytest.mark.usefixtures("host_compiler")
THREADED_MODULES = ["attend", "choose", "distinct", "scans", "sort", "suppress"]
RULES = ["convolution", "dots", "each", "elementwise", "product", "reduce", "reducers", "rows", "transpose"]
LOOSE_TOLERANCE = 1e-5
"""The relative difference that floats may have which are not small integers."""


@pytest.mark.parametrize("module", THREADED_MODULES + RULES)
def test_kernels(module, monkeypatch):
    cases = recorded(f"test_{module}")
    assert cases
    monkeypatch.setattr(launch_plan, "split_launches", split)
    printed = [
        Printed(make_region([case.program]), DIALECT, (SHARED,), f"c{number}_", THREADS.subgroup)
        for number, case in enumerate(cases)
    ]
    compiled = Compiled(printed)
    for order in Order:
        for case, run in zip(cases, compiled.on(Machine(order, seed=5)), strict=True):
            size_buffers = {buffer for _, buffer in case.program.defines}
            for sample in case.samples:
                sizes = dict(sample.sizes)
                for size, _ in case.program.defines:
                    sizes[size] = arith.evaluate(size.upper, sizes)
                outputs = [
                    np.zeros([arith.evaluate(arith.wrap(dim), sizes) for dim in buffer.shape], buffer.dtype.numpy)
                    for buffer in case.program.outputs
                    if buffer not in size_buffers
                ]
                assert not run(sample.arrays, outputs, {size.name: value for size, value in sample.sizes.items()})
                for actual, expected in zip(outputs, sample.expected, strict=False):  # scratch follows them
                    actual = actual.reshape(-1)[: expected.size].reshape(expected.shape)
                    tolerance = sample.tolerance if actual.dtype.kind in "biu" else max(sample.tolerance, LOOSE_TOLERANCE)
                    actual, expected = (item.astype(np.float64) if tolerance else item for item in (actual, expected))
                    np.testing.assert_allclose(actual, expected, tolerance, tolerance, err_msg=f"{case.name}, {order.name}")
