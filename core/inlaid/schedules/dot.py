"""Dot products on vectors: what the schedules of matrix products and convolutions need to know of a multiplication.

A dot product adds the products of a group of adjacent elements to one sum per lane. An instruction for narrow operands has groups
of two or more; a multiply-add of floats is a dot product of group one. The operand that all lanes share has the reduction index
innermost (rows of a matrix, channels of a pixel); the other is packed so that each lane's group is contiguous: a panel of columns
with layout K/g N g.
"""

from __future__ import annotations

from inlaid.schedules.shape import Anchor, mark_tile
from inlaid.tensor import ir
from inlaid.tensor.primitives import TensorIntrin
from inlaid.tensor.schedule import Schedule
from inlaid.tensor.scheduling.dot_products import find_dots
from inlaid.tensor.scheduling.rule import KernelContext
from inlaid_runtime.arith import Var
from inlaid_runtime.records import dataclass
from inlaid_runtime.types import dtype


@dataclass(frozen=True)
class VectorDot:
    """Adds the products of `group` adjacent elements to each of `lanes` sums, by an instruction of the target or, in groups of one,
    by a multiply-add (`instruction` is None)."""

    lanes: int
    group: int = 1
    instruction: TensorIntrin | None = None

    @property
    def scratch(self) -> int:
        """Vector registers that the instruction needs besides its operands."""
        return 0 if self.instruction is None else self.instruction.scratch

    @property
    def interleaves(self) -> bool:
        """Whether one operand must be packed: each lane's group contiguous, and the operand padded to whole groups and panels."""
        return self.instruction is not None

    @property
    def peels(self) -> bool:
        """Whether loops over the tile may end early, or be specialized for remainders. Guards around an instruction stay where they
        are, and an instruction has no partial form."""
        return self.instruction is None

    def groups(self, depth: int) -> int:
        """Return the number of groups of a reduction."""
        return -(-depth // self.group)

    def interleaved(self, axis: int) -> tuple[tuple[int, int], ...]:
        """Return the blocks of a layout that make groups along an axis contiguous."""
        return ((axis, self.group),) if self.interleaves else ()


def narrow_product(anchor: Anchor) -> tuple[ir.Load, ir.Load] | None:
    """Match acc = acc + cast(a) * cast(b) and return the loads (a, b)."""
    assert isinstance(anchor.block.body, ir.Store)
    match anchor.block.body.value:
        case ir.Binary(
            op="add",
            a=ir.Load(buffer=buffer),
            b=ir.Binary(op="mul", a=ir.Cast(a=ir.Load() as a), b=ir.Cast(a=ir.Load() as b)),
        ):
            return (a, b) if buffer is anchor.buffer else None
    return None


def find_factors(anchor: Anchor) -> tuple[ir.Load, ir.Load] | None:
    """Match the loads whose products an anchor sums, of its own type or cast to it; None if it sums no products."""
    return anchor.product or narrow_product(anchor)


def find_vector_dots(data: str, weights: str, total: str, context: KernelContext) -> list[VectorDot]:
    """Return the dot products for element types of factors and sums, the widest first: multiply-adds of float32 or float64 in whole
    and half vectors, or the instructions of the target."""
    if data == weights == total and total in ("float32", "float64"):
        widest = context.capabilities.vector_bits // dtype(total).bits
        return [VectorDot(lanes) for lanes in (widest, widest // 2) if lanes > 1]
    return [VectorDot(dot.lanes, dot.group, dot.intrinsic) for dot in find_dots(data, weights, total, context)]


def instructions(anchor: Anchor, context: KernelContext) -> list[VectorDot]:
    """Return the dot-product instructions of the target that compute an anchor's reduction, the widest first."""
    product = narrow_product(anchor)
    if product is None:
        return []
    data, weights = (load.dtype.name for load in product)
    return find_vector_dots(data, weights, anchor.buffer.dtype.name, context)


def begin_sum(s: Schedule, block: str, first: Var, tile: tuple[Var, ...], lane: Var, dot: VectorDot) -> str:
    """Split the initialization off a sum at loop `first`, and in both, unroll the loops `tile` and vectorize the loop `lane` of the
    register tile. Returns the block of the initialization. An instruction takes the place of `lane` once layouts are applied (see
    `use_instruction`)."""
    init = s.decompose_reduction(block, first)
    mark_tile(s, *s.loops(init)[-1 - len(tile) :])
    if dot.instruction is None:
        mark_tile(s, *tile, lane)
    else:
        for loop in tile:
            s.unroll(loop)
    return init


def use_instruction(s: Schedule, lane: Var, dot: VectorDot) -> None:
    """Replace the loops from `lane` inwards by the instruction, if any."""
    if dot.instruction is not None:
        s.tensorize(lane, dot.instruction.name)
