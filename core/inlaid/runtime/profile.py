"""Where a run spent its time, per region, kernel and source node."""

from __future__ import annotations

import dataclasses
import json
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from inlaid.artifact import KernelInfo
from inlaid.artifact.plan import RegionInfo
from inlaid.errors import KernelFault
from inlaid.plugins.runtime_module import KernelTime

_SHOWN = 8
"""How many source nodes of a kernel or region a line of the table names."""


@dataclass(frozen=True)
class Event:
    """One region, or one kernel of a region, that ran. `start` counts in seconds from the start of the run; `nodes` are the
    source nodes that it computes; `part_of` is the region of a kernel, "" for a region."""

    name: str
    target: str
    nodes: tuple[str, ...]
    start: float
    seconds: float
    part_of: str = ""


@dataclass(frozen=True)
class Row:
    """One line of a profile: all runs of one kernel, or of one region that does not time its kernels. `share` is the part of the
    whole run, 0 to 1."""

    nodes: tuple[str, ...]
    name: str
    target: str
    calls: int
    seconds: float
    share: float


@dataclass(frozen=True)
class Profile:
    """What one run did. `seconds` is its whole time, that of the executor included."""

    events: tuple[Event, ...]
    seconds: float

    def rows(self) -> tuple[Row, ...]:
        """Time by kernel (or region where the target does not time kernels) with its source nodes, the longest first."""
        timed = {event.part_of for event in self.events if event.part_of}
        sums: dict[tuple[tuple[str, ...], str, str], tuple[int, float]] = {}
        for event in self.events:
            if event.part_of or event.name not in timed:
                key = (event.nodes, event.name, event.target)
                calls, seconds = sums.get(key, (0, 0.0))
                sums[key] = calls + 1, seconds + event.seconds
        whole = self.seconds or 1.0
        rows = [Row(*key, calls, seconds, seconds / whole) for key, (calls, seconds) in sums.items()]
        return tuple(sorted(rows, key=lambda row: -row.seconds))

    def table(self) -> str:
        """The rows as text: time in milliseconds, share, calls, target, kernel, source nodes."""
        lines = [f"{'ms':>10}  {'share':>6}  {'calls':>5}  {'target':<12}  kernel: source nodes"]
        for row in self.rows():
            more = f" and {len(row.nodes) - _SHOWN} more" if len(row.nodes) > _SHOWN else ""
            nodes = f": {', '.join(row.nodes[:_SHOWN])}{more}" if row.nodes else ""
            lines.append(f"{row.seconds * 1e3:>10.3f}  {row.share:>6.1%}  {row.calls:>5}  {row.target:<12}  {row.name}{nodes}")
        lines.append(f"{self.seconds * 1e3:>10.3f}  {1:>6.1%}  whole run")
        return "\n".join(lines)

    def __str__(self) -> str:
        return self.table()

    def to_json(self) -> dict[str, object]:
        """The seconds of the whole run and the rows, of values that JSON has."""
        return {"seconds": self.seconds, "rows": [dataclasses.asdict(row) for row in self.rows()]}

    def chrome_trace(self) -> str:
        """The events as JSON in Chrome's trace event format, for chrome://tracing and Perfetto. Times are microseconds."""
        targets = {target: number for number, target in enumerate(dict.fromkeys(event.target for event in self.events), 1)}
        events: list[dict[str, object]] = [
            {"name": "thread_name", "ph": "M", "pid": 1, "tid": number, "args": {"name": target}}
            for target, number in targets.items()
        ]
        events += [
            {
                "name": event.name,
                "cat": "kernel" if event.part_of else "region",
                "ph": "X",
                "ts": event.start * 1e6,
                "dur": event.seconds * 1e6,
                "pid": 1,
                "tid": targets[event.target],
                "args": {"nodes": list(event.nodes)},
            }
            for event in self.events
        ]
        return json.dumps({"traceEvents": events, "displayTimeUnit": "ms"})

    def save_chrome_trace(self, path: str | Path) -> None:
        """Write `chrome_trace` to a file."""
        Path(path).write_text(self.chrome_trace(), encoding="utf-8")


@dataclass(slots=True)
class Recorder:
    """Collects the events of one run."""

    begin: float = field(default_factory=time.perf_counter)
    events: list[Event] = field(default_factory=list)

    def now(self) -> float:
        """Seconds since the start of the run."""
        return time.perf_counter() - self.begin

    def region(self, info: RegionInfo, kernels: Sequence[KernelInfo], start: float, parts: Sequence[KernelTime]) -> None:
        """Note that a region which started at `start` has ended, and what those of its kernels took that were timed. Raises
        `KernelFault` for the time of a kernel that it does not have."""
        self.events.append(Event(info.symbol, info.target, info.nodes, start, self.now() - start))
        for part in parts:
            if not 0 <= part.kernel < len(kernels):
                raise KernelFault(f"region {info.symbol} timed kernel {part.kernel}, and has {len(kernels)}")
            kernel = kernels[part.kernel]
            self.events.append(Event(kernel.name, info.target, kernel.nodes, start + part.start, part.seconds, info.symbol))

    def finish(self) -> Profile:
        """The profile of the run, which ends now."""
        return Profile(tuple(self.events), self.now())
