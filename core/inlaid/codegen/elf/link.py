"""Resolve symbols, lay out sections and apply relocations."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Literal

from inlaid.codegen.elf.layout import Bytes, Embedded, OutputSegment, SectionChunk, assign_addresses, embed
from inlaid.codegen.elf.read import EXECINSTR, INIT_ARRAY, LOCAL, NOBITS, WEAK, WRITE, Fixup, Object, Section, read_object
from inlaid.codegen.elf.write import Tables, chunks, section_names
from inlaid_runtime.artifact.image import EXECUTABLE, MAX_BYTES, READABLE, WRITABLE, Image, Machine
from inlaid_runtime.errors import CompileError
from inlaid_runtime.records import dataclass

_PATCHED = (".data", ".init_array")
"""Sections that the dynamic linker may patch."""


@dataclass(frozen=True)
class RelocationKind:
    """How a relocation type patches memory. `value` selects the number to write, in `bytes` bytes: the symbol's address relative to
    the patched location, its absolute address, or the relative address of a table entry that holds the symbol's address."""

    value: Literal["relative", "absolute", "table"]
    bytes: Literal[4, 8] = 4


@dataclass(frozen=True)
class Architecture:
    """The linker's description of an architecture: its ELF machine, and rules by relocation type."""

    machine: Machine
    rules: Mapping[int, RelocationKind]


@dataclass(frozen=True)
class Blob:
    """Read-only data with a symbol, such as weights. Code addresses it through pointers, since it may be large."""

    symbol: str
    contents: Sequence[Bytes]
    alignment: int


def link(
    objects: Sequence[bytes],
    exports: Sequence[str],
    architecture: Architecture,
    *,
    helper: Callable[[str], bytes | None] = lambda symbol: None,
    images: Mapping[str, Image] | None = None,
    blobs: Sequence[Blob] = (),
    name: str = "",
) -> list[Bytes]:
    """Link objects into a shared object; returns the chunks of its file. Equal inputs give equal bytes.

    `exports` are the exported functions. `helper` returns an object that defines an undefined symbol, None if it has no such
    object. `images` maps the symbol of a function to its linked code. `name` is the SONAME. Raises `CompileError` for an object
    that is damaged or uses an unsupported feature, and for an undefined or multiply defined symbol.
    """
    linker = _Linker(architecture, images or {}, blobs)
    for number, content in enumerate(objects):
        linker.add(content, f"object {number}")
    linker.complete(helper)
    return linker.write(exports, name)


@dataclass(frozen=True)
class _SymbolDefinition:
    """Definition of a symbol: an offset in a piece or in an embedded image."""

    container: SectionChunk | Embedded
    offset: int = 0

    @property
    def address(self) -> int:
        """Address relative to the load address; valid after placement."""
        return (self.container.base if isinstance(self.container, Embedded) else self.container.address) + self.offset


class _Linker:
    """Links objects. `fixups` are the relocations, each with the chunk that it patches and its target: the name of a global symbol,
    or the definition of a local one. `slots` maps targets to the table entries that hold their addresses."""

    def __init__(self, architecture: Architecture, images: Mapping[str, Image], blobs: Sequence[Blob]) -> None:
        self.architecture = architecture
        self.globals: dict[str, _SymbolDefinition] = {}
        self.weak: set[str] = set()
        self.undefined: dict[str, str] = {}
        self.fixups: list[tuple[SectionChunk, Fixup, str | _SymbolDefinition]] = []
        self.constants, self.code = OutputSegment(READABLE), OutputSegment(READABLE | EXECUTABLE)
        self.initializers: list[SectionChunk] = []
        self.data: list[SectionChunk] = []
        self.zeros: list[SectionChunk] = []
        self.slots: dict[str | _SymbolDefinition, SectionChunk] = {}
        self.embedded: list[Embedded] = []
        self.blobs: list[OutputSegment] = []
        for symbol, image in images.items():
            self.embedded.append(embed(image))
            self.globals[symbol] = _SymbolDefinition(self.embedded[-1], image.functions[symbol])
        for blob in blobs:
            pieces = [SectionChunk(".weights", content, len(content), blob.alignment) for content in blob.contents]
            if pieces:
                self.blobs.append(OutputSegment(READABLE, pieces))
                self.globals[blob.symbol] = _SymbolDefinition(pieces[0])

    def add(self, content: bytes, origin: str) -> None:
        """Add an object to the link."""
        try:
            object_file = read_object(content, self.architecture.machine.number)
        except ValueError as error:
            raise CompileError(f"{origin} cannot be linked: {error}") from error
        pieces = {number: self._piece(section) for number, section in object_file.sections.items()}
        local = self._define(object_file, pieces, origin)
        for number, section in object_file.sections.items():
            for fixup in section.fixups:
                symbol = object_file.symbols[fixup.symbol]
                target = local.get(fixup.symbol, symbol.name)
                self.fixups.append((pieces[number], fixup, target))
                if isinstance(target, str):
                    self.undefined.setdefault(target, origin)
                if fixup.type not in self.architecture.rules:
                    rule_types = ", ".join(map(str, self.architecture.rules))
                    problem = f"relocation against {symbol.name} must have one of the types {rule_types}, found {fixup.type}"
                    raise CompileError(f"{origin}: {problem}")
                rule = self.architecture.rules[fixup.type]
                if fixup.offset + rule.bytes > len(section.content):
                    raise CompileError(f"{origin} is damaged: a relocation is outside of its section {section.name}")
                if rule.value == "table" and target not in self.slots:
                    self.slots[target] = SectionChunk(".data", bytearray(8), 8)
                if rule.value == "absolute" and pieces[number].section not in _PATCHED:
                    problem = f"absolute addresses must be in a writable section, found one in {section.name}"
                    raise CompileError(f"{origin}: {problem}", remedy="compile position-independent code")

    def _piece(self, section: Section) -> SectionChunk:
        content: Bytes = b"" if section.type == NOBITS else bytearray(section.content)
        # LLVM emits constructors to .ctors unless told that the system has .init_array; llvmlite has no option for that.
        if section.type == INIT_ARRAY or section.name == ".ctors":
            name, group = ".init_array", self.initializers
        elif section.flags & WRITE:
            name, group = (".bss", self.zeros) if section.type == NOBITS else (".data", self.data)
        elif section.flags & EXECINSTR:
            name, group = ".text", self.code.pieces
        else:
            name, group = ".rodata", self.constants.pieces
        piece = SectionChunk(name, content, section.size, section.alignment)
        group.append(piece)
        return piece

    def _define(self, object_file: Object, pieces: Mapping[int, SectionChunk], origin: str) -> dict[int, _SymbolDefinition]:
        """Define an object's global symbols; returns its local symbols by number."""
        local = {}
        for number, symbol in enumerate(object_file.symbols):
            if symbol.section is None or symbol.section not in pieces:
                continue
            if symbol.value > pieces[symbol.section].size:
                raise CompileError(f"{origin} is damaged: symbol {symbol.name} is outside of its section")
            target = _SymbolDefinition(pieces[symbol.section], symbol.value)
            if symbol.binding == LOCAL:
                local[number] = target
            elif symbol.name not in self.globals or (symbol.name in self.weak and symbol.binding != WEAK):
                self.globals[symbol.name] = target
                self.weak.discard(symbol.name)
                if symbol.binding == WEAK:
                    self.weak.add(symbol.name)
            elif symbol.binding != WEAK:
                raise CompileError(f"symbol {symbol.name} must be defined once, found a second definition in {origin}")
        return local

    def complete(self, helper: Callable[[str], bytes | None]) -> None:
        """Add helper objects until no symbol is undefined."""
        while missing := {name: origin for name, origin in self.undefined.items() if name not in self.globals}:
            for name, origin in missing.items():
                content = None if name in self.globals else helper(name)
                if content is not None:
                    self.add(content, f"the helper for {name}")
                if name not in self.globals:
                    raise CompileError(
                        f"{origin} refers to {name!r}, which neither the code nor the linker's helpers define",
                        remedy="generated code must be complete: it cannot call libraries",
                    )

    def write(self, exports: Sequence[str], name: str) -> list[Bytes]:
        """Lay out, relocate and serialize the output."""
        if missing := [symbol for symbol in exports if symbol not in self.globals]:
            raise CompileError(f"exported symbols must be defined, found no definition of {', '.join(missing)}")
        machine = self.architecture.machine
        absolute_relocations = sum(self.architecture.rules[fixup.type].value == "absolute" for _, fixup, _ in self.fixups)
        image_relocations = sum(len(item.image.relative) for item in self.embedded)
        tables = Tables(exports, name, absolute_relocations + len(self.slots) + image_relocations, self.initializers)
        self.constants.pieces[:0] = tables.constants
        data = [*self.initializers, tables.dynamic, *self.slots.values(), *self.data, *self.zeros]
        parts = [part for part in (self.constants, self.code, OutputSegment(READABLE | WRITABLE, data)) if part.pieces]
        segments = [*parts, *(part for item in self.embedded for part in item.parts), *self.blobs]
        tables.reserve(len(segments))
        assign_addresses([*parts, *self.embedded, *self.blobs], machine.page)
        relative = list(self._relocate())
        text = section_names(segments).index(".text") + 1
        tables.fill([self.globals[symbol].address for symbol in exports], text, relative, machine)
        return chunks(segments, tables, machine)

    def _relocate(self) -> Iterator[tuple[int, int]]:
        """Patch all contents. Yields (address, value) pairs that the dynamic linker must relocate by the load address."""
        for target, slot in self.slots.items():
            yield slot.address, self._address(target)
        for item in self.embedded:
            for address, addend in item.image.relative:
                yield item.base + address, item.base + addend
        for piece, fixup, target in self.fixups:
            rule = self.architecture.rules[fixup.type]
            location = piece.address + fixup.offset
            if rule.value == "absolute":
                value = self._address(target) + fixup.addend
                if not 0 <= value <= MAX_BYTES:
                    raise CompileError(f"address at {location:#x} must be in [0, {MAX_BYTES:#x}], found {value:#x}")
                yield location, value
                continue
            address = self.slots[target].address if rule.value == "table" else self._address(target)
            assert isinstance(piece.content, bytearray)
            try:
                patch = (address + fixup.addend - location).to_bytes(rule.bytes, "little", signed=True)
            except OverflowError as error:
                problem = f"reference at {location:#x} to {address:#x} must fit in {rule.bytes} bytes, found a longer distance"
                raise CompileError(problem) from error
            piece.content[fixup.offset : fixup.offset + rule.bytes] = patch

    def _address(self, target: str | _SymbolDefinition) -> int:
        return (self.globals[target] if isinstance(target, str) else target).address
