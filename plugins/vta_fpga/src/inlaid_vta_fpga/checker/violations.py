"""Rules of legal VTA streams, and their violations.

Source: what the hardware of apache/tvm-vta (2022-01, HLS and Chisel) leaves undefined, and its simulators.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum


class Rule(StrEnum):
    """The rules: each with what a legal stream fulfils."""

    FIELDS = "fields"  # Every value fits its field of the encoding
    FLAGS = "flags"  # LOAD has no previous module, STORE no next one
    FINISH = "finish"  # FINISH is the last instruction, and occurs once
    LOOP_COUNT = "loop-count"  # Loops, micro-op ranges and transfers are not empty: hardware counters compare with n - 1
    PORTABLE = "portable"  # No padding of WGT and UOP, one row of UOP; ACC_8BIT and MUL only where the device has them
    SHIFT = "shift-range"  # Immediates of SHR are -16 to 15: hardware takes 5 bits
    SRAM_RANGE = "sram-range"  # Every index is below the depth of its buffer
    DRAM_RANGE = "dram-range"  # Transfers stay within DRAM and off page 0. Addresses count elements, so all are aligned
    TOKEN_BALANCE = "token-balance"  # Each token queue has as many pushes as pops
    TOKEN_OVERFLOW = "token-overflow"  # A queue holds at most 255 tokens in every timing: its counter saturates
    DEADLOCK = "deadlock"  # Every instruction runs, with command queues of 512 filled in program order
    BEFORE_FINISH = "before-finish"  # Tokens order every instruction before FINISH
    RACE = "race"  # Tokens order two accesses to one element, of which one is a write
    INITIALISED = "initialised-read"  # Elements are written before they are read
    OUT_BUFFER = "out-buffer"  # STORE reads what GEMM or ALU wrote last: LOAD ACC does not reach OUT, a reset writes no zeros there
    DISTANCE = "accumulator-distance"  # A written accumulator is accessed 3 micro-ops later or more, within one instruction
    CONSTANT_UOPS = "constant-micro-ops"  # No STORE overwrites micro-ops that are loaded later: the checker must know them


@dataclass(frozen=True)
class Violation:
    """Instruction `number` breaks `rule`; `source` names its operator, "" if unknown."""

    number: int
    rule: Rule
    message: str
    source: str = ""

    def __str__(self) -> str:
        source = f" (operator {self.source})" if self.source else ""
        return f"instruction {self.number}: {self.rule}: {self.message}{source}"


Reporter = Callable[[int, Rule, str], None]
"""Takes the number of an instruction, the rule that it breaks, and what was expected, found, and to be done."""
