"""Memories of a target besides main memory."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True)
class MemoryScope:
    """A memory besides main memory. Buffers are placed in it by its name: `shared`, `local`, `acme.tile`.

    owner: each thread, each block of threads, or the device has one of its own. capacity: its bytes. alignment: of the offsets of
    buffers, in bytes. count: 0 where buffers lie side by side; else the number of registers of `capacity` bytes, each of which
    holds one buffer: at most `rows` rows, its first dimension, of `row_bytes` bytes, all other dimensions together.
    """

    name: str
    owner: Literal["thread", "block", "device"]
    capacity: int
    alignment: int = 1
    count: int = 0
    row_bytes: int = 1

    @property
    def rows(self) -> int:
        """Rows of a register."""
        return self.capacity // self.row_bytes
