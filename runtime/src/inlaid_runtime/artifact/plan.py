"""The plan, which the executor follows to run a model: instructions over numbered values.

A value is a tensor in the arena, an input, an output, a constant, or a host object (a sequence, an optional, a string tensor).
There are no tuples: the compiler flattens them.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

from inlaid_runtime.arith import Constraint, Dim
from inlaid_runtime.records import dataclass, field
from inlaid_runtime.types import DType

Storage = Literal["input", "output", "constant", "arena", "dynamic", "host"]


@dataclass(frozen=True)
class Value:
    """A value of a plan.

    `storage` is "input" or "output" (owned by the caller); "constant" (in the package's weights under `name`); "arena" (at byte
    `offset` of its device's arena); "dynamic" (allocated when computed, since its size has no bound before the run; on a device it
    shares memory with values of disjoint lifetimes, see `execution.blocks`); or "host" (a Python object, `dtype` None). `shape` has
    expressions over the plan's dimensions; an input that is a string tensor has a shape too, which binds dimensions. `device` is
    the target whose memory contains the value, "" for host memory. Values in device memory are arena and dynamic values, constants,
    and inputs and outputs of called plans.
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
    """Run plan `then` if the 0-d bool `condition` is true, else plan `otherwise`; both take `inputs` and return `outputs`."""

    condition: int
    then: str
    otherwise: str
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]


@dataclass(frozen=True)
class Loop:
    """Run plan `body` repeatedly, with the semantics of the graph's `Loop`.

    The body takes (iteration, state..., slices of scanned..., captured...) and returns (keep going, state..., outputs...); the
    instruction returns (final state..., stacked outputs...). Values on a device stay on it in the body. `spare` has for each such
    value, in order, a value with the shape of one iteration that may be overwritten: state is double-buffered, and a slice at an
    unaligned offset is copied.
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
    """Copy value `source` to value `target`: an input returned as an output, or a value between host and device. A copy from a
    device is complete after a `Wait`. `donate`: the target reuses the source's buffer, and nothing reads the source afterwards; an
    input is reused if it is already on the device, and copied otherwise. `apart`: the device copies concurrently with its kernels,
    and nothing else uses the memory before a copy to the device, or after a copy from it."""

    source: int
    target: int
    donate: bool = False
    apart: bool = False


@dataclass(frozen=True)
class Bind:
    """Bind a size to element `element`, in row-major order, of the int64 value `source`. The size is the first extent of value
    `target`, which has no elements. `name` and `node` are used in the error for an element that is not a size."""

    source: int
    target: int
    name: str
    node: str
    element: int = 0


@dataclass(frozen=True)
class Assert:
    """Raise an error with `message` unless the 0-d bool `condition` is true. None as `condition` means false. `outputs` have no
    elements."""

    condition: int | None
    outputs: tuple[int, ...]
    message: str
    node: str


@dataclass(frozen=True)
class Wait:
    """Wait until a device has finished its queued work."""

    device: str


Instruction = Invoke | Call | Branch | Loop | Move | Bind | Assert | Wait


@dataclass(frozen=True)
class Plan:
    """A function as straight-line instructions. `inputs` and `outputs` name the caller's arrays, in order; `workspace` is the size
    of the host arena in bytes, `arenas` has the sizes of device arenas. `constraints` are conditions on the sizes that the plan
    knows: checked before the first instruction, once per set of input sizes, or after the instruction that computes a size."""

    name: str
    values: tuple[Value, ...]
    inputs: tuple[tuple[str, int], ...]
    outputs: tuple[tuple[str, int], ...]
    instructions: tuple[Instruction, ...]
    workspace: Dim = 0
    arenas: Mapping[str, Dim] = field(default_factory=dict)
    constraints: tuple[Constraint, ...] = ()

    @property
    def donated(self) -> frozenset[int]:
        """The numbers of values whose buffers other values reuse."""
        return frozenset(item.source for item in self.instructions if isinstance(item, Move) and item.donate)


@dataclass(frozen=True)
class RegionInfo:
    """Target string and source nodes of an artifact, for profiles and reports."""

    symbol: str
    target: str
    nodes: tuple[str, ...]


@dataclass(frozen=True)
class Program:
    """Plans by name, with entry "main", and facts on regions. With artifacts and weights, a program makes up an executable."""

    plans: Mapping[str, Plan]
    regions: tuple[RegionInfo, ...]
