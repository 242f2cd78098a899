"""Write a shared object: headers, dynamic tables and section headers."""

from __future__ import annotations

import struct
from collections.abc import Sequence

from inlaid.codegen.elf.layout import Bytes, OutputSegment, SectionChunk
from inlaid.codegen.elf.read import ALLOC, EXECINSTR, INIT_ARRAY, NOBITS, PROGBITS, RELA_TABLE, SECTION, STRTAB, WRITE
from inlaid_runtime.artifact import image as elf

_HASH, _DYNAMIC, _DYNSYM = 5, 6, 11
"""Values of `sh_type`."""
_GLOBAL_FUNCTION = 0x12
_KINDS = {
    ".dynsym": (_DYNSYM, ALLOC),
    ".dynstr": (STRTAB, ALLOC),
    ".hash": (_HASH, ALLOC),
    ".rela.dyn": (RELA_TABLE, ALLOC),
    ".rodata": (PROGBITS, ALLOC),
    ".text": (PROGBITS, ALLOC | EXECINSTR),
    ".init_array": (INIT_ARRAY, ALLOC | WRITE),
    ".dynamic": (_DYNAMIC, ALLOC | WRITE),
    ".data": (PROGBITS, ALLOC | WRITE),
    ".bss": (NOBITS, ALLOC | WRITE),
    ".weights": (PROGBITS, ALLOC),
}
"""(type, flags) of the output's sections."""
_LINKED = {".dynsym": ".dynstr", ".hash": ".dynsym", ".rela.dyn": ".dynsym", ".dynamic": ".dynstr"}
"""Section that a section's `sh_link` refers to."""
_ENTRY_BYTES = {".dynsym": 24, ".hash": 4, ".rela.dyn": 24, ".dynamic": 16}


class Tables:
    """Tables for the dynamic linker. Their sizes are fixed at construction; their contents are filled after placement."""

    def __init__(self, exports: Sequence[str], name: str, relocations: int, initializers: Sequence[SectionChunk]) -> None:
        self._initializers = initializers
        texts = [b"", *(text.encode() for text in (*exports, *([name] if name else [])))]
        self._strings = b"".join(text + b"\0" for text in texts)
        self._named = bool(name)
        self._offsets = [sum(len(text) + 1 for text in texts[:number]) for number in range(1, len(texts))]
        self.header = SectionChunk("", b"", 0)
        count = len(exports) + 1
        self.symbols = _reserved(".dynsym", count * elf.SYMBOL.size)
        self.strings = SectionChunk(".dynstr", self._strings, len(self._strings), 1)
        self.hash = _reserved(".hash", 4 * (3 + count))
        self.relocations = _reserved(".rela.dyn", relocations * elf.RELA.size)
        self.dynamic = _reserved(".dynamic", len(self._tags()) * elf.DYNAMIC_ENTRY.size)
        self.constants = [self.header, self.symbols, self.strings, self.hash, self.relocations]

    def reserve(self, segments: int) -> None:
        """Reserve the program headers of `segments` segments, of the dynamic section and of the stack."""
        self.header.size = elf.HEADER.size + (segments + 2) * elf.SEGMENT.size
        self.header.content = bytes(self.header.size)

    def fill(self, functions: Sequence[int], text: int, relative: Sequence[tuple[int, int]], machine: elf.Machine) -> None:
        """Fill all tables except the header. `functions` are the addresses of the exported functions in order, `text` is the number
        of their section."""
        offsets = self._offsets[: len(functions)]
        entries = [
            elf.SYMBOL.pack(offset, _GLOBAL_FUNCTION, 0, text, address, 0)
            for offset, address in zip(offsets, functions, strict=True)
        ]
        self.symbols.content = b"".join([bytes(elf.SYMBOL.size), *entries])
        count = len(entries) + 1
        # One bucket, whose chain visits all symbols in order: a library exports only a few functions.
        self.hash.content = struct.pack(f"<{3 + count}I", 1, count, 1, 0, *range(2, count), 0)
        self.relocations.content = b"".join(
            elf.RELA.pack(location, machine.relative, value) for location, value in sorted(relative)
        )
        self.dynamic.content = b"".join(elf.DYNAMIC_ENTRY.pack(tag, value) for tag, value in self._tags())

    def _tags(self) -> list[tuple[int, int]]:
        tags = [
            (elf.DT_HASH, self.hash.address),
            (elf.DT_STRTAB, self.strings.address),
            (elf.DT_SYMTAB, self.symbols.address),
            (elf.DT_STRSZ, self.strings.size),
            (elf.DT_SYMENT, elf.SYMBOL.size),
        ]
        if self._named:
            tags.append((elf.DT_SONAME, self._offsets[-1]))
        if self.relocations.size:
            tags += [
                (elf.DT_RELA, self.relocations.address),
                (elf.DT_RELASZ, self.relocations.size),
                (elf.DT_RELAENT, elf.RELA.size),
            ]
        if self._initializers:
            size = sum(piece.size for piece in self._initializers)
            tags += [(elf.DT_INIT_ARRAY, self._initializers[0].address), (elf.DT_INIT_ARRAYSZ, size)]
        return [*tags, (0, 0)]


def chunks(segments: Sequence[OutputSegment], tables: Tables, machine: elf.Machine) -> list[Bytes]:
    """Serialize the file: program headers, segments, and section headers for link editors and disassemblers."""
    dynamic = tables.dynamic
    headers = [
        elf.SEGMENT.pack(elf.LOAD, part.flags, first.offset, first.address, first.address, part.stored, part.size, machine.page)
        for part in segments
        for first in part.pieces[:1]
    ]
    dynamic_fields = (dynamic.offset, dynamic.address, dynamic.address, dynamic.size, dynamic.size, 8)
    headers.append(elf.SEGMENT.pack(elf.DYNAMIC, elf.READABLE | elf.WRITABLE, *dynamic_fields))
    headers.append(elf.SEGMENT.pack(elf.GNU_STACK, elf.READABLE | elf.WRITABLE, 0, 0, 0, 0, 0, 16))
    end = max(part.pieces[0].offset + part.stored for part in segments)
    sections, names = _sections(segments, end)
    start = -(-(end + len(names)) // 8) * 8
    table = (64, len(headers), SECTION.size, len(sections), len(sections) - 1)
    fields = (elf.IDENT, elf.SHARED_OBJECT, machine.number, 1, 0, elf.HEADER.size, start, 0, elf.HEADER.size, elf.SEGMENT.size)
    tables.header.content = elf.HEADER.pack(*fields, *table[1:]) + b"".join(headers)
    file_chunks: list[Bytes] = []
    written = 0
    for piece in (piece for part in segments for piece in part.pieces):
        if len(piece.content):
            file_chunks += [bytes(piece.offset - written), piece.content]
            written = piece.offset + len(piece.content)
    return [*file_chunks, names, bytes(start - end - len(names)), *sections]


def section_names(segments: Sequence[OutputSegment]) -> list[str]:
    """List the names of the output's sections in order; the first is number 1."""
    return list(_by_section(segments))


def _by_section(segments: Sequence[OutputSegment]) -> dict[str, list[SectionChunk]]:
    pieces_by_section: dict[str, list[SectionChunk]] = {}
    for piece in (piece for part in segments for piece in part.pieces):
        if piece.section in _KINDS and piece.size:
            pieces_by_section.setdefault(piece.section, []).append(piece)
    return pieces_by_section


def _sections(segments: Sequence[OutputSegment], end: int) -> tuple[list[bytes], bytes]:
    """Build the section headers and the section name table, which is at file offset `end`."""
    pieces_by_section = _by_section(segments)
    numbers = {name: number for number, name in enumerate(pieces_by_section, 1)}
    names = b"\0"
    headers = [bytes(SECTION.size)]
    for name, pieces in pieces_by_section.items():
        first, last = pieces[0], pieces[-1]
        kind, flags = _KINDS[name]
        link = numbers.get(_LINKED.get(name, ""), 0)
        info = 1 if name == ".dynsym" else 0  # the number of local symbols
        size = last.address + last.size - first.address
        alignment = max(piece.alignment for piece in pieces)
        fields = (first.address, first.offset, size, link, info, alignment, _ENTRY_BYTES.get(name, 0))
        headers.append(SECTION.pack(len(names), kind, flags, *fields))
        names += name.encode() + b"\0"
    headers.append(SECTION.pack(len(names), STRTAB, 0, 0, end, len(names) + len(".shstrtab") + 1, 0, 0, 1, 0))
    return headers, names + b".shstrtab\0"


def _reserved(section: str, size: int) -> SectionChunk:
    """Create a zero-filled piece whose content is set later."""
    return SectionChunk(section, bytes(size), size)
