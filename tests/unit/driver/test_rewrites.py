"""Rewrites of regions under the pass manager: shown, verified, timed and bisected by name."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from inlaid import ops
from inlaid.driver import after_step, build_package, pass_effects
from inlaid.graph import ir
from inlaid.graph.interp import evaluate
from inlaid.graph.verify import verify
from inlaid.lowering.kernels.finish import kernel_passes
from inlaid.lowering.rewrites import pipeline as listed
from inlaid.partitioning.compose import dissolve
from inlaid.passes.manager import Capture, FunctionPass, ModulePass, Timing, UnitPass, Verify, bisect
from inlaid.plugins import Border, Capabilities, Phase
from inlaid.schedules.choose_convolution import choose_convolution
from inlaid.tensor.ir import Block, LoopProgram, walk_stmts
from inlaid.tensor.scheduling.rule import KernelContext
from inlaid_runtime.errors import CompileError, VerifyError
from inlaid_runtime.types import Layout, TensorType

from .loop_target import KIND, lowered, make_registry

REGION = f"region0_{KIND}"
ALWAYS = (
    "dissolve",
    "group_concats",
    "padding_taps",
    "zero_points",
    "unsigned_data",
    "wide_products",
    "choose_convolution",
    "pointwise_products",
    "tabulate",
    "fuse",
)
IMAGE = TensorType((1, 4, 8, 8), "float32")


def model() -> ir.Module:
    """A convolution of single pixels, a bias and a bound."""
    x = ir.var("x", IMAGE)
    weights = ir.constant(np.arange(24, dtype=np.float32).reshape(6, 4, 1, 1))
    bias = ir.constant(np.arange(6, dtype=np.float32).reshape(6, 1, 1))
    product = ops.conv(x, weights, strides=(1, 1), pads=(0, 0, 0, 0), dilations=(1, 1), groups=1)
    return ir.Module({"main": ir.function([x], ops.relu(ops.add(product, bias)))})


def operators(target: ir.Expr) -> set[str]:
    return {e.callee.name for e in ir.post_order(target) if isinstance(e, ir.Call) and isinstance(e.callee, ir.Operator)}


def test_every_rewrite_is_shown_by_its_name() -> None:
    """One after the other they make of the region what kernels are made of, and the module stays well formed."""
    channels_last = Border(Layout(((1, 4),)))
    registry = make_registry(
        form=lambda type_: channels_last if type_.rank == 4 else Border(),
        passes={Phase.AFTER_PARTITION: [ModulePass("own", lambda module: ir.Module({"main": _turned(module.main)}))]},
        vector_bits=256,
        peak=1e9,
        bandwidth=1e12,
    )
    shown = {}
    for name in ("own", "dissolve", "store_borders", "unsigned_data", "fixed_products", *ALWAYS[3:]):
        module = after_step(model(), [KIND], name, registry)
        shown[name] = module[REGION]
        if name not in ("own", "dissolve"):  # until then the region takes what the model has, and its caller gives what is stored
            verify(module)
    assert "neg" in operators(shown["own"])
    assert shown["dissolve"].params[0].type == IMAGE
    assert shown["store_borders"].params[0].type == TensorType((1, 1, 8, 8, 4), "float32")
    assert "conv" in operators(shown["choose_convolution"]) and "matmul" not in operators(shown["choose_convolution"])
    assert "matmul" in operators(shown["pointwise_products"])
    assert not any(isinstance(expr, ir.Function) for expr in ir.post_order(shown["tabulate"].body))
    assert any(isinstance(expr, ir.Function) for expr in ir.post_order(shown["fuse"].body))


def _turned(target: ir.Function) -> ir.Function:
    first = ir.tuple_item(target.body, 0)
    return ir.function(target.params, ir.tuple_([ops.neg(ops.neg(first))]), target.attrs)


def test_an_unknown_pass_lists_those_of_regions_too() -> None:
    with pytest.raises(CompileError) as caught:
        after_step(model(), [KIND], "magic", make_registry())
    kernels = [item.name for item in kernel_passes()]
    assert str(caught.value.remedy).endswith(f"sink_transposes, partition, borders, {', '.join((*ALWAYS, *kernels))}")


def test_kernels_are_shown_after_their_passes() -> None:
    """Loops without blocks; a target's own pass is one of those that can be named."""
    rename_pass = UnitPass[LoopProgram]("own", lambda program: replace(program, name="renamed"))
    registry = make_registry({Phase.LOOP: [rename_pass]})
    for name in ("flatten_blocks", "hoist_scratch", "own"):
        kernels = after_step(model(), [KIND], name, registry)
        assert isinstance(kernels, tuple)
        assert {program.name == "renamed" for program in kernels} == {name == "own"}
        assert not any(isinstance(stmt, Block) for program in kernels for stmt in walk_stmts(program.body))


def test_effects_name_the_plugins_of_passes() -> None:
    """In all three lists, each at its place, and what the passes change."""
    rename_pass = UnitPass[LoopProgram]("rename", lambda program: replace(program, name="renamed"))
    passes = {
        Phase.BEFORE_PARTITION: [FunctionPass("early", lambda function: function)],
        Phase.AFTER_PARTITION: [ModulePass("own", lambda module: ir.Module({"main": _turned(module.main)}))],
        Phase.LOOP: [rename_pass],
    }
    effects = pass_effects(model(), [KIND], make_registry(passes))
    assert [(item.level, item.name, item.changed) for item in effects if item.plugin == KIND] == [
        ("graph", "early", 0),
        ("region", "own", 1),
        ("kernel", "rename", 1),
    ]
    names = [item.name for item in effects]
    stages = ["bind_invariants", "early", "sink_transposes", "witness_sizes:2", "partition", "borders", "own", "dissolve"]
    assert names[names.index("bind_invariants") :][: len(stages)] == stages
    assert names[-2:] == ["hoist_scratch", "rename"]
    assert next(item for item in effects if item.name == "partition").after == 2


def test_capabilities_choose() -> None:
    watch = Capture[ir.Module]("")
    lowered(model(), make_registry(vector_bits=0), [watch])
    assert watch.names == list(ALWAYS)
    watch = Capture[ir.Module]("")
    lowered(model(), make_registry(vector_bits=256), [watch])
    assert watch.names == [
        *ALWAYS[:3],
        "volume_windows",
        *ALWAYS[3:5],
        "fixed_products",
        "subsample",
        "wide_products",
        "wide_floats",
        "vector_products",
        *ALWAYS[6:-1],
        "rounded_floats",
        ALWAYS[-1],
    ]


def test_timing_tells_regions_apart() -> None:
    timing = Timing[ir.Module](lambda module: f"@{next(iter(module.functions))}")
    lowered(model(), make_registry(), [timing])
    assert [name for name, _ in timing.seconds] == [f"{name} @{REGION}" for name in ALWAYS]


def broken(target: ir.Function, *facts: Any, **options: Any) -> ir.Function:
    """The function with a variable that nothing binds."""
    field = ir.tuple_item(target.body, 0)
    return ir.function(target.params, ir.tuple_([ops.add(field, ir.var("y", field.type))]), target.attrs)


def test_verification_between_rewrites_names_pass_and_region(monkeypatch) -> None:
    monkeypatch.setattr(listed, "tabulate", broken)
    with pytest.raises(VerifyError, match=f"in @{REGION}: %y is used outside of its scope") as caught:
        build_package(model(), [KIND], make_registry(), instruments=[Verify(verify)], keep=False)
    assert "after pass tabulate" in caught.value.__notes__


@pytest.mark.parametrize("guilty", ["dissolve", "pointwise_products", "fuse", None])
def test_bisection_names_the_guilty_rewrite(guilty) -> None:
    context = KernelContext(Capabilities((), vector_bits=256, peak=1e9, bandwidth=1e12))
    passes = listed.region_passes(context, dissolve, None, choose_convolution)
    wrong = [
        FunctionPass(item.name, lambda f: ir.function(f.params, ops.neg(f.body))) if item.name == guilty else item
        for item in passes
    ]
    feed = [np.linspace(-1, 1, 256, dtype=np.float32).reshape(1, 4, 8, 8)]
    expected = evaluate(model(), feed)
    assert bisect(wrong, model(), lambda unit: bool(np.allclose(evaluate(unit, feed), expected))) == guilty
