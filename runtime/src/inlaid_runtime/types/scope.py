"""Memory scopes: a target's memories other than main memory."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True)
class MemoryScope:
    """A memory other than main memory, such as `shared`, `local` or `acme.tile`. A buffer is placed in a scope by the scope's name.

    owner: each thread, each block of threads, or the device has a private instance. capacity: size in bytes. alignment: of buffer
    offsets, in bytes. count: 0 for a byte-addressed memory; otherwise the number of registers of `capacity` bytes. A register holds
    one buffer of at most `rows` rows (its first dimension) of `row_bytes` bytes (all other dimensions together).
    """

    name: str
    owner: Literal["thread", "block", "device"]
    capacity: int
    alignment: int = 1
    count: int = 0
    row_bytes: int = 1

    @property
    def rows(self) -> int:
        """Number of rows in a register."""
        return self.capacity // self.row_bytes
