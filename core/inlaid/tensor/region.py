"""A region at loop level: distinct kernels, ordered calls to them, and their buffers. What a loop-level plugin compiles."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np

from inlaid import arith
from inlaid.arith import Dim
from inlaid.artifact import KernelInfo, Signature
from inlaid.tensor.ir import LoopProgram
from inlaid.types import DType


@dataclass(frozen=True)
class RegionBuffer:
    """One buffer of a region.

    `storage`: "input" or "output" number `index` of the signature, "constant" number `index`, or "arena", the workspace; the buffer
    lies there from byte `offset` on. `shape` and `offset` are over the region's dimensions; a dimension that the region works out
    counts in `offset` and in sizes with its upper bound. `fast`: it lies in the fast memory of a target that has two.
    """

    name: str
    storage: Literal["input", "output", "constant", "arena"]
    shape: tuple[Dim, ...]
    dtype: DType
    index: int = 0
    offset: Dim = 0
    fast: bool = False


@dataclass(frozen=True)
class Predicate:
    """A condition under which a call runs, and its negation where not `holds`.

    `condition`: a comparison over the region's dimensions, or the number of a 0-d bool buffer, which calls before have written.
    """

    condition: arith.Expr | int
    holds: bool = True


@dataclass(frozen=True)
class KernelCall:
    """One call of kernel number `kernel` on buffers (by number, in the order of the kernel's inputs and outputs).

    `sizes` gives the value of each of the kernel's `size_vars`, over the region's dimensions. `defines` names, for each entry of
    the kernel's `defines`, the dimension of the region that the kernel's size buffer gives after the call: size buffers are
    allocated by the code generator and are not in `outputs`. `nodes` are the source nodes.

    The call runs where all `predicates` hold, which are evaluated in order: a later one may read what is written only where those
    before it hold. So arms of a branch are calls of opposite predicates, one arm behind the other, and share memory as all calls
    do. A call with predicates defines no dimension. `operations` counts the arithmetic of the kernel, over the region's dimensions,
    a multiply-add as two; 0 for a copy.
    """

    kernel: int
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]
    sizes: tuple[arith.Expr, ...] = ()
    defines: tuple[arith.SizeVar, ...] = ()
    nodes: tuple[str, ...] = ()
    predicates: tuple[Predicate, ...] = ()
    operations: Dim = 0

    @property
    def reads(self) -> tuple[int, ...]:
        """The buffers that the call reads, those of its predicates included."""
        return (*self.inputs, *(item.condition for item in self.predicates if isinstance(item.condition, int)))


@dataclass(frozen=True)
class KernelSchedule:
    """How a call's kernel is scheduled: the `rule`, "" for none, the `operators` and source `nodes` that it computes, the names of
    its symbolic dimensions, the seconds predicted for its work, and whether that is the arithmetic of reductions (`reduces`)."""

    rule: str
    operators: tuple[str, ...]
    nodes: tuple[str, ...]
    dims: tuple[str, ...]
    seconds: float
    reduces: bool


@dataclass(frozen=True)
class RegionProgram:
    """A region: `calls` run in order. `workspace` is the bytes of arena that the caller provides, aligned to 64; `fast` those in
    the fast memory of a target that has two. `schedules` tells of the calls' kernels, copies between layouts left out. `aliases`
    are pairs (output, input) of numbers: the caller provides one buffer for both, the output's, which holds the input at first; no
    buffer of storage "input" has that number."""

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


@dataclass(frozen=True)
class RegionLoop:
    """A region that is a loop: `body` run again and again, as `inlaid.graph.ir.Loop` says.

    Inputs of the signature are the greatest number of rounds, 0-d int64, where there is a `trip_count`; whether to begin, 0-d bool,
    where there is a `condition`; the first `states`; what is `scanned`, of one length, cut along the first axis, a slice a round;
    and all that every round reads. Outputs are the last states, then the outputs of all rounds stacked along a new first axis.

    Inputs of the body are the number of the round, 0-d int64, the states, the slices, and what every round reads; its outputs are
    whether to go on, 0-d bool, where it `may_stop`, the new states, and the round's outputs. Its dimensions are among the loop's.

    Rounds update the states `in_place`, by number, which are aliases of the body and of the loop. A round must not write the other
    states that it reads: `spare` has the offset in the workspace of room for each of them besides that of the result; the body's
    own workspace begins at 0. `workspace` is the bytes of both.
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
        """Pairs (output, input) as of `RegionProgram.aliases`."""
        return tuple((state, self.trip_count + self.condition + state) for state in sorted(self.in_place))


def kernel_infos(region: RegionProgram) -> tuple[KernelInfo, ...]:
    """What `Artifact.kernels` says of the calls of a region, in order."""
    return tuple(
        KernelInfo(region.kernels[call.kernel].name, call.nodes, call.operations, _moved(region, call)) for call in region.calls
    )


def _moved(region: RegionProgram, call: KernelCall) -> Dim:
    """The bytes of the buffers that a call reads or writes."""
    buffers = (region.buffers[number] for number in dict.fromkeys((*call.inputs, *call.outputs)))
    sizes = (arith.mul(arith.product(buffer.shape), buffer.dtype.bytes) for buffer in buffers)
    return arith.unwrap(arith.simplify(sum(sizes, arith.ZERO)))


def size_vars(program: LoopProgram) -> tuple[arith.SizeVar, ...]:
    """The symbolic dimensions that a kernel takes as arguments: in order of first appearance in its parameters' shapes, those
    that it defines left out, then those that only its body reads."""
    defined = {size for size, _ in program.defines}
    found: dict[arith.SizeVar, None] = {}
    for buffer in program.params:
        for dim in buffer.shape:
            if not isinstance(dim, int):
                for node in arith.walk(dim):
                    if isinstance(node, arith.SizeVar) and node not in defined:
                        found[node] = None
    return (*found, *program.sizes)
