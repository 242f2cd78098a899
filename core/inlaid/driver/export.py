"""Ahead-of-time export of a model as a shared library and a C header, for programs without Python.

The target's code generator makes a function that executes the plan. It is linked with the images of the regions and the weights. No
external tool is needed.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from inlaid.arith import Dim, SizeVar, free_vars
from inlaid.artifact import ALIGNMENT, Artifact
from inlaid.artifact.image import read_image
from inlaid.artifact.plan import Invoke, Move, Plan, Value
from inlaid.codegen.c import C_TYPES
from inlaid.codegen.elf import Blob, Bytes, link
from inlaid.codegen.library import UNSUPPORTED_PROCESSOR, WEIGHTS, CallStep, CopyStep, LibraryCodegen, LibraryFunction, Place
from inlaid.errors import EXPLAIN, CompileError, InlaidError, InputError, Remedy, Unsupported, dims_setting
from inlaid.names import unique
from inlaid.plugins import Exported as Files
from inlaid.plugins.blame import blame
from inlaid.plugins.registry import PluginRegistry, default_registry
from inlaid.runtime.executable import Executable
from inlaid.runtime.output import check_output
from inlaid.runtime.package import Package

EXPORT = Remedy("inlaid.driver.export.export_library(executable, path)", "inlaid export")
_WORDS = """
    workspace message auto break case char const continue default do double else enum extern float for goto if inline int long
    register restrict return short signed sizeof static struct switch typedef union unsigned void volatile while
    alignas alignof bool class constexpr delete explicit export false friend mutable namespace new noexcept nullptr operator
    private protected public template this throw true try typeid typename using virtual and or not xor asm linux unix
"""
"""Keywords and predefined macros of C and C++, and the parameter names of every model's function."""


@dataclass(frozen=True)
class Exported:
    """The written files, and the workspace of a call in bytes."""

    library: Path
    header: Path
    workspace: int


def export_library(executable: Executable, path: Path, name: str | None = None, registry: PluginRegistry | None = None) -> Exported:
    """Write the shared library `path`, and a header with the same stem next to it.

    `name` is the prefix of the C names; default: the stem of the path without "lib". Raises `Unsupported` unless the model is
    native code of static sizes without control flow, `CompileError` for code that cannot be linked, and `InputError` for a path
    that cannot be written.
    """
    header = path.with_suffix(".h")
    check_output(path)
    check_output(header)
    if path == header:
        raise InputError(f"expected a library path, got the header's path {path}", remedy="use the suffix .so")
    library = _Library(executable, c_name(path.stem.removeprefix("lib") if name is None else name))
    chunks = library.link(registry or default_registry(), path.name)
    with path.open("wb") as out:
        out.writelines(chunks)
    header.write_text(library.header())
    return Exported(path, header, library.workspace)


def writes_folders(targets: Sequence[str], registry: PluginRegistry | None = None) -> bool:
    """Whether one of the targets exports files for programs without Inlaid. Raises `TargetError` for a target that is not
    installed."""
    registry = registry or default_registry()
    return any(registry.exporter(registry.target(text)) is not None for text in targets)


def export_folder(package: Package, folder: Path, name: str, registry: PluginRegistry | None = None) -> Files:
    """Export a model as files for programs without Inlaid, with the first of its targets that has an exporter.

    `name` is the model's name, a C identifier. Raises `Unsupported` if no target has an exporter or the model needs Inlaid at run
    time, and `InputError` for a folder that cannot be created.
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
            raise InputError(f"cannot create the folder {folder}: {error.strerror}") from error
        with blame(registry.owner(target.kind), "the exporter"):
            return exporter.export(Executable(package, registry=registry), folder, name)
    nodes = [node for region in package.program.regions for node in region.nodes]
    raise Unsupported(
        f"expected a target that exports files, got {', '.join(targets) or 'none'}",
        node=nodes[0] if nodes else None,
        remedy=Remedy.of("see ", EXPLAIN, "; or save a package, such as model.inlaid, and export it as a library: ", EXPORT),
    )


class _Library:
    """A model to export: its function, header and weights."""

    def __init__(self, executable: Executable, prefix: str) -> None:
        package = executable.package
        self.prefix = prefix
        self.regions = package.program.regions
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
        self.arguments = [number for _, number in (*self.plan.inputs, *self.plan.outputs)]
        self.requires = tuple(sorted({feature for artifact in self.artifacts.values() for feature in artifact.requires}))
        self.arrays: dict[str, np.ndarray[Any, Any]] = {}
        self.offsets: dict[str, int] = {}
        self.end = 0

    def _check(self) -> None:
        for artifact in self.artifacts.values():
            if not artifact.format.startswith("elf-"):
                raise Unsupported(
                    f"expected native code, got {artifact.format} in region {artifact.symbol}", remedy=Remedy.of("see ", EXPLAIN)
                )
            if artifact.signature.dims:
                name = artifact.signature.dims[0].name
                raise Unsupported(f"dimension {name} is symbolic, expected static sizes", remedy=_fix((name,)))
        for instruction in self.plan.instructions:
            if not isinstance(instruction, (Invoke, Move)):
                raise Unsupported(f"export does not support control flow ({type(instruction).__name__})")
        for value in self.plan.values:
            if value.dtype is None:
                raise Unsupported("export does not support sequences, optionals and strings")

    def link(self, registry: PluginRegistry, name: str) -> list[Bytes]:
        """Link the library under that name, in chunks."""
        self._check_versions(registry)
        codegen = self._codegen(registry)
        function = LibraryFunction(f"{self.prefix}_run", len(self.arguments), tuple(self._steps()), self.offset, self.requires)
        images = {}
        for artifact in self.artifacts.values():
            try:
                images[artifact.symbol] = read_image(artifact.code, codegen.architecture.machine)
            except ValueError as error:
                raise CompileError(f"cannot link the code of region {artifact.symbol}: {error}") from error
        weights = Blob(WEIGHTS, [_content(array) for array in self.arrays.values()], ALIGNMENT)
        objects = codegen.library_objects(function)
        # Only the model's function is exported, so that a program can link several such libraries.
        return link(objects, [function.symbol], codegen.architecture, images=images, blobs=[weights], name=name)

    def _check_versions(self, registry: PluginRegistry) -> None:
        """Raise `Unsupported` for a region with several code versions, listing single targets to choose from."""
        for region in self.regions:
            if self.artifacts[region.symbol].variants:
                texts = [str(target) for target in registry.versions(registry.target(region.target))]
                chosen = [Remedy(f'targets=["{text}"]', f"--target {text}") for text in texts]
                raise Unsupported(
                    f"region {region.symbol} has code for several processors, but a library can hold only one",
                    remedy=Remedy.of(
                        "compile for one processor: ", chosen[0], *(part for one in chosen[1:] for part in (" or ", one))
                    ),
                )

    def _codegen(self, registry: PluginRegistry) -> LibraryCodegen:
        """The code generator of the model's regions; without regions, any that can link libraries."""
        texts = list(dict.fromkeys(region.target for region in self.regions))
        for text in texts or registry.kinds():
            try:
                codegen = registry.codegen(registry.target(text))
            except InlaidError:
                if texts:
                    raise
                continue
            if isinstance(codegen, LibraryCodegen):
                return codegen
        found = ", ".join(texts) or "no installed target"
        raise Unsupported(
            f"cannot link code for {found} into a shared library",
            remedy="compile the model for a target whose plugin links libraries, such as x86",
        )

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

    def header(self) -> str:
        """Render the C header."""
        lines = []
        for word, pairs in (("in ", self.plan.inputs), ("out", self.plan.outputs)):
            for label, number in pairs:
                value = self.plan.values[number]
                lines.append(f"   {word} {self.names[number]}: {value.dtype}[{', '.join(map(str, value.shape))}]{_aside(label)}")
        guard = f"{self.prefix.upper()}_H"
        bullets = "\n".join(lines)
        needs = (
            f"\n   The processor must support {', '.join(self.requires)}; the library checks this when it is loaded."
            if self.requires
            else ""
        )
        return f"""#ifndef {guard}
#define {guard}
#include <stdint.h>
#ifdef __cplusplus
extern "C" {{
#endif

#define {self.prefix.upper()}_WORKSPACE_BYTES {max(self.workspace, 1)}
#define {self.prefix.upper()}_UNSUPPORTED_PROCESSOR ({UNSUPPORTED_PROCESSOR})

/* Run the model once. Arrays are row-major and start at multiples of {ALIGNMENT} bytes, as does the workspace of
   {self.prefix.upper()}_WORKSPACE_BYTES bytes. Thread-safe if each thread has its own workspace.{needs}
{bullets}
      Returns 0; {self.prefix.upper()}_UNSUPPORTED_PROCESSOR if the processor lacks a required feature and nothing has run; or the
      positive error code of an operator. Errors write a text to `message`, which has room for 256 bytes or is null. */
{self._prototype()};

#ifdef __cplusplus
}}
#endif
#endif
"""

    def _steps(self) -> Iterator[CallStep | CopyStep]:
        for instruction in self.plan.instructions:
            if isinstance(instruction, Invoke):
                constants = self.artifacts[instruction.symbol].constants
                weights = [self._weight(f"{instruction.symbol}.{key}", array) for key, array in constants.items()]
                inputs, outputs = (tuple(map(self._place, numbers)) for numbers in (instruction.inputs, instruction.outputs))
                yield CallStep(instruction.symbol, inputs, outputs, tuple(weights))
            elif isinstance(instruction, Move):
                size = _bytes(self.plan.values[instruction.target])
                target, source = self._place(instruction.target), self._place(instruction.source)
                if target != source:
                    yield CopyStep(target, source, size)

    def _place(self, number: int) -> Place:
        value = self.plan.values[number]
        if value.storage == "constant":
            return self._weight(value.name, self.weights[value.name])
        if value.storage == "arena":
            return Place("workspace", _static(value.offset, "an offset"))
        return Place("argument", self.arguments.index(number))

    def _weight(self, name: str, array: np.ndarray[Any, Any]) -> Place:
        """Store a weight and return its place among the weights."""
        if name not in self.arrays:
            self.arrays[name] = array
            self.offsets[name] = -(-self.end // ALIGNMENT) * ALIGNMENT
            self.end = self.offsets[name] + array.nbytes
        return Place("weights", self.offsets[name])


def _content(array: np.ndarray[Any, Any]) -> memoryview:
    return np.ascontiguousarray(array).reshape(-1).view(np.uint8).data


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
    """Convert a model's name to a C identifier, the prefix of its C names."""
    clean = re.sub(r"[^A-Za-z0-9_]", "_", name)
    return clean if clean[:1].isalpha() and clean not in _WORDS.split() else f"model_{clean}"


def _identifiers(labels: Sequence[tuple[str, int]]) -> dict[int, str]:
    """Unique C identifiers for values, by number. Characters that C does not allow become underscores."""
    found: dict[int, str] = {}
    taken = set(_WORDS.split())
    for label, number in labels:
        clean = re.sub(r"[^A-Za-z0-9_]", "_", label)
        if not clean[:1].isalpha() or clean.startswith("inlaid_"):
            clean = f"x_{clean}"
        found[number] = unique(clean, taken)
    return found


def _aside(label: str) -> str:
    """The name in the model as a C comment, if it can be one."""
    return f" ({label})" if label.isprintable() and "*/" not in label else ""
