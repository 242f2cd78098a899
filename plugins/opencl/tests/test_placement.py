"""Operators whose kernels need element types that a device lacks: placement, reasons, and what the code needs in the end."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

import inlaid
from inlaid import ops
from inlaid.driver import build_package, cut
from inlaid.driver.report import build_report
from inlaid.graph import ir
from inlaid.graph.operator import Operator
from inlaid.plugins.registry import default_registry
from inlaid.tensor import te
from inlaid_conformance.corpus import CORPUS, Choices
from inlaid_opencl import capabilities as module
from inlaid_runtime.arith import SizeVar
from inlaid_runtime.types import TensorType

EMBEDDED = "opencl:kind=embedded"
ROWS = pytest.mark.parametrize("rows", [4, SizeVar("n", 1, 64)], ids=["static", "symbolic"])
ARRAY = np.random.default_rng(0).integers(-9, 10, (4, 5)).astype(np.float32)


def model(dtype, rows):
    """A model whose second operator multiplies by 3 in another element type."""

    def compute(attrs, x):
        return te.compute(x.shape, lambda *i: te.cast(te.cast(x[i], dtype) * te.const(3, dtype), "float32"), "product")

    x = ir.var("x", TensorType((rows, 5), "float32"))
    product = Operator("my.product", lambda attrs, x: x, compute=compute)
    return ir.Module({"main": ir.function([x], ops.neg(product(ops.relu(x))))})


def placed(module):
    """The kinds of the operators' targets, and the report's text."""
    registry = default_registry()
    report = build_report(*cut(module, [EMBEDDED, "x86"], registry), registry, schedules=False)
    return [item.target.split(":")[0] for item in report.operators], report.to_text()


def check_values(module):
    (result,) = inlaid.compile(module, targets=[EMBEDDED, "x86"], cache=False).run({"x": ARRAY}).values()
    np.testing.assert_array_equal(result, -3 * np.maximum(ARRAY, 0))


@ROWS
@pytest.mark.usefixtures("device")
@pytest.mark.parametrize("dtype", ["float64", "int64", "bfloat16"])
def test_a_type_that_the_device_lacks_runs_on_the_next_target(dtype, rows, monkeypatch):
    original_capabilities = module.capabilities

    def lacking(options):
        able = original_capabilities(options)
        dtypes = tuple(name for name in able.dtypes if name != dtype)
        return replace(able, dtypes=dtypes, full_rate_float64=True)  # float64 is not computed in integers

    monkeypatch.setattr(module, "capabilities", lacking)
    targets, text = placed(model(dtype, rows))
    assert targets == ["opencl", "x86", "opencl"]
    assert f"{EMBEDDED}: rejected: its kernel computes in {dtype}, not among the target's element types" in text
    check_values(model(dtype, rows))


@ROWS
@pytest.mark.usefixtures("device")
@pytest.mark.parametrize("dtype", ["float64", "int64", "bfloat16"])
def test_types_that_the_device_has_or_computes_in_integers_stay_on_it(dtype, rows):
    targets, _ = placed(model(dtype, rows))
    assert targets == ["opencl"] * 3
    check_values(model(dtype, rows))


@ROWS
def test_float64_runs_on_x86_if_this_device_lacks_it(device, rows):
    if device.device.double_fp_config:
        pytest.skip(f"{device.device.name.strip()} has float64; test_drivers runs this on rusticl, which lacks it")
    x = ir.var("x", TensorType((rows, 5), "float64"))
    model = ir.Module({"main": ir.function([x], ops.cast(ops.relu(ops.neg(x)), dtype="int32"))})
    registry = default_registry()
    report = build_report(*cut(model, ["opencl", "x86"], registry), registry, schedules=False)
    assert {item.target for item in report.operators} == {"x86"}
    assert "opencl: rejected: element type float64 is not among its capabilities" in report.to_text()
    (result,) = inlaid.compile(model, targets=["opencl", "x86"], cache=False).run({"x": ARRAY.astype(np.float64)}).values()
    np.testing.assert_array_equal(result, np.maximum(-ARRAY, 0))


@pytest.mark.filterwarnings("ignore::inlaid_runtime.errors.ScheduleWarning")
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
