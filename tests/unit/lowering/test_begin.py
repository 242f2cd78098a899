"""Kernels are handed out as soon as they are finished, unless they may change."""

from __future__ import annotations

from inlaid import TensorType, ops, var
from inlaid.graph import ir as graph
from inlaid.lowering.region import RegionSource, lower_region
from inlaid.schedules.default import SHARED_RULES
from inlaid.schedules.rule import KernelContext
from inlaid.tensor import ir

from .oracle import CPU


def begun(function: graph.Function) -> tuple[list[ir.LoopProgram], tuple[ir.LoopProgram, ...]]:
    """The kernels handed out early, and those of the region."""
    found: list[ir.LoopProgram] = []
    source = RegionSource("region", function)
    region = lower_region(source, SHARED_RULES, KernelContext(CPU, CPU.cores), begin=found.append)
    return found, region.kernels


def test_each_kernel_is_begun_once_and_in_order():
    x = var("x", TensorType((4, 8), "float32"))
    rows = ops.softmax(ops.exp(x), axis=1)
    found, kernels = begun(graph.function([x], graph.tuple_([ops.exp(rows), ops.concat(rows, ops.exp(rows), axis=0)])))
    assert tuple(found) == kernels and len(kernels) > 1


def test_kernels_that_a_concatenation_may_rewrite_are_not_begun():
    x = var("x", TensorType((4, 8), "float32"))
    found, kernels = begun(graph.function([x], graph.tuple_([ops.concat(ops.exp(x), ops.tanh(x), axis=1)])))
    assert not found and kernels
