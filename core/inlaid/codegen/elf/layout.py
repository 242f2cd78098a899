"""Assign addresses and file offsets to linked contents."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from inlaid_runtime.artifact.image import MAX_BYTES, Image
from inlaid_runtime.errors import CompileError

Bytes = bytes | bytearray | memoryview


@dataclass(eq=False)
class SectionChunk:
    """Contiguous bytes of an output section. For the last chunk of a segment, `size` may exceed the content; the rest is zero."""

    section: str
    content: Bytes
    size: int
    alignment: int = 8
    address: int = 0
    offset: int = 0


@dataclass(eq=False)
class OutputSegment:
    """A segment of the output: pieces mapped with the same protection `flags`."""

    flags: int
    pieces: list[SectionChunk] = field(default_factory=list)

    @property
    def stored(self) -> int:
        """Size of the segment in the file, in bytes."""
        begin = self.pieces[0].offset
        return max((piece.offset + len(piece.content) for piece in self.pieces if len(piece.content)), default=begin) - begin

    @property
    def size(self) -> int:
        """Size of the segment in memory, in bytes."""
        return self.pieces[-1].address + self.pieces[-1].size - self.pieces[0].address


@dataclass(eq=False)
class Embedded:
    """An image embedded in the output, whose segments keep their relative addresses. `base` is its address in the output."""

    image: Image
    parts: list[OutputSegment]
    base: int = 0


def embed(image: Image) -> Embedded:
    """Wrap an image for embedding in the output."""
    return Embedded(image, [OutputSegment(item.flags, [SectionChunk("", item.content, item.size, 1)]) for item in image.segments])


def assign_addresses(parts: Sequence[OutputSegment | Embedded], page: int) -> None:
    """Assign every piece of the parts, in order, an address and a file offset that are congruent modulo the page size. No two parts
    share a page of memory. In the file, parts are adjacent except for alignment."""
    address = offset = 0
    for item in parts:
        if isinstance(item, Embedded):
            item.base = _up(address, page)
            for part, segment in zip(item.parts, item.image.segments, strict=True):
                address = item.base + segment.address
                offset += (address - offset) % page
                address, offset = _assign_pieces(part, address, offset)
        else:
            offset = _up(offset, max((piece.alignment for piece in item.pieces), default=1))
            address, offset = _assign_pieces(item, _up(address, page) + offset % page, offset)
    if address > MAX_BYTES:
        raise CompileError(f"code and constants must have at most {MAX_BYTES} bytes, found {address}")


def _assign_pieces(part: OutputSegment, address: int, offset: int) -> tuple[int, int]:
    """Place the pieces of a part; returns the next address and offset."""
    begin, origin = address, offset
    for piece in part.pieces:
        address = _up(address, piece.alignment)
        piece.address, piece.offset = address, origin + address - begin
        address += piece.size
        offset = piece.offset + len(piece.content) if len(piece.content) else offset
    return address, offset


def _up(value: int, alignment: int) -> int:
    return -(-value // alignment) * alignment
