"""Addresses and file offsets of what is linked."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from inlaid.artifact.image import MAX_BYTES, Image
from inlaid.errors import CompileError

Bytes = bytes | bytearray | memoryview


@dataclass(eq=False)
class Piece:
    """Contiguous bytes of an output section. `size` may exceed the content, the rest being zero, where it ends its segment."""

    section: str
    content: Bytes
    size: int
    alignment: int = 8
    address: int = 0
    offset: int = 0


@dataclass(eq=False)
class Part:
    """A segment of the output: pieces that are mapped with the same protection."""

    flags: int
    pieces: list[Piece] = field(default_factory=list)

    @property
    def stored(self) -> int:
        """Bytes in the file."""
        begin = self.pieces[0].offset
        return max((piece.offset + len(piece.content) for piece in self.pieces if len(piece.content)), default=begin) - begin

    @property
    def size(self) -> int:
        """Bytes in memory."""
        return self.pieces[-1].address + self.pieces[-1].size - self.pieces[0].address


@dataclass(eq=False)
class Embedded:
    """An image inside the output: its segments keep their distances. `base` is its load address in the output."""

    image: Image
    parts: list[Part]
    base: int = 0


def embed(image: Image) -> Embedded:
    """An image as a member of the output."""
    return Embedded(image, [Part(item.flags, [Piece("", item.content, item.size, 1)]) for item in image.segments])


def place(parts: Sequence[Part | Embedded], page: int) -> None:
    """Give every piece its address and its offset in the file, congruent modulo the page, in order. Pages of memory belong to one
    part each; the file has no padding between parts but for alignment."""
    address = offset = 0
    for item in parts:
        if isinstance(item, Embedded):
            item.base = _up(address, page)
            for part, segment in zip(item.parts, item.image.segments, strict=True):
                address = item.base + segment.address
                offset += (address - offset) % page
                address, offset = _place_pieces(part, address, offset)
        else:
            offset = _up(offset, max((piece.alignment for piece in item.pieces), default=1))
            address, offset = _place_pieces(item, _up(address, page) + offset % page, offset)
    if address > MAX_BYTES:
        raise CompileError(f"code and constants have {address} bytes, more than the {MAX_BYTES} that can be linked")


def _place_pieces(part: Part, address: int, offset: int) -> tuple[int, int]:
    """Address and offset after the part."""
    begin, origin = address, offset
    for piece in part.pieces:
        address = _up(address, piece.alignment)
        piece.address, piece.offset = address, origin + address - begin
        address += piece.size
        offset = piece.offset + len(piece.content) if len(piece.content) else offset
    return address, offset


def _up(value: int, alignment: int) -> int:
    return -(-value // alignment) * alignment
