"""Precomputed data of plans: what depends on the plan alone (`PreparedPlan`), and on the input sizes too (`PlanLayout`)."""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any

import numpy as np

from inlaid_runtime import arith
from inlaid_runtime.arith import Constraint, Dim, SizeVar
from inlaid_runtime.artifact import ALIGNMENT
from inlaid_runtime.artifact.plan import Invoke, Move, Plan, Value
from inlaid_runtime.artifact.touched import read_by, written_by
from inlaid_runtime.errors import InputError, PackageError
from inlaid_runtime.execution.arrays import Array
from inlaid_runtime.execution.blocks import assign_blocks
from inlaid_runtime.execution.device_memory import DeviceMemory, DeviceQueues
from inlaid_runtime.execution.invoked import (
    Invoked,
    LoadedRegion,
    RegionLayout,
    check_constraints,
    check_shapes,
    fresh_arrays,
    region_sizes,
    region_workspace,
)
from inlaid_runtime.execution.shapes import ShapeReader, picker
from inlaid_runtime.execution.sizes import LIMIT, Evaluated, Shape, Sizes, align_up, byte_count, evaluate_shape, evaluate_size
from inlaid_runtime.execution.steps import CheckStep, LaunchStep, OtherStep, RegionStep, recordable, transfer
from inlaid_runtime.execution.workspace import Workspace
from inlaid_runtime.plugins.device import CapturingDevice

_MAX_LAYOUTS = 32
"""Number of sets of input sizes for which a plan caches its layout."""


class PlanLayout:
    """A plan at given input sizes.

    `shapes` has the shape of every tensor that the input sizes determine, None for other values. `offsets` has the arena offsets of
    values with a known shape. `steps` are the plan's instructions, in order. `arena` and `scratch` are sizes in bytes of host
    memory, `arenas` the sizes of device arenas.
    """

    def __init__(self, prepared: PreparedPlan, sizes: Sizes) -> None:
        plan = prepared.plan
        self.sizes = sizes
        evaluated = Evaluated(sizes)
        self.shapes = self._checked_shapes(prepared, evaluated)
        self.arena = align_up(self._bytes(plan, plan.workspace, evaluated))
        self.arenas = {device: align_up(self._bytes(plan, size, evaluated)) for device, size in plan.arenas.items()}
        self.offsets: dict[int, int] = {}
        self._limits: dict[int, int | None] = {}  # the greatest sizes in bytes of values of unknown shape
        for number, value in enumerate(plan.values):
            shape = self.shapes[number]
            if value.storage == "arena" and shape is not None:
                assert value.dtype is not None
                self.offsets[number] = self.checked_offset(plan, value, byte_count(shape, value.dtype.bytes), evaluated)
        self._check_apart(plan, evaluated)
        self.steps: list[RegionStep | OtherStep] = []
        self.scratch = 0
        late = _late_constraints(plan, sizes)
        for position, (item, invoked) in enumerate(zip(plan.instructions, prepared.invoked, strict=True)):
            if late and position in late:
                self.steps.append(CheckStep(late[position]))
            if isinstance(item, Invoke) and invoked is not None:
                region_layout = self._region(prepared, item, invoked)
                kind = RegionStep if invoked.region.loaded.launching is None else LaunchStep
                self.steps.append(kind(item, invoked.region, invoked, region_layout, invoked.inputs, invoked.outputs))
                if kind is LaunchStep:
                    continue
                self.scratch = max(self.scratch, 0 if region_layout is None else region_layout.workspace)
            elif isinstance(item, Move):
                self.steps.append(transfer(plan, item) or item)
            elif not isinstance(item, Invoke):
                self.steps.append(item)
        if late and len(plan.instructions) in late:
            self.steps.append(CheckStep(late[len(plan.instructions)]))
        capturing = {device for device, memory in prepared.memories.items() if isinstance(memory.device, CapturingDevice)}
        if capturing:
            self.steps = recordable(self.steps, capturing)

    @staticmethod
    def _bytes(plan: Plan, size: Dim, evaluated: Evaluated) -> int:
        """Return the size of an arena in bytes. Raises `PackageError` if the input sizes do not determine it."""
        byte_size = evaluated.bounded(size)
        if byte_size is None:
            raise PackageError(f"plan {plan.name}: the arena size {size!r} is unknown before the run")
        return byte_size

    def _checked_shapes(self, prepared: PreparedPlan, evaluated: Evaluated) -> list[Shape | None]:
        """Return the shapes of all values. The constraints of the plan and of its regions are checked before shapes are computed,
        which may be invalid if a constraint fails."""
        values, value_shapes = prepared.plan.values, prepared.fixed_shapes.copy()
        check_constraints(prepared.plan.constraints, self.sizes)
        for item, invoked in zip(prepared.plan.instructions, prepared.invoked, strict=True):
            if isinstance(item, Invoke) and invoked is not None and invoked.region.artifact.constraints:
                shapes = [value_shapes[number] or self._shape(values[number], evaluated) for number in item.inputs]
                artifact = invoked.region.artifact
                check_constraints(artifact.constraints, region_sizes(artifact, shapes, self.sizes))
        for first, *duplicates in prepared.open_shapes:
            value_shapes[first] = shape = self._shape(values[first], evaluated)
            for number in duplicates:
                value_shapes[number] = shape
        return value_shapes

    @staticmethod
    def _shape(value: Value, evaluated: Evaluated) -> Shape | None:
        """Return the shape of a tensor; None if it is unknown, or for a value that is not a tensor."""
        return None if value.dtype is None else evaluated.shape(value.shape)

    def checked_offset(self, plan: Plan, value: Value, size: int, evaluated: Evaluated) -> int:
        """Return the offset of a value of `size` bytes, checked to be within the arena."""
        offset = evaluated.bounded(value.offset)
        arena = self.arenas.get(value.device, 0) if value.device else self.arena
        if offset is None or offset % ALIGNMENT or offset + size > arena:
            raise PackageError(f"plan {plan.name}: a value of {size} bytes at offset {offset} does not fit an arena of {arena}")
        return offset

    def late_offset(self, plan: Plan, number: int, shape: Shape, sizes: Sizes) -> int:
        """Return the offset of value `number`, whose shape is known only during the run, checked as by `checked_offset`. It must
        not have more bytes than its declared shape, for which `_check_apart` has checked its offset."""
        value, evaluated = plan.values[number], Evaluated(sizes)
        assert value.dtype is not None
        if number not in self._limits:
            self._limits[number] = self._max_bytes(value, Evaluated(self.sizes))
        size, upper_bound = byte_count(shape, value.dtype.bytes), self._limits[number]
        if upper_bound is not None and size > upper_bound:
            raise PackageError(f"plan {plan.name}: a value of shape {shape} exceeds its declared shape {show_shape(value)}")
        return self.checked_offset(plan, value, size, evaluated)

    @staticmethod
    def _max_bytes(value: Value, evaluated: Evaluated) -> int | None:
        """Return the greatest size of a value in bytes; None if it has no bound before the run."""
        assert value.dtype is not None
        dims = [evaluated.bounded(dim) for dim in value.shape]
        return None if None in dims else byte_count(tuple(dim for dim in dims if dim is not None), value.dtype.bytes)

    def _check_apart(self, plan: Plan, evaluated: Evaluated) -> None:
        """Check that what an instruction writes to an arena overlaps nothing else that it reads or writes: a kernel may read an
        operand again after it has written a result. Raises `PackageError`."""
        spans: dict[int, tuple[str, int, int]] = {}
        for number, value in enumerate(plan.values):
            if value.storage == "arena":
                assert value.dtype is not None
                shape, begin = self.shapes[number], self.offsets.get(number)
                size = self._max_bytes(value, evaluated) if shape is None else byte_count(shape, value.dtype.bytes)
                begin = evaluated.bounded(value.offset) if begin is None else begin
                if begin is not None and size != 0:
                    spans[number] = value.device, begin, LIMIT if size is None else begin + size
        for position, item in enumerate(plan.instructions):
            if isinstance(item, Move) and item.donate:
                continue  # source and target share a place, as the verifier has checked
            written = [number for number in written_by(item) if number in spans]
            for number in written:
                device, begin, end = spans[number]
                for other in dict.fromkeys((*read_by(item), *written)):
                    if other != number and other in spans:
                        other_device, first, last = spans[other]
                        if other_device == device and begin < last and first < end:
                            raise PackageError(
                                f"plan {plan.name}, instruction {position}: values {number} and {other} must not share memory"
                            )

    def _region(self, prepared: PreparedPlan, instruction: Invoke, invoked: Invoked) -> RegionLayout | None:
        region = invoked.region
        signature = region.artifact.signature
        inputs = [self.shapes[number] for number in instruction.inputs]
        outputs = [self.shapes[number] for number in instruction.outputs]
        if region.loaded.allocating is not None or any(shape is None for shape in (*inputs, *outputs)):
            return None
        if any(number in prepared.blocks and prepared.plan.values[number].storage == "dynamic" for number in instruction.outputs):
            return None  # a shared block gets its size when its tensor is written
        sizes = self.sizes if invoked.alike else region_sizes(region.artifact, inputs, self.sizes)
        if not invoked.alike and len(sizes) < len(signature.dims):
            return None
        invoked.check_ranges(sizes)
        if not invoked.alike:
            check_shapes(region.artifact, signature.inputs, inputs, sizes)
            check_shapes(region.artifact, signature.outputs, outputs, sizes)
        dims = np.array([sizes[name] for name in invoked.dims], np.int64)
        dims.flags.writeable = False
        numbers = [number for number in instruction.outputs if number not in self.offsets]
        fresh, large = fresh_arrays(prepared.plan, numbers, [self.shapes[number] for number in numbers], prepared.alignment)
        workspace = invoked.workspace.evaluate_size(sizes) if invoked.alike else None
        if workspace is None:
            workspace = region_workspace(region.artifact, sizes)
        return RegionLayout(region.call, dims, workspace, fresh, large)


def _late_constraints(plan: Plan, sizes: Sizes) -> dict[int, tuple[Constraint, ...]]:
    """Return the plan's constraints on sizes that the inputs do not determine, by the number of the first instruction before which
    all sizes that they read are determined."""
    waiting = [constraint for constraint in plan.constraints if constraint.holds(sizes) is None]
    constraints_by_position: dict[int, list[Constraint]] = {}
    determined_sizes = set(sizes)
    for position, item in enumerate(plan.instructions, 1):
        if not waiting:
            break
        determined_sizes.update(dim for number in written_by(item) for dim in plan.values[number].shape if isinstance(dim, SizeVar))
        checkable = [constraint for constraint in waiting if constraint.sizes <= determined_sizes]
        if checkable:
            constraints_by_position[position] = checkable
            waiting = [constraint for constraint in waiting if constraint not in checkable]
    return {position: tuple(checkable) for position, checkable in constraints_by_position.items()}


class PreparedPlan:
    """A plan with its regions and constants, and a cache of layouts by input sizes.

    alignment: greatest alignment in bytes that a kernel needs of inputs. inherited: sizes that the plan or its callees inherit from
    the caller. tensors: positions and numbers of inputs that may have to be copied. passthrough: positions and numbers of host
    objects and device tensors. declared: for each input, the first position with the same declared shape. results: accessor of the
    outputs in the values of a run. fixed_shapes: shapes that do not depend on sizes, None for other values. open_shapes: numbers of
    values whose shapes depend on sizes, grouped by equal shapes. invoked: the regions of the instructions. readers: functions that
    derive sizes from values. blocks: block numbers of values on devices. resident: outputs on devices. donated: positions of inputs
    whose buffers may be reused by outputs. donated_values: numbers of all values whose buffers are reused by others. bound:
    positions and numbers, not in `tensors`, of inputs that only one device reads and that may be in its memory. places: the devices
    of `bound` inputs, by position. unread: outputs that nothing in the plan reads. makers: devices of `unread` outputs, by
    position, "" for the host.
    """

    def __init__(
        self,
        plan: Plan,
        regions: Mapping[str, LoadedRegion],
        weights: Mapping[str, Array],
        memories: Mapping[str, DeviceMemory] = MappingProxyType({}),
    ) -> None:
        self.plan = plan
        for device in plan.arenas:
            if device not in memories:
                raise PackageError(f"plan {plan.name}: no region of {device} uses device memory")
        self.memories = {device: memories[device] for device in plan.arenas}
        self.regions = regions
        self.inputs = tuple((name, number, plan.values[number]) for name, number in plan.inputs)
        self.outputs = tuple(number for _, number in plan.outputs)
        self.constants = {
            number: memories[value.device].weights[value.name] if value.device else weights[value.name]
            for number, value in enumerate(plan.values)
            if value.storage == "constant"
        }
        self.inherited: frozenset[arith.Expr] = frozenset()
        self.alignment = max((region.loaded.alignment for region in regions.values()), default=1)
        tensors = tuple((position, number) for position, (_, number, value) in enumerate(self.inputs) if value.dtype is not None)
        readers: dict[int, set[str]] = {}
        for item in plan.instructions:
            for number in read_by(item):
                readers.setdefault(number, set()).add(plan.values[item.target].device if isinstance(item, Move) else "")
        only_readers = {
            number: next(iter(reader_devices))
            for number, reader_devices in readers.items()
            if len(reader_devices) == 1 and "" not in reader_devices
        }
        only_readers = {number: device for number, device in only_readers.items() if not plan.values[number].device}
        self.bound = tuple(
            (position, number) for position, number in tensors if number in only_readers and number not in self.outputs
        )
        self.places = {position: only_readers[number] for position, number in self.bound}
        resident = [pair for pair in tensors if plan.values[pair[1]].device]
        self.tensors = tuple(pair for pair in tensors if pair not in self.bound and pair not in resident)
        self.unread = frozenset(self.outputs) - readers.keys()
        moves = [item for item in plan.instructions if isinstance(item, Move) and item.target in self.unread]
        self.makers = {self.outputs.index(item.target): plan.values[item.source].device for item in moves}
        objects = [(position, number) for position, (_, number, value) in enumerate(self.inputs) if value.dtype is None]
        self.passthrough, self.has_objects = (*objects, *resident), bool(objects)
        self.results = picker(self.outputs)
        self.fixed_shapes = [evaluate_shape(value.shape, {}) if value.dtype is not None else None for value in plan.values]
        numbers_by_shape: dict[tuple[Dim, ...], list[int]] = {}
        for number, value in enumerate(plan.values):
            if self.fixed_shapes[number] is None and value.dtype is not None:
                numbers_by_shape.setdefault(value.shape, []).append(number)
        self.open_shapes = tuple(map(tuple, numbers_by_shape.values()))
        self.invoked = tuple(
            Invoked(plan, item, regions[item.symbol], self.alignment) if isinstance(item, Invoke) else None
            for item in plan.instructions
        )
        self.blocks = assign_blocks(plan)
        self.resident = tuple(number for number in self.outputs if number in self.blocks)
        self.readers = tuple(ShapeReader(value.shape) for value in plan.values)
        self.donated_values = donated_values = plan.donated
        self.donated = frozenset(position for position, (_, number, _) in enumerate(self.inputs) if number in donated_values)
        self.template: list[Any] = [self.constants.get(number) for number in range(len(plan.values))]
        first_positions: dict[tuple[Dim, ...], int] = {}
        self.declared = tuple(
            first_positions.setdefault(value.shape, position) for position, (_, _, value) in enumerate(self.inputs)
        )
        self._layouts: dict[tuple[object, ...], PlanLayout] = {}
        self._lock = threading.Lock()
        self._pool: list[Workspace] = []

    def enter(self, inputs: Sequence[Any], outer: Mapping[arith.Expr, int] | None = None) -> PlanLayout:
        """Return the layout for the shapes of `inputs`. `outer` are the sizes known in the caller. Raises `InputError` for input
        shapes that do not fit."""
        if self.has_objects:
            shapes = tuple(
                item.shape if value.dtype is not None or (value.shape and isinstance(item, np.ndarray)) else None
                for item, (_, _, value) in zip(inputs, self.inputs, strict=True)
            )
        else:
            shapes = tuple([item.shape for item in inputs])
        outer_sizes: Sizes = {}
        if outer and self.inherited:
            outer_sizes = {size: outer[size] for size in self.inherited if size in outer}
        key = (*shapes, *outer_sizes.items()) if outer_sizes else shapes
        layout = self._layouts.get(key)
        if layout is None:
            layout = PlanLayout(self, self._sizes(shapes, outer_sizes))
            with self._lock:
                while len(self._layouts) >= _MAX_LAYOUTS:
                    del self._layouts[next(iter(self._layouts))]
                self._layouts[key] = layout
        return layout

    def _sizes(self, shapes: Sequence[Shape | None], outer_sizes: Sizes) -> Sizes:
        """Return the sizes that input shapes determine, and the sizes in `outer_sizes`. Raises `InputError` if they conflict."""
        sizes = dict(outer_sizes)
        pending: list[tuple[int, int, arith.Expr]] = []
        checked: dict[int, Shape] = {}
        for position, ((_, _, value), actual) in enumerate(zip(self.inputs, shapes, strict=True)):
            # Inputs with the same declared shape, such as caches of many layers, mostly have the same actual shape.
            if actual is None or checked.get(self.declared[position]) == actual:
                continue
            checked[self.declared[position]] = actual
            if len(actual) != len(value.shape):
                raise self._misfit(position, actual, "")
            for axis, (dim, size) in enumerate(zip(value.shape, actual, strict=True)):
                if isinstance(dim, int):
                    if dim != size:
                        raise self._misfit(position, actual, "")
                elif isinstance(dim, SizeVar):
                    if sizes.setdefault(dim, size) != size:
                        raise self._misfit(position, actual, f", but {dim.name} is {sizes[dim]} elsewhere")
                    self._check_bounds(position, actual, dim, size)
                else:
                    pending.append((position, axis, dim))
        for position, axis, dim in pending:
            expected, actual = evaluate_size(dim, sizes), shapes[position]
            assert actual is not None
            if expected is not None and expected != actual[axis]:
                raise self._misfit(position, actual, f", but {dim!r} is {expected}")
        return sizes

    def acquire(self, layout: PlanLayout, queues: dict[str, DeviceQueues] | None = None) -> Workspace:
        """Get a workspace for exclusive use, on `queues` or on new queues."""
        try:
            workspace = self._pool.pop()
        except IndexError:
            return Workspace(self, layout, {} if queues is None else queues)
        if queues is not None or (self.memories and not workspace.queues):
            workspace.join({} if queues is None else queues)
        if workspace.layout is not layout:
            workspace.fit(layout)
        return workspace

    def release(self, workspace: Workspace) -> None:
        """Drop the caller's values from a workspace, wait for its queues, and return it and its inner workspaces to the pool. A
        workspace is discarded if its device has failed."""
        workspace.frame = []
        if workspace.queues:
            workspace.device_outputs = None
            if not workspace.settled():
                return
            workspaces = [workspace]
            for outer in workspaces:
                workspaces += outer.inner.values()
                outer.inner = {}
            for inner in workspaces[1:]:
                inner.queues = {}
                inner.prepared.release(inner)
        self._pool.append(workspace)

    def _check_bounds(self, position: int, actual: Shape, dim: SizeVar, size: int) -> None:
        upper = None if dim.upper is None or dim.existential else dim.upper
        if size < dim.lower or (isinstance(upper, int) and size > upper):
            raise self._misfit(position, actual, f", and {dim.name} must be {dim.lower} to {'any' if upper is None else upper}")

    def _misfit(self, position: int, actual: Shape, why: str) -> InputError:
        name, _, value = self.inputs[position]
        owner = "the model" if self.plan.name == "main" else f"function {self.plan.name}"
        return InputError(f"input {name!r} has shape {actual}, {owner} expects {show_shape(value)}{why}")


def show_shape(value: Value) -> str:
    """Format a value's declared shape."""
    return f"({', '.join(map(repr, value.shape))}{',' if len(value.shape) == 1 else ''})"
