"""Linked native code: the image format, and its reader.

An image is an ELF64 little-endian shared object (`ET_DYN`) without imports, needed libraries or thread-local storage. Its `PT_LOAD`
segments hold position-independent code, constants and data; its dynamic symbols are its functions; its only dynamic relocations are
relative ones (base + addend) in `DT_RELA`, in writable memory. No segment is both writable and executable. Such a file can be
mapped unchanged (`inlaid_runtime.execution.mapped`), opened by `dlopen`, inspected with ELF tools, and linked into a larger one
(`inlaid.codegen.elf`).

`read_image` checks every size and offset before anything is mapped. It does not check the code.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Mapping

from inlaid_runtime.records import dataclass

MAX_BYTES = 1 << 31
"""Greatest size of an image in memory, in bytes: the range of 32-bit displacements."""

IDENT = b"\x7fELF\x02\x01\x01" + bytes(9)
"""ELF64, little-endian, version 1, System V."""
SHARED_OBJECT = 3
EXECUTABLE, WRITABLE, READABLE = 1, 2, 4
"""The bits of `p_flags`."""
LOAD, DYNAMIC, GNU_STACK = 1, 2, 0x6474E551
"""Values of `p_type`."""
DT_NEEDED, DT_PLTRELSZ, DT_HASH, DT_STRTAB, DT_SYMTAB, DT_RELA, DT_RELASZ, DT_RELAENT = 1, 2, 4, 5, 6, 7, 8, 9
DT_STRSZ, DT_SYMENT, DT_SONAME, DT_REL, DT_TEXTREL, DT_INIT_ARRAY, DT_INIT_ARRAYSZ = 10, 11, 14, 17, 22, 25, 27
HEADER = struct.Struct("<16sHHIQQQIHHHHHH")
"""e_ident, type, machine, version, entry, phoff, shoff, flags, ehsize, phentsize, phnum, shentsize, shnum, shstrndx."""
SEGMENT = struct.Struct("<IIQQQQQQ")
"""p_type, flags, offset, vaddr, paddr, filesz, memsz, align."""
DYNAMIC_ENTRY = struct.Struct("<QQ")
RELA = struct.Struct("<QQq")
SYMBOL = struct.Struct("<IBBHQQ")
"""st_name, info, other, shndx, value, size."""
_COUNT = struct.Struct("<4xI")
"""Part of a hash table's header: skips nbucket, reads nchain, the number of symbols."""


@dataclass(frozen=True)
class Machine:
    """Architecture-specific parts of ELF files: `number` is the value of `e_machine`; `relative` is the relocation type that adds
    the load address; `page` is the largest page size in bytes that an operating system may use."""

    number: int
    relative: int
    page: int


@dataclass(frozen=True)
class Segment:
    """Memory from `address`, relative to the load address: `content`, then zeros up to `size` bytes. `flags` are `p_flags`."""

    address: int
    content: memoryview
    size: int
    flags: int


@dataclass(frozen=True)
class Image:
    """A validated image. `functions` are function addresses by name; `relative` are pairs of an address and its value, both
    relative to the load address; `size` is the size of the address space in bytes."""

    functions: Mapping[str, int]
    segments: tuple[Segment, ...]
    relative: tuple[tuple[int, int], ...]
    size: int


def read_image(code: bytes | memoryview, machine: Machine) -> Image:
    """Read and validate an image. Raises ValueError for bytes that are not a valid image for the machine."""
    code = memoryview(code)
    _expect(len(code) >= HEADER.size, f"it has {len(code)} bytes, fewer than an ELF header")
    ident, kind, number, _, _, start, _, _, _, entry_size, count, *_ = HEADER.unpack_from(code)
    _expect(ident == IDENT, "it is not a 64-bit little-endian ELF file")
    _expect(kind == SHARED_OBJECT, f"expected ELF type {SHARED_OBJECT} (shared object), got {kind}")
    _expect(number == machine.number, f"expected ELF machine {machine.number}, got {number}")
    _expect(entry_size == SEGMENT.size and start + count * SEGMENT.size <= len(code), "its program headers exceed the file")
    segments: list[Segment] = []
    dynamic = memoryview(b"")
    for index in range(count):
        p_type, flags, offset, address, _, stored, size, _ = SEGMENT.unpack_from(code, start + index * SEGMENT.size)
        if p_type not in (LOAD, DYNAMIC):
            continue
        _expect(offset + stored <= len(code) and stored <= size, f"program header {index} exceeds the file")
        if p_type == DYNAMIC:
            dynamic = code[offset : offset + stored]
            continue
        previous_end = segments[-1].address + segments[-1].size if segments else 0
        _expect(address // machine.page >= -(-previous_end // machine.page), f"program header {index} overlaps the one before")
        _expect(address + size <= MAX_BYTES, f"program header {index} ends beyond {MAX_BYTES} bytes")
        _expect(not (flags & WRITABLE and flags & EXECUTABLE), f"program header {index} is both writable and executable")
        segments.append(Segment(address, code[offset : offset + stored], size, flags))
    _expect(bool(segments), "it has nothing to load")
    return _Dynamic(segments, dynamic, machine).image()


class _Dynamic:
    """The dynamic section of an image, with its tables."""

    def __init__(self, segments: list[Segment], content: memoryview, machine: Machine) -> None:
        _expect(len(content) % DYNAMIC_ENTRY.size == 0, "its dynamic section is cut off")
        self.segments = segments
        self.machine = machine
        self.end = segments[-1].address + segments[-1].size
        self.tags: dict[int, int] = dict(DYNAMIC_ENTRY.iter_unpack(content))
        for tag in (DT_NEEDED, DT_PLTRELSZ, DT_REL, DT_TEXTREL):
            _expect(tag not in self.tags, f"its dynamic section has the unsupported tag {tag}")

    def image(self) -> Image:
        return Image(dict(self._functions()), tuple(self.segments), tuple(self._relative()), self.end)

    def _functions(self) -> Iterator[tuple[str, int]]:
        (count,) = _COUNT.unpack_from(self._bytes(self.tags.get(DT_HASH, -1), _COUNT.size, "its hash table is"))
        table = self._bytes(self.tags.get(DT_SYMTAB, -1), count * SYMBOL.size, "its symbols are")
        names = bytes(self._bytes(self.tags.get(DT_STRTAB, -1), self.tags.get(DT_STRSZ, 0), "the names of its symbols are"))
        for name, _, _, section, value, _ in [*SYMBOL.iter_unpack(table)][1:]:
            end = names.find(b"\0", name)
            _expect(end > name and section != 0, "a symbol has no name or no definition")
            is_code = any(part.flags & EXECUTABLE and 0 <= value - part.address < len(part.content) for part in self.segments)
            _expect(is_code, f"function {names[name:end]!r} is not in an executable segment")
            yield names[name:end].decode("utf-8", "replace"), value

    def _relative(self) -> Iterator[tuple[int, int]]:
        size = self.tags.get(DT_RELASZ, 0)
        _expect(size % RELA.size == 0, "its relocations are cut off")
        for address, info, addend in RELA.iter_unpack(self._bytes(self.tags.get(DT_RELA, 0), size, "its relocations are")):
            _expect(info == self.machine.relative, f"expected relocation type {self.machine.relative} (relative), got {info}")
            _expect(0 <= addend <= self.end, f"the relocation at {address:#x} points outside of the image")
            fits = any(part.flags & WRITABLE and part.address <= address <= part.address + part.size - 8 for part in self.segments)
            _expect(fits, f"the relocation at {address:#x} is not in a writable segment")
            yield address, addend

    def _bytes(self, address: int, size: int, what: str) -> memoryview:
        for part in self.segments:
            begin = address - part.address
            if begin >= 0 and begin + size <= len(part.content):
                return part.content[begin : begin + size]
        raise ValueError(f"{what} in no segment")


def _expect(holds: bool, problem: str) -> None:
    if not holds:
        raise ValueError(problem)
