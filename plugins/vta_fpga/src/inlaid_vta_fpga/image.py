"""Serialization of a region's code, which consists of a DRAM map, an instruction stream and its micro-ops."""

from __future__ import annotations

import json
import struct
from dataclasses import dataclass

import numpy as np

from inlaid_runtime.errors import InlaidError, Unsupported
from inlaid_runtime.execution.codec import decode, encode
from inlaid_vta_fpga.isa.config import INSTRUCTION_BYTES, PAGE_BYTES, UOP_BYTES, Config
from inlaid_vta_fpga.options import FORMAT

_HEAD = struct.Struct("<4sI")
_MAGIC = b"VTA\x01"
LARGEST = 1 << 30
"""Maximum DRAM bytes of a region."""


@dataclass(frozen=True)
class Header:
    """The DRAM map. size: bytes of DRAM. count, uop_count: numbers of instructions and of micro-ops. The other fields are
    page-aligned byte addresses; inputs, outputs and constants are in the order of the artifact. An int32 output has one address per
    byte plane, lowest byte first. Address 0 means that no instruction uses the buffer."""

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
    """A header with the encoded stream and micro-ops."""

    header: Header
    stream: bytes
    uops: bytes

    def to_bytes(self) -> bytes:
        """Serialize to the code of an artifact."""
        text = json.dumps(encode(self.header), separators=(",", ":")).encode()
        return _HEAD.pack(_MAGIC, len(text)) + text + self.stream + self.uops

    @staticmethod
    def from_bytes(code: bytes) -> Image:
        """Deserialize the code of an artifact; the inverse of `to_bytes`. Raises `Unsupported` for malformed code."""
        try:
            magic, length = _HEAD.unpack_from(code)
            if magic != _MAGIC:
                raise ValueError(f"expected code that starts with {_MAGIC!r}, found {magic!r}")
            start = _HEAD.size + length
            header = decode(Header, json.loads(code[_HEAD.size : start].decode()), "header")
            middle = start + header.count * INSTRUCTION_BYTES
            image = Image(header, code[start:middle], code[middle:])
            image.check()
        except (struct.error, ValueError, InlaidError) as error:
            raise Unsupported(f"malformed {FORMAT} code: {error}", remedy="compile the model again") from error
        return image

    def check(self) -> None:
        """Raise ValueError if sizes and addresses are inconsistent."""
        header = self.header
        if len(self.stream) != header.count * INSTRUCTION_BYTES or len(self.uops) != header.uop_count * UOP_BYTES:
            raise ValueError(f"expected {header.count} instructions and {header.uop_count} micro-ops, found a different size")
        if not 0 < header.size <= LARGEST:
            raise ValueError(f"expected a DRAM of 1 to {LARGEST} bytes, found {header.size}")
        self.check_dram_range(header.stream, len(self.stream))
        self.check_dram_range(header.uops, len(self.uops))

    def check_dram_range(self, address: int, size: int) -> None:
        """Raise ValueError if `size` bytes at an address are not page-aligned or exceed DRAM."""
        if address % PAGE_BYTES or not PAGE_BYTES <= address <= address + size <= self.header.size:
            raise ValueError(f"expected page-aligned {size} bytes within {self.header.size} bytes of DRAM, found address {address}")

    def dram(self, constants: dict[int, np.ndarray[tuple[int], np.dtype[np.uint8]]]) -> np.ndarray[tuple[int], np.dtype[np.uint8]]:
        """Build the initial DRAM contents: stream, micro-ops and constants at their addresses, zeros elsewhere."""
        memory = np.zeros(self.header.size, np.uint8)
        parts = {self.header.stream: np.frombuffer(self.stream, np.uint8), self.header.uops: np.frombuffer(self.uops, np.uint8)}
        for address, data in (parts | constants).items():
            memory[address : address + len(data)] = data
        return memory
