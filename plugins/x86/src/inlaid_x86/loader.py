"""Object code into memory."""

from __future__ import annotations

import functools
import itertools
import threading
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import llvmlite.binding as llvm

from inlaid.errors import KernelFault
from inlaid_x86.emit import initialise

_LOCK = threading.Lock()
"""Held while code is loaded: threads that load at once must share one linker."""


@dataclass(frozen=True)
class Linked:
    """Loaded code: addresses by symbol. The code lives as long as this object."""

    addresses: dict[str, int]
    keep_alive: Any


def link(objects: Sequence[bytes], name: str, symbols: tuple[str, ...]) -> Linked:
    """Load ELF objects together; what they leave undefined is looked for in the process. Raises `KernelFault` where that fails."""
    builder = llvm.JITLibraryBuilder().add_current_process()
    for content in objects:
        builder.add_object_img(content)
    for symbol in symbols:
        builder.export_symbol(symbol)
    try:
        with _LOCK:
            # Names of loaded libraries must differ, and executables may be loaded several times.
            tracker = builder.link(_jit(), f"{name}.{next(_numbers())}")
    except RuntimeError as error:
        raise KernelFault(f"the code of {name} cannot be loaded: {error}", plugin="x86") from error
    return Linked({symbol: tracker[symbol] for symbol in symbols}, tracker)


@functools.cache
def _jit() -> Any:
    initialise()
    return llvm.create_lljit_compiler()


@functools.cache
def _numbers() -> Iterator[int]:
    return itertools.count()
