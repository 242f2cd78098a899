"""The vocabulary of the plugin contract: everything a plugin gives or is given.

At run time this module needs the vocabulary packages of Inlaid only, so that naming a target costs nothing.
"""

from __future__ import annotations

import dataclasses
import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING, Any, Protocol

from inlaid.arith import Dim
from inlaid.artifact import Artifact
from inlaid.types import ROW_MAJOR, Layout, MemoryScope, TensorType, TupleType

if TYPE_CHECKING:
    from pathlib import Path

    from inlaid.cache import Store
    from inlaid.graph.ir import Function
    from inlaid.graph.operator import Operator
    from inlaid.graph.pattern import Pattern
    from inlaid.lowering.steps import StepProgram
    from inlaid.plugins.target import Target
    from inlaid.runtime.executable import Executable
    from inlaid.tensor.region import RegionProgram

COMPOSITE = "composite"
"""The attribute of a composite's function in a region: the name of the rule that it matches."""


class Phase(Enum):
    """When a plugin's passes run. BEFORE_PEELING: over each kernel as nests of whole loops, where a padded copy is one nest with a
    choice of values; LOOP: over plain loops, their last iterations apart where only those ask for bounds, and copies between
    layouts too."""

    BEFORE_PARTITION = "before-partition"
    AFTER_PARTITION = "after-partition"
    BEFORE_PEELING = "before-peeling"
    LOOP = "loop"


HALF_EVEN, UP, AWAY, ONCE = ROUNDINGS = ("half_even", "up", "away", "once")
"""How a scaled sum is rounded: see `inlaid.ops.requantisation.Factor`."""


@dataclass(frozen=True)
class Quantisation:
    """The requantisation that a target has: how it brings sums to the scale of what it stores. Composites of another are refused,
    with the reason; `inlaid.quantize` makes models that need no other.

    roundings: "half_even", "up", "away", "once", as `inlaid.ops.requantisation.Factor` says; where there is none, the target's
    rules alone decide, and the rest means nothing. multiplier_bits: significant bits of a multiplier; 1: it shifts, and no more.
    shifts: the least and the greatest shift, of a factor multiplier * 2^(shift - 31) with a multiplier of 31 bits; None for any.
    per_channel: whether output channels may have factors of their own.
    """

    roundings: tuple[str, ...] = ()
    multiplier_bits: int = 31
    shifts: tuple[int, int] | None = None
    per_channel: bool = True


@dataclass(frozen=True)
class Link:
    """How values get from the host's memory to a target's and back: seconds before the first byte, bytes a second after it. The
    default is a target that works in the host's memory, where only starting a region costs something."""

    latency: float = 2e-6
    bandwidth: float = math.inf


@dataclass(frozen=True)
class StaticMemory:
    """Memory that is scarce, and that a region has to itself: inputs and outputs have places in the workspace as all else has, and
    share it with what lives at other times, an input until it is read last. Nothing is copied that can be read where it lies, and
    no padded copies are made. `alignment` is that of buffers, in bytes, where none has wider elements; `fast` the bytes of a second
    memory, which takes what it has room for, that first of which each byte is used most. Loop programs are placed so;
    `CompileContext.steps` has places for what lies between steps, and none for inputs and outputs."""

    alignment: int = 4
    fast: int = 0


@dataclass(frozen=True)
class Core:
    """A core with vectors, as the cost models of shared schedule rules have it. Times are cycles of the core, a load is one of a
    vector. The defaults stand for no processor; measure your own, or take them from its manual.

    latency: of a multiply-add. units: multiply-adds, and loads, that start in a cycle. entry: cycles to start and to leave an inner
    loop: filling and draining the pipeline, addresses, and the branch that ends it. near_bytes: of the first-level cache. ways: of
    that cache, which bounds the rows of a tile. alias: bytes between rows of which a multiple puts them all into the same few sets
    of it. crowding: cycles that a row costs each step where rows lie so. far_bytes: of the second-level cache, as far as it is the
    core's own. far_load: for a load from it. shared_load: what such a load takes from multiply-adds. farther_load: for a load
    from behind it. last_bytes: of the last-level cache that one kernel may use. last_rate: bytes a cycle from that.
    """

    latency: float = 4
    units: int = 2
    entry: float = 30
    near_bytes: int = 32 << 10
    ways: int = 12
    alias: int = 2048
    crowding: float = 0.1
    far_bytes: int = 1 << 20
    far_load: float = 2
    shared_load: float = 0.2
    farther_load: float = 2.75
    last_bytes: int = 8 << 20
    last_rate: float = 12


@dataclass(frozen=True)
class Threads:
    """Thread model of a target whose kernels are grids of blocks of threads, for shared schedule rules and cost models. Shared
    memory is the memory scope with owner "block"; rules do without if none is declared.

    block: most threads of a block; 1 for a processor whose cores run blocks one after another: such a target has vectors, and
    rules for vectors schedule its kernels. subgroup: threads that run in lock step, whose accesses to neighbouring elements are
    one; 1 where there are none. shuffles: whether the threads of a subgroup, then a power of two, can read one
    another's registers: kernels may have buffers of scope `SUBGROUP`. resident: threads that the device holds at once; fewer leave
    parts of it idle. vector_bytes: what one thread should load and store at once. registers: of 32 bits, that a thread may use.
    """

    block: int = 256
    subgroup: int = 32
    shuffles: bool = False
    resident: int = 1 << 15
    vector_bytes: int = 16
    registers: int = 128


@dataclass(frozen=True)
class Capabilities:
    """Capabilities of a target, as data that needs no device.

    dtypes: supported dtypes, and "sequence" for sequences and optionals. scopes: memory scopes besides main memory; buffers of a
    loop program in any other, or beyond the capacity, are errors. vector_bits: vector register width, 0 for none.
    vector_registers: their number, at least 4. core: cost model of a core with vectors. masks: whether vector loads and stores can
    be masked. prefetch: whether kernels may contain the intrinsic `prefetch`. threads: None if a kernel is a function on one thread
    that may fork others; else kernels are launched on grids, and calls may have predicates over dimensions. cores: 0 if known only
    at run time. dynamic_dims: whether dimensions may be symbolic. control_flow: whether a region may be a `Loop`. branches: whether
    calls of a region may have predicates, and a region may contain `If`. in_place: whether kernels and loop iterations may update
    inputs and state in place (`LoopProgram.updates`, `RegionProgram.aliases`, `RegionLoop.in_place`). peak: FLOP/s. bandwidth:
    bytes/s. link: the link between host memory and the target's. memory: None if the caller owns a region's inputs and outputs, and
    memory is ample. stack_bytes: largest buffer on the stack of a kernel's calling thread. thread_stack_bytes: of an iteration of a
    parallel loop. standalone: no host fallback: a model that the listed targets cannot run completely is refused. device_memory:
    regions work in device memory, and the runtime module has a `Device`.
    """

    dtypes: tuple[str, ...]
    scopes: tuple[MemoryScope, ...] = ()
    vector_bits: int = 0
    vector_registers: int = 16
    core: Core = Core()
    masks: bool = False
    prefetch: bool = False
    threads: Threads | None = None
    cores: int = 1
    dynamic_dims: bool = True
    control_flow: bool = False
    branches: bool = False
    in_place: bool = False
    quantisation: Quantisation = Quantisation()
    peak: float = 1e9
    bandwidth: float = 1e9
    link: Link = Link()
    memory: StaticMemory | None = None
    stack_bytes: int = 4096
    thread_stack_bytes: int = 1 << 16
    standalone: bool = False
    device_memory: bool = False


@dataclass(frozen=True)
class Accept:
    """The target can do it. `seconds` predicts how long it takes; None: a roofline from the capabilities."""

    seconds: float | None = None


@dataclass(frozen=True)
class Reject:
    """The target cannot do it, and why, in words for the user."""

    reason: str


@dataclass(frozen=True)
class AcceptIf:
    """The target can do it where a condition on dimensions holds (nonzero)."""

    constraint: Dim
    seconds: float | None = None


Verdict = Accept | Reject | AcceptIf


@dataclass(frozen=True)
class OpRule:
    """What a target takes: one operator, or a composite.

    `pattern` is the name of an operator, "*" for every operator, or a pattern of `inlaid.graph.pattern` over one or several, which
    become one call in the region, of a function with the attribute `COMPOSITE` set to `name`. A rule with a pattern has a name
    that no other has: steps, reports and locks know its composites by it. `predicate` judges a call of the operator, or a `Match`
    of the pattern; None accepts all. Composites come before operators by name, and earlier rules before later ones.
    """

    pattern: str | Pattern
    name: str = ""
    predicate: Callable[[Any], Verdict] | None = None


@dataclass(frozen=True)
class Tolerance:
    """How far values of an element type may be from the reference's: floats by `relative` times the greatest magnitude in the
    result, plus `absolute`; integers by `steps` units. `operator`: of that operator or composite alone, by its name or its
    rule's; "" for all and for whole models."""

    dtype: str
    relative: float = 0.0
    absolute: float = 0.0
    operator: str = ""
    steps: int = 0


@dataclass(frozen=True)
class ExpectedFailure:
    """A check of the conformance suite that is known to fail, and why. `check` is its name in reports, such as
    "operators/agrees[exp-float16]"; one that ends with an asterisk stands for all that begin so."""

    check: str
    reason: str


@dataclass(frozen=True)
class Conformance:
    """What a plugin says of a target to the conformance suite. `tolerances` are in place of the suite's own; checks of the levels
    plugin, annotations and codegen cannot be expected to fail. `examples` are functions whose body is a call of an operator, or
    what a composite matches: those that the rules accept, and the suite cannot find by itself."""

    tolerances: tuple[Tolerance, ...] = ()
    expected_failures: tuple[ExpectedFailure, ...] = ()
    examples: tuple[Function, ...] = ()

    def tolerance(self, dtype: str, operator: str = "") -> Tolerance | None:
        """The declared tolerance for an element type in the results of an operator or composite, or, for "", in those of whole
        models; None where there is none."""
        return next((item for item in self.tolerances if (item.dtype, item.operator) == (dtype, operator)), None)


@dataclass(frozen=True)
class Border:
    """How a tensor that enters or leaves a region lies in its buffer: in a `layout`, padded with zeros; and, where `scale` is not
    0, as integers of type `dtype`: real = (integer - zero_point) * scale, padded with the zero point."""

    layout: Layout = ROW_MAJOR
    dtype: str = ""
    scale: float = 0.0
    zero_point: int = 0


@dataclass(frozen=True)
class Borders:
    """The borders of a region's inputs and outputs, in order."""

    inputs: tuple[Border, ...]
    outputs: tuple[Border, ...]


Form = Callable[[TensorType], Border]
"""How a target stores tensors of a type. Equal types get equal answers, so that neighbouring regions agree."""


@dataclass(frozen=True)
class Region:
    """A closed graph for one target: `function` has tensors in and out and no free variables. `borders` is what the code generator
    asked for, None where it asked for nothing; the function knows nothing of it."""

    symbol: str
    function: Function
    target: Target
    borders: Borders | None = None

    def stored_as(self, form: Form) -> Borders:
        """Borders at which each tensor is stored as a form says; row-major what is no tensor."""
        results = self.function.body.type
        fields = results.fields if isinstance(results, TupleType) else (results,)
        inputs, outputs = (
            tuple(form(type_) if isinstance(type_, TensorType) else Border() for type_ in types)
            for types in ([param.type for param in self.function.params], fields)
        )
        return Borders(inputs, outputs)


class CompileContext(Protocol):
    """Services of the compiler to a code generator."""

    @property
    def target(self) -> Target:
        """The target that the region is for."""

    def lower(self, region: Region) -> RegionProgram:
        """The region as loop programs."""

    def steps(self, region: Region, form: Form | None = None) -> StepProgram:
        """The region as steps over numbered buffers: operators, and composites under the names of their rules. Inputs and outputs
        have the shapes that the region's borders store; values between steps those of `form`, None for row-major order."""

    def operator(self, name: str) -> Operator:
        """The canonical operator of that name."""

    @property
    def instructions(self) -> Sequence[Any]:
        """Tensor intrinsics that the user declares beside those of `inlaid_intrinsics`, each with how it is printed, in the form
        that the target's own have: see `inlaid.build`."""

    @property
    def objects(self) -> Store:
        """Where code generators keep what they made, by `inlaid.cache.digest` of all that it depends on."""

    @property
    def printed(self) -> dict[Any, Any]:
        """Where a code generator of loop level keeps what it makes of kernels: further regions of a model may have the same ones,
        as objects. Keys begin with the target."""

    def report(self, step: str, done: int, total: int) -> None:
        """Tell the user, and whoever times the compiler, which step a code generator is at, and how far it is: 0 of 0 where that is
        not known."""


class Codegen(ABC):
    """The compile side of a target. Needs no device."""

    @abstractmethod
    def compile(self, unit: Any, context: CompileContext) -> Artifact:
        """The artifact of `unit`: of a `Region` or, at loop level, of a `RegionProgram`, or of a `RegionLoop` where the target's
        capabilities say so. Equal units give equal bytes. Raises `Unsupported` for what it cannot compile."""

    def borders(self, region: Region) -> Borders | None:
        """The forms in which a region's inputs and results are stored; None for row-major order and the types of the graph. Equal
        regions give equal answers. The compiler converts outside of the region, and not at all between regions that agree;
        `compile` is then given the region with these borders, and its artifact's signature says what is stored. The loop programs
        of a loop-level target convert by themselves."""
        return None


@dataclass(frozen=True)
class Exported:
    """What an exporter wrote: its files, and lines of text for the user, such as how much memory a model takes. `facts` are the
    same for programs."""

    files: tuple[Path, ...]
    lines: tuple[str, ...] = ()
    facts: Mapping[str, Any] = dataclasses.field(default_factory=dict)


class Exporter(Protocol):
    """Writes what is compiled for a target as files for programs without Inlaid, such as sources for firmware."""

    def export(self, executable: Executable, folder: Path, name: str) -> Exported:
        """Write files into a folder, which is there. `name` is what the model is called, an identifier in C. Raises `Unsupported`,
        naming the source node, for a model that cannot run without Inlaid."""
