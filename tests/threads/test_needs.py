"""Operators whose kernels need more than a device has are placed on the next target, with the reason."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from tests.plugin_registry import registry_with

from inlaid import ops
from inlaid.driver import cut
from inlaid.driver.compile import compile_module
from inlaid.driver.report import build_report
from inlaid.graph import ir
from inlaid.graph.operator import Operator
from inlaid.lowering.kernels import needs as kernel_needs
from inlaid.lowering.kernels.needs import unmet_need
from inlaid.lowering.loop_rule import loop_rule
from inlaid.plugins import Accept, Capabilities, Level, Reject, TargetSpec, Threads, hookimpl
from inlaid.plugins.registry import PluginRegistry
from inlaid.tensor import te
from inlaid_runtime.arith import SizeVar
from inlaid_runtime.errors import CompileError
from inlaid_runtime.types import DTYPES, TensorType

from .grid_target import CLASSES, KIND, SHARED, Grid, GridCodegen, GridRuntime

GPU = CLASSES["shared"]
WIDE = "wide"
"""A second kind of target, which lacks nothing."""
N = SizeVar("n", 1, 64)


def make_registry(able: Capabilities) -> PluginRegistry:
    """A registry with a target of a device, with `WIDE` and the reference."""
    grids = {KIND: Grid(able), WIDE: Grid(GPU)}

    @hookimpl
    def inlaid_targets():
        return [TargetSpec(kind, "of a test", lambda options, kind=kind: grids[kind].able, Level.LOOP) for kind in grids]

    @hookimpl
    def inlaid_op_rules(target):
        return [loop_rule(target.kind, capabilities=grids[target.kind].able)] if target.kind in grids else ()

    @hookimpl
    def inlaid_codegen(target):
        return GridCodegen(grids[target.kind])

    @hookimpl
    def inlaid_runtime(target):
        return GridRuntime(grids[target.kind])

    return registry_with(KIND, inlaid_targets, inlaid_op_rules, inlaid_codegen, inlaid_runtime)


def lacking(*names: str) -> Capabilities:
    """A device with all element types but some."""
    return replace(GPU, dtypes=tuple(name for name in GPU.dtypes if name not in names))


def through(dtype_name: str, factor: float) -> Operator:
    """An operator on float32 that multiplies in another element type."""

    def compute(attrs: Any, x: Any) -> Any:
        return te.compute(
            x.shape, lambda *i: te.cast(te.cast(x[i], dtype_name) * te.const(factor, dtype_name), "float32"), "product"
        )

    def reference(attrs: Any, x: Any) -> Any:
        kind = DTYPES[dtype_name].numpy
        return (x.astype(kind) * kind.type(factor)).astype(np.float32)

    return Operator(f"my.through_{dtype_name}", lambda attrs, x: x, reference=reference, compute=compute)


def in_blocks(threads: int, elements: int) -> Operator:
    """An operator that reverses runs of `threads` elements through `elements` of shared memory."""

    def compute(attrs: Any, x: Any) -> Any:
        def body(b: Any, inputs: Any, outputs: Any) -> None:
            with b.loop(x.shape[0], "block", thread="blockIdx.x") as row:
                shared = b.alloc((elements,), "float32", "shared", SHARED.name)
                with b.loop(threads, "thread", thread="threadIdx.x") as lane:
                    b.store(shared, lane, inputs[0][row, lane])
                with b.loop(threads, "thread", thread="threadIdx.x") as lane:
                    b.store(outputs[0], (row, lane), shared[threads - 1 - lane])

        return te.extern([(x.shape, "float32")], [x], body, "reversed")[0]

    return Operator("my.reversed", lambda attrs, x: x, reference=lambda attrs, x: x[:, ::-1].copy(), compute=compute)


NEEDS = [
    (through("float64", 0.1), lacking("float64"), "its kernel computes in float64, not among the target's element types"),
    (through("int64", 3), lacking("int64"), "its kernel computes in int64, not among the target's element types"),
    (through("bfloat16", 3), lacking("bfloat16", "uint2"), "its kernel computes in bfloat16, not among"),
    (
        in_blocks(16, 16),
        replace(GPU, threads=Threads(8, 4, resident=64)),
        "its kernel needs 16 threads in a block, the target has 8",
    ),
    (in_blocks(16, 16), CLASSES["plain"], "expected a scope that the target declares (none)"),
    (in_blocks(16, 16), replace(GPU, scopes=(replace(SHARED, capacity=48),)), "expected at most 48 bytes in use at once, found 64"),
]


@pytest.mark.parametrize("rows", [5, N], ids=["static", "symbolic"])
@pytest.mark.parametrize(("operator", "able", "reason"), NEEDS)
def test_a_kernel_that_needs_more_runs_on_the_next_target(rows: Any, operator: Operator, able: Capabilities, reason: str) -> None:
    x = ir.var("x", TensorType((rows, 16), "float32"))
    module = ir.Module({"main": ir.function([x], ops.abs(operator(ops.neg(x))))})
    inputs = np.random.default_rng(0).integers(-9, 10, (5, 16)).astype(np.float32)
    expected = np.abs(operator.reference(None, -inputs))
    for device, targets in ((able, [KIND, WIDE, KIND]), (GPU, [KIND] * 3)):
        registry = make_registry(device)
        partitioned, candidates = cut(module, [KIND, WIDE], registry)
        report = build_report(partitioned, candidates, registry, schedules=False)
        assert [item.target for item in report.operators] == targets
        assert (reason in report.to_text()) == (device is able)
        (result,) = compile_module(module, [KIND, WIDE], registry, keep=False).run({"x": inputs}).values()
        np.testing.assert_array_equal(result, expected)


def test_functions_and_conversions_count() -> None:
    """The float64 of a mathematical function is only in its expansion, that of a conversion to float16 in that to bits."""

    def wide(attrs: Any, x: Any) -> Any:
        return te.compute(x.shape, lambda *i: te.cast(te.math("exp", te.cast(x[i], "float64")), x.dtype), "wide")

    x, double = ir.var("x", TensorType((4,), "float32")), ir.var("y", TensorType((4,), "float64"))
    assert unmet_need(Operator("my.wide", lambda attrs, x: x, compute=wide)(x), lacking("float64")) is not None
    assert unmet_need(ops.exp(x), lacking("float64")) is None
    assert unmet_need(ops.cast(double, dtype="float16"), lacking("float64")) is not None
    assert unmet_need(ops.less(x, x), lacking("bool")) is not None and unmet_need(ops.relu(x), lacking("bool")) is None


def test_intermediate_float64_that_is_computed_in_integers_is_no_need() -> None:
    able = replace(lacking("float64"), full_rate_float64=False)
    x = ir.var("x", TensorType((4,), "float32"))
    for call in (through("float64", 0.1)(x), ops.sin(x)):
        assert unmet_need(call, able) is None and unmet_need(call, lacking("float64")) is not None
    assert "uint64" in str(unmet_need(through("float64", 0.1)(x), replace(lacking("float64", "uint64"), full_rate_float64=False)))
    integers = ir.var("i", TensorType((4,), "int32"))
    assert unmet_need(ops.cast(integers, dtype="float16"), replace(lacking("float64", "uint64"), full_rate_float64=False)) is None
    assert unmet_need(ops.cast(x, dtype="float64"), able) is not None


def test_an_update_in_place_counts() -> None:
    def update(attrs: Any, x: Any, y: Any) -> Any:
        return te.compute(x.shape, lambda i: te.cast(te.cast(y[i], "float64"), "float32"), "update")

    def compute(attrs: Any, x: Any, y: Any) -> Any:
        return te.compute(x.shape, lambda i: y[i], "plain")

    call = Operator("my.update", lambda attrs, x, y: x, compute=compute, update=update, arity=(2, 2))
    x, y = (ir.var(name, TensorType((4,), "float32")) for name in "xy")
    able = lacking("float64")
    assert unmet_need(call(x, y), able) is None
    assert unmet_need(call(x, y), replace(able, in_place=True)) is not None


def test_a_kernel_that_cannot_be_built_is_an_error_of_lowering() -> None:
    broken = Operator("my.broken", lambda attrs, x: x, compute=lambda attrs, x: x.no_such_thing)
    x = ir.var("x", TensorType((4,), "float32"))
    able = lacking("float64")
    accepts = loop_rule("any", capabilities=able).predicate
    assert accepts is not None and isinstance(accepts(broken(x)), Accept)
    with pytest.raises(CompileError, match=r"compute raised AttributeError.*my\.broken"):
        compile_module(ir.Module({"main": ir.function([x], broken(x))}), [KIND], Grid(able).registry(), keep=False)


def test_equal_calls_are_examined_once(monkeypatch: pytest.MonkeyPatch) -> None:
    built = []
    build = kernel_needs.build
    monkeypatch.setattr(kernel_needs, "build", lambda *args: built.append(args) or build(*args))
    operator, able = through("float64", 0.5), lacking("float64")
    for rows in (3, 3, 4, N, N):
        accepts = loop_rule("any", capabilities=able).predicate
        assert accepts is not None and isinstance(accepts(operator(ir.var("x", TensorType((rows,), "float32")))), Reject)
    assert len(built) == 3
