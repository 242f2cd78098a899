"""How the object files of a region travel in one artifact.

The code of an artifact whose format begins with "elf-" is an archive of relocatable 64-bit ELF objects, in the format that `ar`
writes: the text `!<arch>`, then per member a header of 60 characters, the object, and a newline where its length is odd. Member 0
defines the region's function, under the artifact's symbol; each other member is a kernel that it calls, under a symbol that says
what the kernel is, so that equal kernels of several regions are equal members. Linkers link the members as they are.
"""

from __future__ import annotations

from collections.abc import Sequence

MAGIC = b"!<arch>\n"
X86_64 = 62
"""The machine number of ELF files for x86-64 (System V ABI, AMD64 supplement, 4.1)."""

_HEADER = 60
_END = b"`\n"
_LITTLE_64 = b"\x7fELF\x02\x01\x01"
_RELOCATABLE = 1


def pack(objects: Sequence[bytes]) -> bytes:
    """The archive of objects. Equal objects in equal order give equal bytes."""
    parts = [MAGIC]
    for number, content in enumerate(objects):
        header = f"{f'{number}.o/':<16}{0:<12}{0:<6}{0:<6}{644:<8}{len(content):<10}".encode() + _END
        parts += [header, content, b"\n" if len(content) % 2 else b""]
    return b"".join(parts)


def unpack(code: bytes, machine: int | None = None) -> tuple[bytes, ...]:
    """The objects of an archive. Raises ValueError for bytes that are no archive of at least one relocatable ELF object, each for
    the given machine."""
    if not code.startswith(MAGIC):
        raise ValueError("it is no archive of objects")
    objects: list[bytes] = []
    position = len(MAGIC)
    while position < len(code):
        header = code[position : position + _HEADER]
        size = header[48:58].rstrip(b" ")
        if len(header) != _HEADER or not header.endswith(_END) or not size.isdigit():
            raise ValueError(f"the header of member {len(objects)} is damaged")
        begin = position + _HEADER
        end = begin + int(size)
        if end > len(code):
            raise ValueError(f"member {len(objects)} reaches beyond the end")
        content = code[begin:end]
        _check(content, len(objects), machine)
        objects.append(content)
        position = end + end % 2
    if not objects:
        raise ValueError("the archive is empty")
    return tuple(objects)


def _check(content: bytes, number: int, machine: int | None) -> None:
    if not content.startswith(_LITTLE_64) or int.from_bytes(content[16:18], "little") != _RELOCATABLE:
        raise ValueError(f"member {number} is no relocatable 64-bit ELF object")
    if machine is not None and int.from_bytes(content[18:20], "little") != machine:
        raise ValueError(f"member {number} is for another machine")
