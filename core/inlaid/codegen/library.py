"""Describe the functions of an exported library, which a code generator prints.

    int32 <prefix>_run(int64 size0, ..., void *argument0, ..., void *workspace, char *message)

runs the model's steps in order. `message` is a buffer of `MESSAGE_BYTES` bytes or null. A library for several threads also exports

    int32 <prefix>_run_on(void *team, ...)

which runs the steps on a team of threads. The caller provides the memory `team` and initializes it by

    void <prefix>_team(void *team, int32 threads)

Each thread except the caller of `<prefix>_run_on` calls

    void <prefix>_worker(void *team, int64 number)

with a number from 1 on. This function runs shares of parallel loops and never returns.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from typing import Literal

from inlaid.codegen.elf import Architecture
from inlaid.plugins import Codegen
from inlaid.tensor.region import RegionLoop, RegionProgram
from inlaid_runtime.arith import Dim, SizeVar
from inlaid_runtime.records import dataclass

WEIGHTS = "inlaid_weights"
"""Symbol of the block of all weights."""
UNSUPPORTED_PROCESSOR, INVALID_SIZE = -1, -2
"""Return codes of `<prefix>_run` on a processor that lacks a required feature, and for sizes that the model does not accept. Error
codes of regions are positive."""
TEAM_ALIGNMENT = 128
"""Alignment of a team in bytes. A team of n threads occupies (n + 3) * `TEAM_ALIGNMENT` bytes."""


@dataclass(frozen=True)
class MemoryAddress:
    """An address: argument number `number`, or byte offset `number` in the workspace or the weights."""

    memory: Literal["argument", "workspace", "weights"]
    number: int


@dataclass(frozen=True)
class CallStep:
    """Call a region through the C ABI (`inlaid_runtime.execution.host`), with the values of its dimensions (0 for those that it
    computes). If it fails, return its message, and its error code or, for a size that violates a constraint, `INVALID_SIZE`."""

    symbol: str
    inputs: tuple[MemoryAddress, ...]
    outputs: tuple[MemoryAddress, ...]
    constants: tuple[MemoryAddress, ...]
    dims: tuple[Dim, ...] = ()


@dataclass(frozen=True)
class CopyStep:
    """Copy `size` bytes between places that are disjoint or equal; equal places are a no-op."""

    target: MemoryAddress
    source: MemoryAddress
    size: Dim


@dataclass(frozen=True)
class SizeCheck:
    """Return `INVALID_SIZE` with a message if a condition on sizes is zero."""

    condition: Dim
    message: str


@dataclass(frozen=True)
class LibraryFunction:
    """The exported functions of a library. `arguments` is the number of pointers before `workspace`; regions use the workspace from
    byte `scratch` on. If the processor lacks a feature in `requires`, `<prefix>_run` returns `UNSUPPORTED_PROCESSOR` and runs
    nothing. `sizes` are symbolic dimensions, parameters that are checked before anything runs. `threads`: the library also exports
    the functions for a team of threads."""

    prefix: str
    arguments: int
    steps: tuple[CallStep | CopyStep, ...]
    scratch: int
    requires: tuple[str, ...]
    sizes: tuple[SizeVar, ...] = ()
    checks: tuple[SizeCheck, ...] = ()
    threads: bool = False

    @property
    def symbol(self) -> str:
        """Symbol of the function that runs the model."""
        return f"{self.prefix}_run"

    @property
    def symbols(self) -> tuple[str, ...]:
        """Symbols of all exported functions."""
        return (self.symbol, *(f"{self.prefix}_{name}" for name in ("run_on", "team", "worker") if self.threads))


class LibraryCodegen(Codegen[RegionProgram | RegionLoop]):
    """A code generator whose artifacts are images (`inlaid_runtime.artifact.image`), which can be linked into shared libraries."""

    @property
    @abstractmethod
    def architecture(self) -> Architecture:
        """The linker's description of the target's architecture."""

    @property
    def threads(self) -> bool:
        """Whether the generated code distributes parallel loops over a team of threads."""
        return False

    @abstractmethod
    def library_objects(self, function: LibraryFunction) -> Sequence[bytes]:
        """Compile relocatable objects that define the functions. Their only undefined symbols are regions and weights."""
