"""Reader of the resources that the kernels of a cubin use.

A cubin is an ELF file. Section `.nv.info` lists attributes of functions. Section `.nv.shared.NAME` is the shared memory of function
NAME. NVIDIA does not document the format. The attribute numbers are from the output of `cuobjdump --dump-elf`.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from inlaid_runtime.errors import CompileError

_MAGIC = b"\x7fELF\x02\x01"
"""First bytes of a 64-bit little-endian ELF file."""
_SECTIONS = struct.Struct("<Q10xHHH")
"""Fields from byte 40 of the ELF header: offset of the section headers, their size, their number, and the index of the section of
names."""
_SECTION = struct.Struct("<II16xQQ")
"""Fields of a section header: name, type, offset and size of the section."""
_SYMBOL = 24
_NO_BITS = 8
_SIZED = 4
"""Attribute form whose value follows the header and has `size` bytes. Other forms store the value in the size field."""
_FRAME_SIZE, _REGISTERS = 0x11, 0x2F


@dataclass(frozen=True)
class Resources:
    """Resources of a kernel: registers and bytes of local memory per thread, and bytes of static shared memory per block. Local
    memory holds spilled registers and arrays with indices that are not constant."""

    registers: int
    local: int
    shared: int


def resources(cubin: bytes) -> dict[str, Resources]:
    """Read the resources of each kernel, sorted by name. Raises `CompileError` if the bytes are not a cubin."""
    try:
        return _resources(cubin)
    except (struct.error, IndexError, KeyError, OverflowError, ValueError) as error:
        raise CompileError(f"expected a cubin, got {len(cubin)} other bytes: {error!r}", plugin="cuda") from error


def _resources(cubin: bytes) -> dict[str, Resources]:
    if not cubin.startswith(_MAGIC):
        raise ValueError("the ELF header is missing")
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
    absent = (0, 0, 0)
    return {name: Resources(registers[name], frames[name], sections.get(f".nv.shared.{name}", absent)[2]) for name in kernels}


def _sections(cubin: bytes) -> Mapping[str, tuple[int, int, int]]:
    """Return type, offset and size of each section, keyed by section name."""
    start, size, count, names_index = _SECTIONS.unpack_from(cubin, 40)
    heads = [_SECTION.unpack_from(cubin, start + number * size) for number in range(count)]
    names = _part(cubin, heads[names_index][1:])
    return {_text(names, name): (kind, offset, length) for name, kind, offset, length in heads}


def _part(cubin: bytes, section: tuple[int, int, int]) -> bytes:
    kind, offset, size = section
    return b"" if kind == _NO_BITS else cubin[offset : offset + size]


def _text(names: bytes, start: int) -> str:
    return names[start : names.index(b"\0", start)].decode()


def _attributes(data: bytes) -> Iterator[tuple[int, bytes]]:
    """Yield number and bytes of each attribute."""
    position = 0
    while position < len(data):
        form, attribute, size = struct.unpack_from("<BBH", data, position)
        position += 4
        length = size if form == _SIZED else 0
        yield attribute, data[position : position + length]
        position += length
