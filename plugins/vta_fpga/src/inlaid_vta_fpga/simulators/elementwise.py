"""Execution of ALU instructions in batches of independent micro-ops."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import numpy.typing as npt

from inlaid_vta_fpga.isa.instructions import AluOp
from inlaid_vta_fpga.simulators.loops import Indices

Lanes = npt.NDArray[np.int32]


def batches(dst: Indices, src: Indices | None) -> Iterator[slice]:
    """Split micro-ops, in execution order, into batches. No micro-op reads an element that an earlier one of its batch writes."""
    hazard = _last_writer(dst, dst)
    if src is not None:
        hazard = np.maximum(hazard, _last_writer(dst, src))
    start = 0
    positions = np.flatnonzero(hazard >= 0)
    for position in positions.tolist():
        if hazard[position] >= start:
            yield slice(start, position)
            start = position
    yield slice(start, len(dst))


def _last_writer(dst: Indices, read: Indices) -> Indices:
    """Return, for each micro-op, the number of the last earlier micro-op that writes the index in `read`; -1 if there is none."""
    count = len(dst)
    order = np.argsort(dst, kind="stable")
    keys = dst[order] * count + order
    index = np.searchsorted(keys, read * count + np.arange(count)) - 1
    writer = order[np.maximum(index, 0)]
    return np.where((index >= 0) & (dst[writer] == read), writer, -1)


def apply(op: AluOp, x: Lanes, y: Lanes | int) -> Lanes:
    """Compute op(x, y) per lane in wrapping int32. Shift amounts must be -31 to 31; negative amounts shift left."""
    other = np.asarray(y, np.int32)
    match op:
        case AluOp.MIN:
            return np.minimum(x, other)
        case AluOp.MAX:
            return np.maximum(x, other)
        case AluOp.ADD:
            return np.add(x, other)
        case AluOp.MUL:
            return np.multiply(x, other)
        case AluOp.SHR:
            return np.where(other >= 0, x >> np.maximum(other, 0), x << np.maximum(-other, 0))
