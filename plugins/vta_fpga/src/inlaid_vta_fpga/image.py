"""The code of a region: a map of DRAM, an instruction stream and its micro-ops, as bytes and back."""

from __future__ import annotations

import json
import struct
from dataclasses import dataclass

import numpy as np

from inlaid.errors import InlaidError, Unsupported
from inlaid.runtime.codec import decode, encode
from inlaid_vta_fpga.isa.config import INSTRUCTION_BYTES, PAGE_BYTES, UOP_BYTES, Config
from inlaid_vta_fpga.options import FORMAT

_HEAD = struct.Struct("<4sI")
_MAGIC = b"VTA\x01"
LARGEST = 1 << 30
"""Bytes of DRAM that a region may have."""


@dataclass(frozen=True)
class Header:
    """Byte addresses in DRAM, each of a page: of the stream of `count` instructions, of `uop_count` micro-ops, of inputs, outputs
    and constants in the order of the artifact. An output of int32 has four, of its byte planes, the lowest first. 0: what no
    instruction reads. `size`: of DRAM."""

    config: Config
    size: int
    stream: int
    count: int
    uops: int
    uop_count: int
    inputs: tuple[int, ...]
    outputs: tuple[tuple[int, ...], ...]
    constants: tuple[int, ...]


@dataclass(frozen=True)
class Image:
    """A header with the bytes of its stream and of its micro-ops."""

    header: Header
    stream: bytes
    uops: bytes

    def to_bytes(self) -> bytes:
        """The code of an artifact."""
        text = json.dumps(encode(self.header), separators=(",", ":")).encode()
        return _HEAD.pack(_MAGIC, len(text)) + text + self.stream + self.uops

    @staticmethod
    def from_bytes(code: bytes) -> Image:
        """The inverse of `to_bytes`. Raises `Unsupported` for bytes that are no such code."""
        try:
            magic, length = _HEAD.unpack_from(code)
            if magic != _MAGIC:
                raise ValueError(f"expected code that begins with {_MAGIC!r}, found {magic!r}")
            start = _HEAD.size + length
            header = decode(Header, json.loads(code[_HEAD.size : start].decode()), "header")
            middle = start + header.count * INSTRUCTION_BYTES
            image = Image(header, code[start:middle], code[middle:])
            image.check()
        except (struct.error, ValueError, InlaidError) as error:
            raise Unsupported(f"this is no {FORMAT} code: {error}") from error
        return image

    def check(self) -> None:
        """Raise ValueError where sizes and addresses do not fit."""
        header = self.header
        if len(self.stream) != header.count * INSTRUCTION_BYTES or len(self.uops) != header.uop_count * UOP_BYTES:
            raise ValueError(f"expected {header.count} instructions and {header.uop_count} micro-ops, found other bytes")
        if not 0 < header.size <= LARGEST:
            raise ValueError(f"expected a DRAM of 1 to {LARGEST} bytes, found {header.size}")
        self.check_place(header.stream, len(self.stream))
        self.check_place(header.uops, len(self.uops))

    def check_place(self, address: int, size: int) -> None:
        """Raise ValueError for bytes outside of DRAM, or not on a page of their own."""
        if address % PAGE_BYTES or not PAGE_BYTES <= address <= address + size <= self.header.size:
            raise ValueError(f"expected {size} bytes at a page of a DRAM of {self.header.size}, found address {address}")

    def dram(self, constants: dict[int, np.ndarray[tuple[int], np.dtype[np.uint8]]]) -> np.ndarray[tuple[int], np.dtype[np.uint8]]:
        """DRAM with the stream, the micro-ops, and constants by their addresses; zeros elsewhere."""
        memory = np.zeros(self.header.size, np.uint8)
        parts = {self.header.stream: np.frombuffer(self.stream, np.uint8), self.header.uops: np.frombuffer(self.uops, np.uint8)}
        for address, data in (parts | constants).items():
            memory[address : address + len(data)] = data
        return memory
