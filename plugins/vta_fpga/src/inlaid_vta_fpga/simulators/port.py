"""Event queue of a simulated clock, and the DRAM read port shared by all modules."""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Callable
from enum import IntEnum

from inlaid_vta_fpga.isa.config import Config, Memory

Event = Callable[[], None]


class Clock:
    """Runs events in order of time, in cycles. Events of the same cycle run in the order in which they were scheduled."""

    def __init__(self) -> None:
        self.now = 0
        self._events: list[tuple[int, int, Event]] = []
        self._scheduled = 0

    def at(self, time: int, event: Event) -> None:
        """Schedule an event at cycle `time`."""
        heapq.heappush(self._events, (time, self._scheduled, event))
        self._scheduled += 1

    def step(self) -> bool:
        """Run the next event. Returns False if no event is scheduled."""
        if not self._events:
            return False
        self.now, _, event = heapq.heappop(self._events)
        event()
        return True


class Client(IntEnum):
    """Clients of the DRAM read port, in order of priority."""

    FETCH = 0
    UOP = 1
    INP = 2
    WGT = 3
    ACC = 4


CLIENTS = {
    Memory.UOP: Client.UOP,
    Memory.INP: Client.INP,
    Memory.WGT: Client.WGT,
    Memory.ACC: Client.ACC,
    Memory.ACC_8BIT: Client.ACC,
}


def bursts(start: int, size: int, config: Config) -> list[int]:
    """Split a transfer of bytes [start, start + size) into bursts that do not cross an aligned block of `burst_beats` beats.
    Returns the beats of each burst."""
    word, end = start // config.bus_bytes, -(-(start + size) // config.bus_bytes)
    lengths = []
    while word < end:
        beats = min(end - word, config.burst_beats - word % config.burst_beats)
        lengths.append(beats)
        word += beats
    return lengths


class ReadPort:
    """The read channel. It serves one burst at a time, one beat per cycle, in order of acceptance.

    One burst per cycle is accepted, by priority of the client, while fewer than `outstanding` bursts are in flight. The first burst
    after an idle cycle waits for `latency` cycles. `beats` counts the beats so far.

    Source: VME and VTAMemDPIToAXI of apache/tvm-vta, hardware/chisel (2022-01).
    """

    def __init__(self, clock: Clock, latency: int, outstanding: int) -> None:
        self._clock, self._latency, self._outstanding = clock, latency, outstanding
        self._waiting: dict[Client, deque[int]] = {client: deque() for client in Client}
        self._accepted: deque[tuple[Client, int]] = deque()
        self._left = dict.fromkeys(Client, 0)
        self._callbacks: dict[Client, Event] = {}
        self._busy = False
        self._accept_at = 0
        """Earliest cycle at which the next burst may be accepted."""
        self._accepting = False
        """True if `_accept_next` is scheduled."""
        self.beats = 0

    def read(self, client: Client, lengths: list[int], callback: Event) -> None:
        """Request bursts for a client. The client must not have bursts in flight. `callback` runs at the end of the last beat."""
        self._waiting[client].extend(lengths)
        self._left[client] = len(lengths)
        self._callbacks[client] = callback
        self._accept()
        if not self._busy:
            self._busy = True
            self._clock.at(self._clock.now + self._latency, self._serve)

    def _accept(self) -> None:
        """Accept a burst, unless one was accepted in this cycle, and schedule the next acceptance."""
        if self._accept_at <= self._clock.now and len(self._accepted) < self._outstanding:
            for client, waiting in self._waiting.items():
                if waiting:
                    self._accepted.append((client, waiting.popleft()))
                    self._accept_at = self._clock.now + 1
                    break
        if not self._accepting and len(self._accepted) < self._outstanding and any(self._waiting.values()):
            self._accepting = True
            self._clock.at(self._accept_at, self._accept_next)

    def _accept_next(self) -> None:
        self._accepting = False
        self._accept()

    def _serve(self) -> None:
        """Transfer the oldest accepted burst."""
        self._clock.at(self._clock.now + self._accepted[0][1], self._served)

    def _served(self) -> None:
        client, beats = self._accepted.popleft()
        self.beats += beats
        self._accept()
        self._left[client] -= 1
        if not self._left[client]:
            self._callbacks.pop(client)()
        self._busy = bool(self._accepted)
        if self._busy:
            self._serve()
