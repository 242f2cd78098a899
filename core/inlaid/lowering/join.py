"""Concatenations whose parts kernels write where they belong in the result, instead of elsewhere to be copied.

A part that is one run of memory is a view of the result (`run_starts`). With a batch before the axis it is one run for each image:
kernels that write such a part, or read it, access the whole result, at indices moved along the axis
(`tensor.transform.layouts.within`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from inlaid import arith
from inlaid.graph import ir as graph
from inlaid.lowering.kernel import tensor_type
from inlaid.lowering.planned import Planned
from inlaid.ops.define import AxisAttrs
from inlaid.tensor import ir
from inlaid.tensor.region import KernelCall, size_vars
from inlaid.tensor.transform.layouts import within
from inlaid.types import Layout


def run_starts(call: graph.Call, layouts: tuple[Layout, ...], alignment: int) -> list[int] | None:
    """From which bytes of the result of a concatenation on its operands lie; None where one is no run of memory, or not aligned."""
    attrs, type_ = call.attrs, tensor_type(call.type)
    assert isinstance(attrs, AxisAttrs)
    if len(set(layouts)) != 1 or len(call.args) + 1 != len(layouts):
        return None
    starts, at = [], 0
    for arg in call.args:
        extent = tensor_type(arg.type).shape[attrs.axis]
        start = layouts[0].part(type_.shape, attrs.axis, at, extent) if isinstance(extent, int) else None
        if start is None or start * type_.dtype.bytes % alignment:
            return None
        starts.append(start * type_.dtype.bytes)
        assert isinstance(extent, int)
        at += extent
    return starts


@dataclass
class Joiner:
    """Calls without those concatenations whose parts can all be written into the result; `roots` tells in which buffer each lies in
    the end. A part that is not used any more becomes a view of the result, so that it takes no place."""

    kernels: list[ir.LoopProgram]
    calls: list[KernelCall]
    buffers: Sequence[Planned]
    roots: Sequence[int]
    known: dict[tuple[int, ...], int] = field(default_factory=dict)

    def join(self, join: KernelCall, axis: int) -> None:
        """Take out a call that concatenates buffers of one layout, where what uses its parts can use the result instead."""
        (result,), parts = join.outputs, join.inputs
        users: dict[int, list[int]] = {}
        for place, call in enumerate(self.calls):
            for number in dict.fromkeys((*call.reads, *call.outputs)) if call is not join else ():
                users.setdefault(number, []).append(place)
        viewed = {self.roots[number] for number in users if self.roots[number] != number}
        written = {number for call in self.calls for number in call.outputs if self.roots[number] == self.roots[result]}
        # A call that reads a part of another concatenation has changed; one that updates the result would change parts still read.
        if len(set(parts)) != len(parts) or written != {result} or not any(call is join for call in self.calls):
            return
        changed = {place: call for place, call in enumerate(self.calls) if call is not join}
        whole, at = self.buffers[result], 0
        for part in parts:
            item, extent = self.buffers[part], self.buffers[part].shape[axis]
            first = whole.layout.first_block(whole.shape, axis, at, extent) if isinstance(extent, int) else None
            own = item.storage == "arena" and self.roots[part] == part and part not in viewed
            if not isinstance(extent, int) or first is None or not own or item.predicates != whole.predicates:
                return
            at += extent
            for place in users[part]:
                moved = self._moved(changed[place], part, result, axis, first)
                if moved is None:
                    return
                changed[place] = moved
        self.calls = list(changed.values())
        for part in parts:
            self.buffers[part].view_of, self.buffers[part].part = result, True

    def _moved(self, call: KernelCall, part: int, result: int, axis: int, first: int) -> KernelCall | None:
        """A call on a result instead of a part of it, which begins at an index of an axis; None where its kernel has that axis
        merged with those before it, or accesses the part by an intrinsic."""
        whole, item = (self.buffers[number].layout.shape(self.buffers[number].shape) for number in (result, part))
        kernel, extent, program = call.kernel, whole[axis], self.kernels[call.kernel]
        names: dict[arith.Expr, arith.Expr] = dict(zip(size_vars(program), call.sizes, strict=True))
        if program.defines or part in call.reads[len(call.inputs) :] or not isinstance(extent, int):
            return None
        numbers = (*call.inputs, *call.outputs)
        for place in (place for place, number in enumerate(numbers) if number == part):
            dims = tuple(arith.unwrap(arith.substitute(arith.wrap(dim), names)) for dim in program.params[place].shape)
            same = dims[: axis + 1] == item[: axis + 1] and arith.Analyzer().equal(arith.product(dims), arith.product(item))
            longer = within(self.kernels[kernel], place, axis, first, extent) if same else None
            if longer is None:
                return None
            key = (kernel, place, axis, first, extent)
            if key not in self.known:
                self.known[key] = len(self.kernels)
                self.kernels.append(longer)
            kernel = self.known[key]
        numbers = tuple(result if number == part else number for number in numbers)
        return replace(call, kernel=kernel, inputs=numbers[: len(call.inputs)], outputs=numbers[len(call.inputs) :])

    def done(self) -> tuple[list[ir.LoopProgram], list[KernelCall]]:
        """The kernels that are called, and the calls."""
        numbers: dict[int, int] = {}
        calls = [replace(call, kernel=numbers.setdefault(call.kernel, len(numbers))) for call in self.calls]
        return [self.kernels[number] for number in numbers], calls
