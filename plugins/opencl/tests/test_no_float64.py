"""No kernel of narrower floats computes in float64 on GPUs, which may lack it or run it slowly."""

from __future__ import annotations

import numpy as np
import pytest
from tests.threads.arithmetic import kernel, without_float64
from tests.threads.float64_scan import problems, sampled
from tests.threads.printed import Printed, make_region

from inlaid import ops
from inlaid.driver.compile import build_package, compile_module
from inlaid.graph import ir
from inlaid.graph.interp import evaluate
from inlaid.tensor import ir as loop_ir
from inlaid_opencl.capabilities import capabilities
from inlaid_opencl.dialect import DIALECT
from inlaid_opencl.options import OpenCLOptions
from inlaid_runtime.arith import SizeVar
from inlaid_runtime.types import TensorType

N, M = SizeVar("n"), SizeVar("m")
SIZES = (1, 2, 3, 4, 5, 6, 7, 9, 12, 14, 25)


def test_no_float64_in_kernels_of_narrower_floats():
    count, violations = problems("opencl:kind=gpu", "", sampled(0))
    assert count > 80
    assert not violations


def test_only_cpus_have_the_full_rate():
    assert {kind: capabilities(OpenCLOptions(kind=kind)).full_rate_float64 for kind in ("cpu", "gpu", "embedded")} == {
        "cpu": True,
        "gpu": False,
        "embedded": False,
    }


@pytest.mark.parametrize(
    ("coordinates", "rounding"),
    [
        ("half_pixel", "round_prefer_floor"),
        ("half_pixel", "round_prefer_ceil"),
        ("align_corners", "round_prefer_floor"),
        ("asymmetric", "floor"),
        ("asymmetric", "ceil"),
        ("pytorch_half_pixel", "round_prefer_ceil"),
    ],
)
def test_resize_selects_the_elements_of_the_reference(device, coordinates, rounding):
    x, template = ir.var("x", TensorType((N,), "float32")), ir.var("like", TensorType((M,), "float32"))
    resized = ops.resize(x, shape=(M,), mode="nearest", coordinates=coordinates, rounding=rounding)
    function = ir.function((x, template), ops.add(resized, template))
    executable = compile_module(ir.Module({"main": function}), ["opencl:kind=gpu"], keep=False)
    for before in SIZES:
        for after in SIZES:
            inputs = [np.arange(before, dtype=np.float32), np.zeros(after, np.float32)]
            (result,) = executable.run(dict(zip(("x", "like"), inputs, strict=True))).values()
            np.testing.assert_array_equal(result, evaluate(function, inputs), err_msg=f"{before} to {after}")


def test_models_without_float64_need_no_support():
    x = ir.var("x", TensorType((5, N), "float32"))
    body = ops.resize(ops.pow(ops.sin(x), ops.cosh(x)), shape=(7, 9), mode="linear")
    package = build_package(ir.Module({"main": ir.function((x,), body)}), ["opencl:kind=gpu"], keep=False)
    assert all("cl_khr_fp64" not in artifact.requires for artifact in package.artifacts)


@pytest.mark.parametrize("lanes", [1, 4])
def test_large_angles_are_reduced_in_a_branch(lanes):
    program = without_float64(kernel("angle", {"sin": lambda x: loop_ir.math("sin", x)}, "float32", 1, lanes))
    (text,) = Printed(make_region([program]), DIALECT).texts
    lines = text.text.splitlines()
    branch = next(number for number, line in enumerate(lines) if line.lstrip().startswith(("if (", "else {")))
    digits = [number for number, line in enumerate(lines) if "UINT64_C(704390999)" in line]  # of 2 / pi
    assert digits and min(digits) > branch
