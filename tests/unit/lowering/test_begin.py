"""Kernels are handed out as soon as they are finished, unless they may change."""

from __future__ import annotations

from inlaid import TensorType, ops, var
from inlaid.graph import ir as graph
from inlaid.lowering.region import RegionSource, lower_region
from inlaid.schedules.default import SHARED_RULES
from inlaid.tensor import ir
from inlaid.tensor.scheduling.rule import KernelContext

from .oracle import CPU


def begun(function: graph.Function) -> tuple[list[ir.LoopProgram], tuple[ir.LoopProgram, ...]]:
    """The kernels handed out early, and those of the region."""
    early_kernels: list[ir.LoopProgram] = []
    source = RegionSource("region", function)
    region = lower_region(source, SHARED_RULES, KernelContext(CPU, CPU.cores), begin=early_kernels.append)
    return early_kernels, region.kernels


def test_each_kernel_is_begun_once_and_in_order():
    x = var("x", TensorType((4, 8), "float32"))
    rows = ops.softmax(ops.exp(x), axis=1)
    early_kernels, kernels = begun(graph.function([x], graph.tuple_([ops.exp(rows), ops.concat(rows, ops.exp(rows), axis=0)])))
    assert tuple(early_kernels) == kernels and len(kernels) > 1


def test_kernels_that_a_concatenation_may_rewrite_are_not_begun():
    x = var("x", TensorType((4, 8), "float32"))
    early_kernels, kernels = begun(graph.function([x], graph.tuple_([ops.concat(ops.exp(x), ops.tanh(x), axis=1)])))
    assert not early_kernels and kernels


def test_kernels_apart_from_a_concatenation_are_begun():
    x = var("x", TensorType((4, 8), "float32"))
    rows = ops.softmax(x, axis=1)
    early_kernels, kernels = begun(graph.function([x], graph.tuple_([ops.concat(ops.exp(rows), ops.tanh(rows), axis=1)])))
    assert early_kernels == [kernels[0]] and len(kernels) > 1


def test_a_kernel_is_begun_where_another_call_keeps_it():
    x, y = (var(name, TensorType((4, 8), "float32")) for name in "xy")
    both = ops.concat(ops.exp(x), ops.tanh(x), axis=1)
    early_kernels, kernels = begun(graph.function([x, y], graph.tuple_([both, ops.exp(y)])))
    assert len(early_kernels) == 1 and early_kernels[0] in kernels
