"""Description of an exported library's function, which a code generator prints.

    int32 <prefix>_run(int64 size0, ..., void *argument0, ..., void *workspace, char *message)

runs its steps in order. `message` is a buffer of `MESSAGE_BYTES` bytes or null. Code for several threads has three more functions:

    int32 <prefix>_run_on(void *team, ...)

runs them on a team of threads, memory that

    void <prefix>_team(void *team, int32 threads)

has initialised; each thread but the caller then calls

    void <prefix>_worker(void *team, int64 number)

with numbers from 1, which takes part in parallel loops and never returns.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from inlaid.arith import Dim, SizeVar
from inlaid.codegen.elf import Architecture
from inlaid.plugins import Codegen

WEIGHTS = "inlaid_weights"
"""Symbol of the block of all weights."""
UNSUPPORTED_PROCESSOR, INVALID_SIZE = -1, -2
"""Returned on a processor that lacks a required feature, and for sizes that the model does not take. Error codes of regions are
positive."""
TEAM_ALIGNMENT = 128
"""Alignment of a team in bytes. A team of n threads takes n + 3 times as many."""


@dataclass(frozen=True)
class Place:
    """An address: argument number `number`, or byte offset `number` in the workspace or the weights."""

    memory: Literal["argument", "workspace", "weights"]
    number: int


@dataclass(frozen=True)
class CallStep:
    """Call a region through the C ABI (`inlaid.runtime.host`), with the values of its dimensions; if it fails, return its error
    code and message."""

    symbol: str
    inputs: tuple[Place, ...]
    outputs: tuple[Place, ...]
    constants: tuple[Place, ...]
    dims: tuple[Dim, ...] = ()


@dataclass(frozen=True)
class CopyStep:
    """Copy `size` bytes between places that are disjoint or equal; equal places are a no-op."""

    target: Place
    source: Place
    size: Dim


@dataclass(frozen=True)
class SizeCheck:
    """Return `INVALID_SIZE` with a message where a condition on sizes is zero."""

    condition: Dim
    message: str


@dataclass(frozen=True)
class LibraryFunction:
    """The exported functions. `arguments` is the number of pointers before `workspace`; regions use the workspace from byte
    `scratch` on. If the processor lacks a feature in `requires`, `<prefix>_run` returns `UNSUPPORTED_PROCESSOR` and runs nothing.
    `sizes` are symbolic dimensions, parameters that are checked before anything runs. `threads`: the program may provide a team of
    threads."""

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
        """The function that runs the model."""
        return f"{self.prefix}_run"

    @property
    def symbols(self) -> tuple[str, ...]:
        """All functions."""
        return (self.symbol, *(f"{self.prefix}_{name}" for name in ("run_on", "team", "worker") if self.threads))


class LibraryCodegen(Codegen):
    """A code generator whose artifacts are images (`inlaid.artifact.image`), which can be linked into shared libraries."""

    @property
    @abstractmethod
    def architecture(self) -> Architecture:
        """The architecture for the linker."""

    @property
    def threads(self) -> bool:
        """Whether its code shares loops among the threads of a team."""
        return False

    @abstractmethod
    def library_objects(self, function: LibraryFunction) -> Sequence[bytes]:
        """Compile relocatable objects that define the functions. Their only undefined symbols are regions and weights."""
