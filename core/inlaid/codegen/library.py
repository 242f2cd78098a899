"""What the function of an exported library does: plain data that a code generator prints.

    int32 <symbol>(void *argument0, ..., void *workspace, char *message)

runs steps in order. `message` has room for `MESSAGE_BYTES` bytes or is null.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from inlaid.codegen.elf import Architecture
from inlaid.plugins import Codegen

WEIGHTS = "inlaid_weights"
"""The symbol of the memory that holds all weights."""
UNSUPPORTED_PROCESSOR = -1
"""What the function returns on a processor that lacks what the code requires. Regions return positive codes."""


@dataclass(frozen=True)
class Place:
    """An address: the argument number `number`, or `number` bytes into the workspace or the weights."""

    memory: Literal["argument", "workspace", "weights"]
    number: int


@dataclass(frozen=True)
class CallStep:
    """Call a region, a function of the C ABI (`inlaid.runtime.host`) without dimensions; if it fails, return its error code and
    message."""

    symbol: str
    inputs: tuple[Place, ...]
    outputs: tuple[Place, ...]
    constants: tuple[Place, ...]


@dataclass(frozen=True)
class CopyStep:
    """Copy bytes from one place to another, which does not overlap it, or is the same: then there is nothing to do."""

    target: Place
    source: Place
    size: int


@dataclass(frozen=True)
class LibraryFunction:
    """The function. `arguments` counts the pointers before `workspace`; regions get the workspace from byte `scratch` on. Without
    the features that it `requires` of the processor it returns `UNSUPPORTED_PROCESSOR` and runs nothing."""

    symbol: str
    arguments: int
    steps: tuple[CallStep | CopyStep, ...]
    scratch: int
    requires: tuple[str, ...]


class LibraryCodegen(Codegen):
    """A code generator whose artifacts are images (`inlaid.artifact.image`), so that shared libraries can be made of them."""

    @property
    @abstractmethod
    def architecture(self) -> Architecture:
        """What the linker must know."""

    @abstractmethod
    def library_objects(self, function: LibraryFunction) -> Sequence[bytes]:
        """Relocatable objects that define the function, and need no others but the regions and the weights."""
