"""What one run of a plan works with."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Any

import numpy as np

from inlaid.errors import InlaidError
from inlaid.runtime.arrays import Array, Results, aligned_empty
from inlaid.runtime.device_memory import DeviceArray, DeviceQueues, DeviceWork
from inlaid.runtime.sizes import Shape, Sizes

if TYPE_CHECKING:
    from inlaid.runtime.layout import Layout, PreparedPlan
    from inlaid.runtime.profile import Recorder


class Workspace:
    """One run of a plan at a time: its memory, which is the arena, scratch memory for regions, and `results`, memory for large
    outputs, so that runs that overlap do not take it from one another; what it works with on `devices`; `frame`, the values by
    number; `template`, the frame before a run, with constants and what lies in arenas; the sizes known so far; who notes what the
    run does; and the outputs that are `kept` on devices, None where none are asked for.

    On devices the plans that a run runs work on its `queues`, and return before these are done: so their workspaces are `inner`, of
    its own, until it ends. `root`: no other plan runs this one."""

    __slots__ = (
        "arena", "devices", "frame", "inner", "kept", "layout", "prepared", "queues", "recorder", "results", "root", "scratch",
        "sizes", "template",
    )  # fmt: skip

    def __init__(self, prepared: PreparedPlan, layout: Layout, queues: dict[str, DeviceQueues]) -> None:
        self.prepared = prepared
        self.queues = queues
        self.root = True
        self.inner: dict[str, Workspace] = {}
        self.arena = aligned_empty((0,), "uint8")
        self.results = Results()
        self.scratch = self.arena
        self.frame: list[Any] = []
        self.template: list[Any] = []
        self.sizes: Sizes = {}
        self.recorder: Recorder | None = None
        self.kept: dict[int, DeviceArray] | None = None
        self.devices: dict[str, DeviceWork] = {}
        self.join(queues)
        self.fit(layout)

    def join(self, queues: dict[str, DeviceQueues]) -> None:
        """Work on queues, of which there are new ones for devices that have none."""
        self.queues = queues
        for device, memory in self.prepared.memories.items():
            if device not in queues:
                queues[device] = DeviceQueues(memory)
            if device not in self.devices:
                self.devices[device] = DeviceWork(memory, queues[device])
            self.devices[device].queues = queues[device]

    def run_inside(self, prepared: PreparedPlan, layout: Layout) -> Workspace:
        """The workspace for a plan that this run runs, on its queues: they keep the order of what was put there for the same plan
        before."""
        found = self.inner.get(prepared.plan.name)
        if found is None:
            found = self.inner[prepared.plan.name] = prepared.acquire(layout, self.queues)
        elif found.layout is not layout:
            found.fit(layout)
        return found

    def fit(self, layout: Layout) -> None:
        """Make the workspace one for a layout."""
        prepared = self.prepared
        if self.arena.size < layout.arena:
            self.arena = self._host_memory(_room(self.arena, layout.arena))
        self.want_scratch(layout.scratch)
        values = prepared.plan.values
        for device, work in self.devices.items():
            work.want(layout.arenas[device], 0)
        self.template = prepared.template.copy()
        for number, offset in layout.offsets.items():
            value, shape = values[number], layout.shapes[number]
            assert value.dtype is not None and shape is not None
            if value.device:
                self.template[number] = self.devices[value.device].tensor(shape, value.dtype.numpy, offset)
            else:
                self.template[number] = self.view(shape, value.dtype.numpy, offset)
        self.layout = layout

    def _host_memory(self, size: int) -> Array:
        """Memory for the host's arena: such that a device copies it faster, where there is one that has it."""
        for work in self.devices.values():
            found = work.pinned(size)
            if found is not None:
                return found
        return aligned_empty((size,), "uint8")

    def settled(self) -> bool:
        """Wait for all queues; whether they ended well."""
        for queues in self.queues.values():
            with contextlib.suppress(InlaidError):  # the run has its error already
                queues.wait()
        for work in self.devices.values():
            work.wait()
        return not any(queues.failed for queues in self.queues.values())

    def view(self, shape: Shape, dtype: np.dtype[Any], offset: int) -> Array:
        """An array in the arena."""
        return np.ndarray(shape, dtype, self.arena, offset) if 0 not in shape else aligned_empty(shape, dtype)

    def want_scratch(self, size: int) -> Array:
        """Scratch memory of at least `size` bytes."""
        if self.scratch.size < size:
            self.scratch = aligned_empty((_room(self.scratch, size),), "uint8")
        return self.scratch


def _room(memory: Array, size: int) -> int:
    """How many bytes to ask for in place of memory that is smaller than `size`. Where it grows it will go on growing, as for
    sequences that get longer: there is room for that, which takes no memory before it is written to, since fresh pages cost as much
    as what is computed in them."""
    return size + size // 4 if memory.size else size
