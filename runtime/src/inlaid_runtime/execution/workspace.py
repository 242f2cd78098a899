"""Working memory of a plan run."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Any

import numpy as np

from inlaid_runtime.errors import InlaidError
from inlaid_runtime.execution.arrays import Array, Results, aligned_empty
from inlaid_runtime.execution.device_memory import DeviceArray, DeviceQueues, DeviceWork
from inlaid_runtime.execution.sizes import Shape, Sizes

if TYPE_CHECKING:
    from inlaid_runtime.execution.layout import PlanLayout, PreparedPlan
    from inlaid_runtime.execution.profile import Recorder


class Workspace:
    """Working state of a plan, for one run at a time. It has the host arena, and scratch memory for regions. `results` is the pool
    for large outputs; overlapping runs do not share it. `devices` has the working memory on devices. `frame` has the values by
    number; `template` is the frame before a run, with constants and arena views. It also has the known sizes, the recorder, and
    `device_outputs`, the outputs on devices, None if not requested.

    On devices, called plans use the `queues` of this run and return before their work is done. Their workspaces are therefore kept
    in `inner` until the run ends. `root` is set if this plan has no caller.
    """

    __slots__ = (
        "arena", "device_outputs", "devices", "frame", "inner", "layout", "prepared", "queues", "recorder", "results", "root",
        "scratch", "sizes", "template",
    )  # fmt: skip

    def __init__(self, prepared: PreparedPlan, layout: PlanLayout, queues: dict[str, DeviceQueues]) -> None:
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
        self.device_outputs: dict[int, DeviceArray] | None = None
        self.devices: dict[str, DeviceWork] = {}
        self.join(queues)
        self.fit(layout)

    def join(self, queues: dict[str, DeviceQueues]) -> None:
        """Use the given queues. A device that is not in `queues` gets new queues."""
        self.queues = queues
        for device, memory in self.prepared.memories.items():
            if device not in queues:
                queues[device] = DeviceQueues(memory)
            if device not in self.devices:
                self.devices[device] = DeviceWork(memory, queues[device])
            self.devices[device].queues = queues[device]

    def run_inside(self, prepared: PreparedPlan, layout: PlanLayout) -> Workspace:
        """Return the workspace of a called plan. It uses the queues of this run, so that successive calls are executed in order."""
        workspace = self.inner.get(prepared.plan.name)
        if workspace is None:
            workspace = self.inner[prepared.plan.name] = prepared.acquire(layout, self.queues)
        elif workspace.layout is not layout:
            workspace.fit(layout)
        return workspace

    def fit(self, layout: PlanLayout) -> None:
        """Resize the memory of the workspace for a layout."""
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
        """Return the memory for the host arena, page-locked if a device supports that."""
        for work in self.devices.values():
            memory = work.pinned(size)
            if memory is not None:
                return memory
        return aligned_empty((size,), "uint8")

    def settled(self) -> bool:
        """Wait for all queues. Returns whether they succeeded."""
        for queues in self.queues.values():
            with contextlib.suppress(InlaidError):  # the run has already raised an error
                queues.wait()
        for work in self.devices.values():
            work.wait()
        return not any(queues.failed for queues in self.queues.values())

    def view(self, shape: Shape, dtype: np.dtype[Any], offset: int) -> Array:
        """Return an array in the arena."""
        return np.ndarray(shape, dtype, self.arena, offset) if 0 not in shape else aligned_empty(shape, dtype)

    def want_scratch(self, size: int) -> Array:
        """Return scratch memory of at least `size` bytes."""
        if self.scratch.size < size:
            self.scratch = aligned_empty((_room(self.scratch, size),), "uint8")
        return self.scratch


def _room(memory: Array, size: int) -> int:
    """Return the size to allocate for memory that must grow to `size` bytes. It includes a reserve, since growth is likely to
    recur, as for sequences of increasing length. Reserved pages take no memory before they are written, but a fresh page costs as
    much time as the computation in it."""
    return size + size // 4 if memory.size else size
