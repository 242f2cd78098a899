"""Ahead-of-time export: a model as a shared library and a C header, for programs without Python.

The regions' object code is linked with a C function that does what the plan says, and with the weights. Only the system's C
compiler is needed, and only here.
"""

from __future__ import annotations

import re
import shutil
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from inlaid.arith import Dim, SizeVar, free_vars
from inlaid.artifact import ALIGNMENT, Artifact
from inlaid.artifact.objects import unpack
from inlaid.artifact.plan import Invoke, Move, Plan, Value
from inlaid.codegen.c import C_TYPES
from inlaid.errors import EXPLAIN, CompileError, InputError, Remedy, Unsupported, dims_setting
from inlaid.names import unique
from inlaid.plugins import Exported as Files
from inlaid.plugins.blame import blame
from inlaid.plugins.registry import PluginRegistry, default_registry
from inlaid.runtime.c_source import link_shared
from inlaid.runtime.executable import Executable
from inlaid.runtime.output import check_output
from inlaid.runtime.package import Package

EXPORTS = "exports.map"
EXPORT = Remedy("inlaid.driver.export.export_library(executable, path)", "inlaid export")
_WORDS = """
    workspace message auto break case char const continue default do double else enum extern float for goto if inline int long
    register restrict return short signed sizeof static struct switch typedef union unsigned void volatile while
    alignas alignof bool class constexpr delete explicit export false friend mutable namespace new noexcept nullptr operator
    private protected public template this throw true try typeid typename using virtual and or not xor asm linux unix
"""
"""Words that nothing can be called in C or C++, and the parameters that the function of every model has."""
_FAILED = """\
inlaid_failed:
    if (message) memcpy(message, inlaid_state.message, sizeof inlaid_state.message);
    return inlaid_status;
"""


@dataclass(frozen=True)
class Exported:
    """The files written, and the bytes of workspace that a call needs."""

    library: Path
    header: Path
    workspace: int


def export_library(executable: Executable, path: Path, name: str | None = None) -> Exported:
    """Write `path`, a shared library, and beside it a header with the same stem.

    `name` is the prefix of the C names; default: the stem of the path without "lib". Raises `Unsupported` for a model that is not
    wholly native code of static sizes without control flow, `CompileError` when there is no C compiler, or it fails, and
    `InputError` for a path that neither may be written to.
    """
    header = path.with_suffix(".h")
    check_output(path)
    check_output(header)
    if path == header:
        raise InputError(f"{path} is the name of the header", remedy="end the name of the library in .so")
    source = _Source(executable, c_name(path.stem.removeprefix("lib") if name is None else name))
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        sources = source.write(folder, header.name)
        library = folder / "library.so"
        link_shared(sources, library, folder, [f"-Wl,--version-script={EXPORTS}"])
        shutil.copyfile(library, path)
        shutil.copyfile(folder / header.name, header)
    return Exported(path, header, source.workspace)


def writes_folders(targets: Sequence[str], registry: PluginRegistry | None = None) -> bool:
    """Whether one of some targets has files for programs without Inlaid. Raises `TargetError` for one that is not installed."""
    registry = registry or default_registry()
    return any(registry.exporter(registry.target(text)) is not None for text in targets)


def export_folder(package: Package, folder: Path, name: str, registry: PluginRegistry | None = None) -> Files:
    """Write a model as files for programs without Inlaid into a folder, as the first of its targets that knows how to has it.

    `name` is what the model is called, an identifier in C. Raises `Unsupported` where none does, or the model needs Inlaid, and
    `InputError` for a folder that cannot be made.
    """
    registry = registry or default_registry()
    targets = list(dict.fromkeys(region.target for region in package.program.regions))
    for text in targets:
        target = registry.target(text)
        exporter = registry.exporter(target)
        if exporter is None:
            continue
        try:
            folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise InputError(f"{folder} cannot be a folder: {error.strerror}") from error
        with blame(registry.owner(target.kind), "the exporter"):
            return exporter.export(Executable(package, registry=registry), folder, name)
    nodes = [node for region in package.program.regions for node in region.nodes]
    raise Unsupported(
        f"the model runs on {', '.join(targets) or 'no target at all'}, which has no files for programs without Inlaid",
        node=nodes[0] if nodes else None,
        remedy=Remedy.of("see ", EXPLAIN, "; or save a package, such as model.inlaid, and make a library of it: ", EXPORT),
    )


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
        self.names = _identifiers((*self.plan.inputs, *self.plan.outputs))
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
            if artifact.variants:
                raise Unsupported(
                    f"region {artifact.symbol} has versions for several processors, and a library holds one",
                    remedy="compile for one processor, such as --target x86:cpu=x86-64-v3",
                )
            if not artifact.format.startswith("elf-"):
                raise Unsupported(
                    f"region {artifact.symbol} is {artifact.format}, which is not native code", remedy=Remedy.of("see ", EXPLAIN)
                )
            if artifact.signature.dims:
                name = artifact.signature.dims[0].name
                raise Unsupported(f"dimension {name} is symbolic, expected static sizes", remedy=_fix((name,)))
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
        # Only the model's function is seen from outside: a program may use several such libraries.
        (folder / EXPORTS).write_text(f"{{ global: {self.prefix}_run; local: *; }};\n")
        (folder / "weights.s").write_text(
            f'.section .rodata\n.balign {ALIGNMENT}\ninlaid_weights:\n.incbin "weights.bin"\n.globl inlaid_weights\n'
            '.hidden inlaid_weights\n.section .note.GNU-stack,"",@progbits\n'
        )
        return ["model.c", "weights.s", *files]

    def _params(self, pairs: Sequence[tuple[str, int]], const: str) -> list[str]:
        return [f"{const}{self._type(number)} *{self.names[number]}" for _, number in pairs]

    def _type(self, number: int) -> str:
        of = self.plan.values[number].dtype
        assert of is not None
        return C_TYPES.get(of.name, f"uint{of.bytes * 8}_t")

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
                lines.append(f"   {word} {self.names[number]}: {value.dtype}[{', '.join(map(str, value.shape))}]{_aside(label)}")
        guard = f"{self.prefix.upper()}_H"
        bullets = "\n".join(lines)
        features = sorted({feature for artifact in self.artifacts.values() for feature in artifact.requires})
        needs = f"\n   The processor must have {', '.join(features)}." if features else ""
        return f"""#ifndef {guard}
#define {guard}
#include <stdint.h>
#ifdef __cplusplus
extern "C" {{
#endif

#define {self.prefix.upper()}_WORKSPACE_BYTES {max(self.workspace, 1)}

/* Run the model once. Arrays are row-major and start at multiples of {ALIGNMENT} bytes, as does the workspace of
   {self.prefix.upper()}_WORKSPACE_BYTES bytes. May run in several threads, each with a workspace of its own.{needs}
{bullets}
   Returns 0, or an error code with a text in `message`, which has room for 256 bytes or is null. */
{self._prototype()};

#ifdef __cplusplus
}}
#endif
#endif
"""

    def _code(self, header: str) -> str:
        body = []
        for instruction in self.plan.instructions:
            if isinstance(instruction, Invoke):
                body.append(self._invoke(instruction))
            elif isinstance(instruction, Move):
                size = _bytes(self.plan.values[instruction.target])
                body.append(f"    memcpy({self._place(instruction.target)}, {self._place(instruction.source)}, {size});")
        pointers = "const void *const *, void *const *, const void *const *, int64_t *, void *, inlaid_context *"
        declarations = "\n".join(f"extern int32_t {symbol}({pointers});" for symbol in self.artifacts)
        text = "\n".join(body)
        failed = _FAILED if any(isinstance(instruction, Invoke) for instruction in self.plan.instructions) else ""
        return f"""#include <string.h>
#include "{header}"

typedef struct {{ char message[256]; void *user; uint64_t *clock; }} inlaid_context;
extern const uint8_t inlaid_weights[];
{declarations}

{self._prototype()} {{
    uint8_t *inlaid_arena = workspace, *inlaid_scratch = inlaid_arena + {self.offset};
    inlaid_context inlaid_state = {{{{0}}, 0, 0}};
    int32_t inlaid_status = 0;
    (void)inlaid_arena, (void)inlaid_scratch, (void)inlaid_state, (void)inlaid_status;
{text}
    return 0;
{failed}}}
"""

    def _invoke(self, call: Invoke) -> str:
        constants = self.artifacts[call.symbol].constants
        inputs = ", ".join(self._place(number) for number in call.inputs) or "0"
        outputs = ", ".join(self._place(number) for number in call.outputs) or "0"
        weights = ", ".join(self._weight(f"{call.symbol}.{key}", array) for key, array in constants.items()) or "0"
        return f"""    {{
        const void *const inlaid_inputs[] = {{{inputs}}};
        void *const inlaid_outputs[] = {{{outputs}}};
        const void *const inlaid_constants[] = {{{weights}}};
        inlaid_status = {call.symbol}(inlaid_inputs, inlaid_outputs, inlaid_constants, 0, inlaid_scratch, &inlaid_state);
        if (inlaid_status != 0) goto inlaid_failed;
    }}"""

    def _place(self, number: int) -> str:
        value = self.plan.values[number]
        if value.storage == "constant":
            return f"(void *){self._weight(value.name, self.weights[value.name])}"
        if value.storage == "arena":
            return f"(void *)(inlaid_arena + {_static(value.offset, 'an offset')})"
        return f"(void *){self.names[number]}"

    def _weight(self, name: str, array: np.ndarray[Any, Any]) -> str:
        """Where a weight lies in the file of weights."""
        if name not in self.arrays:
            self.arrays[name] = array
            self.offsets[name] = -(-self.end // ALIGNMENT) * ALIGNMENT
            self.end = self.offsets[name] + array.nbytes
        return f"(inlaid_weights + {self.offsets[name]})"


def _fix(names: Sequence[str]) -> Remedy:
    return Remedy.of("fix its size: ", dims_setting(dict.fromkeys(names)))


def _static(size: Dim, what: str) -> int:
    if not isinstance(size, int):
        names = sorted(variable.name for variable in free_vars(size) if isinstance(variable, SizeVar))
        raise Unsupported(f"{what} has a symbolic size, {size!r}", remedy=_fix(names))
    return size


def _bytes(value: Value) -> int:
    size = 1 if value.dtype is None else value.dtype.bytes
    for dim in value.shape:
        size *= _static(dim, "a value")
    return size


def c_name(name: str) -> str:
    """The start of the C names of a model, and such a name itself."""
    clean = re.sub(r"[^A-Za-z0-9_]", "_", name)
    return clean if clean[:1].isalpha() and clean not in _WORDS.split() else f"model_{clean}"


def _identifiers(labels: Sequence[tuple[str, int]]) -> dict[int, str]:
    """C names for values by number, each its own: what C does not allow becomes an underscore."""
    found: dict[int, str] = {}
    taken = set(_WORDS.split())
    for label, number in labels:
        clean = re.sub(r"[^A-Za-z0-9_]", "_", label)
        if not clean[:1].isalpha() or clean.startswith("inlaid_"):
            clean = f"x_{clean}"
        found[number] = unique(clean, taken)
    return found


def _aside(label: str) -> str:
    """The name in the model, as a remark where it can be one."""
    return f" ({label})" if label.isprintable() and "*/" not in label else ""
