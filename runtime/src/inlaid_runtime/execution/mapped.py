"""Maps images of native code into executable memory, without a linker.

An image is copied to anonymous memory, whose pages then become read-only or executable. Hosts that forbid this (SELinux without
`execmem`, `PR_SET_MDWE`, systemd's `MemoryDenyWriteExecute`) may allow code mapped from a file. On such hosts `dlopen` opens the
image, which is also a shared object, from memory (`memfd_create`) or from a temporary folder on a file system that allows
execution.
"""

from __future__ import annotations

import ctypes
import functools
import mmap
import os
import weakref
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

from inlaid_runtime.artifact.image import EXECUTABLE, READABLE, WRITABLE, Image, Machine, read_image
from inlaid_runtime.errors import KernelFault

_PROTECTION = {READABLE: mmap.PROT_READ, WRITABLE: mmap.PROT_WRITE, EXECUTABLE: mmap.PROT_EXEC}
_FAILED = ctypes.c_void_p(-1).value


class Mapped:
    """A mapped image or an opened library. `addresses` are the addresses of its functions. It is unmapped, or closed, when this
    object is garbage."""

    def __init__(self, addresses: Mapping[str, int], release: Callable[..., object], *arguments: Any) -> None:
        self.addresses = addresses
        # Other threads may run the code during interpreter shutdown, so it stays mapped then.
        weakref.finalize(self, release, *arguments).atexit = False


def map_image(code: bytes, machine: Machine, name: str) -> Mapped:
    """Map an image; `name` is used in errors. Raises `KernelFault` for bytes that are not an image for the machine, and if the host
    forbids executable memory."""
    try:
        image = read_image(code, machine)
    except ValueError as error:
        raise KernelFault(f"the code of {name} is damaged: {error}", remedy="compile the model again") from error
    refusals = []
    for map_by, label in (
        (_copied, "anonymous memory"),
        (_opened_in_memory, "memfd_create"),
        (_opened_on_disk, "a temporary folder"),
    ):
        try:
            return map_by(image, code)
        except OSError as error:
            refusals.append(f"{label}: {error}")
    raise KernelFault(
        f"cannot map the code of {name} into executable memory: {'; '.join(refusals)}",
        remedy="allow this process to map executable memory, or set TMPDIR to a folder on a file system without noexec",
    )


@functools.cache
def _libc() -> Any:
    libc = ctypes.CDLL(None, use_errno=True)
    libc.mmap.restype = ctypes.c_void_p
    libc.mmap.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_int, ctypes.c_int, ctypes.c_long)
    libc.mprotect.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int)
    libc.munmap.argtypes = (ctypes.c_void_p, ctypes.c_size_t)
    libc.dlclose.argtypes = (ctypes.c_void_p,)
    return libc


def _copied(image: Image, code: bytes) -> Mapped:
    """Copy segments to anonymous memory, relocate them, and set the protection of each page."""
    libc = _libc()
    kind = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS
    base = libc.mmap(None, image.size, mmap.PROT_READ | mmap.PROT_WRITE, kind, -1, 0)
    if base == _FAILED:
        raise _failure("mmap")
    mapped = Mapped({name: base + address for name, address in image.functions.items()}, libc.munmap, base, image.size)
    for segment in image.segments:
        ctypes.memmove(base + segment.address, bytes(segment.content), len(segment.content))
    for address, target in image.relative:
        ctypes.c_uint64.from_address(base + address).value = base + target
    for segment in image.segments:
        begin = segment.address // mmap.PAGESIZE * mmap.PAGESIZE
        page_protection = sum(protection for flag, protection in _PROTECTION.items() if segment.flags & flag)
        if libc.mprotect(base + begin, segment.address + segment.size - begin, page_protection):
            raise _failure("mprotect")
    return mapped


def _opened_in_memory(image: Image, code: bytes) -> Mapped:
    """Open an in-memory file with the dynamic linker."""
    descriptor = os.memfd_create("inlaid")
    try:
        with open(descriptor, "wb", closefd=False) as file:
            file.write(code)
        return open_library(f"/proc/self/fd/{descriptor}", image.functions)
    finally:
        os.close(descriptor)


def _opened_on_disk(image: Image, code: bytes) -> Mapped:
    """Open a temporary file, which is deleted immediately, with the dynamic linker."""
    import tempfile  # slow to load, and rarely needed

    with tempfile.TemporaryDirectory(prefix="inlaid-") as folder:
        path = Path(folder, "region.so")
        path.write_bytes(code)
        return open_library(str(path), image.functions)


def open_library(path: str, names: Iterable[str]) -> Mapped:
    """Open a shared library, by its absolute path, that defines the functions `names`. Raises `OSError` if it cannot be opened, and
    `AttributeError` if it lacks a function."""
    library = ctypes.CDLL(path, mode=os.RTLD_LOCAL | os.RTLD_NOW)
    # ctypes never closes the libraries that it opens.
    mapped = Mapped({}, _libc().dlclose, library._handle)
    mapped.addresses = {name: ctypes.cast(library[name], ctypes.c_void_p).value or 0 for name in names}
    return mapped


def _failure(call: str) -> OSError:
    number = ctypes.get_errno()
    return OSError(number, f"{call}: {os.strerror(number)}")
