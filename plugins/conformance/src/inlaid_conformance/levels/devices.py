"""Level 6: a device stores data correctly, respects the order of queues and events, and raises specific errors."""

from __future__ import annotations

import gc
import itertools
from collections.abc import Callable, Sequence
from functools import wraps
from typing import Any

import numpy as np

from inlaid.plugins import Artifact, CapturingDevice, Device, DeviceKernel, RuntimeModule
from inlaid_conformance import fresh, samples
from inlaid_conformance.case import Case, Failed, NotClaimed, Skipped
from inlaid_conformance.guarded_memory import POISON, Arena, Launch, Memory, launch
from inlaid_conformance.samples import Array
from inlaid_conformance.stored_form import StoredForm
from inlaid_conformance.target_under_test import TargetUnderTest
from inlaid_runtime import arith
from inlaid_runtime.errors import OutOfMemory
from inlaid_runtime.execution.device_memory import DeviceArray

SIZES = (1, 63, 4096, 1 << 16, (1 << 18) + 4)
"""Numbers of bytes that are copied to the device and back."""
TURNS = 20
"""Number of repetitions of checks that depend on the order of queues."""
ROOM = 1 << 20
"""Bytes of a buffer whose memory is counted."""
ALTERNATIONS = 2000
"""Number of times that one of two queues waits for the other one."""
PATIENCE = 60
"""Time limit, in seconds, of a process that would not end if queues blocked each other."""


def on_device(check: Callable[[TargetUnderTest, Device], None]) -> Callable[[TargetUnderTest], None]:
    """Make a check of a target's device. The check is skipped for targets without a device."""

    @wraps(check)
    def checked(tested: TargetUnderTest) -> None:
        if not tested.capabilities.device_memory:
            raise NotClaimed("the target's regions use host memory")
        device = tested.registry.runtime(tested.target).device()
        if device is None:
            raise Failed("Capabilities.device_memory is set, but device() of the runtime module returns None")
        check(tested, device)

    return checked


def _bytes(size: int, seed: int) -> Array:
    return np.random.default_rng(seed).integers(0, 256, size, dtype=np.uint8)


def copies(tested: TargetUnderTest, device: Device) -> None:
    """Check that data is unchanged by upload, copy and download of buffers and parts. An upload's source may change at once."""
    queue = device.queue()
    for turn, size in enumerate(SIZES * TURNS):
        content = _bytes(size, turn)
        first = Memory(device, queue, size, changing := content.copy())
        changing[:] = POISON
        second = Memory(device, queue, size + 128)
        device.copy(first.tensor, second.part(64, (size,), np.dtype(np.uint8)), queue)
        if (first.read() != content).any():
            raise Failed(f"{size} bytes changed in an upload and download")
        target_content = second.read()
        if (target_content[64 : 64 + size] != content).any():
            raise Failed(f"{size} bytes changed in a copy on the device")
        if (target_content[:64] != POISON).any() or (target_content[64 + size :] != POISON).any():
            raise Failed(f"a copy of {size} bytes writes outside of its target")
        for memory in (first, second):
            device.free(memory.tensor.buffer)
    _copies_rows(device, queue)
    device.release(queue)


def _copies_rows(device: Device, queue: Any) -> None:
    """Check that matrix rows, which may start at any element, can be copied in both directions."""
    rows = np.arange(35, dtype=np.float32).reshape(5, 7)
    first, second = Memory(device, queue, rows.nbytes, rows.reshape(-1).view(np.uint8)), Memory(device, queue, rows.nbytes)
    for number in range(5):
        source, target = (memory.part(row * 28, (7,), rows.dtype) for memory, row in ((first, number), (second, 4 - number)))
        device.copy(source, target, queue)
    if (second.read().view(np.float32).reshape(5, 7) != rows[::-1]).any():
        raise Failed("rows that do not start at a multiple of 64 bytes changed in a copy on the device")
    for memory in (first, second):
        device.free(memory.tensor.buffer)


def keeps_order(tested: TargetUnderTest, device: Device) -> None:
    """Check that a queue executes in order, and waits for events of another queue, and for its own."""
    first, second = device.queue(), device.queue()
    shared = Memory(device, first, 1 << 16)
    content = np.zeros(1 << 16, np.uint8)
    for turn in range(TURNS):
        for step in range(3):
            device.upload(np.full(1 << 16, 10 * turn + step & 0xFF, np.uint8), shared.tensor, first)
        device.wait(first, device.event(first))
        device.wait(second, device.event(first))
        device.download(shared.tensor, content, second)
        event = device.event(second)
        device.wait(first, event)  # the next upload must not overtake
        device.upload(np.full(1 << 16, POISON, np.uint8), shared.tensor, first)
        device.synchronize(event)
        if (content != (10 * turn + 2 & 0xFF)).any():
            raise Failed("a queue that waits for an event of another queue reads memory too early or too late")
    device.synchronize(device.event(first))
    device.free(shared.tensor.buffer)
    for queue in (first, second):
        device.release(queue)


def finishes_released_work(tested: TargetUnderTest) -> None:
    """Check, in a process of its own, that work on a released queue is done before what waits for its event, on another queue or
    in the thread."""
    _in_process(
        tested, "release", "work that was enqueued before the release of its queue, and whose event is awaited, must be done"
    )


def release(device: Device) -> str | None:
    """Release queues with work whose event is awaited. Returns a description of a fault."""
    for turn in range(TURNS):
        first, second = device.queue(), device.queue()
        shared = Memory(device, second, 1 << 16)
        device.wait(first, device.event(second))
        content = _bytes(1 << 16, turn)
        device.upload(content, shared.tensor, first)
        event = device.event(first)
        if turn % 2:
            device.wait(second, event)
        device.release(first)
        if not turn % 2:
            device.synchronize(event)
        if (shared.read() != content).any():
            return "the result of the work is not there"
        device.free(shared.tensor.buffer)
        device.release(second)
    return None


def waits_in_turn(tested: TargetUnderTest) -> None:
    """Check, in a process of its own, that queues that wait for each other's events in turn make progress."""
    _in_process(tested, "alternate", "two queues that wait for each other's events in turn must make progress")


def _in_process(tested: TargetUnderTest, command: str, promise: str) -> None:
    """Run a command that may block in a process with a time limit. Raises `Failed` if it does not end, or answers with a fault."""
    if not tested.capabilities.device_memory:
        raise NotClaimed("the target's regions use host memory")
    try:
        fault = fresh.ask(command, tested.registry.plugin_modules(), limit=PATIENCE, target=tested.text)
    except Failed as error:
        raise Failed(f"{promise}: {error}") from None
    if fault is not None:
        raise Failed(f"{promise}: {fault}")


def alternate(device: Device) -> str | None:
    """Make two queues wait for each other's events many times, before the host waits for any event. Returns a description of a
    fault."""
    queues = device.queue(), device.queue()
    shared = Memory(device, queues[0], 256)
    log = Memory(device, queues[0], ALTERNATIONS)
    event = device.event(queues[0])
    for turn, queue in zip(range(ALTERNATIONS), itertools.cycle(reversed(queues))):
        device.wait(queue, event)
        device.upload(np.full(256, turn % 251, np.uint8), shared.tensor, queue)
        device.copy(shared.part(turn % 256, (1,), np.dtype(np.uint8)), log.part(turn, (1,), np.dtype(np.uint8)), queue)
        event = device.event(queue)
    device.synchronize(event)
    is_wrong = (log.read() != np.arange(ALTERNATIONS) % 251).any()
    for memory in (shared, log):
        device.free(memory.tensor.buffer)
    for queue in queues:
        device.release(queue)
    return "a step sees memory of another step" if is_wrong else None


def has_room(tested: TargetUnderTest) -> None:
    """Check, in a process of its own, that freed memory is available again, and that an allocation beyond the memory raises
    `OutOfMemory` instead of waiting for memory. The device must still work afterwards."""
    _in_process(tested, "room", "memory must be counted, and an allocation that does not fit must raise OutOfMemory at once")


def find_room_fault(runtime: RuntimeModule, device: Device) -> str | None:
    """Allocate and free memory of a device, and more than it has. Returns a description of a fault."""
    before = runtime.live_bytes()
    facts = device.memory()
    if not 0 <= facts.free <= facts.total:
        return f"expected 0 <= free <= total bytes of memory, got {facts.free} of {facts.total}"
    buffer = device.allocate(ROOM)
    if device.memory().free > facts.free - ROOM:
        return f"memory().free must fall by {ROOM} bytes that are allocated, got {device.memory().free} after {facts.free}"
    if before is not None and (runtime.live_bytes() or 0) < before + ROOM:
        return f"live_bytes() must grow by {ROOM} bytes that are allocated, got {runtime.live_bytes()} after {before}"
    device.free(buffer)
    for _ in range(50):
        device.free(device.allocate(ROOM))
    if device.memory().free < facts.free - ROOM:
        return "freed memory is not available again"
    try:
        device.free(device.allocate(facts.total + (1 << 40)))
    except OutOfMemory:
        pass
    else:
        return f"an allocation beyond the device's {facts.total} bytes must raise OutOfMemory"
    queue = device.queue()
    memory = Memory(device, queue, 256)
    if (memory.read() != POISON).any():
        return "the device copies wrongly after an allocation has failed"
    device.free(memory.tensor.buffer)
    device.release(queue)
    if runtime.live_bytes() != before:
        return f"live_bytes() must be {before} after freeing everything, got {runtime.live_bytes()}"
    return None


def keeps_to_its_tensors(tested: TargetUnderTest, device: Device) -> None:
    """Check that a kernel writes all of its outputs and nothing else, for any initial contents."""
    tried = False
    runtime = tested.registry.runtime(tested.target)
    runtime_device = runtime.device()
    assert runtime_device is not None
    for sample in (*samples.claimed(tested), *tested.once(samples.tiled)):
        artifact = samples.compile_artifact(tested, sample)
        kernel = runtime.load(artifact, artifact.constants).launching
        if kernel is None:
            raise Failed("Capabilities.device_memory is set, but the runtime loads kernels without `launching`")
        if artifact.signature.dims:
            continue
        tried = True
        stored = StoredForm(tested, sample)
        try:
            stored.check(launch(runtime_device, artifact, kernel, stored, sample.name))
        except Failed as error:
            raise Failed(f"the kernel of {sample.name}, on memory that is not zeroed: {error}") from None
    if not tried:
        raise Skipped("no kernel has static sizes")


def keeps_launches_apart(tested: TargetUnderTest, device: Device) -> None:
    """Check that launches of one kernel on different tensors are all correct if they are enqueued before any has to be done, on one
    queue and on two."""
    runtime = tested.registry.runtime(tested.target)
    runtime_device = runtime.device()
    assert runtime_device is not None
    tried = False
    for sample in samples.claimed(tested):
        artifact = samples.compile_artifact(tested, sample)
        kernel = runtime.load(artifact, artifact.constants).launching
        if kernel is None or artifact.signature.dims:
            continue
        tried = True
        kernel_runs = [(StoredForm(tested, item), artifact, kernel) for item in (sample, sample.reversed())]
        for count in (1, 2):
            _check_pending(runtime_device, kernel_runs, count, f"two launches of the kernel of {sample.name}")
    if not tried:
        raise Skipped("no kernel has static sizes")


def keeps_kernels_apart(tested: TargetUnderTest, device: Device) -> None:
    """Check that launches of two kernels of equal shapes and other constants are all correct if they are enqueued before any has to
    be done, on one queue and on two. What a kernel holds must last until its launches are done."""
    runtime = tested.registry.runtime(tested.target)
    runtime_device = runtime.device()
    assert runtime_device is not None
    tried = False
    for sample in (*samples.claimed(tested), *samples.with_constants(tested)):
        other = sample.with_other_constants(tested)
        if other is None:
            continue
        pairs = [(StoredForm(tested, item), samples.compile_artifact(tested, item)) for item in (sample, other)]
        kernels = [runtime.load(artifact, artifact.constants).launching for _, artifact in pairs]
        kernel_runs = [
            (stored, artifact, kernel)
            for (stored, artifact), kernel in zip(pairs, kernels, strict=True)
            if kernel is not None and not artifact.signature.dims
        ]
        if len(kernel_runs) == len(pairs):
            tried = True
            for count in (1, 2):
                _check_pending(runtime_device, kernel_runs, count, f"two kernels of {sample.name}, which differ in constants,")
    if not tried:
        raise Skipped("no kernel of static sizes has constants")


def tells_tensors_apart(tested: TargetUnderTest, device: Device) -> None:
    """Check that a kernel reads and writes the tensors of each launch, if those of two launches are in one buffer."""
    runtime = tested.registry.runtime(tested.target)
    runtime_device = runtime.device()
    assert runtime_device is not None
    tried = False
    for sample in samples.claimed(tested):
        artifact = samples.compile_artifact(tested, sample)
        kernel = runtime.load(artifact, artifact.constants).launching
        if kernel is not None and not artifact.signature.dims:
            tried = True
            kernel_runs = [(StoredForm(tested, item), artifact, kernel) for item in (sample, sample.reversed())]
            arena = Arena(runtime_device, sum(Launch.arena_bytes(artifact, stored) for stored, *_ in kernel_runs))
            _check_pending(
                runtime_device, kernel_runs, 1, f"two launches, with tensors in one buffer, of the kernel of {sample.name}", arena
            )
            runtime_device.free(arena.buffer)
    if not tried:
        raise Skipped("no kernel has static sizes")


def _check_pending(
    device: Device,
    kernel_runs: Sequence[tuple[StoredForm, Artifact, DeviceKernel]],
    queue_count: int,
    what: str,
    arena: Arena | None = None,
) -> None:
    """Launch kernels on `queue_count` queues in turn before any launch has to be done, and compare their results with the
    reference, those of the last launch first. Raises `Failed`."""
    queues = [device.queue() for _ in range(queue_count)]
    launches = [
        Launch(device, artifact, kernel, stored, queue, arena)
        for (stored, artifact, kernel), queue in zip(kernel_runs, itertools.cycle(queues), strict=False)
    ]
    for pending in launches:
        pending.enqueue()
    for (stored, *_), pending in reversed([*zip(kernel_runs, launches, strict=True)]):
        try:
            stored.check(pending.results(what))
        except Failed as error:
            queues_text = "one queue" if queue_count == 1 else f"{queue_count} queues"
            raise Failed(f"one of {what} on {queues_text}: {error}") from None
    for pending in launches:
        pending.free()
    for queue in queues:
        device.release(queue)


def replays(tested: TargetUnderTest, device: Device) -> None:
    """Check that recording a kernel does not run it, and that each replay, on any queue, runs it on the memory's current
    contents."""
    if not isinstance(device, CapturingDevice):
        raise NotClaimed("the device does not record launches")
    runtime = tested.registry.runtime(tested.target)
    runtime_device = runtime.device()
    assert isinstance(runtime_device, CapturingDevice)
    tried = False
    for sample in samples.claimed(tested):
        artifact = samples.compile_artifact(tested, sample)
        kernel = runtime.load(artifact, artifact.constants).launching
        if kernel is not None and not artifact.signature.dims:
            tried |= _replayed(runtime_device, artifact, kernel, StoredForm(tested, sample), sample.name)
    if not tried:
        raise Skipped("no kernel of static sizes can be recorded")


def _replayed(device: CapturingDevice, artifact: Artifact, kernel: DeviceKernel, stored: StoredForm, what: str) -> bool:
    """Check a kernel's recording. Returns whether the kernel can be recorded."""
    first, second = device.queue(), device.queue()
    input_memories = [Memory(device, first, max(value.nbytes, 1)) for value in stored.inputs]
    output_memories = [Memory(device, first, max(output.bytes, 1)) for output in stored.outputs]
    tensors = [memory.part(0, value.shape, value.dtype) for memory, value in zip(input_memories, stored.inputs, strict=True)]
    results = [memory.part(0, output.shape, output.dtype) for memory, output in zip(output_memories, stored.outputs, strict=True)]
    size = int(arith.evaluate(artifact.workspace.get("", 0), {}))
    scratch = Memory(device, first, max(size, 1))
    device.synchronize(device.event(first))
    workspace = scratch.part(0, (size,), np.dtype(np.uint8)) if size else None
    device.begin_capture(first)
    kernel.launch(tensors, results, workspace, np.zeros(0, np.int64), first)
    recording = device.end_capture(first)
    if recording is not None:
        if any((memory.read() != POISON).any() for memory in output_memories):
            raise Failed(f"the kernel of {what} runs during recording")
        for queue in (first, second):
            for tensor, value in zip(tensors, stored.inputs, strict=True):
                device.upload(value, tensor, queue)
            device.replay(recording, queue)
            contents = [memory.read(queue) for memory in output_memories]
            try:
                stored.check(
                    [
                        array[: output.bytes].view(output.dtype).reshape(output.shape)
                        for array, output in zip(contents, stored.outputs, strict=True)
                    ]
                )
            except Failed as error:
                raise Failed(f"the kernel of {what}, replayed: {error}") from None
            for memory in output_memories:
                device.upload(np.full(memory.tensor.shape, POISON, np.uint8), memory.tensor, queue)
            device.synchronize(device.event(queue))
        device.discard(recording)
    for memory in (*input_memories, *output_memories, scratch):
        device.free(memory.tensor.buffer)
    for queue in (first, second):
        device.release(queue)
    return recording is not None


def keeps_results(tested: TargetUnderTest, device: Device) -> None:
    """Check that results kept on the device equal results copied to the host, can be inputs, and are freed when dropped."""
    for run in samples.runs(tested):
        executable = run.load()
        expected = executable.run(run.inputs)
        on_device = {name: executable.to_device(name, value) for name, value in run.inputs.items()}
        device_results = executable.run(on_device, keep_on_device=True)
        for name, value in device_results.items():
            actual = value.numpy() if isinstance(value, DeviceArray) else value
            if np.asarray(actual).tobytes() != np.asarray(expected[name]).tobytes():
                raise Failed(f"result {name} of {run.name} differs if inputs and results stay on the device")
        free = device.memory().free
        for _ in range(TURNS):
            device_results = executable.run(on_device, keep_on_device=True)
        del device_results
        gc.collect()
        if device.memory().free < free:
            raise Failed(f"{run.name} leaks {free - device.memory().free} bytes of device memory in {TURNS} runs")


CASES = (
    Case("devices", "copies", on_device(copies)),
    Case("devices", "keeps-order", on_device(keeps_order)),
    Case("devices", "finishes-released-work", finishes_released_work),
    Case("devices", "waits-in-turn", waits_in_turn),
    Case("devices", "has-room", has_room),
    Case("devices", "keeps-to-its-tensors", on_device(keeps_to_its_tensors)),
    Case("devices", "keeps-launches-apart", on_device(keeps_launches_apart)),
    Case("devices", "keeps-kernels-apart", on_device(keeps_kernels_apart)),
    Case("devices", "tells-tensors-apart", on_device(tells_tensors_apart)),
    Case("devices", "replays", on_device(replays)),
    Case("devices", "keeps-results", on_device(keeps_results)),
)
