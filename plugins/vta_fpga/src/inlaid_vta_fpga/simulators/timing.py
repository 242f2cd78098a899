"""Constants of the clock model, and the report of a timed run.

Rates and latencies are taken from the Chisel core and its memory model (apache/tvm-vta, hardware/chisel, 2022-01). Constants that
the Chisel core does not define are taken from the RTL core of this package.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from inlaid_vta_fpga.isa.instructions import Module
from inlaid_vta_fpga.simulators.device import Report


@dataclass(frozen=True)
class Timing:
    """Constants of the clock model, in cycles unless stated otherwise."""

    hertz: float = 100e6
    """Clock rate in Hz. The default is the clock rate of the board pynq."""
    launch: int = 1
    """Time from the launch to the first request of fetch."""
    start: int = 1
    """Time for a module to accept an instruction."""
    completion: int = 1
    """Time for a module to push an instruction's tokens."""
    pipeline: int = 6
    """Time to fill and drain the GEMM and ALU pipelines. With `start` and `completion`, N micro-ops take N + 8 cycles."""
    gemm: int = 1
    """Time of a GEMM micro-op, with or without `reset`."""
    alu_immediate: int = 1
    alu_tensor: int = 2
    request: int = 1
    """Delay of a module's first read command to DRAM."""
    latency: int = 16
    """Latency of the first burst after an idle cycle of the read port."""
    response: int = 2
    """Delay of a beat from DRAM to its client."""
    written: int = 1
    """Time from the last write to SRAM until the module detects the completion."""
    outstanding: int = 16
    """Maximum number of bursts in flight at the read port."""
    store_burst: int = 5
    """Time for planning, address and response of a written burst."""
    store_read: int = 1
    """Time to read OUT per stored element, in addition to the beats of the element."""
    batch: int = 128
    """Number of instructions that fetch reads at once. It then dispatches one per cycle."""
    queue: int = 2
    """Time from the dispatch of an instruction until it is at the head of an empty command queue."""
    commands: int = 512
    """Capacity of a command queue in instructions."""
    tokens: int = 255
    """Capacity of a token queue in tokens."""


BUSY, PORT, INSTRUCTIONS, FINISHED = "busy", "memory port", "instructions", "finished"
"""Activities of a module: BUSY: it works. PORT: it waits for DRAM. INSTRUCTIONS: it waits for an instruction. FINISHED: it has no
more instructions. Other activities are the token queues that it waits for."""


@dataclass(frozen=True, slots=True)
class Span:
    """Execution of instruction `number` in cycles [start, end). `port`: cycles spent waiting for DRAM."""

    number: int
    module: Module
    start: int
    end: int
    port: int = 0


@dataclass(frozen=True)
class Timeline(Report):
    """A report with a clock.

    spans: execution of each instruction, in order of completion. fetches: (start of the read, end of dispatch, instructions) of
    each batch. activity: cycles of each module by activity (BUSY, PORT, INSTRUCTIONS, FINISHED, or the token queue that the module
    waits for). For each module, they sum to `cycles`. fetched: bytes of instructions. read_beats: beats of the read channel.
    """

    spans: Sequence[Span] = ()
    fetches: Sequence[tuple[int, int, int]] = ()
    activity: Mapping[Module, Mapping[str, int]] = field(default_factory=dict)
    fetched: int = 0
    read_beats: int = 0

    @property
    def utilization(self) -> float:
        """GEMM micro-ops per cycle; the peak is 1."""
        return self.gemm_uops / self.cycles if self.cycles else 0.0

    def to_text(self) -> str:
        """Format cycles, utilization, bytes and stalls as text."""
        read = ", ".join(f"{memory.name} {size:,}" for memory, size in sorted(self.loaded.items()))
        lines = [
            f"{self.cycles:,} cycles, {100 * self.utilization:.1f} % of GEMM's peak",
            f"micro-ops: GEMM {self.gemm_uops:,}, reset {self.reset_uops:,}, ALU {self.alu_uops:,}",
            f"bytes: instructions {self.fetched:,}, {read}, stored {self.stored:,}",
        ]
        for module, causes in self.activity.items():
            shares = ", ".join(f"{cause} {100 * count / max(1, self.cycles or 0):.1f} %" for cause, count in causes.items())
            lines.append(f"{module.name.lower():<8}{shares}")
        return "\n".join(lines)
