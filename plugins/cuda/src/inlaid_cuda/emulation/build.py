"""Compilation of CUDA source to a shared library of the host, which exports launch functions (see `emulation.h`)."""

from __future__ import annotations

import ctypes
import functools
import platform
import re
import shutil
import subprocess
import tempfile
from pathlib import Path

from inlaid_cuda.driver import MAP_BYTES, MAX_RANK, TensorMap
from inlaid_runtime.cache import DiskCache, digest
from inlaid_runtime.errors import CompileError, TargetError

COMPILERS = ("c++", "g++", "clang++")
"""Names of C++ compilers, in order of preference."""
INSTALL = "apt-get install g++"
STACK_BYTES = 128 << 10
"""Stack size of an emulated thread in bytes."""
_FRAME_BYTES = 64 << 10
"""Largest stack frame of a function in bytes. A larger frame is a compile error."""
_FLAGS = (
    "-std=gnu++17",
    "-O1",
    "-fwrapv",
    "-fno-strict-aliasing",
    "-ffp-contract=off",
    "-fno-math-errno",
    "-fno-exceptions",
    "-fno-rtti",
    "-fno-asynchronous-unwind-tables",
    f"-Werror=frame-larger-than={_FRAME_BYTES}",
    "-shared",
    "-fPIC",
    "-Wl,-z,noexecstack",
)
_HEADER = Path(__file__).with_name("emulation.h")
_KERNEL = re.compile(r'^extern "C" __global__ void\s+(?:__launch_bounds__\((\d+)[^)]*\)\s+)?(\w+)\(', re.MULTILINE)
MAX_THREADS = 1024


class Launch(ctypes.Structure):
    """A launch, with the memory layout of `emulation::Launch` in C++."""

    _fields_ = (
        ("grid", ctypes.c_uint * 3),
        ("block", ctypes.c_uint * 3),
        ("order", ctypes.c_uint),
        ("shared_bytes", ctypes.c_uint),
        ("seed", ctypes.c_ulong),
        ("shared", ctypes.c_void_p),
        ("stacks", ctypes.c_void_p),
        ("stack_bytes", ctypes.c_ulong),
        ("message", ctypes.c_char * 256),
    )


class Kernel(ctypes.Structure):
    """A kernel, with the memory layout of `emulation::Kernel` in C++."""

    _fields_ = (
        ("launch", ctypes.CFUNCTYPE(ctypes.c_int, ctypes.POINTER(Launch), ctypes.POINTER(ctypes.c_void_p))),
        ("first", ctypes.c_void_p),
        ("last", ctypes.c_void_p),
        ("arguments", ctypes.c_int),
        ("threads", ctypes.c_int),
    )

    @property
    def shared_bytes(self) -> int:
        """Size of static shared memory in bytes."""
        return (self.last or 0) - (self.first or 0)


class _TensorMap(ctypes.Structure):
    """A tensor map, with the memory layout of `emulation::TensorMap` in C++."""

    _fields_ = (
        ("address", ctypes.c_ulong),
        ("rank", ctypes.c_uint),
        ("element_bytes", ctypes.c_uint),
        ("swizzle", ctypes.c_uint),
        ("shape", ctypes.c_uint * MAX_RANK),
        ("box", ctypes.c_uint * MAX_RANK),
        ("strides", ctypes.c_ulong * MAX_RANK),
    )


def encode_tensor_map(described: TensorMap, address: int) -> bytes:
    """Encode a tensor map in the format that `emulation.h` reads."""
    bytes_, swizzled = described.element_bytes, 3
    encoded = _TensorMap(
        address, len(described.shape), bytes_, swizzled, described.shape, described.box, (bytes_, *described.strides)
    )
    return bytes(encoded).ljust(MAP_BYTES, b"\0")


@functools.cache
def find_compiler() -> str | None:
    """Return the path of the C++ compiler; None if no compiler is installed or the platform does not use ELF files."""
    return next(filter(None, map(shutil.which, COMPILERS)), None) if platform.system() == "Linux" else None


def host_source(source: str) -> str:
    """Complete source for the host compiler: prepend the header, name shared-memory sections, export the kernels."""
    parts, end = ['#line 1 "kernels.cu"\n'], 0
    exports = []
    for match in _KERNEL.finditer(source):
        threads, name = match.groups()
        line = source.count("\n", 0, match.start()) + 1
        parts += [source[end : match.start()], f'#undef INLAID_SHARED\n#define INLAID_SHARED "shared_{name}"\n#line {line}\n']
        end = match.start()
        exports.append(f"INLAID_EXPORT({name}, {threads or MAX_THREADS})\n")
    return "".join([_HEADER.read_text(), *parts, source[end:], "\n", *exports])


def compile_source(source: str, store: DiskCache) -> bytes:
    """Compile CUDA source to a shared library, cached in `store`.

    Raises `TargetError` if no C++ compiler is installed. Raises `CompileError` if the compiler rejects the source.
    """
    compiler = find_compiler()
    if compiler is None:
        raise TargetError(
            f"target cuda:arch=host needs Linux and a C++ compiler, found none of {', '.join(COMPILERS)}", remedy=INSTALL
        )
    text, flags = host_source(source), (*_FLAGS, *_processor_flags())
    key = digest("cuda-host", text, _version(compiler), *flags)
    library = store.get(key)
    if library is None:
        library = _compile(compiler, flags, text)
        store.put(key, library)
    return library


def load_library(library: bytes) -> ctypes.CDLL:
    """Load a shared library from a private temporary file. The file is deleted after the load."""
    with tempfile.TemporaryDirectory(prefix="inlaid-cuda-") as folder:
        path = Path(folder) / "kernels.so"
        path.write_bytes(library)
        return ctypes.CDLL(str(path))


def _compile(compiler: str, flags: tuple[str, ...], text: str) -> bytes:
    with tempfile.TemporaryDirectory(prefix="inlaid-cuda-") as folder:
        library = Path(folder) / "kernels.so"
        command = [compiler, *flags, "-x", "c++", "-", "-o", str(library), "-lm"]
        process = subprocess.run(command, input=text, cwd=folder, capture_output=True, text=True, check=False)
        if process.returncode:
            raise CompileError(f"{compiler} failed: {process.stderr.strip()[:2000]}")
        return library.read_bytes()


@functools.cache
def _version(compiler: str) -> str:
    return subprocess.run([compiler, "--version"], capture_output=True, text=True, check=False).stdout


@functools.cache
def _processor_flags() -> tuple[str, ...]:
    """Return the flag for FMA instructions if the processor has them. Without it, FMAs are slow C library calls."""
    try:
        return ("-mfma",) if " fma " in Path("/proc/cpuinfo").read_text() else ()
    except OSError:
        return ()
