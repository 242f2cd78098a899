"""Profile of a run: time per region, kernel and source node."""

from __future__ import annotations

import dataclasses
import json
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from inlaid_runtime import arith, markup
from inlaid_runtime.arith import SizeVar
from inlaid_runtime.artifact import Artifact
from inlaid_runtime.artifact.plan import RegionInfo
from inlaid_runtime.errors import KernelFault
from inlaid_runtime.execution.output import write_text
from inlaid_runtime.execution.sizes import evaluate_size
from inlaid_runtime.plugins.runtime_module import KernelTime

_SHOWN = 8
"""Greatest number of source nodes that a line of the table names."""


@dataclass(frozen=True)
class Event:
    """One execution of a region, a kernel of a region, or a copy. `start` is in seconds from the start of the run; `nodes` are
    source nodes; `region` is the region of a kernel, "" for regions and copies. `operations` counts arithmetic, a multiply-add as
    two; `bytes` counts operands and results, or copied bytes; 0 if unknown."""

    name: str
    target: str
    nodes: tuple[str, ...]
    start: float
    seconds: float
    region: str = ""
    kind: Literal["region", "kernel", "copy"] = "region"
    operations: int = 0
    bytes: int = 0

    @property
    def lane(self) -> str:
        """The trace lane of the event. A target has separate lanes for regions, kernels and copies."""
        return {"region": self.target, "kernel": f"{self.target} kernels", "copy": f"{self.target} copies"}[self.kind]


@dataclass(frozen=True)
class Row:
    """One line of a profile: all executions of a kernel, a copy, or a region that does not time its kernels. `share` is the
    fraction of the whole run, 0 to 1; `operations` and `bytes` are totals, as for `Event`."""

    nodes: tuple[str, ...]
    name: str
    target: str
    calls: int
    seconds: float
    share: float
    operations: int = 0
    bytes: int = 0

    @property
    def flops(self) -> float:
        """Achieved FLOP/s."""
        return self.operations / self.seconds if self.seconds else 0.0

    @property
    def bandwidth(self) -> float:
        """Achieved bytes/s."""
        return self.bytes / self.seconds if self.seconds else 0.0


@dataclass(frozen=True, repr=False)
class Profile:
    """Profile of one run. `seconds` is the total time of the run, including the executor."""

    events: tuple[Event, ...]
    seconds: float

    def rows(self) -> tuple[Row, ...]:
        """Time by kernel (or by region if the target does not time kernels) with its source nodes, and by copy, longest first."""
        timed_regions = {event.region for event in self.events if event.region}
        groups: dict[tuple[tuple[str, ...], str, str], list[Event]] = {}
        for event in self.events:
            if event.region or event.name not in timed_regions:
                groups.setdefault((event.nodes, event.name, event.target), []).append(event)
        total = self.seconds or 1.0
        rows = []
        for key, events in groups.items():
            seconds = sum(event.seconds for event in events)
            operations, byte_count = sum(event.operations for event in events), sum(event.bytes for event in events)
            rows.append(Row(*key, len(events), seconds, seconds / total, operations, byte_count))
        return tuple(sorted(rows, key=lambda row: -row.seconds))

    def table(self) -> str:
        """Return the rows as text: time in ms, share, calls, achieved GFLOP/s and GB/s, target, kernel, source nodes."""
        head = f"{'ms':>10}  {'share':>6}  {'calls':>5}  {'GFLOP/s':>8}  {'GB/s':>7}  {'target':<12}"
        lines = [f"{head}  kernel: source nodes"]
        for row in self.rows():
            more = f" and {len(row.nodes) - _SHOWN} more" if len(row.nodes) > _SHOWN else ""
            nodes = f": {', '.join(row.nodes[:_SHOWN])}{more}" if row.nodes else ""
            rates = f"{_rate(row.flops):>8}  {_rate(row.bandwidth):>7}"
            head = f"{row.seconds * 1e3:>10.3f}  {row.share:>6.1%}  {row.calls:>5}  {rates}  {row.target:<12}"
            lines.append(f"{head}  {row.name}{nodes}")
        lines.append(f"{self.seconds * 1e3:>10.3f}  {1:>6.1%}  whole run")
        return "\n".join(lines)

    def __str__(self) -> str:
        return self.table()

    def __repr__(self) -> str:
        longest = ", ".join(f"{row.name} {row.share:.0%}" for row in self.rows()[:3])
        return f"<Profile {self.seconds * 1e3:.3f} ms: {longest or 'nothing ran'}>"

    def _repr_html_(self) -> str:
        header = ("kernel", "ms", "share", "calls", "GFLOP/s", "GB/s", "target", "source nodes")
        rows = (
            (row.name, f"{row.seconds * 1e3:.3f}", row.share, row.calls, _rate(row.flops), _rate(row.bandwidth), row.target,
             ", ".join(row.nodes))
            for row in self.rows()
        )  # fmt: skip
        return markup.table(f"Profile: {self.seconds * 1e3:.3f} ms", header, rows, bar=2)

    def to_json(self) -> dict[str, object]:
        """Return the total seconds and the rows, as JSON values."""
        return {"seconds": self.seconds, "rows": [dataclasses.asdict(row) for row in self.rows()]}

    def chrome_trace(self) -> str:
        """Return the events in Chrome's trace event format (JSON), for chrome://tracing and Perfetto. Times are in microseconds,
        rates in GFLOP/s and GB/s. Kernels, copies and regions of a target have separate lanes."""
        lanes = {lane: number for number, lane in enumerate(dict.fromkeys(event.lane for event in self.events), 1)}
        events: list[dict[str, object]] = [
            {"name": "thread_name", "ph": "M", "pid": 1, "tid": number, "args": {"name": lane}} for lane, number in lanes.items()
        ]
        events += [
            {
                "name": event.name,
                "cat": event.kind,
                "ph": "X",
                "ts": _microseconds(event.start),
                "dur": _microseconds(event.start + event.seconds) - _microseconds(event.start),
                "pid": 1,
                "tid": lanes[event.lane],
                "args": {"nodes": list(event.nodes), **_rates(event)},
            }
            for event in self.events
        ]
        return json.dumps({"traceEvents": events, "displayTimeUnit": "ms"})

    def save_chrome_trace(self, path: str | Path) -> None:
        """Write `chrome_trace` to a file. Raises `OutputError`, and `InputError` for a path that is a folder or a device."""
        write_text(Path(path), self.chrome_trace())


def _microseconds(seconds: float) -> float:
    """Convert seconds to microseconds, rounded to a multiple of 2^-10, so that a start plus a duration is exactly the next start.
    Viewers nest events that overlap, even by a rounding error."""
    return round(seconds * 1e6 * 1024) / 1024


def _rate(rate: float) -> str:
    """Format a rate in units of 10^9 per second, "" if unknown."""
    return f"{rate / 1e9:.1f}" if rate else ""


def _rates(event: Event) -> dict[str, float]:
    """Return the known achieved rates of an event."""
    amounts = {"GFLOP/s": event.operations, "GB/s": event.bytes}
    return {name: round(amount / event.seconds / 1e9, 3) for name, amount in amounts.items() if amount and event.seconds}


@dataclass(slots=True)
class Recorder:
    """Collects the events of one run."""

    begin: float = field(default_factory=time.perf_counter)
    events: list[Event] = field(default_factory=list)

    def now(self) -> float:
        """Return the seconds since the start of the run."""
        return time.perf_counter() - self.begin

    def region(
        self, info: RegionInfo, artifact: Artifact, start: float, parts: Sequence[KernelTime], dims: Sequence[int] = ()
    ) -> None:
        """Record that a region, started at `start`, has ended. `parts` are the times of its kernels, `dims` the values of its
        dimensions. Raises `KernelFault` for an unknown kernel number."""
        self.events.append(Event(info.symbol, info.target, info.nodes, start, self.now() - start))
        kernels = artifact.kernels
        sizes: dict[arith.Expr, int] = {
            SizeVar(source.name): value for source, value in zip(artifact.signature.dims, dims, strict=False)
        }
        for part in parts:
            if not 0 <= part.kernel < len(kernels):
                raise KernelFault(f"region {info.symbol} must time kernels 0 to {len(kernels) - 1}, got {part.kernel}")
            kernel = kernels[part.kernel]
            operations, byte_count = evaluate_size(kernel.operations, sizes) or 0, evaluate_size(kernel.bytes, sizes) or 0
            begin = start + part.start
            self.events.append(
                Event(kernel.name, info.target, kernel.nodes, begin, part.seconds, info.symbol, "kernel", operations, byte_count)
            )

    def copy(self, name: str, target: str, start: float, size: int) -> None:
        """Record that a copy of `size` bytes to, from or on a target, started at `start`, has ended."""
        self.events.append(Event(name, target, (), start, self.now() - start, kind="copy", bytes=size))

    def finish(self) -> Profile:
        """End the run and return its profile."""
        return Profile(tuple(self.events), self.now())
