"""What the compiler does to a model for a target in the other order of axes: one region for what the target takes in a row."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import numpy as np
import pytest
from tests.unit.partitioning.fakes import make_registry, taking

from inlaid import ops
from inlaid.driver.compile import candidates_for, cut
from inlaid.driver.prepare import FALLBACK, model_passes
from inlaid.graph import ir
from inlaid.graph.interp import evaluate
from inlaid.graph.operator import Operator
from inlaid.graph.pattern import is_op, wildcard
from inlaid.graph.transform import transform
from inlaid.ops.convolution import ConvAttrs
from inlaid.partitioning.outline import partition
from inlaid.passes.manager import FunctionPass, PassManager
from inlaid.plugins import OpRule
from inlaid.plugins.registry import PluginRegistry, default_registry
from inlaid_runtime.types import TensorType

LAST, FIRST = (0, 2, 3, 1), (0, 3, 1, 2)


def _infer(attrs, x, w):
    batch, *space, channels = x.shape
    channels_first = ops.conv.infer(attrs, TensorType((batch, channels, *space), x.dtype), w)
    return TensorType(tuple(channels_first.shape[axis] for axis in LAST), x.dtype)


CONV_LAST = Operator(
    "toy.conv_last",
    _infer,
    ConvAttrs,
    reference=lambda attrs, x, w: ops.conv.reference(attrs, x.transpose(FIRST), w).transpose(LAST),
    arity=(2, 2),
    inputs=("x", "w"),
)
"""A convolution of data N H W C."""


def channels_last(function):
    """Every convolution as the toy has it, between transposes."""

    def visit(old, new):
        if not isinstance(new, ir.Call) or new.callee is not ops.conv:
            return new
        x, w = new.args
        return ops.transpose(ir.call(CONV_LAST, (ops.transpose(x, perm=LAST), w), new.attrs, new.span), perm=FIRST)

    return transform(function, visit)


def toy(*extra_rules: OpRule) -> PluginRegistry:
    """An accelerator that works channels last: it takes no transposes, unless other rules do."""
    rules = (*extra_rules, *map(OpRule, (CONV_LAST.name, "relu", "add")))
    return make_registry({"toy": rules, "host": taking("transpose")}, passes=(FunctionPass("channels_last", channels_last),))


def residual(blocks: int) -> ir.Module:
    """Channels first: convolutions with biases, activations and sums, block by block."""
    generator = np.random.default_rng(0)

    def conv(x):
        w = ir.constant(generator.integers(-2, 3, (4, 4, 3, 3)).astype(np.float32))
        bias = ir.constant(generator.integers(-5, 6, (4, 1, 1)).astype(np.float32))
        return ops.add(ops.conv(x, w, pads=(1, 1, 1, 1)), bias)

    image = ir.var("x", TensorType((1, 4, 6, 5), "float32"))
    x = ops.relu(conv(image))
    for _ in range(blocks):
        x = ops.relu(ops.add(conv(ops.relu(conv(x))), x))
    return ir.Module({"main": ir.function([image], x)})


def regions(module: ir.Module, registry: PluginRegistry, targets: Sequence[str] = ("toy",)) -> tuple[Counter[str], Counter[str]]:
    """How many regions each target has, after all graph passes, and without `sink_transposes`."""
    partitioned, candidates = cut(module, targets, registry)
    passes = [step for step in model_passes(candidates, FALLBACK, registry) if step.name != "sink_transposes"]
    before = PassManager(passes).run(module)
    image = np.random.default_rng(1).integers(-4, 5, (1, 4, 6, 5)).astype(np.float32)
    np.testing.assert_array_equal(evaluate(partitioned.module, [image]), evaluate(module, [image]))
    every = (partitioned, partition(before, candidates))
    after, first = (Counter(candidates[number].target.kind for number in each.regions.values()) for each in every)
    return after, first


def test_a_residual_network_is_one_region() -> None:
    """And the two transposes around it are the only others."""
    after, before = regions(residual(1), toy())
    assert before["toy"] >= 4
    assert after == {"toy": 1, FALLBACK: 2}
    after, before = regions(residual(4), toy())
    assert before["toy"] >= 13
    assert after == {"toy": 1, FALLBACK: 2}


def test_another_listed_target_takes_the_transposes() -> None:
    after, _ = regions(residual(2), toy(), ("toy", "host"))
    assert after == {"toy": 1, "host": 2}


def test_transposes_that_a_composite_holds_stay() -> None:
    """A target that takes convolutions with transposes around them finds them there."""
    around = is_op("transpose")(is_op(CONV_LAST.name)(is_op("transpose")(wildcard()), wildcard()))
    after, before = regions(residual(2), toy(OpRule(around, "conv")))
    assert after == before == {"toy": 1}


def test_graphs_of_targets_that_take_transposes_stay() -> None:
    """Transposes are layouts there, and moving them can cost: see the pass."""
    pytest.importorskip("inlaid_x86", reason='needs the x86 plugin: pip install "inlaid[x86]"')
    x = ir.var("x", TensorType((2, 3, 4, 5), "float32"))
    turned = ops.transpose(ops.relu(ops.transpose(ops.softmax(x, axis=1), perm=LAST)), perm=FIRST)
    module = ir.Module({"main": ir.function([x], turned)})
    registry = default_registry()
    steps = model_passes(candidates_for(["x86"], registry), FALLBACK, registry)
    (position,) = (number for number, step in enumerate(steps) if step.name == "sink_transposes")
    before = PassManager(steps[:position]).run(module)
    assert steps[position].run(before) is before
