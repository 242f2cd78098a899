"""Expansion of the loops of GEMM and ALU instructions to index arrays."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import numpy.typing as npt

from inlaid_vta_fpga.isa.config import Memory
from inlaid_vta_fpga.isa.instructions import Alu, Gemm
from inlaid_vta_fpga.simulators.device import fault

Indices = npt.NDArray[np.int64]


def micro_ops(instruction: Gemm | Alu) -> int:
    """Return the number of micro-op executions of an instruction."""
    return instruction.iter_out * instruction.iter_in * (instruction.uop_end - instruction.uop_begin)


def pieces(instruction: Gemm | Alu, size: int) -> Iterator[tuple[tuple[int, int], tuple[int, int]]]:
    """Split the two loops of an instruction into pieces ((outer start, outer end), (inner start, inner end)) in execution order.

    A piece executes at most `size` micro-ops, or one iteration if an iteration has more. This bounds the memory of a batch.
    """
    uops = instruction.uop_end - instruction.uop_begin
    inner = max(1, size // uops)
    if inner < instruction.iter_in:
        for i in range(instruction.iter_out):
            for j in range(0, instruction.iter_in, inner):
                yield (i, i + 1), (j, min(j + inner, instruction.iter_in))
        return
    outer = max(1, inner // instruction.iter_in)
    for i in range(0, instruction.iter_out, outer):
        yield (i, min(i + outer, instruction.iter_out)), (0, instruction.iter_in)


def expand(indices: Indices, factors: tuple[int, int], outer: int, inner: int) -> Indices:
    """Return the indices of all micro-op executions in order: index + i * factors[0] + j * factors[1], flattened."""
    i = np.arange(outer, dtype=np.int64)[:, None, None] * factors[0]
    j = np.arange(inner, dtype=np.int64)[:, None] * factors[1]
    return (i + j + indices).reshape(-1)


def check_range(
    number: int, instruction: Gemm | Alu, memory: Memory, indices: Indices, factors: tuple[int, int], depth: int
) -> None:
    """Raise `KernelFault` if an index exceeds the buffer. Checks only the last iteration, since all terms are >= 0."""
    last = int(indices.max()) + (instruction.iter_out - 1) * factors[0] + (instruction.iter_in - 1) * factors[1]
    if last >= depth:
        raise fault(number, f"expected indices of {memory.name} below {depth}, found {last} in {instruction}")
