"""Dot-product instructions of a target: their semantics, which of its intrinsics match, and their speed."""

from __future__ import annotations

from functools import cache

from inlaid.tensor import ir
from inlaid.tensor.analysis.keys import structurally_equal
from inlaid.tensor.primitives import TensorIntrin
from inlaid.tensor.scheduling.rule import KernelContext
from inlaid_runtime import arith
from inlaid_runtime.arith import Var
from inlaid_runtime.records import dataclass
from inlaid_runtime.types import dtype


@cache
def dot_product(a: str, b: str, total: str, lanes: int, group: int) -> ir.LoopProgram:
    """Build the semantics of a dot-product instruction: total[i] += sum over j < group of a[j] * b[i, j] for each lane i."""
    vector, matrix = ir.Buffer("a", (group,), dtype(a)), ir.Buffer("b", (lanes, group), dtype(b))
    acc = ir.Buffer("total", (lanes,), dtype(total))
    i, j = Var("i"), Var("j")
    product = ir.cast(ir.load(vector, (j,)), total) * ir.cast(ir.load(matrix, (i, j)), total)
    store = ir.Store(acc, (i,), ir.load(acc, (i,)) + product)
    body = ir.For(i, arith.wrap(lanes), ir.For(j, arith.wrap(group), store))
    return ir.LoopProgram("dot", (vector, matrix), (acc,), body)


@dataclass(frozen=True)
class Dot:
    """A dot-product intrinsic with its lanes and products per lane (`group`)."""

    intrinsic: TensorIntrin
    lanes: int
    group: int


def find_dots(a: str, b: str, total: str, context: KernelContext) -> list[Dot]:
    """Find the dot-product intrinsics for operand dtypes `a` and `b` and accumulator dtype `total`, the widest first."""
    dots = []
    for intrinsic in context.intrinsics:
        params = intrinsic.semantics.params
        if [buffer.dtype.name for buffer in params] != [a, b, total] or [len(buffer.shape) for buffer in params] != [1, 2, 1]:
            continue
        lanes, group = params[1].shape
        if not isinstance(lanes, int) or not isinstance(group, int):
            continue
        if structurally_equal(intrinsic.semantics, dot_product(a, b, total, lanes, group)):
            dots.append(Dot(intrinsic, lanes, group))
    return sorted(dots, key=lambda dot: -dot.lanes * dot.group)


def fastest(a: str, b: str, total: str, context: KernelContext) -> float:
    """Return the number of products that the fastest intrinsic of `find_dots` computes in the time of a multiply-add; 0 without
    intrinsics."""
    return max((dot.lanes * dot.group / dot.intrinsic.cost for dot in find_dots(a, b, total, context)), default=0)


def multiplies_in_scopes(a: str, b: str, total: str, context: KernelContext) -> bool:
    """Test whether an intrinsic of the target reads operands of these dtypes from memory scopes, as matrix units do."""
    buffers = (intrinsic.semantics.params for intrinsic in context.intrinsics)
    return any(all(item.scope for item in params) and [item.dtype.name for item in params] == [a, b, total] for params in buffers)


def product_speed(a: str, b: str, total: str, context: KernelContext) -> tuple[bool, float]:
    """Return the speed of integer products on a target, as an ordered value: whether a matrix unit computes them, then `fastest`.

    A matrix unit computes about ten times as many products as dot-product instructions, which still compute matrix products of few
    rows. So of two element types that both have a matrix unit, the one with the faster instruction is the faster one.
    """
    return multiplies_in_scopes(a, b, total, context), fastest(a, b, total, context)


def bytes_are_slow(context: KernelContext) -> bool:
    """Test whether a target with vectors is predicted to sum integer products slower than float32 products."""
    kinds = (("uint8", "int8"), ("int8", "int8"), ("int16", "int16"))
    capabilities = context.capabilities
    return capabilities.threads is None and max(fastest(a, b, "int32", context) for a, b in kinds) < capabilities.vector_bits // 32
