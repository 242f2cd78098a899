"""Linking of x86-64 objects: relocation types, and helpers for C library functions that LLVM calls."""

from __future__ import annotations

import functools
from collections.abc import Sequence

from inlaid.codegen.elf import Architecture, RelocationKind, link
from inlaid_runtime.cache import DiskCache, digest
from inlaid_x86.compilers import fingerprint
from inlaid_x86.emit import EXPLICIT, FULL
from inlaid_x86.llvm.helpers import helper
from inlaid_x86.llvm.region import Dialect
from inlaid_x86.machine import TRIPLE, compile_text, data_layout
from inlaid_x86_runtime.pool import MACHINE

X86_64 = Architecture(
    MACHINE,
    {
        1: RelocationKind("absolute", 8),  # R_X86_64_64
        2: RelocationKind("relative"),  # R_X86_64_PC32
        4: RelocationKind("relative"),  # R_X86_64_PLT32: every function is in the image, so no call needs a procedure linkage table
        9: RelocationKind("table"),  # R_X86_64_GOTPCREL
        24: RelocationKind("relative", 8),  # R_X86_64_PC64
        41: RelocationKind("table"),  # R_X86_64_GOTPCRELX
        42: RelocationKind("table"),  # R_X86_64_REX_GOTPCRELX
    },
)
"""Relocation types of position-independent code (System V ABI, AMD64 supplement, table 4.9)."""


_NOWHERE = DiskCache(None, 0)


def link_image(
    objects: Sequence[bytes],
    exports: Sequence[str],
    features: str = "",
    attributes: str = "",
    store: DiskCache = _NOWHERE,
    name: str = "",
) -> bytes:
    """Link objects to an image that exports some of their functions. C library helpers are compiled for `features` (LLVM syntax)
    with the function `attributes` of the objects, and cached in `store`."""
    chunks = link(objects, exports, X86_64, helper=lambda symbol: helper_object(symbol, features, attributes, store), name=name)
    return b"".join(chunks)


def helper_object(symbol: str, features: str = "", attributes: str = "", store: DiskCache = _NOWHERE) -> bytes | None:
    """Compile the object that defines a function of the C library. Returns None for an unknown function."""
    text = helper(symbol)
    if text is None:
        return None
    module = Dialect(TRIPLE, data_layout(), attributes).module(text)
    key = digest(fingerprint(), features, module)
    content = store.get(key)
    if content is None:
        # Few passes for memcpy and its like: others would replace its loop by a call of memcpy, which then calls itself.
        content = _compiled(module, features, EXPLICIT if symbol.startswith("mem") else FULL)
        store.put(key, content)
    return content


@functools.cache
def _compiled(module: str, features: str, effort: int) -> bytes:
    return compile_text(module, features, effort=effort)
