"""Loop-level regions: distinct kernels, ordered calls of them, and their buffers. Loop-level plugins compile these."""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum, auto
from typing import Any, Literal

import numpy as np

from inlaid.tensor.ir import LoopProgram
from inlaid_runtime import arith
from inlaid_runtime.arith import Constraint, Dim
from inlaid_runtime.artifact import KernelInfo, Signature
from inlaid_runtime.records import dataclass, field
from inlaid_runtime.types import DType


@dataclass(frozen=True)
class RegionBuffer:
    """A buffer of a region.

    `storage` is "input" or "output" number `index` of the signature, "constant" number `index`, "arena" (the workspace), or
    "scope", the memory scope `scope` of the target, for scratch buffers of steps. In this storage, the buffer begins at byte
    `offset`. `shape` and `offset` are over the region's dimensions; in offsets and sizes, a dimension that the region computes
    counts as its upper bound. `fast`: the buffer is in the fast memory of a target that has two memories."""

    name: str
    storage: Literal["input", "output", "constant", "arena", "scope"]
    shape: tuple[Dim, ...]
    dtype: DType
    index: int = 0
    offset: Dim = 0
    fast: bool = False
    scope: str = ""


@dataclass(frozen=True)
class Predicate:
    """A condition under which a call runs; negated if `holds` is false.

    `condition` is a comparison over the region's dimensions, or the number of a 0-d bool buffer that an earlier call writes.
    """

    condition: arith.Expr | int
    holds: bool = True


@dataclass(frozen=True)
class KernelCall:
    """A call of kernel number `kernel` on buffers, given by number in the order of the kernel's inputs and outputs.

    `sizes` gives the values of the kernel's `size_vars`, over the region's dimensions. `defines` names, for each entry of the
    kernel's `defines`, the region dimension that takes the value of the kernel's size buffer after the call. The code generator
    allocates size buffers; they are not in `outputs`. `nodes` are the source nodes.

    The call runs if all `predicates` hold. Predicates are evaluated in order, so a later one may read data that is written only if
    the earlier ones hold. The arms of a branch are calls with opposite predicates, one arm after the other. They share memory like
    other calls. A call with predicates defines no dimension. `operations` counts the kernel's arithmetic operations over the
    region's dimensions (a multiply-add counts as two); it is 0 for a copy. `assumed` are conditions on the kernel's own dimensions
    that its schedule relies on; the predicates imply them.

    `checks` are conditions over the region's dimensions, each at the call that defines the last dimension in it. Generated code
    checks them after the call. If one does not hold, the region ends with an error (see `RegionProgram.constraints`), so that no
    kernel accesses memory by sizes that violate a condition.
    """

    kernel: int
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]
    sizes: tuple[arith.Expr, ...] = ()
    defines: tuple[arith.SizeVar, ...] = ()
    nodes: tuple[str, ...] = ()
    predicates: tuple[Predicate, ...] = ()
    operations: Dim = 0
    checks: tuple[Constraint, ...] = ()
    assumed: tuple[arith.Expr, ...] = ()

    @property
    def reads(self) -> tuple[int, ...]:
        """Return the buffers that the call reads, including the buffers that its predicates read."""
        return (*self.inputs, *(item.condition for item in self.predicates if isinstance(item.condition, int)))


class Utilization(Enum):
    """The part of a target's arithmetic units that a schedule uses: `FULL`; `SCALAR`, one vector lane for reductions; `SERIAL`, one
    thread."""

    FULL = auto()
    SCALAR = auto()
    SERIAL = auto()


@dataclass(frozen=True)
class KernelSchedule:
    """The schedule of a call's kernel: the `rule` that made it ("" for none), the `operators` and source `nodes` that it computes,
    the names of its symbolic dimensions, its predicted seconds, whether reductions dominate its arithmetic (`reduces`), and its
    utilization of the target."""

    rule: str
    operators: tuple[str, ...]
    nodes: tuple[str, ...]
    dims: tuple[str, ...]
    seconds: float
    reduces: bool
    utilization: Utilization = Utilization.FULL


@dataclass(frozen=True)
class RegionProgram:
    """A region of kernel calls. `calls` run in order. `workspace` is the size in bytes of the arena that the caller provides,
    aligned to 64; `fast` is the size of the arena in fast memory, on a target with two memories. `schedules` describes the calls'
    kernels, except copies between layouts. `aliases` are pairs of numbers (output, input): the caller provides one buffer for both,
    the output's, which initially holds the input. No buffer of storage "input" then has this input number."""

    name: str
    kernels: tuple[LoopProgram, ...]
    calls: tuple[KernelCall, ...]
    buffers: tuple[RegionBuffer, ...]
    signature: Signature
    constants: Mapping[str, np.ndarray[Any, Any]] = field(default_factory=dict)
    workspace: Dim = 0
    fast: int = 0
    schedules: tuple[KernelSchedule, ...] = ()
    aliases: tuple[tuple[int, int], ...] = ()

    @property
    def constraints(self) -> tuple[Constraint, ...]:
        """The conditions that the region checks itself, in the order of the calls. They are the first constraints of its artifact
        (for a loop-level target, the driver adds them). An error code says which one is violated: see
        `inlaid_runtime.execution.host.VIOLATION`."""
        return tuple(check for call in self.calls for check in call.checks)


@dataclass(frozen=True)
class RegionLoop:
    """A region that is a loop: it runs `body` repeatedly, with the semantics of `inlaid.graph.ir.Loop`.

    Inputs of the signature, in order: the maximum number of iterations (0-d int64), if `trip_count`; whether to run the first
    iteration (0-d bool), if `condition`; the initial `states`; the `scanned` inputs, of equal length, sliced along the first axis,
    one slice per iteration; and the loop invariants. Outputs: the final states, then all iterations' outputs, stacked along axis 0.

    Inputs of the body: the iteration number (0-d int64), the states, the slices, and the loop invariants. Outputs of the body:
    whether to continue (0-d bool), if `may_stop`; the new states; and the iteration's outputs. Every symbolic dimension of the body
    is also one of the loop.

    States whose numbers are in `in_place` are updated in place: input and output share a buffer, in the body and in the loop. All
    other states are double buffered: `spare` holds the workspace offsets of their second buffers. The body's workspace is at offset
    0; `workspace` is the total size in bytes.
    """

    name: str
    body: RegionProgram
    signature: Signature
    trip_count: bool
    condition: bool
    may_stop: bool
    states: int
    scanned: int
    spare: tuple[Dim, ...]
    workspace: Dim
    in_place: frozenset[int] = frozenset()

    @property
    def aliases(self) -> tuple[tuple[int, int], ...]:
        """Return pairs (output, input) as in `RegionProgram.aliases`."""
        return tuple((state, self.trip_count + self.condition + state) for state in sorted(self.in_place))


def kernel_infos(region: RegionProgram) -> tuple[KernelInfo, ...]:
    """Describe the calls of a region, in order, as `Artifact.kernels` holds them."""
    return tuple(
        KernelInfo(region.kernels[call.kernel].name, call.nodes, call.operations, _bytes_accessed(region, call))
        for call in region.calls
    )


def _bytes_accessed(region: RegionProgram, call: KernelCall) -> Dim:
    """Return the number of bytes in the buffers that a call reads or writes."""
    buffers = (region.buffers[number] for number in dict.fromkeys((*call.inputs, *call.outputs)))
    sizes = (arith.mul(arith.product(buffer.shape), buffer.dtype.bytes) for buffer in buffers)
    return arith.unwrap(arith.simplify(sum(sizes, arith.ZERO)))


def size_vars(program: LoopProgram) -> tuple[arith.SizeVar, ...]:
    """Return the symbolic dimensions that a kernel takes as arguments: first those in its parameters' shapes, in order of
    appearance and without those that it defines, then those that only its body reads."""
    defined = {size for size, _ in program.defines}
    sizes: dict[arith.SizeVar, None] = {}
    for buffer in program.params:
        for dim in buffer.shape:
            if not isinstance(dim, int):
                for node in arith.walk(dim):
                    if isinstance(node, arith.SizeVar) and node not in defined:
                        sizes[node] = None
    return (*sizes, *program.sizes)
