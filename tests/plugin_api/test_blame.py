"""Whatever a plugin does wrong names the plugin, the region and the source nodes."""

from __future__ import annotations

import importlib.metadata

import numpy as np
import pytest
from tests.plugin_registry import discover

from inlaid import ops
from inlaid.driver import compile_module
from inlaid.graph import ir
from inlaid.plugins.hookspecs import GROUP
from inlaid_runtime.errors import KernelFault, PluginError, Unsupported
from inlaid_runtime.plugins.blame import blame, summarize_nodes
from inlaid_runtime.types import TensorType

HOOKS = {
    "predicate": "return Accept()",
    "compile": 'return context.steps(unit).artifact("acme", 1, b"")',
    "check": "return None",
    "load": "return Loaded(self)",
    "invoke": "outputs[0][...] = 0",
}
SOURCE = """
from inlaid_runtime.errors import *
from inlaid.graph.pattern import *


def predicate(call):
    {predicate}


@hookimpl
def inlaid_targets():
    return [TargetSpec("acme", "", lambda options: Capabilities(("float32",)))]


@hookimpl
def inlaid_op_rules(target):
    {rules}


class Compiler(Codegen):
    def compile(self, unit, context):
        {compile}


class Runtime(RuntimeModule):
    def check(self, artifact):
        {check}

    def load(self, artifact, constants):
        {load}

    def invoke(self, inputs, outputs, workspace, dims):
        {invoke}


@hookimpl
def inlaid_codegen(target):
    return Compiler()


@hookimpl
def inlaid_runtime(target):
    return Runtime()
"""
RULES = 'return [OpRule("relu", "rectify", predicate)] if target.kind == "acme" else []'
AT_NODE = r" \(at m:the relu, plugin acme\)"
AT_REGION = r" \(at the relu, region region0_acme, plugin acme\)"


@pytest.fixture
def run(make_plugin):
    """Compile and run relu with a plugin whose hooks do what they are given."""

    def do(rules=RULES, **hooks):
        reference_points = [point for point in importlib.metadata.entry_points(group=GROUP) if point.name == "reference"]
        source = SOURCE.format(rules=rules, **{**HOOKS, **hooks})
        registry = discover([*reference_points, make_plugin("acme", source)])
        assert not registry.problems()
        x = ir.var("x", TensorType((4,), "float32"))
        module = ir.Module({"main": ir.function((x,), ops.relu(x, span=ir.Span("m", "the relu")))})
        return compile_module(module, ["acme"], registry).run({"x": np.ones(4, np.float32)})

    return do


def test_nothing_wrong(run):
    (result,) = run().values()
    assert result.tolist() == [0, 0, 0, 0]


@pytest.mark.parametrize(
    ("hook", "words"),
    [
        ("predicate", "the predicate of rule rectify failed: ZeroDivisionError: division by zero" + AT_NODE),
        ("compile", "the code generator failed: ZeroDivisionError: division by zero" + AT_REGION),
        ("check", "the check of the runtime failed: ZeroDivisionError: division by zero" + AT_REGION),
        ("load", "loading failed: ZeroDivisionError: division by zero" + AT_REGION),
        ("invoke", r"region region0_acme on acme failed: ZeroDivisionError: division by zero \(at the relu, plugin acme\)"),
    ],
)
def test_what_raises(run, hook, words):
    with pytest.raises(PluginError, match=words) as caught:
        run(**{hook: "1 / 0"})
    assert isinstance(caught.value.__cause__, ZeroDivisionError)


@pytest.mark.parametrize(
    ("hook", "words"),
    [
        ("predicate", "the predicate of rule rectify must return a verdict, got str" + AT_NODE),
        ("compile", "the code generator must return the artifact region0_acme, got str" + AT_REGION),
        ("load", r"the runtime of acme must return a Loaded from load\(\), got str" + AT_REGION),
    ],
)
def test_what_gives_something_else(run, hook, words):
    with pytest.raises(PluginError, match=words):
        run(**{hook: 'return "yes"'})


def test_a_pattern_that_raises(run):
    rules = 'return [OpRule(is_op("relu").where(lambda call: 1 / 0), "odd")] if target.kind == "acme" else []'
    with pytest.raises(PluginError, match="the pattern of rule odd failed: ZeroDivisionError: division by zero" + AT_NODE):
        run(rules)


@pytest.mark.parametrize(
    ("rule", "words"),
    [
        ('"rellu"', r"rule rellu names the unknown operator 'rellu' \(is 'relu' meant\?\) \(plugin acme\); inlaid.ops.TABLE lists"),
        ('"rellu", "rectify"', "rule rectify names the unknown operator 'rellu' .is 'relu' meant"),
        ('is_op("add")(is_op("rellu"), wildcard()), "sum"', "rule sum names the unknown operator 'rellu' .is 'relu' meant"),
        ('is_op("qqq") | is_op("relu"), "odd"', r"rule odd names the unknown operator 'qqq' \(plugin acme\)"),
        ('is_op("relu")(wildcard())', r"rule over relu has no name, .* \(plugin acme\); name it: OpRule"),
    ],
)
def test_a_rule_that_would_never_be_asked(run, rule, words):
    with pytest.raises(PluginError, match=words):
        run(f'return [OpRule({rule})] if target.kind == "acme" else []')


def test_a_rule_for_operators_of_a_vendors_own(run):
    (result,) = run(
        'return [OpRule("relu"), OpRule(is_op("acme.gate")(is_op("relu")), "gated")] if target.kind == "acme" else []'
    ).values()
    assert result.tolist() == [0, 0, 0, 0]


@pytest.mark.parametrize(
    ("hook", "error", "words"),
    [
        ("compile", Unsupported, "no cheese" + AT_REGION),
        ("load", Unsupported, "no cheese" + AT_REGION),
        ("invoke", KernelFault, r"no cheese \(at the relu\)"),
    ],
)
def test_errors_of_inlaids_own_pass_with_the_names(run, hook, error, words):
    with pytest.raises(error, match=words):
        run(**{hook: f'raise {error.__name__}("no cheese")'})


def test_names_that_are_known_better_stay():
    with pytest.raises(Unsupported) as caught, blame("outer", "it", "region", ("a", "b")):
        raise Unsupported("no", node="mine", plugin="inner")
    assert (caught.value.node, caught.value.plugin, caught.value.region) == ("mine", "inner", "region")


def test_of_many_nodes_the_first_are_named():
    assert summarize_nodes(("a", "b", "c")) == "a, b, c"
    assert summarize_nodes(("a", "b", "c", "d", "e")) == "a, b, c and 2 more"
    assert summarize_nodes(()) == ""
