"""Narrowing of int32 constants to int8, mainly the per-channel shifts of requantization."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace
from typing import Any

import numpy as np

from inlaid.tensor import ir
from inlaid.tensor.analysis.ranges import Range
from inlaid.tensor.region import KernelCall, RegionProgram
from inlaid.tensor.transform.rewrite import Rewriter
from inlaid_microcontroller.intrinsics.exactness import shifts
from inlaid_runtime.types import dtype

INT8, INT32 = dtype("int8"), dtype("int32")


def narrow_parameters(kernel: ir.LoopProgram, params: Collection[int]) -> ir.LoopProgram:
    """Make int32 parameters of a kernel int8, by number."""
    buffers = {kernel.params[param]: replace(kernel.params[param], dtype=INT8) for param in params}
    return _WideningLoads(buffers).program(kernel) if buffers else kernel


def narrowable_parameters(kernel: ir.LoopProgram, param_ranges: dict[int, Range]) -> set[int]:
    """Return the numbers of the parameters that can be narrowed: values fit int8, and intrinsics read them only as shifts, if at
    all."""
    intrinsic_buffers = {
        region.buffer for stmt in ir.walk_stmts(kernel.body) if isinstance(stmt, ir.Intrinsic) for region in stmt.regions
    }
    intrinsic_buffers -= shifts(kernel, param_ranges)
    return {
        param
        for param, (low, high) in param_ranges.items()
        if kernel.params[param].dtype is INT32
        and kernel.params[param] not in intrinsic_buffers
        and INT8.limits[0] <= low
        and high <= INT8.limits[1]
    }


class _WideningLoads(Rewriter):
    """Replaces int32 buffers by int8 buffers, and casts loaded values back to int32."""

    def __init__(self, buffers: dict[ir.Buffer, ir.Buffer]) -> None:
        super().__init__(buffers=buffers, expr=self._widened)
        self._narrow = set(buffers.values())

    def _widened(self, node: ir.Expr) -> ir.Expr | None:
        return ir.Cast(INT32, node) if isinstance(node, ir.Load) and node.buffer in self._narrow else None


def narrow_constants(unit: RegionProgram, narrowed_params: list[set[int]]) -> RegionProgram:
    """Store the constants of narrowed parameters as int8. narrowed_params: the parameters of each kernel, by number. The kernels
    stay as they are. Each constant is stored in the widths that calls read; unread constants are dropped."""
    if not any(narrowed_params):
        return unit
    names, arrays = list(unit.constants), list(unit.constants.values())
    buffers = [item for item in unit.buffers if item.storage != "constant"]
    non_constant = (number for number, item in enumerate(unit.buffers) if item.storage != "constant")
    new_numbers = {number: position for position, number in enumerate(non_constant)}
    constants: dict[str, np.ndarray[Any, Any]] = {}
    indices: dict[str, int] = {}
    constant_numbers: dict[tuple[int, bool], int] = {}
    calls: list[KernelCall] = []

    def narrowed_number(number: int, narrow: bool) -> int:
        if number in new_numbers:
            return new_numbers[number]
        if (number, narrow) not in constant_numbers:
            item = unit.buffers[number]
            name, array = names[item.index], arrays[item.index]
            if narrow:
                item, name, array = replace(item, dtype=INT8), f"{name}.int8", array.astype(np.int8)
            constant_numbers[number, narrow] = len(buffers)
            indices.setdefault(name, len(indices))
            constants[name] = array
            buffers.append(replace(item, index=indices[name]))
        return constant_numbers[number, narrow]

    for call in unit.calls:
        inputs = tuple(
            narrowed_number(number, position in narrowed_params[call.kernel]) for position, number in enumerate(call.inputs)
        )
        outputs = tuple(new_numbers[number] for number in call.outputs)
        predicates = tuple(
            replace(item, condition=new_numbers[item.condition]) if isinstance(item.condition, int) else item
            for item in call.predicates
        )
        calls.append(replace(call, inputs=inputs, outputs=outputs, predicates=predicates))
    return replace(unit, calls=tuple(calls), buffers=tuple(buffers), constants=constants)
