"""The work of kernels, and the seconds that it is predicted to take."""

from __future__ import annotations

from inlaid import arith
from inlaid.arith import Dim
from inlaid.plugins.contract import Capabilities
from inlaid.schedules.shape import block_size, blocks_of
from inlaid.tensor import ir


def operations(program: ir.LoopProgram) -> Dim:
    """Arithmetic operations of an unscheduled kernel, over its dimensions; a multiply-add counts as two."""
    counts = (arith.mul(_times(block), _arithmetic(block)) for block in blocks_of(program))
    return arith.unwrap(arith.simplify(sum(counts, arith.ZERO)))


def roofline(operations: int, moved: int, capabilities: Capabilities) -> float:
    """Predicted seconds (Williams et al., CACM 2009): the longer of the times for the arithmetic and for moving bytes."""
    return max(operations / capabilities.peak, moved / capabilities.bandwidth)


def predicted_seconds(program: ir.LoopProgram, capabilities: Capabilities, share: int = 1) -> float:
    """Seconds that an unscheduled kernel takes where its schedule is good, or where it uses one of `share` parts of the arithmetic
    that there is."""
    return roofline(share * arith.size_hint(operations(program)), _moved(program), capabilities)


def is_bound_by_reductions(program: ir.LoopProgram, capabilities: Capabilities) -> bool:
    """Whether the arithmetic of reductions takes longer than reading operands and writing results."""
    reducing = [block for block in blocks_of(program) if any(item.kind is ir.IterKind.REDUCTION for item in block.iters)]
    work = sum(arith.size_hint(_times(block)) * _arithmetic(block) for block in reducing)
    return work / capabilities.peak > _moved(program) / capabilities.bandwidth


def _moved(program: ir.LoopProgram) -> int:
    """Bytes of the parameters."""
    return sum(arith.size_hint(arith.product(buffer.shape)) * buffer.dtype.bytes for buffer in program.params)


def _times(block: ir.Block) -> Dim:
    """How often a block runs: once, where that depends on loops of a program that is no compute."""
    size = block_size(block)
    known = all(isinstance(variable, arith.SizeVar) for variable in arith.free_vars(size))
    return arith.unwrap(size) if known else 1


def _arithmetic(block: ir.Block) -> int:
    """Operations of one iteration of a block, at least one."""
    if not isinstance(block.body, ir.Store):
        return 1
    return max(1, sum(isinstance(node, (ir.Binary, ir.Unary)) for node in ir.walk_exprs(block.body.value)))
