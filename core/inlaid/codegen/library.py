"""Description of an exported library's function, which a code generator prints.

    int32 <symbol>(void *argument0, ..., void *workspace, char *message)

runs its steps in order. `message` is a buffer of `MESSAGE_BYTES` bytes or null.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from inlaid.codegen.elf import Architecture
from inlaid.plugins import Codegen

WEIGHTS = "inlaid_weights"
"""Symbol of the block of all weights."""
UNSUPPORTED_PROCESSOR = -1
"""Returned on a processor that lacks a required feature. Error codes of regions are positive."""


@dataclass(frozen=True)
class Place:
    """An address: argument number `number`, or byte offset `number` in the workspace or the weights."""

    memory: Literal["argument", "workspace", "weights"]
    number: int


@dataclass(frozen=True)
class CallStep:
    """Call a region through the C ABI (`inlaid.runtime.host`), without dimensions; if it fails, return its error code and
    message."""

    symbol: str
    inputs: tuple[Place, ...]
    outputs: tuple[Place, ...]
    constants: tuple[Place, ...]


@dataclass(frozen=True)
class CopyStep:
    """Copy `size` bytes between places that are disjoint or equal; equal places are a no-op."""

    target: Place
    source: Place
    size: int


@dataclass(frozen=True)
class LibraryFunction:
    """The exported function. `arguments` is the number of pointers before `workspace`; regions use the workspace from byte
    `scratch` on. If the processor lacks a feature in `requires`, it returns `UNSUPPORTED_PROCESSOR` and runs nothing."""

    symbol: str
    arguments: int
    steps: tuple[CallStep | CopyStep, ...]
    scratch: int
    requires: tuple[str, ...]


class LibraryCodegen(Codegen):
    """A code generator whose artifacts are images (`inlaid.artifact.image`), which can be linked into shared libraries."""

    @property
    @abstractmethod
    def architecture(self) -> Architecture:
        """The architecture for the linker."""

    @abstractmethod
    def library_objects(self, function: LibraryFunction) -> Sequence[bytes]:
        """Compile relocatable objects that define the function. Their only undefined symbols are regions and weights."""
