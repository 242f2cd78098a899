"""Sweep over hardware configurations, which compares cycles of a workload with FPGA resources."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, fields, replace
from itertools import product
from math import prod

from inlaid_runtime.errors import InlaidError, TargetError
from inlaid_vta_fpga.isa.config import INSTRUCTION_BYTES, PAGE_BYTES, Config, Memory
from inlaid_vta_fpga.isa.instructions import Instruction
from inlaid_vta_fpga.simulators.timed import Timed
from inlaid_vta_fpga.simulators.timing import Timeline, Timing

BLOCK_RAM = tuple((32768 >> log, width) for log, width in enumerate((1, 2, 4, 9, 18, 36, 72)))
"""Aspect ratios (depth, width) of a Xilinx 7-series RAMB36E1, simple dual port (UG473)."""


@dataclass(frozen=True)
class Resources:
    """Estimated FPGA resources of a configuration.

    multipliers: int8 multipliers, batch * block^2; each is one DSP48E1 or about 70 LUTs. alu_lanes: int32 lanes, batch * block.
    memory_bits: size of the buffers UOP, INP, WGT, ACC and OUT, of three command queues, and of a batch of fetched instructions.
    block_rams: number of RAMB36E1 for these memories. Each memory consists of the fewest blocks of one aspect ratio and has one
    port as wide as an element.
    """

    multipliers: int
    alu_lanes: int
    memory_bits: int
    block_rams: int

    @staticmethod
    def estimate(config: Config, timing: Timing) -> Resources:
        """Estimate the resources of a configuration."""
        word = 8 * INSTRUCTION_BYTES
        memories = [(timing.commands, word)] * 3 + [(timing.batch, word)]
        for memory in (Memory.UOP, Memory.INP, Memory.WGT, Memory.ACC, Memory.OUT):
            memories.append((config.depth(memory), 8 * config.element_bytes(memory)))
        lanes = config.batch * config.block
        return Resources(lanes * config.block, lanes, sum(map(prod, memories)), sum(_blocks(*memory) for memory in memories))


def _blocks(depth: int, width: int) -> int:
    return min(-(-depth // rows) * -(-width // columns) for rows, columns in BLOCK_RAM)


@dataclass(frozen=True)
class Point:
    """A configuration of the sweep.

    timeline: timed run of the workload; None if it cannot run. reason: why it cannot run. efficient: no other point dominates this
    point in cycles, multipliers, block RAMs and bus bytes.
    """

    config: Config
    resources: Resources
    timeline: Timeline | None
    reason: str = ""
    efficient: bool = False

    def _costs(self) -> tuple[int, ...]:
        cycles = self.timeline.cycles if self.timeline else None
        return (cycles or 0, self.resources.multipliers, self.resources.block_rams, self.config.bus_bytes)

    def dominates(self, other: Point) -> bool:
        """Test whether this point is at least as good as `other` in all costs and better in at least one cost."""
        costs = list(zip(self._costs(), other._costs(), strict=True))
        return all(cost <= other_cost for cost, other_cost in costs) and any(cost < other_cost for cost, other_cost in costs)


def configurations(base: Config | None = None, **choices: Sequence[int]) -> Iterator[Config]:
    """Yield all legal combinations of the values in `choices`. Fields that are not in `choices` have the values in `base`.

    Example: `configurations(log_block=(3, 4, 5), log_wgt_buff=(14, 16, 18), bus_bytes=(8, 16))`. Skips illegal combinations.
    """
    base_values = {field.name: getattr(base or Config(), field.name) for field in fields(Config)}
    for values in product(*choices.values()):
        try:
            yield Config(**base_values | dict(zip(choices, values, strict=True)))
        except TargetError:
            continue


def sweep(
    stream_for: Callable[[Config], Sequence[Instruction]], configs: Iterable[Config], timing: Timing | None = None
) -> list[Point]:
    """Time a workload on each configuration. `stream_for(config)` compiles the workload to a legal stream that ends with FINISH. It
    raises an `InlaidError`, such as `Unsupported`, for a configuration that does not fit the workload."""
    timing = timing or Timing()
    points = []
    for config in configs:
        resources = Resources.estimate(config, timing)
        try:
            timeline = Timed(config, timing).time(stream_for(config), PAGE_BYTES)
        except InlaidError as error:
            points.append(Point(config, resources, None, str(error)))
        else:
            points.append(Point(config, resources, timeline))
    feasible = [point for point in points if point.timeline]
    efficient = [point for point in feasible if not any(other.dominates(point) for other in feasible)]
    return [replace(point, efficient=point in efficient) for point in points]


def table(points: Sequence[Point]) -> str:
    """Format the sweep as a text table, fastest first; `*` marks efficient points."""
    head = (
        f"{'':1} {'block':>6} {'UOP':>4} {'INP':>4} {'WGT':>4} {'ACC':>4} {'bus':>4} {'multipliers':>11} {'Mbit':>6} {'BRAM36':>6}"
    )
    lines = [f"{head} {'cycles':>12} {'GEMM':>6}   buffers in KiB, bus in bytes"]
    for point in sorted(points, key=lambda point: (point.timeline is None, point._costs())):
        config, resources = point.config, point.resources
        sizes = (config.log_uop_buff, config.log_inp_buff, config.log_wgt_buff, config.log_acc_buff)
        buffers = " ".join(f"{2**log / 1024:>4g}" for log in sizes)
        shape = f"{config.batch}x{config.block}"
        start = f"{'*' if point.efficient else ' '} {shape:>6} {buffers} {config.bus_bytes:>4} {resources.multipliers:>11}"
        start += f" {resources.memory_bits / 2**20:>6.2f} {resources.block_rams:>6}"
        measurement = f"{point.timeline.cycles:>12,} {100 * point.timeline.utilization:>5.1f}%" if point.timeline else point.reason
        lines.append(f"{start} {measurement}")
    return "\n".join(lines)
