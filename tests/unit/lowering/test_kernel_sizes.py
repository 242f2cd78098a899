"""Kernels over expressions of dimensions get variables of their own."""

from __future__ import annotations

from inlaid import ops
from inlaid.graph import ir as graph
from inlaid.lowering.kernels.kernel_sizes import parametrize_sizes
from inlaid.lowering.region import RegionSource, lower_region
from inlaid.schedules.default import SHARED_RULES
from inlaid.tensor.scheduling.rule import KernelContext
from inlaid_runtime import arith
from inlaid_runtime.arith import SizeVar
from inlaid_runtime.types import TensorType

from .oracle import CPU

HEIGHT, WIDTH = SizeVar("height", 1), SizeVar("width", 1, 64)
HALF = ((HEIGHT + 1) // 2, (WIDTH + 1) // 2)


def test_expressions_become_variables_with_their_bounds_and_representative_sizes():
    x = graph.var("x", TensorType(("batch", 4, *HALF), "float32"))
    function = parametrize_sizes((x,), ops.relu(x))
    batch, channels, *sides = function.params[0].type.shape
    assert (batch, channels) == (SizeVar("batch"), 4) and function.body.type == function.params[0].type
    for side, expected, bounds in zip(sides, HALF, ((1, None), (1, 32)), strict=True):
        assert isinstance(side, SizeVar) and (side.lower, side.upper) == bounds
        assert all(arith.size_hint(side, unknown) == arith.size_hint(expected, unknown) for unknown in (128, arith.IMAGE_SIDE))


def test_plain_dimensions_stay():
    x = graph.var("x", TensorType(("batch", 4, HEIGHT, WIDTH), "float32"))
    body = ops.relu(x)
    function = parametrize_sizes((x,), body)
    assert function.params == (x,) and function.body is body and not function.facts


def test_related_dimensions_stay():
    """The result of the convolution has the shape of the other operand, which variables would not say."""
    x, w = (graph.var(name, TensorType(shape, "float32")) for name, shape in (("x", (1, 4, *HALF)), ("w", (4, 4, 1, 1))))
    lower = ops.conv(x, w, strides=(2, 2), pads=(0,) * 4)
    other = graph.var("r", lower.type)
    body = ops.add(lower, other)
    assert parametrize_sizes((x, w, other), body).body is body


def test_names_of_the_region_are_not_taken():
    x = graph.var("x", TensorType((SizeVar("size"), (SizeVar("size") + 1) // 2), "float32"))
    first, second = parametrize_sizes((x,), ops.relu(x)).params[0].type.shape
    assert first == SizeVar("size") and second != first


def test_layers_that_differ_in_expressions_share_a_kernel():
    side = SizeVar("side", 2)
    inputs = [graph.var(f"x{step}", TensorType((1, 4, (side + step) // 2), "float32")) for step in (2, 3)]
    function = graph.function(inputs, graph.tuple_(list(map(ops.exp, inputs))))
    region = lower_region(RegionSource("region", function), SHARED_RULES, KernelContext(CPU, 1))
    assert len(region.kernels) == 1
    assert [call.sizes for call in region.calls] == [(arith.wrap(item.type.shape[2]),) for item in inputs]
