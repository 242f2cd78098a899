"""Trace, roofline, page and sweep of timed streams."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from html.parser import HTMLParser

import pytest

from inlaid_runtime.errors import Unsupported
from inlaid_vta_fpga.isa.config import PAGE_BYTES, Config, Memory
from inlaid_vta_fpga.isa.instructions import Alu, AluOp, Finish, Flags, Gemm, Instruction, Load, Store
from inlaid_vta_fpga.simulators.page import timeline_page
from inlaid_vta_fpga.simulators.roofline import Achieved, Limits, picture
from inlaid_vta_fpga.simulators.sweep import Resources, configurations, sweep, table
from inlaid_vta_fpga.simulators.timed import Timed
from inlaid_vta_fpga.simulators.timing import Timeline, Timing
from inlaid_vta_fpga.simulators.trace import chrome_trace

from .image import serial


def _layer(tiles: int, block: int = 16) -> list[Instruction]:
    """Tiles of loads, a product, an ALU step and a store; operands in two halves. Work shrinks with the square of the block."""
    stream: list[Instruction] = []
    for tile in range(tiles):
        base, pop, last = 64 * (tile % 2), tile >= 2, tile >= tiles - 2
        stream.append(Load(Memory.INP, base, PAGE_BYTES // 8, 4, 8, 16, 1, 0, 0, 0, Flags(pop_next=pop)))
        stream.append(Load(Memory.WGT, base, PAGE_BYTES // 8, 1, 9, 9, flags=Flags(push_next=True)))
        stream.append(Gemm(0, 9, 4, 8 * (256 // block**2 or 1), flags=Flags(pop_prev=True, pop_next=pop, push_prev=not last)))
        stream.append(Alu(AluOp.SHR, 0, 9, 1, 8, imm=4, flags=Flags(push_next=True)))
        stream.append(Store(base, PAGE_BYTES // 8, 2, 8, 16, Flags(pop_prev=True, push_prev=True)))
    return [*stream, *[Load(Memory.UOP, flags=Flags(pop_next=True))] * min(2, tiles)]


def _timed(instructions: Sequence[Instruction]) -> tuple[Timeline, list[Instruction]]:
    stream = [*instructions, Finish()]
    return Timed().time(stream, PAGE_BYTES), stream


def test_a_chrome_trace_has_a_lane_for_each_module() -> None:
    """Names are source operators where given; times are microseconds at 100 MHz."""
    timeline, stream = _timed(_layer(3))
    events = json.loads(chrome_trace(timeline, stream, Timing(), ["conv1"] * 5))["traceEvents"]
    lanes = {event["tid"]: event["args"]["name"] for event in events if event["ph"] == "M"}
    assert sorted(lanes.values()) == ["compute", "fetch", "load", "store"]
    spans = {event["args"]["number"]: event for event in events if "number" in event["args"]}
    assert len(spans) == len(stream)
    assert [spans[number]["name"] for number in (0, 4, 5, 7)] == ["conv1", "conv1", "LOAD INP", "GEMM"]
    assert lanes[spans[4]["tid"]] == "store"
    assert spans[2]["dur"] == pytest.approx((9 * 4 * 8 + 8) / 100)
    assert spans[3]["args"] == {"number": 3, "kind": "ALU SHR", "cycles": 72 + 8, "port": 0}


def test_no_run_is_above_the_roof() -> None:
    """Rates and intensities of runs, in GEMM operations of both kinds."""
    config, timing = Config(), Timing()
    limits = Limits.derive(config, timing)
    assert (limits.peak, limits.bandwidth) == (51.2e9, 0.8e9)
    assert limits.allowed(32) == 25.6e9
    timeline, _ = _timed(_layer(8))
    achieved = Achieved.measure("tokens", "layer", timeline, config, timing)
    moved = 8 * (32 * 16 + 9 * 256 + 16 * 16)
    assert achieved.intensity == 512 * timeline.gemm_uops / moved
    assert achieved.rate == pytest.approx(timeline.utilization * limits.peak)
    assert achieved.rate < limits.allowed(achieved.intensity)


class _Tags(HTMLParser):
    """Checks that tags of SVG are balanced, and collects attributes."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.sources: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.sources += [value or "" for name, value in attrs if name in ("src", "href")]
        if tag in ("svg", "table", "title", "text"):
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        if tag in ("svg", "table", "title", "text"):
            assert self.open.pop() == tag


def test_the_page_needs_nothing_but_a_browser() -> None:
    """No external resource, balanced tags, escaped names, all coordinates in the pictures."""
    plain, stream = _timed(_layer(6))
    slow, _ = _timed(serial(_layer(6)))
    runs = {"serialized": {"C<2>": slow}, "tokens": {"C<2>": plain}}
    page = timeline_page(runs, "a & b", plain, stream, Config(), sources=["conv<1>"] * 10)
    parser = _Tags()
    parser.feed(page)
    assert not parser.open
    assert not parser.sources
    assert "http" not in page
    assert "a &amp; b" in page
    assert "conv&lt;1&gt;" in page
    assert len(re.findall(r"<circle[^>]*><title>", page)) == 2
    assert all(0 <= float(x) <= 860 for x in re.findall(r'<(?:rect|circle)[^>]* c?x="([^"]*)"', page))
    assert f"{plain.cycles:,}" in page


def test_an_empty_stream_has_a_page() -> None:
    """FINISH alone: no point under the roof, no bytes."""
    timeline, stream = _timed([])
    page = timeline_page({"run": {"nothing": timeline}}, "nothing", timeline, stream, Config())
    assert "</html>" in page
    assert picture({}, Config(), Timing(), 10, 10)["points"] == []


def test_resources_follow_the_stated_formula() -> None:
    """The default: 256 multipliers, 488 KiB of buffers, three command queues and the buffer of fetch."""
    resources = Resources.estimate(Config(), Timing())
    assert (resources.multipliers, resources.alu_lanes) == (256, 16)
    buffers = 8 * (2**15 + 2**15 + 2**18 + 2**17 + 2**15)
    assert resources.memory_bits == buffers + (3 * 512 + 128) * 128
    # UOP 1024 x 36; INP, OUT and ACC 2048 x 18; WGT 1024 x 36; queues and fetch 512 x 72.
    assert resources.block_rams == 8 + 8 + 57 + 29 + 8 + 6 + 2


def test_a_sweep_tabulates_cycles_against_resources() -> None:
    """Illegal configurations are left out, unsupported ones have a reason, dominated ones no star."""
    configs = list(configurations(log_block=(2, 4, 5), log_wgt_buff=(14, 18), bus_bytes=(8, 16)))
    assert all(config.log_block != 2 for config in configs), "its indices do not fit into a micro-op"
    assert len(configs) == 8

    def stream_for(config: Config) -> list[Instruction]:
        if config.depth(Memory.WGT) < 73:
            raise Unsupported(f"expected 73 elements of WGT, found {config.depth(Memory.WGT)}")
        return [*_layer(6, config.block), Finish()]

    points = sweep(stream_for, configs)
    assert [point.timeline is not None for point in points] == [False, False, True, True, False, False, True, True]
    cycles = {(point.config.log_block, point.config.bus_bytes): point.timeline.cycles for point in points if point.timeline}
    assert cycles[4, 16] < cycles[4, 8]
    efficient = {point.config for point in points if point.efficient}
    assert all(point.timeline for point in points if point.efficient)
    assert efficient
    lines = table(points).splitlines()
    assert len(lines) == 1 + len(points)
    assert "expected 73 elements of WGT, found 64" in lines[-1] or "found 16" in lines[-1]
    assert lines[1].startswith("*"), "the fastest of all is efficient"
