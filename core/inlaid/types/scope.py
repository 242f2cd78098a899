"""Memories of a target besides main memory."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class MemoryScope:
    """A memory that a plugin declares, in which buffers lie by its name: `count` registers, each of which holds one buffer of at
    most `rows` rows, its first dimension, of `row_bytes` bytes, all others together."""

    name: str
    count: int
    rows: int
    row_bytes: int
