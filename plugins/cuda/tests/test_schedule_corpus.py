"""Schedules of every rule as CUDA kernels on the host, with threads in every order, compared with the interpreter."""

from __future__ import annotations

import numpy as np
import pytest
from tests.threads.printed import Printed, region_of
from tests.unit.schedules.threads.held import SHARED, THREADS

from inlaid.codegen import launch_plan
from inlaid_cuda.dialect import DIALECT
from inlaid_cuda.emulation.driver import Order
from inlaid_runtime import arith

from .host import Compiled, Machine
from .schedule_corpus import recorded, split

pytestmark = pytest.mark.usefixtures("host_compiler")
WHOLE = ["attend", "choose", "distinct", "scans", "sort", "suppress"]
RULES = ["convolution", "dots", "each", "elementwise", "product", "reduce", "reducers", "rows", "transpose"]
FAR = 1e-5
"""The relative difference that floats may have which are not small integers."""


@pytest.mark.parametrize("module", WHOLE + RULES)
def test_kernels(module, monkeypatch):
    cases = recorded(f"test_{module}")
    assert cases
    monkeypatch.setattr(launch_plan, "split_launches", split)
    printed = [
        Printed(region_of([case.program]), DIALECT, (SHARED,), f"c{number}_", THREADS.subgroup) for number, case in enumerate(cases)
    ]
    compiled = Compiled(printed)
    for order in Order:
        for case, run in zip(cases, compiled.on(Machine(order, seed=5)), strict=True):
            own = {buffer for _, buffer in case.program.defines}
            for given in case.given:
                sizes = dict(given.sizes)
                for size, _ in case.program.defines:
                    sizes[size] = arith.evaluate(size.upper, sizes)
                made = [
                    np.zeros([arith.evaluate(arith.wrap(dim), sizes) for dim in buffer.shape], buffer.dtype.numpy)
                    for buffer in case.program.outputs
                    if buffer not in own
                ]
                assert not run(given.arrays, made, {size.name: value for size, value in given.sizes.items()})
                for found, wanted in zip(made, given.wanted, strict=False):  # scratch follows them
                    found = found.reshape(-1)[: wanted.size].reshape(wanted.shape)
                    tolerance = given.tolerance if found.dtype.kind in "biu" else max(given.tolerance, FAR)
                    found, wanted = (item.astype(np.float64) if tolerance else item for item in (found, wanted))
                    np.testing.assert_allclose(found, wanted, tolerance, tolerance, err_msg=f"{case.name}, {order.name}")
