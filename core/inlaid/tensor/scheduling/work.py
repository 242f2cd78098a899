"""Arithmetic work of kernels and its predicted time."""

from __future__ import annotations

from inlaid.plugins.contract import Capabilities
from inlaid.tensor import ir
from inlaid.tensor.analysis.blocks import block_size, collect_blocks
from inlaid_runtime import arith
from inlaid_runtime.arith import Dim


def operations(program: ir.LoopProgram) -> Dim:
    """Count the arithmetic operations of an unscheduled kernel, as an expression over its dimensions; a multiply-add counts as
    two."""
    counts = (arith.mul(_iterations(block), _arithmetic(block)) for block in collect_blocks(program))
    return arith.unwrap(arith.simplify(sum(counts, arith.ZERO)))


def roofline(operations: int, bytes_moved: int, capabilities: Capabilities) -> float:
    """Predict seconds by the roofline model (Williams et al., CACM 2009): the longer of the times of arithmetic and of transferring
    `bytes_moved` bytes."""
    return max(operations / capabilities.peak, bytes_moved / capabilities.bandwidth)


def predicted_seconds(program: ir.LoopProgram, capabilities: Capabilities, share: int = 1) -> float:
    """Predict the seconds of an unscheduled kernel, by `roofline`, if its schedule reaches 1/`share` of peak arithmetic."""
    return roofline(share * arith.size_hint(operations(program)), _parameter_bytes(program), capabilities)


def is_bound_by_reductions(program: ir.LoopProgram, capabilities: Capabilities) -> bool:
    """Test whether a kernel is compute-bound by its reductions rather than memory-bound."""
    reductions = [block for block in collect_blocks(program) if any(item.kind is ir.IterKind.REDUCTION for item in block.iters)]
    work = sum(arith.size_hint(_iterations(block)) * _arithmetic(block) for block in reductions)
    return work / capabilities.peak > _parameter_bytes(program) / capabilities.bandwidth


def _parameter_bytes(program: ir.LoopProgram) -> int:
    """Return the total bytes of the parameters, with size hints for symbolic dimensions."""
    return sum(arith.size_hint(arith.product(buffer.shape)) * buffer.dtype.bytes for buffer in program.params)


def _iterations(block: ir.Block) -> Dim:
    """Return the number of iterations of a block; 1 if it depends on the loops of an opaque loop program."""
    size = block_size(block)
    is_size_expr = all(isinstance(variable, arith.SizeVar) for variable in arith.free_vars(size))
    return arith.unwrap(size) if is_size_expr else 1


def _arithmetic(block: ir.Block) -> int:
    """Count the arithmetic operations per iteration of a block. Returns at least 1."""
    if not isinstance(block.body, ir.Store):
        return 1
    return max(1, sum(isinstance(node, (ir.Binary, ir.Unary)) for node in ir.walk_exprs(block.body.value)))
