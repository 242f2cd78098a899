"""Eliminate concatenations: kernels write their parts directly into the result.

A part that is contiguous in the result is a view of it (`run_starts`). With a batch before the axis, a part is contiguous per
image: kernels that write or read such a part access the whole result instead, at indices shifted along the axis
(`tensor.transform.layouts.as_slice`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import partial

from inlaid.graph import ir as graph
from inlaid.lowering.emission.buffers import Planned
from inlaid.lowering.kernels.kernel import tensor_type
from inlaid.ops.define import AxisAttrs
from inlaid.passes.manager import RunPasses, UnitPass
from inlaid.tensor import ir
from inlaid.tensor.region import KernelCall, size_vars
from inlaid.tensor.transform.layouts import as_slice, is_intrinsic_operand
from inlaid_runtime import arith
from inlaid_runtime.names import unique
from inlaid_runtime.types import Layout


def run_starts(call: graph.Call, layouts: tuple[Layout, ...], alignment: int) -> list[int] | None:
    """Return the byte offsets of a concatenation's operands in its result; None if any is not contiguous or aligned."""
    attrs, type_ = call.attrs, tensor_type(call.type)
    assert isinstance(attrs, AxisAttrs)
    if len(set(layouts)) != 1 or len(call.args) + 1 != len(layouts):
        return None
    starts, position = [], 0
    for arg in call.args:
        extent = tensor_type(arg.type).shape[attrs.axis]
        start = layouts[0].part(type_.shape, attrs.axis, position, extent) if isinstance(extent, int) else None
        if start is None or start * type_.dtype.bytes % alignment:
            return None
        starts.append(start * type_.dtype.bytes)
        assert isinstance(extent, int)
        position += extent
    return starts


_Move = tuple[int, arith.Dim, arith.Dim]
"""Embedding of a parameter in a larger buffer along an axis: (axis, first index, extent of the larger buffer)."""
_Moves = tuple[tuple[int, tuple[_Move, ...]], ...]
"""Moves by parameter position, ordered; the moves of one parameter are in the order of the joins."""


@dataclass
class Joiner:
    """Eliminates concatenations whose parts can all be written into the result. `roots` maps each buffer to its root. A part that
    becomes a view of the result needs no memory.

    Kernels are rewritten once, in `rewrite_kernels`, since a part of nested concatenations moves once per level.
    """

    kernels: Sequence[ir.LoopProgram]
    calls: list[KernelCall]
    buffers: Sequence[Planned]
    roots: Sequence[int]
    moved: list[tuple[int, _Moves]] = field(init=False)
    """For each kernel number in `calls`: the number of the original kernel, and the moves of its parameters."""
    kernel_numbers: dict[tuple[int, _Moves], int] = field(init=False)

    def __post_init__(self) -> None:
        self.moved = [(number, ()) for number in range(len(self.kernels))]
        self.kernel_numbers = {key: number for number, key in enumerate(self.moved)}

    def join(self, join: KernelCall, axis: int) -> None:
        """Eliminate a concatenation of buffers of one layout if all users of its parts can use the result instead."""
        (result,), parts = join.outputs, join.inputs
        if not all(isinstance(self.buffers[part].shape[axis], int) for part in parts):
            return
        users: dict[int, list[int]] = {}
        for index, call in enumerate(self.calls):
            for number in dict.fromkeys((*call.reads, *call.outputs)) if call is not join else ():
                users.setdefault(number, []).append(index)
        viewed_roots = {self.roots[number] for number in users if self.roots[number] != number}
        written_buffers = {number for call in self.calls for number in call.outputs if self.roots[number] == self.roots[result]}
        # Skip a call that another join has changed, and a result that is updated in place while parts are still read.
        if len(set(parts)) != len(parts) or written_buffers != {result} or not any(call is join for call in self.calls):
            return
        rewritten_calls = {index: call for index, call in enumerate(self.calls) if call is not join}
        target, position = self.buffers[result], 0
        for part in parts:
            item, extent = self.buffers[part], self.buffers[part].shape[axis]
            first = target.layout.first_block(target.shape, axis, position, extent) if isinstance(extent, int) else None
            movable = item.storage == "arena" and self.roots[part] == part and part not in viewed_roots
            if not isinstance(extent, int) or first is None or not movable or item.predicates != target.predicates:
                return
            position += extent
            for index in users[part]:
                rewritten = self._moved(rewritten_calls[index], part, result, axis, first)
                if rewritten is None:
                    return
                rewritten_calls[index] = rewritten
        self.calls = list(rewritten_calls.values())
        for part in parts:
            self.buffers[part].base_buffer, self.buffers[part].part = result, True

    def _moved(self, call: KernelCall, part: int, result: int, axis: int, first: int) -> KernelCall | None:
        """Rewrite a call to access the concatenation's result instead of one of its parts, which begins at index `first` of the
        axis. None if that is impossible, as for a kernel that has merged the axis with outer axes or accesses the part by an
        intrinsic."""
        target_shape, part_shape = (self.buffers[number].layout.shape(self.buffers[number].shape) for number in (result, part))
        base, moves = self.moved[call.kernel]
        extent, program, param_moves_by_position = target_shape[axis], self.kernels[base], dict(moves)
        names: dict[arith.Expr, arith.Expr] = dict(zip(size_vars(program), call.sizes, strict=True))
        if program.defines or part in call.reads[len(call.inputs) :] or not isinstance(extent, int):
            return None
        numbers = (*call.inputs, *call.outputs)
        for position in (position for position, number in enumerate(numbers) if number == part):
            param_moves = param_moves_by_position.get(position, ())
            joined_extents = {moved_axis: total for moved_axis, _, total in param_moves}
            shape = (joined_extents.get(moved_axis, dim) for moved_axis, dim in enumerate(program.params[position].shape))
            dims = tuple(arith.unwrap(arith.substitute(arith.wrap(dim), names)) for dim in shape)
            prefix_matches = dims[: axis + 1] == part_shape[: axis + 1]
            if (
                not prefix_matches
                or not arith.Analyzer().equal(arith.product(dims), arith.product(part_shape))
                or is_intrinsic_operand(program, position)
            ):
                return None
            if param_moves and param_moves[-1][0] == axis:
                param_moves_by_position[position] = (*param_moves[:-1], (axis, param_moves[-1][1] + first, extent))
            else:
                param_moves_by_position[position] = (*param_moves, (axis, first, extent))
        key = base, tuple(sorted(param_moves_by_position.items()))
        kernel = self.kernel_numbers.setdefault(key, len(self.moved))
        if kernel == len(self.moved):
            self.moved.append(key)
        numbers = tuple(result if number == part else number for number in numbers)
        return replace(call, kernel=kernel, inputs=numbers[: len(call.inputs)], outputs=numbers[len(call.inputs) :])

    def rewrite_kernels(self, run: RunPasses[ir.LoopProgram]) -> tuple[list[ir.LoopProgram], list[KernelCall]]:
        """Rewrite the kernels by a pass that `run` runs; returns kernels and calls. Kernels that differ only in the position of
        their outputs become one kernel with the positions as size parameters."""
        groups: dict[tuple[int, _Moves], set[int]] = {}
        for call in self.calls:
            groups.setdefault(self._shared_key(call.kernel), set()).add(call.kernel)
        kernels: dict[ir.LoopProgram, int] = {}
        rewrites: dict[int, tuple[ir.LoopProgram, dict[arith.SizeVar, arith.Expr]]] = {}
        for shared_key, members in groups.items():
            base, _ = shared_key
            program = self.kernels[base]
            shared_program = _joined(run, program, shared_key[1]) if len(members) > 1 else None
            for number in members:
                moves = self.moved[number][1]
                rewrites[number] = shared_program or _joined(run, program, moves), _moved_sizes(program, moves)
        calls = []
        for call in self.calls:
            program, moved_sizes = rewrites[call.kernel]
            size_values = dict(zip(size_vars(self.kernels[self.moved[call.kernel][0]]), call.sizes, strict=True)) | moved_sizes
            sizes = tuple(size_values[size] for size in size_vars(program))
            calls.append(replace(call, kernel=kernels.setdefault(program, len(kernels)), sizes=sizes))
        return list(kernels), calls

    def _shared_key(self, number: int) -> tuple[int, _Moves]:
        """Return a kernel's key, in which first index and extent of moved outputs are replaced by size variables."""
        base, moves = self.moved[number]
        program = self.kernels[base]

        def sized(position: int, param_moves: tuple[_Move, ...]) -> tuple[_Move, ...]:
            if position < len(program.inputs):
                return param_moves
            return tuple((axis, *_sizes(program, position, axis)) for axis, _, _ in param_moves)

        return base, tuple((position, sized(position, param_moves)) for position, param_moves in moves)


def _joined(run: RunPasses[ir.LoopProgram], program: ir.LoopProgram, moves: _Moves) -> ir.LoopProgram:
    return run((UnitPass("move_into_joined", partial(move_parameters, moves=moves)),), program) if moves else program


def move_parameters(program: ir.LoopProgram, moves: _Moves) -> ir.LoopProgram:
    """Make parameters slices of larger buffers."""
    for position, param_moves in moves:
        for axis, first, extent in param_moves:
            program = as_slice(program, position, axis, first, extent)
            if isinstance(first, arith.SizeVar):
                program = replace(program, sizes=(*program.sizes, first))
    return program


def _sizes(program: ir.LoopProgram, position: int, axis: int) -> tuple[arith.SizeVar, arith.SizeVar]:
    """Create the size variables for the first index of a parameter in a larger buffer along an axis, and for the larger extent."""
    names = {size.name for size in size_vars(program)}
    first, extent = (unique(f"{word}{position}_{axis}", names) for word in ("first", "whole"))
    return arith.SizeVar(first), arith.SizeVar(extent, 1)


def _moved_sizes(program: ir.LoopProgram, moves: _Moves) -> dict[arith.SizeVar, arith.Expr]:
    """Map the size variables of `_sizes` to their values."""
    return {
        size: arith.wrap(value)
        for position, param_moves in moves
        for axis, *values in param_moves
        for size, value in zip(_sizes(program, position, axis), values, strict=True)
    }
