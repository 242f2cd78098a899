"""Read sections, symbols and relocations of relocatable ELF64 objects."""

from __future__ import annotations

import struct

from inlaid_runtime.artifact.image import HEADER, IDENT, RELA, SYMBOL
from inlaid_runtime.records import dataclass, field

RELOCATABLE = 1
PROGBITS, SYMTAB, STRTAB, RELA_TABLE, NOBITS, REL, INIT_ARRAY, FINI_ARRAY, PREINIT_ARRAY = 1, 2, 3, 4, 8, 9, 14, 15, 16
"""Values of `sh_type`."""
WRITE, ALLOC, EXECINSTR, TLS = 1, 2, 4, 0x400
"""Bits of `sh_flags`."""
SECTION = struct.Struct("<IIQQQQIIQQ")
"""Section header: sh_name, type, flags, addr, offset, size, link, info, addralign, entsize."""
UNDEFINED, FIRST_RESERVED = 0, 0xFF00
LOCAL, GLOBAL, WEAK = 0, 1, 2
"""Symbol bindings."""
_DROPPED = ".eh_frame"
"""Section of unwind tables, which is dropped, since kernels raise no exceptions."""


@dataclass(frozen=True)
class Symbol:
    """A symbol of an object. `section` is an index into the object's sections, None if the symbol is undefined."""

    name: str
    binding: int
    section: int | None
    value: int


@dataclass(frozen=True)
class Fixup:
    """A relocation: at `offset` of its section, of `type`, against symbol number `symbol`, plus `addend`."""

    offset: int
    type: int
    symbol: int
    addend: int


@dataclass(frozen=True)
class Section:
    """An allocated section. `content` may be shorter than `size`; the rest is zero."""

    name: str
    type: int
    flags: int
    alignment: int
    size: int
    content: bytes
    fixups: tuple[Fixup, ...] = ()


@dataclass(frozen=True)
class Object:
    """An object file. `sections` are keyed by their number in the file."""

    sections: dict[int, Section]
    symbols: tuple[Symbol, ...] = field(default_factory=tuple)


def read_object(content: bytes, machine: int) -> Object:
    """Parse a relocatable object. Raises ValueError for bytes that are not a relocatable object of the machine."""
    try:
        return _read(content, machine)
    except (struct.error, IndexError) as error:
        raise ValueError(f"it is damaged: {error}") from error


def _read(content: bytes, machine: int) -> Object:
    if len(content) < HEADER.size or not content.startswith(IDENT[:7]):
        raise ValueError("expected a 64-bit little-endian ELF file, found other bytes")
    _, kind, number, _, _, _, start, _, _, _, _, entry, count, names = HEADER.unpack_from(content)
    if kind != RELOCATABLE or number != machine or entry != SECTION.size or start + count * entry > len(content) or names >= count:
        raise ValueError(f"expected a relocatable object for ELF machine {machine}, found type {kind} for machine {number}")
    headers = [SECTION.unpack_from(content, start + index * entry) for index in range(count)]
    contents = [b"" if header[1] == NOBITS else content[header[4] : header[4] + header[5]] for header in headers]
    if any(len(data) != header[5] for data, header in zip(contents, headers, strict=True) if header[1] != NOBITS):
        raise ValueError("it is damaged: a section exceeds the file")
    fixups: dict[int, list[Fixup]] = {}
    symbols: tuple[Symbol, ...] = ()
    sections: dict[int, Section] = {}
    for index, (_, type_, _, _, _, _, link, info, _, _) in enumerate(headers):
        if type_ == RELA_TABLE:
            section_fixups = [
                Fixup(offset, r_info & 0xFFFFFFFF, r_info >> 32, addend)
                for offset, r_info, addend in RELA.iter_unpack(contents[index])
            ]
            fixups.setdefault(info, []).extend(section_fixups)
        elif type_ == SYMTAB:
            symbols = tuple(_symbol(fields, contents[link]) for fields in SYMBOL.iter_unpack(contents[index]))
        elif type_ == REL:
            raise ValueError("relocations must have addends (RELA), found a section of type REL")
    for index, (name, type_, flags, _, _, size, _, _, alignment, _) in enumerate(headers):
        text = _text(contents[names], name)
        if not flags & ALLOC or text == _DROPPED:
            continue
        if flags & TLS or type_ in (FINI_ARRAY, PREINIT_ARRAY) or text.startswith((".dtors", ".ctors.")):
            kinds = "thread-local storage, destructors and prioritized constructors"
            raise ValueError(f"section {text} is unsupported: {kinds} cannot be linked")
        section_fixups = fixups.get(index, [])
        if any(fixup.symbol >= len(symbols) for fixup in section_fixups):
            raise ValueError(f"it is damaged: a relocation of section {text} refers to a symbol that does not exist")
        sections[index] = Section(text, type_, flags, max(alignment, 1), size, contents[index], tuple(section_fixups))
    return Object(sections, symbols)


def _symbol(fields: tuple[int, int, int, int, int, int], names: bytes) -> Symbol:
    name, info, _, index, value, _ = fields
    text = _text(names, name)
    if index >= FIRST_RESERVED and info & 15 != 4:  # except the symbol of the source file's name, which is absolute
        raise ValueError(f"symbol {text} must be defined in a section or undefined, found an absolute or common symbol")
    return Symbol(text, info >> 4, index if UNDEFINED < index < FIRST_RESERVED else None, value)


def _text(table: bytes, begin: int) -> str:
    return table[begin : table.index(b"\0", begin)].decode()
