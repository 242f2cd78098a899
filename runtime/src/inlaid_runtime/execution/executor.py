"""Executes plans: instructions in order, on arrays in an arena.

Values of a plan are numbered, and a run keeps them in a list. Everything that depends only on input sizes is computed once per set
of sizes (`inlaid_runtime.execution.layout`); a run computes the rest.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, NoReturn

import numpy as np

from inlaid_runtime.artifact.plan import Assert, Bind, Branch, Call, Invoke, Loop, Move, Program, Wait
from inlaid_runtime.artifact.touched import read_by
from inlaid_runtime.errors import REPORT, InlaidError, InternalError, KernelFault, OutOfMemory, PluginError
from inlaid_runtime.execution.arrays import IN_PLACE, LARGE, Array, aligned_empty, fresh_copy, in_place, usable
from inlaid_runtime.execution.device_memory import DeviceArray, DeviceMemory
from inlaid_runtime.execution.host import Interruption
from inlaid_runtime.execution.inherit import inherited_sizes
from inlaid_runtime.execution.invoked import LoadedRegion, RegionLayout, check_constraints, region_sizes
from inlaid_runtime.execution.layout import PreparedPlan
from inlaid_runtime.execution.loops import DeviceStack, DeviceState, Stack, State, sliced
from inlaid_runtime.execution.sizes import LIMIT, Shape, Sizes
from inlaid_runtime.execution.steps import CheckStep, LaunchStep, LaunchSteps, OtherStep, RegionStep, Transfer
from inlaid_runtime.execution.workspace import Workspace
from inlaid_runtime.plugins.blame import describe, summarize_nodes
from inlaid_runtime.plugins.device import DeviceTensor
from inlaid_runtime.plugins.runtime_module import KernelTime

if TYPE_CHECKING:
    from inlaid_runtime.execution.profile import Recorder

Targets = Sequence[Array | DeviceArray | DeviceTensor | None]
"""Result arrays given by the caller, one item per output: an array, which is written if it has the right shape, or None for a new
array. An empty sequence requests only new arrays."""


class Executor:
    """The plans of a program with loaded regions. Immutable except for pools of workspaces, so that runs may overlap."""

    def __init__(
        self,
        program: Program,
        regions: Mapping[str, LoadedRegion],
        weights: Mapping[str, Array],
        memories: Mapping[str, DeviceMemory] = MappingProxyType({}),
    ) -> None:
        self.plans = {name: PreparedPlan(plan, regions, weights, memories) for name, plan in program.plans.items()}
        self._on_devices = bool(memories)
        signatures = {symbol: region.artifact.signature for symbol, region in regions.items()}
        for name, sizes in inherited_sizes(program.plans, signatures).items():
            self.plans[name].inherited = sizes

    def run(
        self, inputs: Sequence[Any], recorder: Recorder | None = None, targets: Targets = (), keep: bool = False
    ) -> Sequence[Any]:
        """Run plan "main" on inputs in order. Outputs are in `targets`, in buffers of donated inputs, or in new arrays, and belong
        to the caller. With `keep`, results on devices stay there as `DeviceArray`s."""
        try:
            # Positional arguments: keyword calls are slower in Python 3.11.
            return self._run_plan("main", inputs, targets, recorder, None, keep, None)
        except RecursionError as error:
            raise KernelFault("the model's functions are nested too deeply") from error
        except (ArithmeticError, AssertionError, AttributeError, LookupError) as error:  # not of a region: see `_reraise`
            raise InternalError(f"a fault of Inlaid, not of the model: {describe(error)}", remedy=REPORT) from error
        except Interruption as interruption:
            raise interruption.error from None

    def _run_plan(
        self,
        name: str,
        inputs: Sequence[Any],
        targets: Targets,
        recorder: Recorder | None,
        outer: Sizes | None = None,
        keep: bool = False,
        enclosing: Workspace | None = None,
    ) -> Sequence[Any]:
        prepared = self.plans[name]
        layout = prepared.enter(inputs, outer)
        run = prepared.acquire(layout) if enclosing is None else enclosing.run_inside(prepared, layout)
        try:
            run.recorder = recorder
            if layout.sizes or run.sizes:
                run.sizes = layout.sizes.copy()
            run.frame = frame = run.template.copy()
            alignment = prepared.alignment
            for position, number in prepared.tensors:
                argument = inputs[position]
                # Inlined `in_place`, without a call if any address will do.
                fits = argument.flags.num & IN_PLACE == IN_PLACE and (alignment == 1 or in_place(argument, alignment))
                frame[number] = argument if fits else fresh_copy(argument)
            for position, number in prepared.passthrough:
                frame[number] = inputs[position]
            on_devices = prepared.memories
            if on_devices:
                self._bind(run, inputs, keep)
                run.root = enclosing is None
            if targets:
                for number, target in zip(prepared.outputs, targets, strict=True):
                    if target is not None and target.shape == layout.shapes[number]:
                        frame[number] = target
            for number in prepared.resident:
                shape = layout.shapes[number]
                if frame[number] is None and shape is not None:
                    frame[number] = self._reserve(run, number, shape)
            for step in layout.steps:
                if isinstance(step, RegionStep):
                    self._invoke(run, step)
                elif isinstance(step, Bind):
                    self._bind_size(run, step)
                else:
                    self._step(run, step)
            if on_devices and enclosing is None:
                for queues in run.queues.values():
                    queues.wait()
                if run.device_outputs:
                    return [run.device_outputs.get(number, frame[number]) for number in prepared.outputs]
            return prepared.results(frame)
        finally:
            if enclosing is None:
                prepared.release(run)
            else:
                run.frame = []

    def _bind(self, run: Workspace, inputs: Sequence[Any], keep: bool) -> None:
        """Bind the inputs that may be in device memory to the plan's values."""
        for position, number in run.prepared.bound:
            argument = inputs[position]
            run.frame[number] = argument if isinstance(argument, DeviceArray) or in_place(argument) else fresh_copy(argument)
        if keep:
            run.device_outputs = {}

    def _step(self, run: Workspace, instruction: OtherStep) -> None:
        frame = run.frame
        match instruction:
            case Assert(condition=condition, outputs=outputs):
                if condition is None or not frame[condition]:
                    raise KernelFault(instruction.message, node=instruction.node or None)
                for number in outputs:
                    if frame[number] is None:
                        self._define(run, number, np.empty((0,), np.bool_))
            case Move():
                self._move(run, instruction)
            case LaunchStep():
                self._launch(run, instruction)
            case LaunchSteps():
                self._launch_group(run, instruction)
            case Transfer(move=move):
                self._transfer(run, instruction, move)
            case CheckStep(constraints=constraints):
                check_constraints(constraints, run.sizes)
            case Wait(device=device):
                run.devices[device].wait()
            case Call(plan=plan, inputs=inputs, outputs=outputs):
                self._call(run, plan, inputs, outputs)
            case Branch(condition=condition, then=then, otherwise=otherwise, inputs=inputs, outputs=outputs):
                self._call(run, then if frame[condition] else otherwise, inputs, outputs)
            case Loop():
                self._loop(run, instruction)

    def _bind_size(self, run: Workspace, bind: Bind) -> None:
        size = run.frame[bind.source].item(bind.element)
        if not 0 <= size < LIMIT:
            raise KernelFault(f"{bind.name} must be 0 to {LIMIT - 1}, got {size}", node=bind.node or None)
        run.frame[bind.target] = np.ndarray((size, 0), np.bool_, run.arena)
        self._check_shape(run, bind.target, (size, 0))

    def _move(self, run: Workspace, move: Move) -> None:
        frame, target = run.frame, move.target
        item, shape = frame[move.source], run.layout.shapes[target]
        if move.donate:
            self._define(run, target, item)
        elif frame[target] is None and shape is not None and shape == item.shape:
            large = item.nbytes >= LARGE and not item.dtype.hasobject
            alignment = run.prepared.alignment
            copy = run.results.empty(target, shape, item.dtype) if large else aligned_empty(shape, item.dtype, alignment)
            copy[...] = item
            frame[target] = copy
        else:
            self._store(run, target, item, shared=True)

    def _transfer(self, run: Workspace, transfer: Transfer, move: Move) -> None:
        """Move a value from or to a device."""
        if run.recorder is None:
            self._transfer_now(run, transfer, move)
            return
        start, item = run.recorder.now(), run.frame[move.source]
        if self._transfer_now(run, transfer, move):
            run.devices[transfer.device].wait()  # only a copy without concurrent work can be timed here
            run.recorder.copy(f"copy {transfer.direction}", transfer.device, start, math.prod(item.shape) * item.dtype.itemsize)

    def _transfer_now(self, run: Workspace, transfer: Transfer, move: Move) -> bool:
        """Move a value from or to a device. Returns whether the value was copied."""
        frame, work, target = run.frame, run.devices[transfer.device], move.target
        item = frame[move.source]
        work.await_values((move.source,))
        if transfer.direction == "beside" and move.donate:
            self._define(run, target, item)
            return False
        if transfer.direction == "down" and run.device_outputs is not None and target in run.prepared.unread:
            donated_inputs = (frame[number] for _, number in run.prepared.bound if number in run.prepared.donated_values)
            device_output = next(
                (argument for argument in donated_inputs if isinstance(argument, DeviceArray) and argument.tensor is item), None
            )
            copied = device_output is None
            if device_output is None:
                device_output = DeviceArray.empty(work.memory, item.shape, item.dtype)
                work.copy(item, device_output.tensor)
            run.device_outputs[target] = device_output
            self._check_shape(run, target, item.shape)
            return copied
        if isinstance(item, DeviceArray) and (move.donate or target not in run.prepared.donated_values):
            self._define(run, target, item.tensor)  # no copy: it may be updated, or nothing updates it
            return False
        destination = frame[target]
        if isinstance(destination, DeviceArray):
            work.copy(item, destination.tensor)
            self._check_shape(run, target, item.shape)
            return True
        if destination is None or destination.shape != item.shape:
            if run.prepared.plan.values[target].storage == "arena" or target in run.prepared.blocks:
                destination = self._reserve(run, target, item.shape)
            else:
                destination = aligned_empty(item.shape, item.dtype)
        if isinstance(item, DeviceArray):
            work.copy(item.tensor, destination)
        elif transfer.direction == "up" and move.apart and run.root:
            work.upload_apart(item, destination, target)
        elif transfer.direction == "up":
            work.upload(item, destination)
        elif transfer.direction == "down":
            work.download(item, destination, move.apart and run.root)
        else:
            work.copy(item, destination)
        self._define(run, target, destination)
        return True

    # --- regions ----------------------------------------------------------------------------------------------------------

    def _launch_group(self, run: Workspace, steps: LaunchSteps) -> None:
        """Launch several regions, or replay their recording."""

        def launch() -> None:
            for step in steps.steps:
                self._launch(run, step)

        if run.recorder is not None:
            launch()  # profiling times each launch
            return
        work = run.devices[steps.device]
        work.want(0, steps.workspace)
        for step in steps.steps:
            work.await_values(step.instruction.inputs)
        work.replayed(steps, steps.values(run.frame), launch)

    def _launch(self, run: Workspace, step: LaunchStep) -> None:
        frame, recorder = run.frame, run.recorder
        region, layout = step.region, step.layout
        work = run.devices[region.info.target]
        inputs = step.inputs(frame)
        start = recorder.now() if recorder is not None else 0.0
        try:
            if layout is None:
                layout = step.invoked.layout(inputs, run.sizes)
            work.want(0, layout.workspace)
            work.await_values(step.instruction.inputs)
            for number, shape, _, _ in layout.fresh:
                buffer = frame[number]
                if buffer is None or buffer.shape != shape:
                    frame[number] = self._reserve(run, number, shape)
            dims = layout.dims.copy() if layout.late else layout.dims
            work.queues.busy = True
            timed_launch = region.loaded.timed_launch if recorder is not None else None
            arguments = inputs, step.outputs(frame), work.workspace(layout.workspace), dims, work.queues.kernels
            if timed_launch is None:
                layout.invoke(*arguments)
            else:
                read_times = timed_launch(*arguments)
            if layout.late or recorder is not None:
                work.wait()
            kernel_times = () if timed_launch is None else read_times()
            if step.layout is None and (layout.late or not step.invoked.matched):
                self._set_output_shapes(run, step, layout, dims)
        except Exception as error:
            _reraise(region, error)
        if recorder is not None:
            recorder.region(region.info, region.artifact, start, kernel_times, dims.tolist())

    def _invoke(self, run: Workspace, step: RegionStep) -> None:
        frame, recorder, layout = run.frame, run.recorder, step.layout
        inputs = step.inputs(frame)
        start = recorder.now() if recorder is not None else 0.0
        kernel_times: Sequence[KernelTime] = ()
        sizes: Sequence[int] = ()
        region = step.region
        try:
            if layout is None and region.loaded.allocating is not None:
                if region.artifact.constraints:
                    shapes = [array.shape if isinstance(array, np.ndarray) else None for array in inputs]
                    check_constraints(region.artifact.constraints, region_sizes(region.artifact, shapes, run.sizes))
                self._adopt(run, region, step.instruction, inputs, region.loaded.allocating.call(inputs))
            else:
                if layout is None:
                    layout = step.invoked.layout(inputs, run.sizes)
                    run.want_scratch(layout.workspace)
                for number, shape, dtype, alignment in layout.fresh:
                    buffer = frame[number]
                    if buffer is None or buffer.shape != shape:
                        if not alignment:
                            frame[number] = self._reserve(run, number, shape)
                        elif number in layout.large:
                            frame[number] = run.results.empty(number, shape, dtype)
                        else:
                            frame[number] = aligned_empty(shape, dtype, alignment)
                dims = layout.dims.copy() if layout.late else layout.dims
                if recorder is None:
                    layout.invoke(inputs, step.outputs(frame), run.scratch, dims)
                else:
                    kernel_times = _profile(region, inputs, step.outputs(frame), run.scratch, dims)
                    sizes = dims.tolist()
                if step.layout is None and (layout.late or not step.invoked.matched):
                    self._set_output_shapes(run, step, layout, dims)
        except Exception as error:
            _reraise(region, error)
        if recorder is not None:
            recorder.region(region.info, region.artifact, start, kernel_times, sizes)

    def _set_output_shapes(self, run: Workspace, step: RegionStep | LaunchStep, layout: RegionLayout, dims: Array) -> None:
        """Set the shapes of a region's outputs by its computed dimensions. Raises `KernelFault` for a dimension beyond its
        bound."""
        artifact, invoked, numbers = step.region.artifact, step.invoked, step.instruction.outputs
        if layout.late:
            frame, sizes = run.frame, dims.tolist()
            for position, name, bound in layout.late:
                if not 0 <= sizes[position] <= bound:
                    raise KernelFault(f"region {artifact.symbol}: computed size {name} must be 0 to {bound}, got {sizes[position]}")
                if invoked.matched:
                    run.sizes[name] = sizes[position]
            if layout.constraints:
                check_constraints(layout.constraints, dict(zip(invoked.dims, sizes, strict=True)))
            for number, actual in zip(numbers, invoked.actual, strict=True):
                array, shape = frame[number], actual(sizes)
                if array.shape != shape:
                    if shape is None or math.prod(shape) > math.prod(array.shape):
                        raise KernelFault(f"region {artifact.symbol} returned shape {shape}, beyond its bound {array.shape}")
                    on_device = isinstance(array, DeviceTensor)
                    frame[number] = replace(array, shape=shape) if on_device else np.ndarray(shape, array.dtype, array)
        if not invoked.matched:
            for number in numbers:
                self._define(run, number, run.frame[number])

    def _adopt(
        self, run: Workspace, region: LoadedRegion, instruction: Invoke, inputs: Sequence[Any], results: Sequence[Any]
    ) -> None:
        """Take ownership of results that a kernel allocated."""
        if len(results) != len(instruction.outputs):
            raise KernelFault(f"region {region.artifact.symbol} must return {len(instruction.outputs)} results, got {len(results)}")
        live_arrays = list(_arrays(inputs))
        for number, result in zip(instruction.outputs, results, strict=True):
            value = run.prepared.plan.values[number]
            if value.dtype is not None and not (isinstance(result, np.ndarray) and result.dtype == value.dtype.numpy):
                what = result.dtype.name if isinstance(result, np.ndarray) else type(result).__name__
                raise KernelFault(f"region {region.artifact.symbol} must return a tensor of {value.dtype.name}, got {what}")
            owned = _owned(result, live_arrays)
            live_arrays.extend(_arrays([owned]))
            self._store(run, number, owned, shared=False)

    def _reserve(self, run: Workspace, number: int, shape: Shape) -> Any:
        """Return memory for a value whose shape, at most `shape`, is known only during the run: in the arena or a block on a
        device."""
        value, block = run.prepared.plan.values[number], run.prepared.blocks.get(number)
        assert value.dtype is not None
        if block is not None:
            return run.devices[value.device].block(block, shape, value.dtype.numpy)
        offset = run.layout.late_offset(run.prepared.plan, number, shape, run.sizes)
        if value.device:
            return run.devices[value.device].tensor(shape, value.dtype.numpy, offset)
        return run.view(shape, value.dtype.numpy, offset)

    # --- other plans ------------------------------------------------------------------------------------------------------

    def _call(self, run: Workspace, plan: str, inputs: tuple[int, ...], outputs: tuple[int, ...]) -> None:
        frame = run.frame
        for work in run.devices.values():
            work.await_values(inputs)
        arguments, targets = [frame[number] for number in inputs], [frame[number] for number in outputs]
        results = self._run_plan(plan, arguments, targets, run.recorder, run.sizes, enclosing=self._workspace_owner(run))
        for number, result in zip(outputs, results, strict=True):
            self._store(run, number, result, shared=False)

    def _workspace_owner(self, run: Workspace) -> Workspace | None:
        """Return the owner of the workspaces of called plans: this run if devices are used, since called plans use its queues; else
        None."""
        return run if self._on_devices else None

    def _loop(self, run: Workspace, loop: Loop) -> None:
        frame, values, count = run.frame, run.prepared.plan.values, len(loop.state)
        for work in run.devices.values():
            work.await_values(read_by(loop))
        limit = math.inf if loop.trip_count is None else int(frame[loop.trip_count])
        going = loop.condition is None or bool(frame[loop.condition])
        scanned = [frame[number] for number in loop.scanned]
        if len({item.shape[0] for item in scanned}) > 1:
            raise KernelFault(f"the scanned inputs of a loop must have equal lengths, got {[item.shape[0] for item in scanned]}")
        limit = min(limit, *(item.shape[0] for item in scanned)) if scanned else limit
        body, spare = self.plans[loop.body], iter([frame[number] for number in loop.spare])
        state: list[State | DeviceState] = []
        for position, (number, result) in enumerate(zip(loop.state, loop.outputs[:count], strict=True), start=1):
            device, donated = values[number].device, position in body.donated
            if device:
                buffers = frame[result], next(spare)
                state.append(DeviceState(run.devices[device], frame[number], buffers, donated, limit))
            else:
                state.append(State(frame[number], donated))
        slices = [(item, values[number].device) for item, number in zip(scanned, loop.scanned, strict=True)]
        sources = [(item, device, next(spare) if device else None) for item, device in slices]
        captured = [frame[number] for number in loop.captured]
        stacks: list[Stack | DeviceStack] = []
        for number in loop.outputs[count:]:
            device = values[number].device
            on_device = device and DeviceStack(run.devices[device], number, frame[number], next(spare))
            stacks.append(on_device or Stack(run, number, body.alignment))
        keep_going = aligned_empty((), np.bool_)
        iteration = 0
        while going and iteration < limit:
            rows = [sliced(item, iteration, run, device, row) for item, device, row in sources]
            inputs = [np.array(iteration, np.int64), *(item.value for item in state), *rows, *captured]
            targets = [keep_going, *(item.target(state) for item in state), *(stack.row(iteration) for stack in stacks)]
            results = self._run_plan(loop.body, inputs, targets, run.recorder, run.sizes, enclosing=self._workspace_owner(run))
            going = bool(results[0])
            for item, result in zip((*state, *stacks), results[1:], strict=True):
                if isinstance(item, (State, DeviceState)):
                    item.take(result)
                else:
                    item.push(iteration, result)
            iteration += 1
        for number, variable in zip(loop.outputs[:count], state, strict=True):
            self._store(run, number, variable.finish(), shared=iteration == 0)
        for stack in stacks:
            self._store(run, stack.number, stack.finish(iteration), shared=False)

    # --- values -----------------------------------------------------------------------------------------------------------

    def _store(self, run: Workspace, number: int, item: Any, *, shared: bool) -> None:
        """Store `item` as value `number`. If `item` is `shared` with another value, it is copied unless it is immutable."""
        value, target = run.prepared.plan.values[number], run.frame[number]
        if value.dtype is None:
            run.frame[number] = fresh_copy(item) if shared and isinstance(item, np.ndarray) else item
            return
        if item is target:
            pass
        elif isinstance(item, DeviceTensor):
            target = self._reserve(run, number, item.shape) if target is None else target
            run.devices[value.device].copy(item, target)
            item = target
        elif target is not None and target.shape == item.shape:
            np.copyto(target, item, casting="no")
            item = target
        elif shared:
            item = fresh_copy(item)
        else:
            item = usable(item, run.prepared.alignment)
        self._define(run, number, item)

    def _define(self, run: Workspace, number: int, array: Array | DeviceTensor) -> None:
        """Store an array as value `number`, and derive unknown sizes from its shape. Raises `KernelFault` for a misfitting
        shape."""
        run.frame[number] = array
        self._check_shape(run, number, array.shape)

    def _check_shape(self, run: Workspace, number: int, shape: Shape) -> None:
        """Derive unknown sizes from a value's shape. Raises `KernelFault` for a shape that does not fit."""
        expected = run.layout.shapes[number]
        if expected is None:
            run.prepared.readers[number].read(shape, run.sizes)
        elif expected != shape:
            raise KernelFault(f"expected a value of shape {expected}, got shape {shape}")


def _profile(
    region: LoadedRegion,
    inputs: Sequence[Array],
    outputs: Sequence[Array],
    scratch: Array,
    dims: np.ndarray[Any, np.dtype[np.int64]],
) -> Sequence[KernelTime]:
    """Invoke a region. Returns the times of its kernels, empty if the region cannot measure them."""
    if region.loaded.profile is not None:
        return region.loaded.profile(inputs, outputs, scratch, dims)
    assert region.loaded.kernel is not None
    region.loaded.kernel.invoke(inputs, outputs, scratch, dims)
    return ()


def _reraise(region: LoadedRegion, error: Exception) -> NoReturn:
    """Re-raise a region's error with the names of the region and the plugin."""
    if isinstance(error, InlaidError):
        error.node = error.node or summarize_nodes(region.info.nodes)
        raise error
    if isinstance(error, RecursionError):
        raise error  # recursion of plans, which `run` reports
    if isinstance(error, MemoryError):
        raise OutOfMemory(f"no memory for results of region {region.artifact.symbol}: {error}", plugin=region.plugin) from error
    raise PluginError(
        f"region {region.artifact.symbol} on {region.info.target} failed: {describe(error)}",
        plugin=region.plugin,
        node=summarize_nodes(region.info.nodes),
    ) from error


def _owned(item: Any, live_arrays: Sequence[Array]) -> Any:
    """Copy each array of an item if the array is read-only or shares memory with an array in `live_arrays`."""
    if isinstance(item, np.ndarray):
        shared = not item.flags.writeable or any(np.may_share_memory(item, other) for other in live_arrays)
        return fresh_copy(item) if shared else item
    return [_owned(element, live_arrays) for element in item] if isinstance(item, list) else item


def _arrays(items: Sequence[Any]) -> Iterator[Array]:
    """Yield the arrays among values, including the elements of sequences."""
    for item in items:
        if isinstance(item, np.ndarray):
            yield item
        elif isinstance(item, list):
            yield from _arrays(item)
