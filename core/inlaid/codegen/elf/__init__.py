"""A linker for ELF64: relocatable objects into images and shared libraries.

`read.py` reads objects, `link.py` resolves symbols and applies relocations, `layout.py` assigns addresses, `write.py` writes the
file. A code generator passes the relocation types of its architecture. The linker runs no program and reads no file.
"""

from __future__ import annotations

from inlaid.codegen.elf.layout import Bytes
from inlaid.codegen.elf.link import Architecture, Blob, RelocationKind, link

__all__ = ["Architecture", "Blob", "Bytes", "RelocationKind", "link"]
