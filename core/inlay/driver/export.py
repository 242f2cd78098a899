"""Ahead-of-time export: a model as a shared library and a C header, for programs without Python.

The regions' object code is linked with a C function that does what the plan says, and with the weights. Only the system's C
compiler is needed, and only here.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from inlay.arith import Dim
from inlay.artifact import ALIGNMENT, Artifact
from inlay.artifact.objects import unpack
from inlay.artifact.plan import Invoke, Move, Plan, Value
from inlay.errors import CompileError, Unsupported
from inlay.runtime.executable import Executable

COMPILERS = ("cc", "gcc", "clang")
_C_TYPES = {
    "float64": "double",
    "float32": "float",
    "bool": "uint8_t",
    **{f"{sign}int{bits}": f"{sign}int{bits}_t" for sign in ("", "u") for bits in (8, 16, 32, 64)},
}


@dataclass(frozen=True)
class Exported:
    """The files written, and the bytes of workspace that a call needs."""

    library: Path
    header: Path
    workspace: int


def export_library(executable: Executable, path: Path, name: str | None = None) -> Exported:
    """Write `path`, a shared library, and beside it a header with the same stem.

    `name` is the prefix of the C names; default: the stem of the path without "lib". Raises `Unsupported` for a model that is not
    wholly native code of static sizes without control flow, and `CompileError` when there is no C compiler, or it fails.
    """
    compiler = next(filter(None, map(shutil.which, COMPILERS)), None)
    if compiler is None:
        raise CompileError("no C compiler is found", remedy=f"install one of {', '.join(COMPILERS)}, such as Debian's gcc")
    stem = path.stem.removeprefix("lib") if name is None else name
    prefix = re.sub(r"\W", "_", stem)
    source = _Source(executable, prefix)
    header = path.with_suffix(".h")
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        sources = source.write(folder, header.name)
        library = folder / "library.so"
        command = [compiler, "-shared", "-fPIC", "-O2", "-o", str(library), *sources, "-lm"]
        done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
        if done.returncode:
            raise CompileError(f"{compiler} failed: {done.stderr.strip()[:500]}")
        shutil.copyfile(library, path)
        shutil.copyfile(folder / header.name, header)
    return Exported(path, header, source.workspace)


def _objects(artifact: Artifact) -> tuple[bytes, ...]:
    try:
        return unpack(artifact.code)
    except ValueError as error:
        raise CompileError(f"the code of region {artifact.symbol} cannot be linked: {error}") from error


class _Source:
    """The C source of a model."""

    def __init__(self, executable: Executable, prefix: str) -> None:
        package = executable.package
        self.prefix = prefix
        self.plan: Plan = package.program.plans["main"]
        self.artifacts: Mapping[str, Artifact] = {artifact.symbol: artifact for artifact in package.artifacts}
        self.weights = package.weights
        self._check()
        self.arena = _static(self.plan.workspace, "the arena")
        scratch = [_static(artifact.workspace.get("", 0), symbol) for symbol, artifact in self.artifacts.items()]
        self.scratch = max(scratch, default=0)
        self.offset = -(-self.arena // ALIGNMENT) * ALIGNMENT
        self.workspace = self.offset + self.scratch
        self.arrays: dict[str, np.ndarray[Any, Any]] = {}
        self.offsets: dict[str, int] = {}
        self.end = 0

    def _check(self) -> None:
        for artifact in self.artifacts.values():
            if not artifact.format.startswith("elf-"):
                raise Unsupported(
                    f"region {artifact.symbol} is {artifact.format}, which is not native code", remedy="see inlay partition"
                )
            if artifact.signature.dims:
                raise Unsupported(f"dimension {artifact.signature.dims[0].name} is symbolic", remedy="fix it with dims=")
        for instruction in self.plan.instructions:
            if not isinstance(instruction, (Invoke, Move)):
                raise Unsupported(f"the model holds control flow ({type(instruction).__name__}), which export does not do")
        for value in self.plan.values:
            if value.dtype is None:
                raise Unsupported("the model holds a sequence, an optional or strings, which C has not")

    def write(self, folder: Path, header: str) -> list[str]:
        """Write all files; the names of those to compile and link."""
        # Regions may have kernels in common, whose objects then are equal and must be linked once.
        objects = dict.fromkeys(content for artifact in self.artifacts.values() for content in _objects(artifact))
        files = [f"part{number}.o" for number in range(len(objects))]
        for name, content in zip(files, objects, strict=True):
            (folder / name).write_bytes(content)
        code = self._code(header)
        (folder / header).write_text(self._header())
        (folder / "model.c").write_text(code)
        with (folder / "weights.bin").open("wb") as out:
            for array in self.arrays.values():
                out.write(bytes(-out.tell() % ALIGNMENT))
                out.write(np.ascontiguousarray(array).tobytes())
        (folder / "weights.s").write_text(
            f'.section .rodata\n.balign {ALIGNMENT}\ninlay_weights:\n.incbin "weights.bin"\n.globl inlay_weights\n'
            '.hidden inlay_weights\n.section .note.GNU-stack,"",@progbits\n'
        )
        return ["model.c", "weights.s", *files]

    def _params(self, pairs: Sequence[tuple[str, int]], const: str) -> list[str]:
        found = []
        for label, number in pairs:
            value = self.plan.values[number]
            assert value.dtype is not None
            found.append(f"{const}{_C_TYPES.get(value.dtype.name, 'uint8_t')} *{_identifier(label)}")
        return found

    def _prototype(self) -> str:
        params = [
            *self._params(self.plan.inputs, "const "),
            *self._params(self.plan.outputs, ""),
            "void *workspace",
            "char *message",
        ]
        return f"int32_t {self.prefix}_run({', '.join(params)})"

    def _header(self) -> str:
        lines = []
        for word, pairs in (("in ", self.plan.inputs), ("out", self.plan.outputs)):
            for label, number in pairs:
                value = self.plan.values[number]
                lines.append(f"   {word} {_identifier(label)}: {value.dtype}[{', '.join(map(str, value.shape))}]")
        guard = f"{self.prefix.upper()}_H"
        bullets = "\n".join(lines)
        return f"""#ifndef {guard}
#define {guard}
#include <stdint.h>
#ifdef __cplusplus
extern "C" {{
#endif

#define {self.prefix.upper()}_WORKSPACE_BYTES {max(self.workspace, 1)}

/* Run the model once. Arrays are row-major and start at multiples of {ALIGNMENT} bytes, as does the workspace of
   {self.prefix.upper()}_WORKSPACE_BYTES bytes. May run in several threads, each with a workspace of its own.
{bullets}
   Returns 0, or an error code with a text in `message`, which has room for 256 bytes. */
{self._prototype()};

#ifdef __cplusplus
}}
#endif
#endif
"""

    def _code(self, header: str) -> str:
        names = {number: _identifier(label) for label, number in (*self.plan.inputs, *self.plan.outputs)}
        body = []
        for instruction in self.plan.instructions:
            if isinstance(instruction, Invoke):
                body.append(self._invoke(instruction, names))
            elif isinstance(instruction, Move):
                size = _bytes(self.plan.values[instruction.target])
                body.append(
                    f"    memcpy({self._place(instruction.target, names)}, {self._place(instruction.source, names)}, {size});"
                )
        pointers = "const void *const *, void *const *, const void *const *, int64_t *, void *, context *"
        declarations = "\n".join(f"extern int32_t {symbol}({pointers});" for symbol in self.artifacts)
        text = "\n".join(body)
        return f"""#include <string.h>
#include "{header}"

typedef struct {{ char message[256]; void *user; uint64_t *clock; }} context;
extern const uint8_t inlay_weights[];
{declarations}

{self._prototype()} {{
    uint8_t *arena = workspace, *scratch = arena + {self.offset};
    context state = {{{{0}}, 0, 0}};
    int32_t status = 0;
    (void)arena, (void)scratch;
{text}
    return 0;
failed:
    memcpy(message, state.message, 256);
    return status;
}}
"""

    def _invoke(self, call: Invoke, names: dict[int, str]) -> str:
        constants = self.artifacts[call.symbol].constants
        inputs = ", ".join(self._place(number, names) for number in call.inputs) or "0"
        outputs = ", ".join(self._place(number, names) for number in call.outputs) or "0"
        weights = ", ".join(self._weight(f"{call.symbol}.{key}", array) for key, array in constants.items()) or "0"
        return f"""    {{
        const void *const inputs[] = {{{inputs}}};
        void *const outputs[] = {{{outputs}}};
        const void *const constants[] = {{{weights}}};
        if ((status = {call.symbol}(inputs, outputs, constants, 0, scratch, &state)) != 0) goto failed;
    }}"""

    def _place(self, number: int, names: dict[int, str]) -> str:
        value = self.plan.values[number]
        if value.storage == "constant":
            return f"(void *){self._weight(value.name, self.weights[value.name])}"
        if value.storage == "arena":
            return f"(void *)(arena + {_static(value.offset, 'an offset')})"
        return f"(void *){names[number]}"

    def _weight(self, name: str, array: np.ndarray[Any, Any]) -> str:
        """Where a weight lies in the file of weights."""
        if name not in self.arrays:
            self.arrays[name] = array
            self.offsets[name] = -(-self.end // ALIGNMENT) * ALIGNMENT
            self.end = self.offsets[name] + array.nbytes
        return f"(inlay_weights + {self.offsets[name]})"


def _static(size: Dim, what: str) -> int:
    if not isinstance(size, int):
        raise Unsupported(f"{what} has a symbolic size, {size!r}", remedy="fix the model's dimensions")
    return size


def _bytes(value: Value) -> int:
    size = 1 if value.dtype is None else value.dtype.bytes
    for dim in value.shape:
        size *= _static(dim, "a value")
    return size


def _identifier(label: str) -> str:
    clean = re.sub(r"\W", "_", label)
    return f"_{clean}" if clean[:1].isdigit() or clean in ("workspace", "message") else clean
