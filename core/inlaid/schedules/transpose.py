"""Transposes on CPUs: copies that permute axes."""

from __future__ import annotations

from inlaid.schedules.shape import merge_chains
from inlaid.tensor import ir
from inlaid.tensor.analysis.blocks import collect_blocks
from inlaid.tensor.schedule import Schedule
from inlaid.tensor.scheduling.rule import InputInfo, KernelContext, Offer
from inlaid.tensor.transform.copies import Dimension, copy_dimensions, copy_program
from inlaid_runtime.arith import Var
from inlaid_runtime.types import ROW_MAJOR


class TransposeRule:
    """Schedules out[i, j, ...] = x[j, ..., i], reading x in its current layout."""

    name = "transpose"

    def offer(self, program: ir.LoopProgram, context: KernelContext, inputs: tuple[InputInfo, ...]) -> Offer | None:
        """Offer a schedule. Declines kernels that are not permutations of axes."""
        if not context.capabilities.vector_bits or len(program.inputs) != 1 or len(program.outputs) != 1:
            return None
        if program.outputs[0].dtype.bits < 8 and program.outputs[0].dtype.kind != "bool":
            return None
        perm = _permutation(program)
        if perm is None:
            return None
        for layout in dict.fromkeys((inputs[0].layout, ROW_MAJOR)):
            dims = copy_dimensions(program.inputs[0].shape, layout, ROW_MAJOR, perm)
            if dims:
                return Offer((layout, ROW_MAJOR), lambda source, dims=dims: _copy(source, dims, context))  # type: ignore[misc]
        return None


def _copy(program: ir.LoopProgram, dims: list[Dimension], context: KernelContext) -> ir.LoopProgram:
    return copy_program(program.name, program.outputs[0].dtype, dims, context.threads)


def _permutation(program: ir.LoopProgram) -> list[int] | None:
    """Match a kernel that only permutes axes. Returns the input axis of each output axis; None for any other kernel."""
    schedule = Schedule(program)
    merge_chains(schedule)
    blocks = collect_blocks(schedule.program)
    if len(blocks) != 1 or blocks[0].init is not None:
        return None
    match blocks[0].body:
        case ir.Store(buffer=target, indices=store_indices, value=ir.Load(buffer=source, indices=load_indices)):
            variables = [index for index in store_indices if isinstance(index, Var)]
            if source not in program.inputs or target not in program.outputs or source.dtype is not target.dtype:
                return None
            if store_indices != tuple(item.var for item in blocks[0].iters) or len(set(variables)) != len(store_indices):
                return None
            if len(load_indices) != len(store_indices) or set(load_indices) != set(store_indices):
                return None
            perm = [load_indices.index(variable) for variable in store_indices]
            return perm if target.shape == tuple(source.shape[axis] for axis in perm) else None
    return None
