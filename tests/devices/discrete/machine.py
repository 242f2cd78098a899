"""The machine: memory behind opaque numbers, and queues of work that is done some time later, in any order that events allow."""

from __future__ import annotations

import itertools
import random
import threading
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field, replace

import numpy as np

from inlaid_runtime.errors import DeviceLost, InlaidError, KernelFault, OutOfMemory
from inlaid_runtime.execution.arrays import aligned_empty
from inlaid_runtime.execution.dlpack import export_capsule, import_capsule
from inlaid_runtime.plugins import CapturingDevice, DeviceTensor, MemoryFacts

CAPACITY = 1 << 30
POISON = 0xA5
EXTENSION = 12
"""DLPack's type of devices that it does not know."""


@dataclass
class Event:
    """`is_complete` once everything before it on its queue was done."""

    queue: Queue
    is_complete: bool = False


@dataclass
class Queue:
    """Work that waits: functions, and events of which those of other queues hold it up; what is `captured`, while that is asked."""

    device: Machine
    work: deque[Callable[[], None] | Event] = field(default_factory=deque)
    failed: InlaidError | None = None
    captured: list[Callable[[], None]] | None = None
    released: bool = False


@dataclass
class Counters:
    """What the host has moved, and what ran."""

    up: int = 0
    down: int = 0
    beside: int = 0
    launches: int = 0
    pinned: int = 0
    captures: int = 0
    replays: int = 0


class Machine(CapturingDevice):
    """One device. Every call lets a random part of the waiting work be done, so that it is done late and, between queues, out of
    step. Memory starts poisoned; a buffer is a number that means nothing; `mishap(step)` may raise when work is done."""

    def __init__(self, number: int) -> None:
        self.number = number
        self.capacity = CAPACITY
        self.counters = Counters()
        self.log: list[tuple[str, int]] = []
        self.mishap: Callable[[str], None] = lambda step: None
        self.lost = False
        self.captures = True
        self.recordings: list[list[Callable[[], None]]] = []
        self._memory: dict[int, np.ndarray] = {}
        self._queues: list[Queue] = []
        self._names = itertools.count(0x1000 * (number + 1), 0x10)
        self._dice = random.Random(number)
        self._lock = threading.RLock()

    # --- memory -----------------------------------------------------------------------------------------------------------

    def allocate(self, size):
        with self._lock:
            self._progress()
            if self.live + size > self.capacity:
                raise OutOfMemory(f"device {self.number} has {self.capacity - self.live} bytes left, not {size}")
            name = next(self._names)
            self._memory[name] = np.full(size, POISON, np.uint8)
            return name

    def free(self, buffer):
        with self._lock:
            del self._memory[buffer]

    def dlpack_device(self):
        return (EXTENSION, self.number)

    def export(self, tensor, owner, stream):
        return export_capsule(
            (tensor.buffer or 0) << 32 | tensor.offset, (EXTENSION, self.number), tensor.shape, tensor.dtype, owner
        )

    def adopt(self, value):
        tensor = import_capsule(value.__dlpack__())
        buffer, offset = tensor.address >> 32, tensor.address & 0xFFFFFFFF
        return DeviceTensor(buffer or None, offset, tensor.shape, tensor.dtype), tensor

    def pinned(self, size):
        self.counters.pinned += size
        return aligned_empty((size,), np.uint8)

    def memory(self):
        with self._lock:
            return MemoryFacts(self.capacity, self.capacity - self.live)

    @property
    def live(self):
        """Bytes that are allocated."""
        return sum([memory.size for memory in list(self._memory.values())])  # a collection of garbage may free some

    def view(self, tensor: DeviceTensor, alignment: int = 64):
        """The elements of a tensor, for what is done on the device."""
        size = int(np.prod(tensor.shape)) * tensor.dtype.itemsize
        if not size:
            return np.empty(tensor.shape, tensor.dtype)
        memory = self._memory.get(tensor.buffer)
        if memory is None or tensor.offset % alignment or tensor.offset + size > memory.size:
            raise KernelFault(f"device {self.number}: {tensor} is no memory of its")
        return memory[tensor.offset : tensor.offset + size].view(tensor.dtype).reshape(tensor.shape)

    # --- queues -----------------------------------------------------------------------------------------------------------

    def queue(self):
        queue = Queue(self)  # a collection of garbage may release other queues here, which replaces the list
        with self._lock:
            self._queues.append(queue)
        return queue

    def release(self, queue):
        """Forget a queue once its work is done."""
        with self._lock:
            queue.released = True
            self._queues = [other for other in self._queues if other.work or not other.released]

    def event(self, queue):
        event = Event(queue)
        self.put(queue, event)
        return event

    def wait(self, queue, event):
        self.put(queue, event)

    def synchronize(self, event):
        with self._lock:
            while not event.is_complete:
                self._progress(steps=1, first=event.queue)
            if event.queue.failed is not None:
                failed, event.queue.failed = event.queue.failed, None
                raise failed

    def put(self, queue, work):
        """Add work to a queue."""
        with self._lock:
            if queue.device is not self:
                raise KernelFault("a queue of another device")
            if queue.captured is not None:
                assert not isinstance(work, Event), "an event in a recording"
                queue.captured.append(work)
                return
            queue.work.append(work)
            self._progress()

    def begin_capture(self, queue):
        queue.captured = []

    def end_capture(self, queue):
        recording, queue.captured = queue.captured, None
        if not self.captures:
            return None
        self.counters.captures += 1
        self.recordings.append(recording)
        return recording

    def replay(self, recording, queue):
        assert any(recording is entry for entry in self.recordings)
        self.counters.replays += 1
        for work in recording:
            self.put(queue, work)

    def discard(self, recording):
        self.recordings = [entry for entry in self.recordings if entry is not recording]

    def _progress(self, steps=None, first=None):
        """Do some of the waiting work."""
        if self.lost:
            raise DeviceLost(f"device {self.number} does not answer")
        for _ in range(self._dice.randrange(3) if steps is None else steps):
            waiting = [
                queue for queue in (*self._queues, *([first] if first else ())) if queue.work and not self._is_blocked(queue)
            ]
            if waiting:
                self._step(self._dice.choice(waiting))

    def _is_blocked(self, queue):
        head = queue.work[0]
        return isinstance(head, Event) and head.queue is not queue and not head.is_complete

    def _step(self, queue):
        work = queue.work.popleft()
        if isinstance(work, Event):
            work.is_complete = work.is_complete or work.queue is queue
        elif queue.failed is None:  # what follows a failure is not done
            try:
                work()
            except DeviceLost:
                self.lost = True
                raise
            except InlaidError as error:
                queue.failed = error

    # --- copies -----------------------------------------------------------------------------------------------------------

    def upload(self, source, target, queue):
        assert source.flags.c_contiguous and (source.shape, source.dtype) == (target.shape, target.dtype)
        staged = source.copy()

        def work():
            self.mishap("upload")
            self.log.append(("upload", id(queue)))
            self.counters.up += 1
            self.view(target)[...] = staged

        self.put(queue, work)

    def download(self, source, target, queue):
        assert target.flags.c_contiguous and (source.shape, source.dtype) == (target.shape, target.dtype)

        def work():
            self.mishap("download")
            self.counters.down += 1
            target[...] = self.view(source)

        self.put(queue, work)

    def copy(self, source, target, queue):
        def work():
            self.counters.beside += 1
            size = source.dtype.itemsize
            self.view(target, size)[...] = self.view(source, size)

        self.put(queue, work)

    def launch(self, function, inputs, outputs, workspace, dims, queue):
        """Put `function(inputs, outputs, dims)`, over arrays, on a queue."""

        def work():
            self.mishap("launch")
            self.log.append(("launch", id(queue)))
            self.counters.launches += 1
            if workspace is not None:
                self.view(replace(workspace, shape=(workspace.shape[0],)))[...] = POISON
            function([self.view(tensor) for tensor in inputs], [self.view(tensor) for tensor in outputs], dims)

        self.put(queue, work)


MACHINES = [Machine(0), Machine(1)]
"""The devices of this process, by number."""
