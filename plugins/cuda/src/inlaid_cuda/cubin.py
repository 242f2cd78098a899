"""What the kernels of a cubin take of a multiprocessor.

A cubin is an ELF file. Section `.nv.info` lists attributes of functions, sections `.nv.shared.NAME` are their shared memory. NVIDIA
documents neither; the numbers of attributes are those that `cuobjdump --dump-elf` names.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from inlaid.errors import CompileError

_MAGIC = b"\x7fELF\x02\x01"
"""ELF of 64 bits, little-endian."""
_SECTIONS = struct.Struct("<Q10xHHH")
"""From byte 40 of the head: where section headers are; their size, number, and that of the section of names."""
_SECTION = struct.Struct("<II16xQQ")
"""Name, type, offset and size of a section."""
_SYMBOL = 24
_NO_BITS = 8
_SIZED = 4
"""The form of an attribute whose bytes follow; those of other forms are in the two bytes of the size."""
_FRAME_SIZE, _REGISTERS = 0x11, 0x2F


@dataclass(frozen=True)
class Resources:
    """Registers and bytes of local memory of a thread, and bytes of shared memory of a block that the source declares. Local memory
    holds what is spilled for lack of registers, and arrays whose indices are not constant."""

    registers: int
    local: int
    shared: int


def resources(cubin: bytes) -> dict[str, Resources]:
    """The resources of each kernel by name, in order of names. Raises `CompileError` for what is no cubin."""
    try:
        return _resources(cubin)
    except (struct.error, IndexError, KeyError, ValueError) as error:
        raise CompileError(f"expected a cubin, got {len(cubin)} bytes that are none: {error!r}", plugin="cuda") from error


def _resources(cubin: bytes) -> dict[str, Resources]:
    if not cubin.startswith(_MAGIC):
        raise KeyError("no ELF file")
    sections = _sections(cubin)
    symbols, names = _part(cubin, sections[".symtab"]), _part(cubin, sections[".strtab"])
    frames: dict[str, int] = {}
    registers: dict[str, int] = {}
    for attribute, data in _attributes(_part(cubin, sections[".nv.info"])):
        if attribute in (_FRAME_SIZE, _REGISTERS):
            symbol, value = struct.unpack("<II", data)
            (start,) = struct.unpack_from("<I", symbols, symbol * _SYMBOL)
            (frames if attribute == _FRAME_SIZE else registers)[_text(names, start)] = value
    kernels = sorted(name.removeprefix(".text.") for name in sections if name.startswith(".text."))
    none = (0, 0, 0)
    return {name: Resources(registers[name], frames[name], sections.get(f".nv.shared.{name}", none)[2]) for name in kernels}


def _sections(cubin: bytes) -> Mapping[str, tuple[int, int, int]]:
    """Type, offset and size of each section by name."""
    start, size, count, naming = _SECTIONS.unpack_from(cubin, 40)
    heads = [_SECTION.unpack_from(cubin, start + number * size) for number in range(count)]
    names = _part(cubin, heads[naming][1:])
    return {_text(names, name): (kind, offset, length) for name, kind, offset, length in heads}


def _part(cubin: bytes, section: tuple[int, int, int]) -> bytes:
    kind, offset, size = section
    return b"" if kind == _NO_BITS else cubin[offset : offset + size]


def _text(names: bytes, start: int) -> str:
    return names[start : names.index(b"\0", start)].decode()


def _attributes(data: bytes) -> Iterator[tuple[int, bytes]]:
    """Number and bytes of each attribute."""
    at = 0
    while at < len(data):
        form, attribute, size = struct.unpack_from("<BBH", data, at)
        at += 4
        length = size if form == _SIZED else 0
        yield attribute, data[at : at + length]
        at += length
