"""Range analysis of requantization. Kernels with small sums and shifts use a shorter version and store shifts in bytes."""

from __future__ import annotations

import re
from collections.abc import Mapping

from inlaid.tensor import ir
from inlaid.tensor.analysis.ranges import Range
from inlaid_microcontroller.schedules.vector_depthwise import window_sums

LARGEST = 1 << 29
"""Exclusive limit of bias magnitudes for the short requantization. Below it, sums stay below 2^30."""
FARTHEST = -22
"""Largest right shift, as a negative number, if the zero point is added before shifting. The zero point, shifted left by as much,
stays below 2^29."""


def shifts(kernel: ir.LoopProgram, param_ranges: Mapping[int, Range]) -> set[ir.Buffer]:
    """Return the shift parameters of a kernel that may be stored in bytes; empty if the kernel needs the exact requantization."""
    return (
        set() if is_exact(kernel, param_ranges) else {_inputs(stmt)[-1] for stmt in list_intrinsics(kernel) if _requantizes(stmt)}
    )


def is_exact(kernel: ir.LoopProgram, param_ranges: Mapping[int, Range]) -> bool:
    """Test whether a kernel needs the exact requantization, which accepts any sums and shifts and reads shifts as int32."""
    intrinsics = list_intrinsics(kernel)
    shift_buffers = {_inputs(stmt)[-1] for stmt in intrinsics if _requantizes(stmt)}
    operand_buffers = (buffer for stmt in intrinsics for buffer in (_inputs(stmt)[:-1] if _requantizes(stmt) else _buffers(stmt)))
    return not shift_buffers.isdisjoint(operand_buffers) or not all(_is_small(stmt, kernel, param_ranges) for stmt in intrinsics)


def list_intrinsics(kernel: ir.LoopProgram) -> list[ir.Intrinsic]:
    return [stmt for stmt in ir.walk_stmts(kernel.body) if isinstance(stmt, ir.Intrinsic)]


def _requantizes(stmt: ir.Intrinsic) -> bool:
    return window_sums(stmt.name) is not None or stmt.name.startswith(("rescale", "requantize"))


def _buffers(stmt: ir.Intrinsic) -> list[ir.Buffer]:
    return [region.buffer for region in stmt.regions]


def _inputs(stmt: ir.Intrinsic) -> list[ir.Buffer]:
    """Return the buffers that a requantization reads, other than sums: biases (unless sums start with them), multipliers,
    shifts."""
    rows = re.fullmatch(r"rescale_[a-z]+(\d)x\d", stmt.name)
    return _buffers(stmt)[2 if window_sums(stmt.name) is not None else 1 : -int(rows[1]) if rows else -1]


def _is_small(stmt: ir.Intrinsic, kernel: ir.LoopProgram, param_ranges: Mapping[int, Range]) -> bool:
    """Test whether the short version of an intrinsic is exact. A requantization must have small biases and only right shifts. If it
    rounds away from 0, it tests the sign of the sum, so multipliers must be >= 0. The test passes for all other intrinsics."""
    if not _requantizes(stmt):
        return True
    is_window, starts_with_bias, rounds_away = (
        window_sums(stmt.name) is not None,
        stmt.name.startswith("rescale"),
        "away" in stmt.name,
    )
    buffers = [*(_initial_parameters(stmt.regions[0].buffer, kernel) if starts_with_bias else ()), *_inputs(stmt)]
    *biases, multiplier, shift = (param_ranges.get(kernel.params.index(each)) for each in buffers)
    weights = param_ranges.get(kernel.params.index(stmt.regions[1].buffer)) if is_window else (0, 0)
    if shift is None or weights is None or weights[0] == -128:
        return False
    if any(bias is None or max(map(abs, bias)) >= LARGEST for bias in biases) or shift[0] < (FARTHEST if starts_with_bias else -30):
        return False
    return shift[1] < 0 and multiplier is not None and multiplier[0] >= 0 if rounds_away else shift[1] <= 0


def _initial_parameters(total: ir.Buffer, kernel: ir.LoopProgram) -> set[ir.Buffer]:
    """Return the parameters from which a kernel initializes the sums in `total`."""
    stores = (stmt for stmt in ir.walk_stmts(kernel.body) if isinstance(stmt, ir.Store) and stmt.buffer is total)
    return {store.value.buffer for store in stores if isinstance(store.value, ir.Load) and store.value.buffer in kernel.params}
