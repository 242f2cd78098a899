"""HTML page with the roofline of several runs and the timeline of one run."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from importlib.resources import files
from math import ceil, log10

from inlaid_vta_fpga.isa.config import Config
from inlaid_vta_fpga.isa.instructions import Instruction
from inlaid_vta_fpga.simulators import roofline
from inlaid_vta_fpga.simulators.commands import TokenQueue
from inlaid_vta_fpga.simulators.timing import BUSY, FINISHED, INSTRUCTIONS, PORT, Timeline, Timing
from inlaid_vta_fpga.simulators.trace import FETCH, NO_OP, RESET, kind

WIDTH, HEIGHT = 860, 420
"""Size of a picture in pixels. The height is that of the roofline plot."""
COLUMN = 4
"""Width in pixels of a column in the overview of the whole run."""
PITCH = 46
"""Distance between lanes in pixels."""
SHOWN = 60
"""Number of compute instructions in the detailed view."""
ALU = "ALU"
COLORS = {
    "GEMM": "#2e9e6b",
    RESET: "#9fd3b9",
    ALU: "#e0801f",
    "LOAD INP": "#2f7ed8",
    "LOAD WGT": "#8a5fd0",
    "LOAD UOP": "#1f9ea8",
    "LOAD ACC": "#7fb2ea",
    "STORE": "#c9463d",
    NO_OP: "#b9a27f",
    FETCH: "#8a93a0",
    BUSY: "#4a7f5f",
    PORT: "#d8a13a",
    INSTRUCTIONS: "#8a93a0",
    FINISHED: "#d5dbe1",
    TokenQueue.L2G.value: "#6fa8e6",
    TokenQueue.G2L.value: "#7fbf9d",
    TokenQueue.G2S.value: "#b5d56a",
    TokenQueue.S2G.value: "#e08a84",
}


@dataclass(frozen=True)
class _Piece:
    """An interval of a lane: cycles [start, end) of an instruction or of a fetched batch."""

    lane: str
    kind: str
    start: int
    end: int
    label: str


def timeline_page(
    runs: Mapping[str, Mapping[str, Timeline]],
    title: str,
    timeline: Timeline,
    instructions: Sequence[Instruction],
    config: Config,
    timing: Timing | None = None,
    sources: Sequence[str] = (),
) -> str:
    """Render the page as HTML without external resources.

    runs: timelines by series and name, such as layers without and with latency hiding. Each run is a point in the roofline plot.
    timeline, instructions: the run that the page draws over time. sources[number]: source operator of an instruction. All runs have
    the same configuration.
    """
    from jinja2 import Environment

    timing = timing or Timing()
    cycles = max(1, timeline.cycles or 0)
    pieces = list(_pieces(timeline, instructions, sources))
    window = _window(timeline)
    names = [*(module.name.lower() for module in timeline.activity), FETCH]
    kind_set = {piece.kind for piece in pieces}
    causes = {cause for activity in timeline.activity.values() for cause in activity}
    template = Environment(autoescape=True).from_string(
        files("inlaid_vta_fpga.simulators").joinpath("templates/page.html.jinja").read_text(encoding="utf-8")
    )
    return template.render(
        title=title,
        width=WIDTH,
        pitch=PITCH,
        colors=list(COLORS.values()),
        number={name: number for number, name in enumerate(COLORS)},
        facts=_facts(timeline, config, timing),
        bars=_bars(timeline, cycles),
        causes=[name for name in COLORS if name in causes],
        kinds=[name for name in COLORS if name in kind_set],
        lanes=[
            {"name": name, "row": row, "paths": _columns(pieces, name, row, cycles), "boxes": _boxes(pieces, name, window)}
            for row, name in enumerate(names)
        ],
        ticks=_ticks(0, cycles),
        roofline=roofline.picture(runs, config, timing, WIDTH, HEIGHT),
        window=[f"{cycle:,}" for cycle in window],
        window_ticks=_ticks(*window),
    )


def _pieces(timeline: Timeline, instructions: Sequence[Instruction], sources: Sequence[str]) -> Iterable[_Piece]:
    for span in timeline.spans:
        exact = kind(instructions[span.number])
        coarse = {"ALU": ALU, "FINISH": NO_OP}.get(exact.split()[0], exact.replace("ACC_8BIT", "ACC"))
        source = f", {sources[span.number]}" if span.number < len(sources) and sources[span.number] else ""
        label = f"{span.number}: {exact}{source}, {span.start:,} to {span.end:,} ({span.end - span.start:,} cycles)"
        yield _Piece(span.module.name.lower(), coarse, span.start, span.end, label)
    for start, end, count in timeline.fetches:
        yield _Piece(FETCH, FETCH, start, end, f"{count} instructions, {start:,} to {end:,}")


def _facts(timeline: Timeline, config: Config, timing: Timing) -> list[tuple[str, str, str]]:
    """Return the summary table as rows of (name, value, meaning)."""
    cycles = timeline.cycles or 0
    loaded = ", ".join(f"{memory.name} {size:,}" for memory, size in sorted(timeline.loaded.items()))
    port = timeline.read_beats / max(1, cycles)
    return [
        ("cycles", f"{cycles:,}", f"{1e3 * cycles / timing.hertz:.3f} ms at {timing.hertz / 1e6:g} MHz"),
        ("GEMM utilization", f"{100 * timeline.utilization:.1f} %", f"{timeline.gemm_uops:,} micro-ops, one per cycle at the peak"),
        ("ALU and reset", f"{timeline.alu_uops + timeline.reset_uops:,}", "micro-ops during which GEMM is idle"),
        ("read port", f"{100 * port:.1f} %", f"{timeline.read_beats:,} beats of {config.bus_bytes} bytes"),
        ("bytes loaded", f"{sum(timeline.loaded.values()):,}", loaded),
        ("bytes stored", f"{timeline.stored:,}", f"and {timeline.fetched:,} bytes of instructions fetched"),
    ]


def _bars(timeline: Timeline, cycles: int) -> list[dict[str, object]]:
    """Return one stacked bar per module. The parts of a bar are in the order of `COLORS`."""
    bars: list[dict[str, object]] = []
    for row, (module, activity) in enumerate(timeline.activity.items()):
        parts, x = [], 0.0
        for name in COLORS:
            share = activity.get(name, 0) / cycles
            if share:
                parts.append({"name": name, "x": round(x, 2), "width": round(WIDTH * share, 2), "label": f"{100 * share:.1f} %"})
                x += WIDTH * share
        bars.append({"name": module.name.lower(), "row": row, "parts": parts})
    return bars


def _columns(pieces: Iterable[_Piece], lane: str, row: int, cycles: int) -> list[tuple[str, str]]:
    """Return one SVG path per kind of instruction. A path draws stacked columns; their heights are shares of the column's
    cycles."""
    number = WIDTH // COLUMN
    scale = number / cycles
    shares: dict[str, list[float]] = defaultdict(lambda: [0.0] * number)
    for piece in pieces:
        if piece.lane != lane:
            continue
        start, end = piece.start * scale, min(piece.end * scale, number)
        for column in range(int(start), min(ceil(end), number)):
            shares[piece.kind][column] += min(end, column + 1) - max(start, column)
    floor = row * PITCH + PITCH - 6
    below = [0.0] * number
    svg_paths = []
    for name in COLORS:
        steps = []
        for column, share in enumerate(shares.get(name, ())):
            height = share * (PITCH - 10)
            if height > 0.05:
                y = floor - below[column] - height
                steps.append(f"M{column * COLUMN} {y:.1f}h{COLUMN}v{height:.1f}h-{COLUMN}z")
                below[column] += height
        if steps:
            svg_paths.append((name, "".join(steps)))
    return svg_paths


def _window(timeline: Timeline) -> tuple[int, int]:
    """Return a range of cycles around the middle of the run. Compute executes `SHOWN` instructions in this range."""
    spans = [span for span in timeline.spans if span.module.name == "COMPUTE"]
    first = max(0, (len(spans) - SHOWN) // 2)
    shown = spans[first : first + SHOWN]
    return (shown[0].start, shown[-1].end) if shown else (0, 1)


def _boxes(pieces: Iterable[_Piece], lane: str, window: tuple[int, int]) -> list[dict[str, object]]:
    start, end = window
    scale = WIDTH / max(1, end - start)
    boxes: list[dict[str, object]] = []
    for piece in pieces:
        if piece.lane == lane and piece.start < end and piece.end > start:
            left, right = max(piece.start, start), min(piece.end, end)
            width = max(0.6, (right - left) * scale - 0.4)
            boxes.append(
                {"kind": piece.kind, "x": round((left - start) * scale, 2), "width": round(width, 2), "label": piece.label}
            )
    return boxes


def _ticks(start: int, end: int) -> list[tuple[float, str]]:
    """Return four to ten axis ticks at round cycles from start to end, as (pixel, label)."""
    step = 10 ** int(log10(max(1, end - start)))
    step = next((size for size in (step, step // 2, step // 5) if size and (end - start) / size >= 4), max(1, step // 10))
    return [
        (round(WIDTH * (cycle - start) / max(1, end - start), 1), f"{cycle:,}")
        for cycle in range(-(-start // step) * step, end + 1, step)
    ]
