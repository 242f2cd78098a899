"""Ahead-of-time export: a model as a shared library and a C header, for programs without Python.

The regions' images are linked with a function that does what the plan says, which the target's code generator makes, and with the
weights. Nothing but Inlaid is needed.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from inlaid.artifact import ALIGNMENT, Artifact
from inlaid.artifact.image import read_image
from inlaid.artifact.plan import Invoke, Move, Plan
from inlaid.codegen.c import C_TYPES
from inlaid.codegen.elf import Blob, Bytes, link
from inlaid.codegen.library import (
    INVALID_SIZE,
    TEAM_ALIGNMENT,
    UNSUPPORTED_PROCESSOR,
    WEIGHTS,
    CallStep,
    CopyStep,
    LibraryCodegen,
    LibraryFunction,
    Place,
)
from inlaid.driver.export_sizes import LibrarySizes, byte_count
from inlaid.errors import EXPLAIN, CompileError, InlaidError, InputError, Remedy, Unsupported
from inlaid.names import unique
from inlaid.plugins import Exported as Files
from inlaid.plugins.blame import blame
from inlaid.plugins.registry import PluginRegistry, default_registry
from inlaid.runtime.executable import Executable
from inlaid.runtime.output import check_output
from inlaid.runtime.package import Package

EXPORT = Remedy("inlaid.driver.export.export_library(executable, path)", "inlaid export")
_WORDS = """
    workspace message team auto break case char const continue default do double else enum extern float for goto if inline int long
    register restrict return short signed sizeof static struct switch typedef union unsigned void volatile while
    alignas alignof bool class constexpr delete explicit export false friend mutable namespace new noexcept nullptr operator
    private protected public template this throw true try typeid typename using virtual and or not xor asm linux unix
"""
"""Words that nothing can be called in C or C++, and the parameters that the function of every model has."""


@dataclass(frozen=True)
class Exported:
    """The files written, the bytes of workspace that a call needs, the least and greatest values of symbolic sizes, and whether the
    program may provide threads."""

    library: Path
    header: Path
    workspace: int
    sizes: Mapping[str, tuple[int, int]]
    threads: bool


def export_library(executable: Executable, path: Path, name: str | None = None, registry: PluginRegistry | None = None) -> Exported:
    """Write `path`, a shared library, and beside it a header with the same stem.

    `name` is the prefix of the C names; default: the stem of the path without "lib". Symbolic sizes are parameters, and need upper
    bounds, for which the workspace is planned. Code for more than one thread runs on threads that the program provides. Raises
    `Unsupported` for a model that is not wholly native code without control flow, or has sizes without bounds, `CompileError` for
    code that cannot be linked, and `InputError` for a path that neither may be written to.
    """
    header = path.with_suffix(".h")
    check_output(path)
    check_output(header)
    if path == header:
        raise InputError(f"{path} is the name of the header", remedy="end the name of the library in .so")
    library = _Library(executable, c_name(path.stem.removeprefix("lib") if name is None else name))
    chunks = library.link(registry or default_registry(), path.name)
    with path.open("wb") as out:
        out.writelines(chunks)
    header.write_text(library.header())
    bounds = {size.name: (size.lower, library.sizes.largest[size]) for size in library.sizes.variables}
    return Exported(path, header, library.workspace, bounds, library.threads)


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


class _Library:
    """A model as a library: its function, its header and its weights."""

    def __init__(self, executable: Executable, prefix: str) -> None:
        package = executable.package
        self.prefix = prefix
        self.regions = package.program.regions
        self.plan: Plan = package.program.plans["main"]
        self.artifacts: Mapping[str, Artifact] = {artifact.symbol: artifact for artifact in package.artifacts}
        self.weights = package.weights
        self._check()
        self.sizes = LibrarySizes(self.plan)
        taken = set(_WORDS.split())
        self.size_names = {size: _identifier(size.name, taken) for size in self.sizes.variables}
        self.names = {number: _identifier(label, taken) for label, number in (*self.plan.inputs, *self.plan.outputs)}
        self.arena = self.sizes.at_largest(self.plan.workspace, "the arena")
        invokes = [item for item in self.plan.instructions if isinstance(item, Invoke)]
        self.scratch = max((self.sizes.scratch(self.artifacts[item.symbol], item) for item in invokes), default=0)
        self.offset = -(-self.arena // ALIGNMENT) * ALIGNMENT
        self.workspace = self.offset + self.scratch
        self.arguments = [number for _, number in (*self.plan.inputs, *self.plan.outputs)]
        self.requires = tuple(sorted({feature for artifact in self.artifacts.values() for feature in artifact.requires}))
        self.threads = False
        self.arrays: dict[str, np.ndarray[Any, Any]] = {}
        self.offsets: dict[str, int] = {}
        self.end = 0

    def _check(self) -> None:
        for artifact in self.artifacts.values():
            if not artifact.format.startswith("elf-"):
                raise Unsupported(
                    f"region {artifact.symbol} is {artifact.format}, which is not native code", remedy=Remedy.of("see ", EXPLAIN)
                )
        for instruction in self.plan.instructions:
            if not isinstance(instruction, (Invoke, Move)):
                raise Unsupported(f"the model holds control flow ({type(instruction).__name__}), which export does not do")
        for value in self.plan.values:
            if value.dtype is None:
                raise Unsupported("the model holds a sequence, an optional or strings, which C has not")

    def link(self, registry: PluginRegistry, name: str) -> list[Bytes]:
        """The library of that name, in chunks."""
        self._check_versions(registry)
        codegen = self._codegen(registry)
        self.threads = bool(self.regions) and codegen.threads
        function = LibraryFunction(
            self.prefix,
            len(self.arguments),
            tuple(self._steps()),
            self.offset,
            self.requires,
            self.sizes.variables,
            tuple(self.sizes.checks(self.artifacts)),
            self.threads,
        )
        images = {}
        for artifact in self.artifacts.values():
            try:
                images[artifact.symbol] = read_image(artifact.code, codegen.architecture.machine)
            except ValueError as error:
                raise CompileError(f"the code of region {artifact.symbol} cannot be linked: {error}") from error
        weights = Blob(WEIGHTS, [_content(array) for array in self.arrays.values()], ALIGNMENT)
        objects = codegen.library_objects(function)
        # Only the model's functions are seen from outside: a program may use several such libraries.
        return link(objects, function.symbols, codegen.architecture, images=images, blobs=[weights], name=name)

    def _check_versions(self, registry: PluginRegistry) -> None:
        """Raises `Unsupported` for a region of several versions, naming the targets of one."""
        for region in self.regions:
            if self.artifacts[region.symbol].variants:
                texts = [str(target) for target in registry.versions(registry.target(region.target))]
                chosen = [Remedy(f'targets=["{text}"]', f"--target {text}") for text in texts]
                raise Unsupported(
                    f"region {region.symbol} has versions for several processors, and a library holds one",
                    remedy=Remedy.of(
                        "compile for one processor: ", chosen[0], *(part for one in chosen[1:] for part in (" or ", one))
                    ),
                )

    def _codegen(self, registry: PluginRegistry) -> LibraryCodegen:
        """The code generator of the model's regions; of a model that has none, any that makes libraries."""
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
            f"shared libraries can be made of no code for {found}",
            remedy="compile the model for a target whose plugin makes libraries",
        )

    def _params(self, pairs: Sequence[tuple[str, int]], const: str) -> list[str]:
        return [f"{const}{self._type(number)} *{self.names[number]}" for _, number in pairs]

    def _type(self, number: int) -> str:
        of = self.plan.values[number].dtype
        assert of is not None
        return C_TYPES.get(of.name, f"uint{of.bytes * 8}_t")

    def _prototype(self, name: str, *first: str) -> str:
        params = [
            *first,
            *(f"int64_t {name}" for name in self.size_names.values()),
            *self._params(self.plan.inputs, "const "),
            *self._params(self.plan.outputs, ""),
            "void *workspace",
            "char *message",
        ]
        return f"int32_t {self.prefix}_{name}({', '.join(params)});"

    def header(self) -> str:
        """The C header."""
        lines = [
            f"   size {name}: {size.lower} to {self.sizes.largest[size]}{_aside(size.name)}"
            for size, name in self.size_names.items()
        ]
        for word, pairs in (("in ", self.plan.inputs), ("out", self.plan.outputs)):
            for label, number in pairs:
                value = self.plan.values[number]
                lines.append(f"   {word} {self.names[number]}: {value.dtype}[{', '.join(map(str, value.shape))}]{_aside(label)}")
        upper = self.prefix.upper()
        guard = f"{upper}_H"
        bullets = "\n".join(lines)
        needs = (
            f"\n   The processor must have {', '.join(self.requires)}; the library checks it when it is loaded."
            if self.requires
            else ""
        )
        return f"""#ifndef {guard}
#define {guard}
#include <stdint.h>
#ifdef __cplusplus
extern "C" {{
#endif

#define {upper}_WORKSPACE_BYTES {max(self.workspace, 1)}
#define {upper}_UNSUPPORTED_PROCESSOR ({UNSUPPORTED_PROCESSOR})
#define {upper}_INVALID_SIZE ({INVALID_SIZE})

/* Run the model once. Arrays are row-major and start at multiples of {ALIGNMENT} bytes, as does the workspace of
   {upper}_WORKSPACE_BYTES bytes. May run in several threads, each with a workspace of its own.{needs}
{bullets}
   Returns 0; having run nothing, {upper}_UNSUPPORTED_PROCESSOR where the processor lacks a feature, or
   {upper}_INVALID_SIZE for a size that the model does not take; or the positive error code of an operator. Errors leave a
   text in `message`, which has room for 256 bytes or is null. */
{self._prototype("run")}
{self._team() if self.threads else ""}
#ifdef __cplusplus
}}
#endif
#endif
"""

    def _team(self) -> str:
        """The part of the header about threads."""
        upper = self.prefix.upper()
        return f"""
#define {upper}_TEAM_BYTES(threads) ({TEAM_ALIGNMENT} * ((threads) + 3))

/* Prepare a team of threads, the caller of {self.prefix}_run_on included, in memory of {upper}_TEAM_BYTES(threads) bytes
   that starts at a multiple of {TEAM_ALIGNMENT} bytes and lasts as long as the process. Then start the others, each with a call
   of {self.prefix}_worker and a number from 1 to threads - 1: it never returns. */
void {self.prefix}_team(void *team, int32_t threads);
void {self.prefix}_worker(void *team, int64_t number);

/* Run the model once on a team. One run at a time uses it; runs that overlap it use one thread each. */
{self._prototype("run_on", "void *team")}
"""

    def _steps(self) -> Iterator[CallStep | CopyStep]:
        for instruction in self.plan.instructions:
            if isinstance(instruction, Invoke):
                constants = self.artifacts[instruction.symbol].constants
                weights = [self._weight(f"{instruction.symbol}.{key}", array) for key, array in constants.items()]
                inputs, outputs = (tuple(map(self._place, numbers)) for numbers in (instruction.inputs, instruction.outputs))
                dims = self.sizes.of_region(self.artifacts[instruction.symbol], instruction).values()
                yield CallStep(instruction.symbol, inputs, outputs, tuple(weights), tuple(dims))
            elif isinstance(instruction, Move):
                size = byte_count(self.plan.values[instruction.target])
                target, source = self._place(instruction.target), self._place(instruction.source)
                if target != source:
                    yield CopyStep(target, source, size)

    def _place(self, number: int) -> Place:
        value = self.plan.values[number]
        if value.storage == "constant":
            return self._weight(value.name, self.weights[value.name])
        if value.storage == "arena":
            return Place("workspace", self.sizes.at_largest(value.offset, "an offset"))
        return Place("argument", self.arguments.index(number))

    def _weight(self, name: str, array: np.ndarray[Any, Any]) -> Place:
        """Where a weight is among the weights."""
        if name not in self.arrays:
            self.arrays[name] = array
            self.offsets[name] = -(-self.end // ALIGNMENT) * ALIGNMENT
            self.end = self.offsets[name] + array.nbytes
        return Place("weights", self.offsets[name])


def _content(array: np.ndarray[Any, Any]) -> memoryview:
    return np.ascontiguousarray(array).reshape(-1).view(np.uint8).data


def c_name(name: str) -> str:
    """The start of the C names of a model, and such a name itself."""
    clean = re.sub(r"[^A-Za-z0-9_]", "_", name)
    return clean if clean[:1].isalpha() and clean not in _WORDS.split() else f"model_{clean}"


def _identifier(label: str, taken: set[str]) -> str:
    """A C name that is not taken yet: what C does not allow becomes an underscore."""
    clean = re.sub(r"[^A-Za-z0-9_]", "_", label)
    if not clean[:1].isalpha() or clean.startswith("inlaid_"):
        clean = f"x_{clean}"
    return unique(clean, taken)


def _aside(label: str) -> str:
    """The name in the model, as a remark where it can be one."""
    return f" ({label})" if label.isprintable() and "*/" not in label else ""
