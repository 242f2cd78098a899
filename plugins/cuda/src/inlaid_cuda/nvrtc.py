"""Compilation of CUDA C++ to cubins and PTX by NVRTC, which needs no driver or device.

The library is loaded from the package `nvidia-cuda-nvrtc` or `nvidia-cuda-nvrtc-cu12`, or from a CUDA toolkit.
"""

from __future__ import annotations

import ctypes
import functools
import importlib.util
import sys
from ctypes.util import find_library
from pathlib import Path

from inlaid_cuda.images import Images
from inlaid_runtime.cache import DiskCache, caches, digest
from inlaid_runtime.errors import CompileError, TargetError

INSTALL = "pip install nvidia-cuda-nvrtc"
INSTALL_12 = 'pip install "nvidia-cuda-nvrtc-cu12==12.9.*"'
OPTIONS = ("--std=c++17", "--device-as-default-execution-space", "--disable-warnings")
_FOLDERS = ("cu13", "cuda_nvrtc")
"""Folders of the library in the package `nvidia`, for CUDA 13 and for CUDA 12."""
Version = tuple[int, ...]
"""A version of CUDA: major and minor, or major alone for its latest minor version."""
_LINES = 12
"""Maximum lines of a build log in an error."""


def version_text(version: Version) -> str:
    """Format a version, such as 13.0."""
    return ".".join(map(str, version))


def install(newest: Version) -> str:
    """Return the command that installs the newest NVRTC up to a version of CUDA, 12 or later."""
    if newest == (12,):
        return INSTALL_12
    name = "nvidia-cuda-nvrtc-cu12" if newest < (13,) else "nvidia-cuda-nvrtc"
    return f'pip install "{name}=={version_text(newest)}.*"'


def _files() -> list[Path]:
    """Find candidate files of the library, newest CUDA first."""
    spec = importlib.util.find_spec("nvidia")
    roots = [] if spec is None else [Path(root) for root in spec.submodule_search_locations or ()]
    pattern = "bin/**/nvrtc64_*_0.dll" if sys.platform == "win32" else "lib/libnvrtc.so.*"
    return [file for name in _FOLDERS for root in roots for file in sorted((root / name).glob(pattern)) if "alt" not in file.name]


class Nvrtc:
    """NVRTC, loaded from a file or found by the system's loader. Raises `TargetError` if the library cannot be loaded."""

    def __init__(self, file: Path | str) -> None:
        try:
            self._library = ctypes.CDLL(str(file))
        except OSError as error:
            raise TargetError(f"NVRTC cannot be loaded: {error}", remedy=INSTALL) from error
        self._library.nvrtcGetErrorString.restype = ctypes.c_char_p
        major, minor = ctypes.c_int(), ctypes.c_int()
        self._call("nvrtcVersion", ctypes.byref(major), ctypes.byref(minor))
        self.cuda: Version = (major.value, minor.value)
        self.version = version_text(self.cuda)

    def architectures(self) -> tuple[str, ...]:
        """Return the architectures that this version supports, without variants that have a suffix (sm_90a)."""
        count = ctypes.c_int()
        self._call("nvrtcGetNumSupportedArchs", ctypes.byref(count))
        numbers = (ctypes.c_int * count.value)()
        self._call("nvrtcGetSupportedArchs", numbers)
        return tuple(f"sm_{number}" for number in numbers)

    def compiles_for(self, arch: str) -> bool:
        """Test whether this version supports an architecture."""
        return arch.rstrip("a") in self.architectures()

    def compile(self, source: str, name: str, arch: str) -> Images:
        """Compile a source to a cubin and, for an architecture without a suffix, PTX. Raises `CompileError` with the first lines of
        the log."""
        if not self.compiles_for(arch):
            raise CompileError(
                f"NVRTC {self.version} supports architectures {', '.join(self.architectures())}, got {arch}",
                plugin="cuda",
                remedy=f"choose another architecture (option arch); for sm_70, add NVRTC of CUDA 12: {INSTALL_12}",
            )
        program = ctypes.c_void_p()
        self._call("nvrtcCreateProgram", ctypes.byref(program), source.encode(), f"{name}.cu".encode(), 0, None, None)
        try:
            flags = [option.encode() for option in (f"--gpu-architecture={arch}", *OPTIONS)]
            failed = self._library.nvrtcCompileProgram(program, len(flags), (ctypes.c_char_p * len(flags))(*flags))
            if failed:
                log = self._bytes("nvrtcGetProgramLogSize", "nvrtcGetProgramLog", program).rstrip(b"\0").decode(errors="replace")
                raise self._rejected(name, log or self._reason(failed))
            cubin = self._bytes("nvrtcGetCUBINSize", "nvrtcGetCUBIN", program)
            return Images(cubin, b"" if arch.endswith("a") else self._bytes("nvrtcGetPTXSize", "nvrtcGetPTX", program))
        finally:
            self._call("nvrtcDestroyProgram", ctypes.byref(program))

    def _rejected(self, name: str, log: str) -> CompileError:
        lines = [line.rstrip() for line in log.splitlines() if line.strip()]
        more = f"\n... and {len(lines) - _LINES} more lines" if len(lines) > _LINES else ""
        text = "\n".join(lines[:_LINES])
        return CompileError(
            f"NVRTC {self.version} cannot compile the kernels of region {name}:\n{text}{more}",
            plugin="cuda",
            remedy="install another version of NVRTC, or report the model to the authors of this plugin",
        )

    def _bytes(self, size: str, get: str, program: ctypes.c_void_p) -> bytes:
        count = ctypes.c_size_t()
        self._call(size, program, ctypes.byref(count))
        buffer = ctypes.create_string_buffer(count.value)
        self._call(get, program, buffer)
        return buffer.raw

    def _call(self, name: str, *args: object) -> None:
        code = getattr(self._library, name)(*args)
        if code:
            raise CompileError(f"{name} of NVRTC failed: {self._reason(code)}", plugin="cuda")

    def _reason(self, code: int) -> str:
        return str(self._library.nvrtcGetErrorString(code).decode())


@functools.cache
def nvrtc(arch: str, newest: Version | None = None) -> Nvrtc:
    """Load the newest NVRTC that supports an architecture, else the newest. `newest`: the newest version of CUDA that may compile.
    Raises `TargetError` if none is installed."""
    files: list[Path | str] = [*_files(), *filter(None, [find_library("nvrtc")])]
    if not files:
        raise TargetError("compiling for target cuda needs NVRTC, which is not installed", remedy=INSTALL)
    fallback = None
    for library in map(_loaded, files):
        if newest is None or library.cuda[: len(newest)] <= newest:
            if library.compiles_for(arch):
                return library
            fallback = fallback or library
    if fallback is None:
        assert newest is not None
        versions = ", ".join(_loaded(file).version for file in files)
        raise TargetError(
            f"this machine's driver needs code of NVRTC {version_text(newest)} or earlier, found NVRTC {versions}",
            remedy=f"{'' if newest < (12,) else f'{install(newest)}, or '}update NVIDIA's driver",
        )
    return fallback


_loaded = functools.cache(Nvrtc)


def compile_cached(library: Nvrtc, source: str, name: str, arch: str, store: DiskCache | None = None) -> bytes:
    """Compile a source to encoded images, cached in `store` (default `caches().objects`) by source, architecture and NVRTC
    version."""
    store = caches().objects if store is None else store
    key = digest("cuda images", source, arch, library.version, *OPTIONS)
    images = store.get(key)
    if images is None:
        images = library.compile(source, name, arch).encode()
        store.put(key, images)
    return images
