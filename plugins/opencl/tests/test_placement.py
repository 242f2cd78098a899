"""Operators whose kernels need float64 on devices that lack it: placement, reasons, and what the code needs in the end."""

from __future__ import annotations

import numpy as np
import pytest

import inlaid
from inlaid import ops
from inlaid.arith import SizeVar
from inlaid.conformance.corpus import CORPUS, Choices
from inlaid.driver import build_package, cut
from inlaid.driver.report import report_of
from inlaid.graph import ir
from inlaid.graph.operator import Operator
from inlaid.plugins.registry import default_registry
from inlaid.tensor import te
from inlaid.types import TensorType

EMBEDDED = "opencl:kind=embedded"
REASON = "its kernel computes in float64, not among the target's element types"


def _thirds(attrs, x):
    return te.compute(x.shape, lambda *i: te.cast(te.cast(x[i], "float64") / 3.0, "float32"), "thirds")


THIRDS = Operator("my.thirds", lambda attrs, x: x, compute=_thirds)


@pytest.mark.usefixtures("device")
@pytest.mark.parametrize("rows", [4, SizeVar("n", 1, 64)], ids=["static", "symbolic"])
def test_float64_inside_a_kernel_runs_on_the_next_target(rows):
    x = ir.var("x", TensorType((rows, 5), "float32"))
    module = ir.Module({"main": ir.function([x], ops.neg(THIRDS(ops.relu(x))))})
    registry = default_registry()
    partitioned, candidates = cut(module, [EMBEDDED, "x86"], registry)
    report = report_of(partitioned, candidates, registry, schedules=False)
    assert [item.target.split(":")[0] for item in report.operators] == ["opencl", "x86", "opencl"]
    assert f"opencl:kind=embedded: rejected: {REASON}" in report.to_text()
    array = np.random.default_rng(0).uniform(-1, 1, (4, 5)).astype(np.float32)
    (result,) = inlaid.compile(module, targets=[EMBEDDED, "x86"], cache=False).run({"x": array}).values()
    np.testing.assert_array_equal(result, -(np.maximum(array, 0).astype(np.float64) / 3).astype(np.float32))


@pytest.mark.filterwarnings("ignore::inlaid.errors.ScheduleWarning")
def test_no_code_for_devices_without_float64_needs_it():
    """A sample of the operators of float32 that the rule accepts, with static and symbolic sizes. The code is not run."""
    registry, compiled = default_registry(), 0
    for entry in [entry for entry in CORPUS if "float32" in entry.dtypes][::5]:
        for form in entry.example(Choices.pinned(0), "float32").forms():
            if form.kind == "constants":
                continue
            package = build_package(ir.Module({"main": form.function}), [EMBEDDED], registry, keep=False)
            for artifact in package.artifacts:
                if artifact.format.startswith("opencl"):
                    assert "cl_khr_fp64" not in artifact.requires, entry.operator.name
                    compiled += 1
    assert compiled > 20
