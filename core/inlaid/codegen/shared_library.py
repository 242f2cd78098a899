"""Link the regions of a model into a shared library with a C header, for programs without Python.

The target's code generator makes a function that executes the plan. The function, the images of the regions and the weights are
linked without external tools.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from inlaid.codegen.c import C_TYPES
from inlaid.codegen.c_names import RESERVED_WORDS, c_comment, c_identifier, c_name
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
    MemoryAddress,
)
from inlaid.codegen.library_sizes import LibrarySizes, byte_count
from inlaid.plugins.registry import PluginRegistry
from inlaid_runtime import arith
from inlaid_runtime.arith import Dim, SizeVar
from inlaid_runtime.artifact import ALIGNMENT, Artifact
from inlaid_runtime.artifact.image import read_image
from inlaid_runtime.artifact.plan import Invoke, Move, Plan
from inlaid_runtime.errors import EXPLAIN, CompileError, InlaidError, Remedy, Unsupported
from inlaid_runtime.execution.executable import Executable


class SharedLibrary:
    """A model to export: its function, header and weights. `name` is made a C identifier, the prefix of the C names.

    Raises `Unsupported` unless the model is native code without control flow and with bounded sizes."""

    def __init__(self, executable: Executable, name: str, registry: PluginRegistry) -> None:
        package = executable.package
        self._registry = registry
        self.prefix = c_name(name)
        self.regions = package.program.regions
        self.plan: Plan = package.program.plans["main"]
        self.artifacts: Mapping[str, Artifact] = {artifact.symbol: artifact for artifact in package.artifacts}
        self.weights = package.weights
        self._check()
        self.sizes = LibrarySizes(self.plan)
        identifiers = set(RESERVED_WORDS)
        self.size_names = {size: c_identifier(size.name, identifiers) for size in self.sizes.variables}
        self.names = {number: c_identifier(label, identifiers) for label, number in (*self.plan.inputs, *self.plan.outputs)}
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
                    f"expected native code, got {artifact.format} in region {artifact.symbol}", remedy=Remedy.join("see ", EXPLAIN)
                )
        for instruction in self.plan.instructions:
            if not isinstance(instruction, (Invoke, Move)):
                raise Unsupported(f"export does not support control flow ({type(instruction).__name__})")
        for value in self.plan.values:
            if value.dtype is None:
                raise Unsupported("export does not support sequences, optionals and strings")

    def link(self, name: str) -> list[Bytes]:
        """Link the library. `name` is its file name. Returns its bytes in chunks."""
        self._check_versions()
        codegen = self._codegen()
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
                raise CompileError(f"cannot link the code of region {artifact.symbol}: {error}") from error
        weights = Blob(WEIGHTS, [_content(array) for array in self.arrays.values()], ALIGNMENT)
        objects = codegen.library_objects(function)
        # Only the model's functions are exported, so that a program can link several such libraries.
        return link(objects, function.symbols, codegen.architecture, images=images, blobs=[weights], name=name)

    def _check_versions(self) -> None:
        """Raise `Unsupported` for a region with several code versions, listing single targets to choose from."""
        for region in self.regions:
            if self.artifacts[region.symbol].variants:
                texts = [str(target) for target in self._registry.versions(self._registry.target(region.target))]
                chosen = [Remedy(f'targets=["{text}"]', f"--target {text}") for text in texts]
                raise Unsupported(
                    f"region {region.symbol} has code for several processors, but a library can hold only one",
                    remedy=Remedy.join(
                        "compile for one processor: ", chosen[0], *(part for one in chosen[1:] for part in (" or ", one))
                    ),
                )

    def _codegen(self) -> LibraryCodegen:
        """Return the code generator of the model's regions. For a model without regions, return any that can link libraries."""
        texts = list(dict.fromkeys(region.target for region in self.regions))
        for text in texts or self._registry.kinds():
            try:
                codegen = self._registry.codegen(self._registry.target(text))
            except InlaidError:
                if texts:
                    raise
                continue
            if isinstance(codegen, LibraryCodegen):
                return codegen
        target_names = ", ".join(texts) or "no installed target"
        raise Unsupported(
            f"cannot link code for {target_names} into a shared library",
            remedy="compile the model for a target whose plugin links libraries, such as x86",
        )

    def _params(self, pairs: Sequence[tuple[str, int]], const: str) -> list[str]:
        return [f"{const}{self._type(number)} *{self.names[number]}" for _, number in pairs]

    def _type(self, number: int) -> str:
        dtype = self.plan.values[number].dtype
        assert dtype is not None
        return C_TYPES.get(dtype.name, f"uint{dtype.bytes * 8}_t")

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
        """Render the C header."""
        lines = [
            f"   size {name}: {size.lower} to {self.sizes.largest[size]}{c_comment(size.name)}"
            for size, name in self.size_names.items()
        ]
        for word, pairs in (("in ", self.plan.inputs), ("out", self.plan.outputs)):
            for label, number in pairs:
                value = self.plan.values[number]
                lines.append(f"   {word} {self.names[number]}: {value.dtype}[{', '.join(map(str, value.shape))}]{c_comment(label)}")
        upper = self.prefix.upper()
        guard = f"{upper}_H"
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

#define {upper}_WORKSPACE_BYTES {max(self.workspace, 1)}
#define {upper}_UNSUPPORTED_PROCESSOR ({UNSUPPORTED_PROCESSOR})
#define {upper}_INVALID_SIZE ({INVALID_SIZE})

/* Run the model once. Arrays are row-major and start at multiples of {ALIGNMENT} bytes, as does the workspace of
   {upper}_WORKSPACE_BYTES bytes. Thread-safe if each thread has its own workspace.{needs}
{bullets}
   Returns 0; {upper}_UNSUPPORTED_PROCESSOR if the processor lacks a required feature; {upper}_INVALID_SIZE for a size
   out of range, before anything runs unless the model computes the size; or the positive error code of an operator. Errors
   write a text to `message`, which has room for 256 bytes or is null. */
{self._prototype("run")}
{self._team() if self.threads else ""}
#ifdef __cplusplus
}}
#endif
#endif
"""

    def _team(self) -> str:
        """Render the part of the header about threads."""
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
                inputs, outputs = (
                    tuple(map(self._value_address, numbers)) for numbers in (instruction.inputs, instruction.outputs)
                )
                yield CallStep(instruction.symbol, inputs, outputs, tuple(weights), self._dims(instruction))
            elif isinstance(instruction, Move):
                size = byte_count(self.plan.values[instruction.target])
                target, source = self._value_address(instruction.target), self._value_address(instruction.source)
                if target != source:
                    yield CopyStep(target, source, size)

    def _dims(self, invoke: Invoke) -> tuple[Dim, ...]:
        """Return the dimensions that a region is called with, in the order of its signature: 0 for those that it computes."""
        artifact = self.artifacts[invoke.symbol]
        region_dims = self.sizes.region_dims(artifact, invoke)
        return tuple(arith.unwrap(region_dims.get(SizeVar(source.name), arith.Const(0))) for source in artifact.signature.dims)

    def _value_address(self, number: int) -> MemoryAddress:
        value = self.plan.values[number]
        if value.storage == "constant":
            return self._weight(value.name, self.weights[value.name])
        if value.storage == "arena":
            return MemoryAddress("workspace", self.sizes.at_largest(value.offset, "an offset"))
        return MemoryAddress("argument", self.arguments.index(number))

    def _weight(self, name: str, array: np.ndarray[Any, Any]) -> MemoryAddress:
        """Store a weight and return its place among the weights."""
        if name not in self.arrays:
            self.arrays[name] = array
            self.offsets[name] = -(-self.end // ALIGNMENT) * ALIGNMENT
            self.end = self.offsets[name] + array.nbytes
        return MemoryAddress("weights", self.offsets[name])


def _content(array: np.ndarray[Any, Any]) -> memoryview:
    return np.ascontiguousarray(array).reshape(-1).view(np.uint8).data
