"""Rules of legal VTA streams, and their violations.

Source: behavior that the hardware (HLS and Chisel) and simulators of apache/tvm-vta (2022-01) leave undefined.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum


class Rule(StrEnum):
    """Rules of legal streams. The comment of each rule states the property of a legal stream."""

    FIELDS = "fields"  # Every value fits its encoding field
    FLAGS = "flags"  # LOAD has no previous module, STORE no next one
    FINISH = "finish"  # FINISH is the last instruction and occurs once
    LOOP_COUNT = "loop-count"  # Loops, micro-op ranges and transfers are not empty: hardware counters compare with n - 1
    PORTABLE = "portable"  # No padding of WGT and UOP, one row of UOP; ACC_8BIT and MUL only where the device has them
    SHIFT = "shift-range"  # Immediates of SHR are -16 to 15: hardware reads 5 bits
    SRAM_RANGE = "sram-range"  # Every index is below the depth of its buffer
    DRAM_RANGE = "dram-range"  # Transfers stay within DRAM and off page 0. Addresses count elements, so they are always aligned
    TOKEN_BALANCE = "token-balance"  # Each token queue has as many pushes as pops
    TOKEN_OVERFLOW = "token-overflow"  # A queue holds at most 255 tokens in every timing: its counter saturates
    DEADLOCK = "deadlock"  # Every instruction runs, with command queues of 512 filled in program order
    BEFORE_FINISH = "before-finish"  # Tokens order every instruction before FINISH
    RACE = "race"  # Tokens order any two accesses to one element if one of them is a write
    INITIALIZED = "initialized-read"  # Elements are written before they are read
    OUT_BUFFER = "out-buffer"  # GEMM or ALU wrote what STORE reads: neither LOAD ACC nor a reset writes to OUT
    DISTANCE = "accumulator-distance"  # Within an instruction, an accumulator is accessed at least 3 micro-ops after its write
    CONSTANT_UOPS = "constant-micro-ops"  # No STORE overwrites micro-ops that are loaded later: the checker must know their values


@dataclass(frozen=True)
class Violation:
    """A violation of `rule` by instruction `number`. `source`: name of the source operator, "" if unknown."""

    number: int
    rule: Rule
    message: str
    source: str = ""

    def __str__(self) -> str:
        source = f" (operator {self.source})" if self.source else ""
        return f"instruction {self.number}: {self.rule}: {self.message}{source}"


Reporter = Callable[[int, Rule, str], None]
"""Callback for a violation: instruction number, rule, and message (expected, found, remedy)."""
