"""The plan: what an executor does to run a model, over numbered values.

A value is a tensor in the arena, an input, an output, a constant, or a host object (a sequence, an optional, a string tensor).
Tuples do not exist here: the compiler flattens them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from inlaid.arith import Dim
from inlaid.types import DType

Storage = Literal["input", "output", "constant", "arena", "dynamic", "host"]


@dataclass(frozen=True)
class Value:
    """One value of a plan.

    `storage` says where it lives: "input" and "output" belong to the caller; "constant" in the package's weights under `name`;
    "arena" at byte `offset` of the arena of its device; "dynamic" is allocated when it is produced, because its size is not bounded
    before the run (on a device in memory that values of other lifetimes share, see `inlaid.runtime.blocks`); "host" is a Python
    object (`dtype` None). `shape` is over the plan's dimensions; a tensor of strings that is an input has one too, which binds
    dimensions. `device` is the target in whose memory it lies, "" for the host's: values in an
    arena, dynamic ones, constants, and the inputs and outputs of plans that another plan runs may lie on devices.
    """

    storage: Storage
    dtype: DType | None
    shape: tuple[Dim, ...] = ()
    name: str = ""
    offset: Dim = 0
    device: str = ""


@dataclass(frozen=True)
class Invoke:
    """Run artifact `symbol` on values."""

    symbol: str
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]


@dataclass(frozen=True)
class Call:
    """Run another plan of the package: a global function."""

    plan: str
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]


@dataclass(frozen=True)
class Branch:
    """Run plan `then` where the 0-d bool `condition` holds, else plan `otherwise`; both take `inputs` and give `outputs`."""

    condition: int
    then: str
    otherwise: str
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]


@dataclass(frozen=True)
class Loop:
    """Run plan `body` repeatedly (the semantics of the graph's `Loop`).

    The body plan takes (iteration, state..., slices of scanned..., captured...) and gives (keep going, state..., outputs...);
    the instruction gives (final state..., stacked outputs...). What of these lies on a device does so in the body too, and has a
    value of one iteration's shape in `spare`, in order, to be overwritten: state lives in two buffers by turns, and a slice that
    starts where no tensor may is copied.
    """

    body: str
    trip_count: int | None
    condition: int | None
    state: tuple[int, ...]
    scanned: tuple[int, ...]
    captured: tuple[int, ...]
    outputs: tuple[int, ...]
    spare: tuple[int, ...] = ()


@dataclass(frozen=True)
class Move:
    """Copy value `source` to value `target`: an input returned as an output, or a value between the host and a device. What a
    device gives has arrived after a `Wait`. `donate`: the target takes over the source's buffer instead, and nothing reads the
    source afterwards; an input that moves to a device does so where it lies there already, and is copied otherwise. `apart`: the
    device copies beside its kernels, from or to memory that nothing else uses before (to it) or afterwards (from it)."""

    source: int
    target: int
    donate: bool = False
    apart: bool = False


@dataclass(frozen=True)
class Bind:
    """Read an element of the int64 `source`, by its row-major number, as a size: value `target` has it as its first extent, and no
    elements. `name` and `node` are what an error says of a value that is no size."""

    source: int
    target: int
    name: str
    node: str
    element: int = 0


@dataclass(frozen=True)
class Assert:
    """Raise an error with `message` unless the 0-d bool `condition` holds; None never does. `outputs` have no elements."""

    condition: int | None
    outputs: tuple[int, ...]
    message: str
    node: str


@dataclass(frozen=True)
class Wait:
    """Wait until a device has done what the plan gave it to do."""

    device: str


Instruction = Invoke | Call | Branch | Loop | Move | Bind | Assert | Wait


@dataclass(frozen=True)
class Plan:
    """One function as straight-line instructions. `inputs` and `outputs` name the caller's arrays, in order; `workspace` is the
    size of the host's arena in bytes, `arenas` those of devices."""

    name: str
    values: tuple[Value, ...]
    inputs: tuple[tuple[str, int], ...]
    outputs: tuple[tuple[str, int], ...]
    instructions: tuple[Instruction, ...]
    workspace: Dim = 0
    arenas: Mapping[str, Dim] = field(default_factory=dict)

    @property
    def donated(self) -> frozenset[int]:
        """The values whose buffers others take over."""
        return frozenset(item.source for item in self.instructions if isinstance(item, Move) and item.donate)


@dataclass(frozen=True)
class RegionInfo:
    """What a profile or a report says of an artifact: its target (as a target string) and the source nodes it computes."""

    symbol: str
    target: str
    nodes: tuple[str, ...]


@dataclass(frozen=True)
class Program:
    """Everything an executable consists of besides artifacts and weights: plans by name (entry "main") and facts on regions."""

    plans: Mapping[str, Plan]
    regions: tuple[RegionInfo, ...]
