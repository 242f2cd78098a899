"""Kernels by the generic schedule: what they are predicted to take, the warning, and the report."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import pytest

import inlaid
from inlaid import ops
from inlaid.driver import loop_lowering
from inlaid.driver.generic import generic_kernels, warn_of_bytes, warn_of_generic
from inlaid.graph.ir import Span
from inlaid.lowering.kernels.kernel import KernelSource, build
from inlaid.plugins import Capabilities, Region, Target
from inlaid.plugins.registry import default_registry
from inlaid.schedules.generic import GenericRule
from inlaid.tensor.primitives import TensorIntrin
from inlaid.tensor.region import KernelSchedule, Utilization
from inlaid.tensor.scheduling.dot_products import dot_product
from inlaid.tensor.scheduling.rule import KernelContext
from inlaid.tensor.scheduling.work import is_bound_by_reductions, operations, predicted_seconds
from inlaid_runtime.errors import ScheduleWarning

TARGET = "x86:threads=1"
needs_x86 = pytest.mark.skipif(
    "x86" not in default_registry().kinds(), reason='the x86 plugin is not installed: pip install "inlaid[x86]"'
)


def scheduled(rule: str, seconds: float, reduces: bool = True, dims: tuple[str, ...] = ()) -> KernelSchedule:
    utilization = Utilization.SCALAR if rule in ("", "generic") else Utilization.FULL
    return KernelSchedule(rule, ("conv",), (f"node_{rule}",), dims, seconds, reduces, utilization)


def product(rows: Any = 64, inner: int = 256) -> inlaid.Module:
    a = inlaid.var("a", inlaid.TensorType((rows, inner), "float32"))
    weights = inlaid.constant(np.ones((inner, 256), np.float32))
    return inlaid.Module({"main": inlaid.function([a], ops.matmul(a, weights, span=Span("m.onnx", "product")))})


def test_work_of_a_product():
    a, b = (inlaid.var(name, inlaid.TensorType((64, 64), "float32")) for name in "ab")
    program = build(KernelSource("product", (a, b), ops.matmul(a, b)))
    assert operations(program) == 2 * 64**3
    assert predicted_seconds(program, Capabilities((), peak=1e9, bandwidth=1e12)) == pytest.approx(2 * 64**3 / 1e9)
    assert predicted_seconds(program, Capabilities((), peak=1e15, bandwidth=1e9)) == pytest.approx(3 * 4 * 64**2 / 1e9)
    slow = Capabilities((), peak=1e9, bandwidth=1e12, vector_bits=256)
    assert predicted_seconds(program, slow, share=8) == pytest.approx(8 * 2 * 64**3 / 1e9)
    assert is_bound_by_reductions(program, Capabilities((), peak=1e9, bandwidth=1e12))
    assert not is_bound_by_reductions(program, Capabilities((), peak=1e15, bandwidth=1e9))


def test_shares_of_the_predicted_time():
    schedules = [
        scheduled("matmul", 1e-3),
        scheduled("generic", 1e-3),
        scheduled("", 2e-3),
        scheduled("generic", 1e-3, reduces=False),
    ]
    assert [(item.rule, share) for item, share in generic_kernels(schedules)] == [("", 0.4), ("generic", 0.2)]
    assert generic_kernels([]) == ()


def test_the_warning_names_operator_node_share_and_remedy():
    with pytest.warns(ScheduleWarning) as caught:
        warn_of_generic("region0", [scheduled("generic", 3e-3, dims=("batch",)), scheduled("matmul", 1e-3)])
    assert str(caught[0].message) == (
        "region region0 is expected to be slow: kernels with a generic schedule take 75% of its predicted time: "
        'conv at node_generic (75%); fix sizes that do not vary (dims={"batch": ...}, --dim batch=SIZE), or list first a target '
        "with a schedule for them"
    )


@pytest.mark.parametrize(
    "schedules",
    [
        [],
        [scheduled("generic", 1e-3), scheduled("matmul", 1e-3)],
        [scheduled("generic", 1e-3, reduces=False)],
        [scheduled("generic", 1e-6)],
    ],
    ids=["nothing", "half of the time", "no reductions", "too small to matter"],
)
def test_no_warning(schedules):
    with warnings.catch_warnings():
        warnings.simplefilter("error", ScheduleWarning)
        warn_of_generic("region0", schedules)


@needs_x86
def test_only_kernels_without_a_schedule_are_told_of(monkeypatch):
    module = product(inlaid.SizeVar("rows", 1))
    with warnings.catch_warnings():
        warnings.simplefilter("error", ScheduleWarning)
        inlaid.compile(module, [TARGET], cache=False)
    assert inlaid.estimate(module, [TARGET]).regions[0].generic == ()
    monkeypatch.setattr(loop_lowering, "shared_rules", lambda capabilities: (GenericRule(),))
    with pytest.warns(ScheduleWarning, match=r"matmul at product \(100%\); fix sizes that do not vary \(dims={\"rows\": ...}"):
        inlaid.compile(module, [TARGET], cache=False)
    report = inlaid.estimate(module, [TARGET])
    assert report.regions[0].generic == ("matmul at product (100%)",)
    assert "region0_x86 with the generic schedule: matmul at product (100%)" in report.to_text()
    assert report.to_json()["regions"][0]["generic"] == ["matmul at product (100%)"]


def test_the_warning_of_products_of_bytes_goes_by_predicted_speed():
    x = inlaid.var("x", inlaid.TensorType((8, 16), "uint8"))
    unit = inlaid.function([x], ops.matmul(x, inlaid.constant(np.ones((16, 8), np.int8)), out_dtype="int32"))
    region = Region("region0", unit, Target("narrow"))
    able = Capabilities((), vector_bits=256)
    fast = TensorIntrin("fast", dot_product("uint8", "int8", "int32", 8, 4), cost=3)
    slow = TensorIntrin("slow", dot_product("uint8", "int8", "int32", 8, 4), cost=5)
    with pytest.warns(ScheduleWarning) as caught:
        warn_of_bytes(region, KernelContext(able, 1, (slow,)))
    expected = "region region0 is expected to be slow: narrow is predicted to multiply float32 faster than int8"
    assert str(caught[0].message) == f"{expected}; compile the float32 model for it"
    with warnings.catch_warnings():
        warnings.simplefilter("error", ScheduleWarning)
        warn_of_bytes(region, KernelContext(able, 1, (fast,)))
        warn_of_bytes(region, KernelContext(Capabilities(()), 1))
        floats = inlaid.function([a := inlaid.var("a", inlaid.TensorType((4, 4), "float32"))], ops.matmul(a, a))
        warn_of_bytes(Region("region0", floats, Target("narrow")), KernelContext(able, 1, (slow,)))
