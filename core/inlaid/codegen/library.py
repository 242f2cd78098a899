"""What the function of an exported library does: plain data that a code generator prints.

    int32 <prefix>_run(int64 size0, ..., void *argument0, ..., void *workspace, char *message)

runs steps in order. `message` has room for `MESSAGE_BYTES` bytes or is null. Code for several threads has three more functions:

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
"""The symbol of the memory that holds all weights."""
UNSUPPORTED_PROCESSOR, INVALID_SIZE = -1, -2
"""What the function returns on a processor that lacks what the code requires, and for sizes that the model does not take. Regions
return positive codes."""
TEAM_ALIGNMENT = 128
"""A team of n threads takes n + 3 times as many bytes."""


@dataclass(frozen=True)
class Place:
    """An address: the argument number `number`, or `number` bytes into the workspace or the weights."""

    memory: Literal["argument", "workspace", "weights"]
    number: int


@dataclass(frozen=True)
class CallStep:
    """Call a region, a function of the C ABI (`inlaid.runtime.host`), with the values of its dimensions; if it fails, return its
    error code and message."""

    symbol: str
    inputs: tuple[Place, ...]
    outputs: tuple[Place, ...]
    constants: tuple[Place, ...]
    dims: tuple[Dim, ...] = ()


@dataclass(frozen=True)
class CopyStep:
    """Copy bytes from one place to another, which does not overlap it, or is the same: then there is nothing to do."""

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
    """The functions of a library. `arguments` counts the pointers before `workspace`; regions get the workspace from byte `scratch`
    on. Without the features that it `requires` of the processor `<prefix>_run` returns `UNSUPPORTED_PROCESSOR` and runs nothing.
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
    """A code generator whose artifacts are images (`inlaid.artifact.image`), so that shared libraries can be made of them."""

    @property
    @abstractmethod
    def architecture(self) -> Architecture:
        """What the linker must know."""

    @property
    def threads(self) -> bool:
        """Whether its code shares loops among the threads of a team."""
        return False

    @abstractmethod
    def library_objects(self, function: LibraryFunction) -> Sequence[bytes]:
        """Relocatable objects that define the functions, and need no others but the regions and the weights."""
