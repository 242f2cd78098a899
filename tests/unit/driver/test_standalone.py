"""Targets that no host stands beside: a model runs there whole, or is refused with its nodes."""

from __future__ import annotations

import sys
import types

import numpy as np
import pytest
from tests.plugin_registry import both_halves, installed_halves

from inlaid import ops
from inlaid.driver import build_package
from inlaid.graph import ir
from inlaid.plugins import Capabilities, Codegen, OpRule, TargetSpec, hookimpl
from inlaid.plugins.registry import PluginRegistry
from inlaid.settings import Isolation, Settings
from inlaid_runtime.errors import InlaidError, PluginError, Unsupported
from inlaid_runtime.types import TensorType

X = ir.var("x", TensorType((4,), "float32"))


class Broken(Codegen):
    """A code generator that can compile nothing."""

    def compile(self, unit, context):
        raise ValueError("no cheese")


@pytest.fixture
def lone(monkeypatch):
    """`lone(*operators)`: a registry with a target that stands alone and takes these, and the core's own."""

    def make(*operators: str) -> PluginRegistry:
        @hookimpl
        def inlaid_targets():
            return [TargetSpec("lone", "no host beside it", lambda options: Capabilities(("float32", "bool"), standalone=True))]

        @hookimpl
        def inlaid_op_rules(target):
            return [OpRule(name) for name in operators] if target.kind == "lone" else []

        @hookimpl
        def inlaid_codegen(target):
            return Broken() if target.kind == "lone" else None

        plugin = types.ModuleType("inlaid_lone")
        hooks = {"inlaid_targets": inlaid_targets, "inlaid_op_rules": inlaid_op_rules, "inlaid_codegen": inlaid_codegen}
        vars(plugin).update(PLUGIN_API_VERSION=3, **hooks)
        monkeypatch.setitem(sys.modules, plugin.__name__, plugin)
        reference_halves = installed_halves("reference")
        return PluginRegistry.discover([*reference_halves, *both_halves("lone", plugin.__name__)])

    return make


def module(*names: str) -> ir.Module:
    value: ir.Expr = X
    for name in names:
        value = getattr(ops, name)(value, span=ir.Span("m.onnx", f"the {name}"))
    return ir.Module({"main": ir.function((X,), value)})


def test_operators_that_it_does_not_take_are_named(lone):
    with pytest.raises(Unsupported) as caught:
        build_package(module("relu", "exp", "neg", "abs", "tanh", "erf"), ["lone"], lone("relu", "neg"), keep=False)
    error = caught.value
    assert (error.operator, error.node, error.plugin) == ("exp", "m.onnx:the exp", "lone")
    named = "exp at m.onnx:the exp, abs at m.onnx:the abs, tanh at m.onnx:the tanh and 1 more: has no rule for exp; "
    assert named in error.message
    assert "inlaid.estimate" in str(error) and "--explain" in error.on_command_line()


def test_control_flow_is_named(lone):
    positive = ops.less(ir.constant(np.float32(0)), ops.reduce_sum(X, axes=(0,)))
    branching_model = ir.Module(
        {"main": ir.function((X,), ir.if_(positive, ops.relu(X), ops.neg(X), span=ir.Span("m.onnx", "fork")))}
    )
    with pytest.raises(Unsupported, match="does not support its control flow") as caught:
        build_package(branching_model, ["lone"], lone("less", "reduce_sum", "relu", "neg"), keep=False)
    assert (caught.value.operator, caught.value.node) == ("If", "m.onnx:fork")


def test_a_host_that_is_listed_takes_control_flow(lone):
    positive = ops.less(ir.constant(np.float32(0)), ops.reduce_sum(X, axes=(0,)))
    forked = ir.Module({"main": ir.function((X,), ir.if_(positive, ops.exp(X), ops.abs(X)))})
    assert build_package(forked, ["lone", "reference"], lone(), keep=False).program.plans


def test_a_host_that_is_listed_takes_the_rest(lone):
    """Its code generator is asked: nothing was refused before."""
    with pytest.raises(PluginError, match="no cheese"):
        build_package(module("relu", "exp"), ["lone", "reference"], lone("relu"), keep=False)


def test_a_failing_code_generator_does_not_bring_in_the_host(lone):
    isolated = Settings(isolation=Isolation(60.0, 4 << 30))
    with pytest.raises(InlaidError, match="region0_lone"):
        build_package(module("relu"), ["lone"], lone("relu"), settings=isolated, keep=False)
