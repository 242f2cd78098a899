"""Constants of the clock model, and what a timed run reports.

Rates and latencies are those of the Chisel core and its memory model (apache/tvm-vta, hardware/chisel, 2022-01); constants that it
leaves open are those of the RTL core of this package.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from inlaid_vta_fpga.isa.instructions import Module
from inlaid_vta_fpga.simulators.device import Report


@dataclass(frozen=True)
class Timing:
    """Constants of the clock model: cycles where no other unit is given."""

    hertz: float = 100e6
    """Clock rate; that of pynq."""
    launch: int = 1
    """From the launch to the first request of fetch."""
    start: int = 1
    """A module accepts an instruction."""
    done: int = 1
    """A module pushes an instruction's tokens."""
    pipeline: int = 6
    """Fill and drain of the GEMM and ALU pipelines: N micro-ops take N + 8 cycles in all."""
    gemm: int = 1
    """A micro-op of GEMM, reset included."""
    alu_immediate: int = 1
    alu_tensor: int = 2
    request: int = 1
    """A module's first read command on its way to DRAM."""
    latency: int = 16
    """The first burst after an idle cycle of the read port."""
    response: int = 2
    """A beat on its way from DRAM to its client."""
    written: int = 1
    """From the last write to SRAM to the module's notice."""
    outstanding: int = 16
    """Bursts that the read port has accepted at most."""
    store_burst: int = 5
    """Plan, address and response of a written burst."""
    store_read: int = 1
    """Read of OUT for each stored element, beside its beats."""
    batch: int = 128
    """Instructions that fetch reads before it dispatches them, one per cycle."""
    queue: int = 2
    """From dispatch to the head of an empty command queue."""
    commands: int = 512
    """Instructions that a command queue holds."""
    tokens: int = 255
    """Tokens that a token queue holds."""


BUSY, PORT, INSTRUCTIONS, FINISHED = "busy", "memory port", "instructions", "finished"
"""What a module does in a cycle, beside the names of `TokenQueue`: it works, or waits for DRAM, for an instruction, for the end."""


@dataclass(frozen=True, slots=True)
class Span:
    """Cycles [start, end) of instruction `number`. `port`: cycles in which it waited for DRAM."""

    number: int
    module: Module
    start: int
    end: int
    port: int = 0


@dataclass(frozen=True)
class Timeline(Report):
    """A report with its clock.

    spans: of each instruction, in order of completion. fetches: (start of the read, end of dispatch, instructions) of each batch.
    activity: cycles of each module by what it does: BUSY, PORT, INSTRUCTIONS, FINISHED, or the token queue that it waits for; they
    sum to `cycles`. fetched: bytes of instructions. read_beats: beats of the read channel.
    """

    spans: Sequence[Span] = ()
    fetches: Sequence[tuple[int, int, int]] = ()
    activity: Mapping[Module, Mapping[str, int]] = field(default_factory=dict)
    fetched: int = 0
    read_beats: int = 0

    @property
    def utilisation(self) -> float:
        """GEMM micro-ops in a cycle: 1 is the peak."""
        return self.gemm_uops / self.cycles if self.cycles else 0.0

    def to_text(self) -> str:
        """Cycles, utilisation, bytes and stalls as a table."""
        read = ", ".join(f"{memory.name} {size:,}" for memory, size in sorted(self.loaded.items()))
        lines = [
            f"{self.cycles:,} cycles, {100 * self.utilisation:.1f} % of GEMM's peak",
            f"micro-ops: GEMM {self.gemm_uops:,}, reset {self.reset_uops:,}, ALU {self.alu_uops:,}",
            f"bytes: instructions {self.fetched:,}, {read}, stored {self.stored:,}",
        ]
        for module, causes in self.activity.items():
            shares = ", ".join(f"{cause} {100 * count / max(1, self.cycles or 0):.1f} %" for cause, count in causes.items())
            lines.append(f"{module.name.lower():<8}{shares}")
        return "\n".join(lines)
