"""Where a run spent its time, per region, kernel and source node."""

from __future__ import annotations

import dataclasses
import json
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from inlaid import arith, markup
from inlaid.arith import SizeVar
from inlaid.artifact import Artifact
from inlaid.artifact.plan import RegionInfo
from inlaid.errors import KernelFault
from inlaid.plugins.runtime_module import KernelTime
from inlaid.runtime.sizes import known

_SHOWN = 8
"""How many source nodes of a kernel or region a line of the table names."""


@dataclass(frozen=True)
class Event:
    """One region, one kernel of a region, or one copy, that ran. `start` counts in seconds from the start of the run; `nodes` are
    the source nodes that it computes; `part_of` is the region of a kernel, "" for others. `operations` counts its arithmetic, a
    multiply-add as two, `bytes` those of operands and results, or those copied; 0 where not known."""

    name: str
    target: str
    nodes: tuple[str, ...]
    start: float
    seconds: float
    part_of: str = ""
    kind: Literal["region", "kernel", "copy"] = "region"
    operations: int = 0
    bytes: int = 0

    @property
    def lane(self) -> str:
        """The lane of a trace in which the event is drawn: kernels and copies of a device run beside its regions."""
        return {"region": self.target, "kernel": f"{self.target} kernels", "copy": f"{self.target} copies"}[self.kind]


@dataclass(frozen=True)
class Row:
    """One line of a profile: all runs of one kernel or copy, or of one region that does not time its kernels. `share` is the part
    of the whole run, 0 to 1; `operations` and `bytes` are those of all calls, as of `Event`."""

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
        """Achieved arithmetic operations a second."""
        return self.operations / self.seconds if self.seconds else 0.0

    @property
    def bandwidth(self) -> float:
        """Achieved bytes a second."""
        return self.bytes / self.seconds if self.seconds else 0.0


@dataclass(frozen=True, repr=False)
class Profile:
    """What one run did. `seconds` is its whole time, that of the executor included."""

    events: tuple[Event, ...]
    seconds: float

    def rows(self) -> tuple[Row, ...]:
        """Time by kernel (or region where the target does not time kernels) with its source nodes, and by copy, the longest
        first."""
        timed = {event.part_of for event in self.events if event.part_of}
        groups: dict[tuple[tuple[str, ...], str, str], list[Event]] = {}
        for event in self.events:
            if event.part_of or event.name not in timed:
                groups.setdefault((event.nodes, event.name, event.target), []).append(event)
        whole = self.seconds or 1.0
        rows = []
        for key, events in groups.items():
            seconds = sum(event.seconds for event in events)
            work, moved = sum(event.operations for event in events), sum(event.bytes for event in events)
            rows.append(Row(*key, len(events), seconds, seconds / whole, work, moved))
        return tuple(sorted(rows, key=lambda row: -row.seconds))

    def table(self) -> str:
        """The rows as text: time in milliseconds, share, calls, achieved GFLOP/s and GB/s, target, kernel, source nodes."""
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
        """The seconds of the whole run and the rows, of values that JSON has."""
        return {"seconds": self.seconds, "rows": [dataclasses.asdict(row) for row in self.rows()]}

    def chrome_trace(self) -> str:
        """The events as JSON in Chrome's trace event format, for chrome://tracing and Perfetto. Times are microseconds, rates
        GFLOP/s and GB/s. The kernels, copies and regions of a target are lanes of their own."""
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
        """Write `chrome_trace` to a file."""
        Path(path).write_text(self.chrome_trace(), encoding="utf-8")


def _microseconds(seconds: float) -> float:
    """Seconds in microseconds, rounded to a multiple of 2^-10: then a start plus a duration is exactly the next start. Viewers nest
    events that overlap, even by a rounding error."""
    return round(seconds * 1e6 * 1024) / 1024


def _rate(of: float) -> str:
    """A rate in units of 10^9 a second, nothing where it is not known."""
    return f"{of / 1e9:.1f}" if of else ""


def _rates(event: Event) -> dict[str, float]:
    """The achieved rates of an event, those that are known."""
    found = {"GFLOP/s": event.operations, "GB/s": event.bytes}
    return {name: round(amount / event.seconds / 1e9, 3) for name, amount in found.items() if amount and event.seconds}


@dataclass(slots=True)
class Recorder:
    """Collects the events of one run."""

    begin: float = field(default_factory=time.perf_counter)
    events: list[Event] = field(default_factory=list)

    def now(self) -> float:
        """Seconds since the start of the run."""
        return time.perf_counter() - self.begin

    def region(
        self, info: RegionInfo, artifact: Artifact, start: float, parts: Sequence[KernelTime], dims: Sequence[int] = ()
    ) -> None:
        """Note that a region which started at `start` has ended, and what those of its kernels took that were timed. `dims` are
        the values of its dimensions. Raises `KernelFault` for the time of a kernel that it does not have."""
        self.events.append(Event(info.symbol, info.target, info.nodes, start, self.now() - start))
        kernels = artifact.kernels
        sizes: dict[arith.Expr, int] = {
            SizeVar(source.name): value for source, value in zip(artifact.signature.dims, dims, strict=False)
        }
        for part in parts:
            if not 0 <= part.kernel < len(kernels):
                raise KernelFault(f"region {info.symbol} timed kernel {part.kernel}, and has {len(kernels)}")
            kernel = kernels[part.kernel]
            work, moved = known(kernel.operations, sizes) or 0, known(kernel.bytes, sizes) or 0
            begin = start + part.start
            self.events.append(
                Event(kernel.name, info.target, kernel.nodes, begin, part.seconds, info.symbol, "kernel", work, moved)
            )

    def copy(self, name: str, target: str, start: float, size: int) -> None:
        """Note that a copy of so many bytes to, from or on a target, which started at `start`, has ended."""
        self.events.append(Event(name, target, (), start, self.now() - start, kind="copy", bytes=size))

    def finish(self) -> Profile:
        """The profile of the run, which ends now."""
        return Profile(tuple(self.events), self.now())
