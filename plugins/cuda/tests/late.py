"""A delaying driver: the emulated host, with commands that stay pending and run in any order that events allow."""

from __future__ import annotations

import ctypes
import gc
import random
import threading
from collections import Counter, deque

from inlaid_cuda.driver import DriverError, Status
from inlaid_cuda.emulation.driver import HostContext, HostDriver, Order

_STEPS = 3


class LateDriver(HostDriver):
    """Like `HostDriver`, with contexts of `LateContext`."""

    integrated = False

    def open(self, number):
        facts = self.devices()[number]
        object.__setattr__(facts, "integrated", self.integrated)
        return LateContext(facts, Order.FORWARD, 0)


class LateContext(HostContext):
    """`counted` are the calls per method. Call number `failing`, among the methods in `fails` or all, fails with `status`; after a
    sticky status all calls fail. Freed memory is poisoned and never reused."""

    def __init__(self, *args):
        super().__init__(*args)
        self.counted: Counter[str] = Counter()
        self.failing, self.fails, self.status, self.sticky = -1, None, Status.OUT_OF_MEMORY, False
        self.work: dict[int, deque] = {}
        self.come: dict[int, int] = {}
        self._recorded: Counter[int] = Counter()
        self._dice = random.Random(0)
        self._graveyard = []
        self._order_lock = threading.RLock()

    def calls(self, name):
        """Count a call. Raises `DriverError` if it is to fail."""
        self.counted[name] += 1
        if self.fails is None or name in self.fails:
            self.failing -= 1
            if self.failing == -1 or (self.sticky and self.failing < -1 and self.failing > -(1 << 30)):
                raise DriverError(name, self.status, f"CUDA_ERROR_{self.status.name} (on purpose)")

    def fail(self, at, status=Status.OUT_OF_MEMORY, sticky=False, fails=None):
        """Make call number `at`, counted from now, fail."""
        self.failing, self.status, self.sticky, self.fails = at, status, sticky, fails

    def heal(self):
        """Stop failing."""
        self.failing, self.sticky = -(1 << 31), False

    def progress(self, steps=None):
        """Run some pending commands."""
        for _ in range(self._dice.randrange(_STEPS) if steps is None else steps):
            runnable_streams = [stream for stream, work in self.work.items() if work and not self._waits(work[0])]
            if not runnable_streams:
                return
            self._step(self.work[self._dice.choice(runnable_streams)])

    def _waits(self, item):
        return isinstance(item, tuple) and item[0] == "await" and self.come.get(item[1], 0) < item[2]

    def _step(self, work):
        item = work.popleft()
        if not isinstance(item, tuple):
            item()
        elif item[0] == "record":
            self.come[item[1]] = item[2]
            if item[1] in self.events:
                super().record(item[1], next(iter(self.streams)))

    def put(self, stream, item):
        self._on(stream, "put")
        with self._order_lock:
            self.work[stream].append(item)
            self.progress()

    def until(self, condition):
        while True:
            with self._order_lock:
                if condition():
                    return
                self.progress(1)

    # --- counted, failing and delayed calls -------------------------------------------------------------------------------------

    def stream(self):
        self.calls("stream")
        with self._order_lock:
            stream = super().stream()
            self.work[stream] = deque()
        return stream

    def destroy_stream(self, stream):
        self.calls("destroy_stream")
        self.until(lambda: not self.work[stream])  # the driver destroys it after pending commands
        with self._order_lock:
            super().destroy_stream(stream)
            del self.work[stream]

    def synchronize(self, stream):
        self.calls("synchronize")
        self.until(lambda: not self.work.get(stream))  # streams of other libraries have no commands here
        super().synchronize(stream)

    def record(self, event, stream):
        self.calls("record")
        self._recorded[event] += 1
        self.put(stream, ("record", event, self._recorded[event]))

    def await_event(self, stream, event):
        self.calls("await_event")
        self.put(stream, ("await", event, self._recorded[event]))

    def synchronize_event(self, event):
        self.calls("synchronize_event")
        self.until(lambda: self.come.get(event, 0) >= self._recorded[event])
        super().synchronize_event(event)

    def upload(self, target, source, size, stream):
        self.calls("upload")
        self.put(stream, lambda: ctypes.memmove(target, source, size))  # no memory is staged: the device may read the host's

    def download(self, target, source, size, stream):
        self.calls("download")
        self.put(stream, lambda: ctypes.memmove(target, source, size))

    def copy(self, target, source, size, stream):
        self.calls("copy")
        self.put(stream, lambda: ctypes.memmove(target, source, size))

    def clear(self, target, size, stream):
        self.calls("clear")
        self.put(stream, lambda: ctypes.memset(target, 0, size))

    def launch(self, launches, stream):
        self.calls("launch")
        for launch in launches:
            self.put(stream, lambda launch=launch: self._run(launch))

    def launch_graph(self, graph, stream):
        self.calls("launch_graph")
        for launch in self.graphs[graph]:
            self.put(stream, lambda launch=launch: self._run(launch))

    def free(self, address):
        self.calls("free")
        memory = self.memories[address]
        super().free(address)
        ctypes.memset(address, 0xEE, memory.size)
        self._graveyard.append(memory)

    def open_handles(self):
        """Count live objects by kind."""
        kinds = ("memories", "host_memories", "streams", "events", "modules", "graphs")
        return {kind: len(getattr(self, kind)) for kind in kinds}


def leftovers(device):
    """Count the live objects on a device by kind, without events and memory for staged uploads, which are reused."""
    gc.collect()
    handles = device.context.open_handles()
    return handles | {"events": 0, "host_memories": handles["host_memories"] - len(device._spare_stages)}


def _counting(name):
    plain = getattr(HostContext, name)

    def call(self, *args, **more):
        self.calls(name)
        return plain(self, *args, **more)

    return call


for _name in (
    "memory", "allocate", "trim", "allocate_host", "free_host", "event", "destroy_event", "elapsed", "load", "unload", "function",
    "function_facts", "prepare", "graph", "destroy_graph",
):  # fmt: skip
    setattr(LateContext, _name, _counting(_name))
