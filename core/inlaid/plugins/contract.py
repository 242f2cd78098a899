"""Data types and interfaces of the plugin contract.

At run time this module imports only basic packages of Inlaid, so that declaring a target is cheap.
"""

from __future__ import annotations

import dataclasses
import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from enum import Enum
from typing import TYPE_CHECKING, Any, Generic, Protocol

from inlaid.plugins.costs import CostConstants
from inlaid_runtime.arith import Dim
from inlaid_runtime.records import dataclass
from inlaid_runtime.types import ROW_MAJOR, Layout, MemoryScope, TensorType, TupleType

if TYPE_CHECKING:
    from pathlib import Path

    from inlaid.graph.ir import Function
    from inlaid.graph.operator import Operator
    from inlaid.graph.pattern import Pattern
    from inlaid.lowering.steps import Step, StepProgram
    from inlaid.passes.manager import Pass
    from inlaid.tensor.ir import LoopProgram
    from inlaid.tensor.region import RegionProgram
    from inlaid_runtime.artifact import Artifact
    from inlaid_runtime.cache import DiskCache
    from inlaid_runtime.execution.executable import Executable
    from inlaid_runtime.execution.package import Package
    from inlaid_runtime.plugins.target import Target

COMPOSITE = "composite"
"""Attribute of a composite's function in a region: the name of the rule that it matched."""


class Phase(Enum):
    """Phase in which a plugin's passes run. BEFORE_PEELING passes run on each kernel before loops are peeled, when a padded copy is
    one loop nest with a select. LOOP passes run on each kernel and layout copy after remainder iterations are peeled: main loops
    need no guards."""

    BEFORE_PARTITION = "before-partition"
    AFTER_PARTITION = "after-partition"
    BEFORE_PEELING = "before-peeling"
    LOOP = "loop"


HALF_EVEN, UP, AWAY, ONCE, ONCE_AWAY = ROUNDINGS = ("half_even", "up", "away", "once", "once_away")
"""Rounding modes of a requantized sum; see `inlaid.ops.requantization.Factor`."""


@dataclass(frozen=True)
class Requantization:
    """Integer arithmetic of a target: how it sums products, and scales sums to its stored type. Composites that need wider sums or
    a different requantization are rejected with a reason. `inlaid.quantize` produces models that use only this requantization.

    roundings: any of "half_even", "up", "away", "once", "once_away" (see `inlaid.ops.requantization.Factor`); if empty, only the
    target's rules decide on requantizations, and the fields on factors are ignored. multiplier_bits: significant bits of a
    multiplier; 1 means shifts only. shifts: least and greatest shift of a factor multiplier * 2^(shift - 31) with a 31-bit
    multiplier; None for any. per_channel: whether each output channel may have its own factor. accumulator_bits: width of the
    signed accumulator of a convolution, matrix product or sum in a composite; below 32, it is checked with or without roundings.
    For each output channel, the sum of |weight| times the greatest |x| of the element type, plus |bias|, must be below
    2^(accumulator_bits - 1). No order of summation then wraps or saturates. A symbolic number of terms counts at its upper bound.
    """

    roundings: tuple[str, ...] = ()
    multiplier_bits: int = 31
    shifts: tuple[int, int] | None = None
    per_channel: bool = True
    accumulator_bits: int = 32


@dataclass(frozen=True)
class Tiles:
    """Sizes of the tiles in which a target multiplies matrices, at least 1 each. The conformance suite draws sizes that need
    several tiles, and a part of one.

    rows: rows of a matrix product, or pixels of a convolution. inputs: terms of a sum, or input channels. outputs: columns, or
    output channels. Examples have sizes around tiles of at most 1,024. scratch: bytes of on-chip memory for the operands of one
    step; 0 if the target has none.
    """

    rows: int = 32
    inputs: int = 32
    outputs: int = 32
    scratch: int = 0


@dataclass(frozen=True)
class Link:
    """Link between host memory and a target's memory: latency in seconds, bandwidth in bytes/s. The default suits a target that
    works in host memory: its only cost is the time to start a region."""

    latency: float = 2e-6
    bandwidth: float = math.inf


@dataclass(frozen=True)
class StaticMemory:
    """Statically planned memory. Inputs and outputs live in the workspace arena; an input may be overwritten after its last use.
    Values are read in place where possible, and padded copies are avoided. `alignment` is the least alignment of buffers, in bytes.
    `fast` is the size in bytes of a second, faster memory, which gets the buffers with the most accesses per byte. Loop programs
    are planned this way. `CompileContext.steps` plans only the values between steps, not inputs and outputs."""

    alignment: int = 4
    fast: int = 0


@dataclass(frozen=True)
class Core:
    """Cost model of a core with vectors, for shared schedule rules. Times are in cycles; a load reads one vector. The defaults
    describe no specific processor: measure yours, or use its manual.

    latency: latency of a multiply-add. units: multiply-adds, and also loads, that start per cycle. loop_entry: overhead of an inner
    loop, for filling and draining the pipeline, addresses and the final branch. l1_bytes: size of the first-level cache. l1_ways:
    its associativity, which bounds the rows of a tile. alias_bytes: rows at a multiple of this distance map to the same few cache
    sets. alias_cycles: cost of an aliasing row per step. l2_bytes: size of the L2 cache per core. l2_load: time of a load from L2.
    load_stall: delay of multiply-adds by an L2 load. l3_load: time of a load that misses L2. llc_bytes: share of the last-level
    cache that one kernel may use. llc_rate: bandwidth of the last-level cache in bytes/cycle. costs: thresholds of shared rules and
    rewrites, fitted to measurements.
    """

    latency: float = 4
    units: int = 2
    loop_entry: float = 30
    l1_bytes: int = 32 << 10
    l1_ways: int = 12
    alias_bytes: int = 2048
    alias_cycles: float = 0.1
    l2_bytes: int = 1 << 20
    l2_load: float = 2
    load_stall: float = 0.2
    l3_load: float = 2.75
    llc_bytes: int = 8 << 20
    llc_rate: float = 12
    costs: CostConstants = CostConstants()


@dataclass(frozen=True)
class Threads:
    """Thread model of a target whose kernels are grids of thread blocks, for shared schedule rules and cost models. Shared memory
    is the memory scope with owner "block". If the target declares none, rules use no shared memory.

    block: greatest number of threads per block; 1 for a CPU that runs blocks one after another, for which vector rules apply.
    subgroup: number of threads in lock step, whose adjacent accesses coalesce; 1 if there are no subgroups. shuffles: whether
    threads of a subgroup (a power of two) can read each other's registers; kernels may then have buffers of scope `SUBGROUP`.
    resident: threads that the device holds at once; a launch of fewer threads leaves it partly idle. vector_bytes: bytes that one
    thread should load or store at once. registers: 32-bit registers per thread.
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

    dtypes: supported dtypes, and "sequence" for sequences and optionals. scopes: memory scopes besides main memory. A loop program
    with buffers in an undeclared scope, or beyond a capacity, is an error. vector_bits: vector register width, 0 for none.
    vector_registers: number of vector registers, at least 4. core: cost model of a core with vectors. masks: whether vector loads
    and stores can be masked. prefetch: whether kernels may contain the intrinsic `prefetch`. unrolls: whether kernels may contain
    unrolled loops around stores, which the code generator then unrolls. threads: None if a kernel is a function that one thread
    calls and that may fork threads; else kernels are launched on grids, and calls may have predicates over dimensions. cores:
    number of cores; 0 if known only at run time. dynamic_dims: whether dimensions may be symbolic. control_flow: whether a region
    may be a `Loop`. branches: whether calls of a region may have predicates, and a region may contain `If`. in_place: whether
    kernels and loop iterations may update inputs and state in place (`LoopProgram.updates`, `RegionProgram.aliases`,
    `RegionLoop.in_place`). requantization: integer arithmetic of composites. peak: arithmetic in FLOP/s. bandwidth: of memory, in
    bytes/s. link: the link between host memory and the target's memory. memory: static planning of memory; None if the caller owns
    a region's inputs and outputs, and memory is ample. stack_bytes: largest buffer on the stack of a kernel's calling thread.
    thread_stack_bytes: largest buffer on the stack of a parallel loop's thread. standalone: no host fallback: a model that the
    listed targets cannot run completely is refused. device_memory: regions work in device memory, and the runtime module has a
    `Device`. full_rate_float64: whether float64 arithmetic is about as fast as float32. If not, kernels without float64 operands
    compute nothing in float64. It has an effect only with `threads`. tiles: sizes in which the target multiplies, for examples of
    the conformance suite.
    """

    dtypes: tuple[str, ...]
    scopes: tuple[MemoryScope, ...] = ()
    vector_bits: int = 0
    vector_registers: int = 16
    core: Core = Core()
    masks: bool = False
    prefetch: bool = False
    unrolls: bool = False
    threads: Threads | None = None
    cores: int = 1
    dynamic_dims: bool = True
    control_flow: bool = False
    branches: bool = False
    in_place: bool = False
    requantization: Requantization = Requantization()
    peak: float = 1e9
    bandwidth: float = 1e9
    link: Link = Link()
    memory: StaticMemory | None = None
    stack_bytes: int = 4096
    thread_stack_bytes: int = 1 << 16
    standalone: bool = False
    device_memory: bool = False
    full_rate_float64: bool = True
    tiles: Tiles = Tiles()


@dataclass(frozen=True)
class Accept:
    """Verdict: the target supports the call. `seconds` is the predicted time; None uses a roofline from the capabilities."""

    seconds: float | None = None


@dataclass(frozen=True)
class Reject:
    """Verdict: the target does not support the call. `reason` is shown to the user."""

    reason: str


@dataclass(frozen=True)
class AcceptIf:
    """Verdict: the target supports the call if a condition on dimensions is nonzero at run time."""

    constraint: Dim
    seconds: float | None = None


Verdict = Accept | Reject | AcceptIf


@dataclass(frozen=True)
class OpRule:
    """A rule that lets a target accept an operator or a composite.

    `pattern` is an operator's name, "*" for every operator, or a pattern of `inlaid.graph.pattern`. The operators that a pattern
    matches become one call in the region, of a function whose attribute `COMPOSITE` is `name`. The name of such a rule must be
    unique: steps, reports and locks refer to it. `predicate` judges a call of the operator, or a `Match` of the pattern; None
    accepts all. Composites are tried before single operators, and earlier rules before later ones.
    """

    pattern: str | Pattern
    name: str = ""
    predicate: Callable[[Any], Verdict] | None = None


@dataclass(frozen=True)
class Tolerance:
    """Allowed difference from the reference for an element type. Floats: `relative` times the greatest magnitude in the result,
    plus `absolute`. Integers: `steps` units. `operator` limits the tolerance to an operator, or to a composite by its rule's name;
    "" applies to all operators and to whole models."""

    dtype: str
    relative: float = 0.0
    absolute: float = 0.0
    operator: str = ""
    steps: int = 0


@dataclass(frozen=True)
class ExpectedFailure:
    """A check of the conformance suite that is known to fail, with the reason. `check` is the id of the check in reports, such as
    "operators/agrees[exp-float16]"; a trailing asterisk matches any suffix."""

    check: str
    reason: str


@dataclass(frozen=True)
class Conformance:
    """A target's declarations for the conformance suite. `tolerances` override the defaults. `expected_failures` must not name
    checks of the levels plugin, annotations and codegen. `examples` are functions for rules whose inputs the suite cannot find by
    search: the body calls an operator or matches a composite."""

    tolerances: tuple[Tolerance, ...] = ()
    expected_failures: tuple[ExpectedFailure, ...] = ()
    examples: tuple[Function, ...] = ()

    def tolerance(self, dtype: str, operator: str = "") -> Tolerance | None:
        """Return the declared tolerance for an element type in results of an operator or composite, or of whole models for ""; None
        if the target declares none."""
        return next((item for item in self.tolerances if (item.dtype, item.operator) == (dtype, operator)), None)


@dataclass(frozen=True)
class Border:
    """Storage of an input or output of a region: in a `layout`, padded with zeros. With a nonzero `scale`, the stored elements are
    integers of type `dtype`, real = (integer - zero_point) * scale, padded with the zero point."""

    layout: Layout = ROW_MAJOR
    dtype: str = ""
    scale: float = 0.0
    zero_point: int = 0


@dataclass(frozen=True)
class Borders:
    """Storage of a region's inputs and outputs, in order."""

    inputs: tuple[Border, ...]
    outputs: tuple[Border, ...]


Form = Callable[[TensorType], Border]
"""Maps a tensor type to its storage on a target. It must be a pure function, so that neighboring regions agree."""


@dataclass(frozen=True)
class Region:
    """A closed graph for one target. `function` has tensor parameters and results and no free variables. `borders` are the storage
    forms that the code generator asked for, None for the default; the types of `function` do not include them."""

    symbol: str
    function: Function
    target: Target
    borders: Borders | None = None

    def stored_as(self, form: Form) -> Borders:
        """Apply a form to each input and output. Values that are not tensors are row-major."""
        results = self.function.body.type
        fields = results.fields if isinstance(results, TupleType) else (results,)
        inputs, outputs = (
            tuple(form(type_) if isinstance(type_, TensorType) else Border() for type_ in types)
            for types in ([param.type for param in self.function.params], fields)
        )
        return Borders(inputs, outputs)


@dataclass(frozen=True)
class Scratch:
    """A temporary buffer that a step of a region needs, of `size` bytes. A double buffer is two of them.

    scope: "" for the region's arena, else a scope of the capabilities that is addressed by bytes. In the arena, the size may be
    symbolic. In a scope, a symbolic size must have an upper bound, and that many bytes are reserved. early: number of earlier steps
    in which the buffer is in use already, such as 1 for weights that are fetched during the previous step.
    """

    size: Dim
    scope: str = ""
    early: int = 0


class CompileContext(Protocol):
    """Compiler services for a code generator."""

    @property
    def target(self) -> Target:
        """The target of the region."""

    def lower(self, region: Region) -> RegionProgram:
        """Lower the region to loop programs."""

    def steps(
        self, region: Region, form: Form | None = None, scratch: Callable[[Step], Sequence[Scratch]] | None = None
    ) -> StepProgram:
        """Convert the region to steps over numbered buffers: operators, and composites by their rule's name. Inputs and outputs
        have their stored shapes; values between steps are stored by `form`, or row-major if None. `scratch` returns the temporary
        buffers that a step needs; `Step.scratch` then has their numbers."""

    def operator(self, name: str) -> Operator:
        """Look up a canonical operator by name."""

    @property
    def instructions(self) -> Sequence[Any]:
        """Tensor intrinsics passed to `inlaid.build`, in addition to the intrinsics of `inlaid_intrinsics`. Each has an emitter in
        the form of this target's plugin."""

    @property
    def objects(self) -> DiskCache:
        """On-disk cache of generated code. A key is the `inlaid_runtime.cache.digest` of everything that the code depends on."""

    @property
    def printed(self) -> dict[Any, Any]:
        """In-memory cache for a loop-level code generator's results, since regions may share kernel objects. Keys start with the
        target."""

    def report(self, step: str, completed: int, total: int) -> None:
        """Report that `completed` of `total` parts of a step of the code generator are complete; 0 of 0 if unknown."""

    def run_passes(self, passes: Sequence[Pass[LoopProgram]], kernel: LoopProgram) -> LoopProgram:
        """Run passes of the code generator on a kernel, observed as the compiler's own passes are."""


if TYPE_CHECKING:
    from typing_extensions import TypeVar  # type checkers know it; Python has defaults of type variables from 3.13

    Unit = TypeVar("Unit", contravariant=True, default=Any)
else:
    from typing import TypeVar

    Unit = TypeVar("Unit", contravariant=True)


class Codegen(ABC, Generic[Unit]):
    """Compile side of a target, usable without the device. `Unit` is what it compiles: a `Region`, or at loop level a
    `RegionProgram`, or also a `RegionLoop` if the capabilities allow it."""

    @abstractmethod
    def compile(self, unit: Unit, context: CompileContext) -> Artifact:
        """Compile a unit. Equal units must give equal bytes. Raises `Unsupported` for a unit that cannot be compiled."""

    def compiling(self, context: CompileContext) -> AbstractContextManager[Callable[[LoopProgram], object]]:
        """Enter the context in which one region is lowered and `compile` runs. At loop level, its value is called with each kernel
        when it is finished, so that code generation can begin while later kernels are lowered. Kernels that may still change are
        left out. Default: no early code generation."""
        return nullcontext(lambda kernel: None)

    def legalized(self, unit: Unit, context: CompileContext) -> object:
        """Return what `compile` prints of a unit: its kernels after the code generator's own passes, which are run by
        `context.run_passes`. `inlaid show` calls it to observe them. Default: the unit, without passes."""
        return unit

    def borders(self, region: Region) -> Borders | None:
        """Choose how a region's inputs and results are stored; None for row-major order and the types of the graph. Must be a pure
        function. The compiler converts values outside of the region, but not between regions with equal borders. `compile` then
        gets the region with these borders, and the signature of the resulting artifact has the stored types. Loop programs of a
        loop-level target convert inside the region."""
        return None


@dataclass(frozen=True)
class Exported:
    """Result of an exporter: written files, lines of text for the user, such as the memory size, and the same data as `facts`."""

    files: tuple[Path, ...]
    lines: tuple[str, ...] = ()
    facts: Mapping[str, Any] = dataclasses.field(default_factory=dict)


class Exporter(Protocol):
    """Writes a compiled model as files for programs without Inlaid, such as firmware sources."""

    def export(self, package: Package, load: Callable[[], Executable], folder: Path, name: str) -> Exported:
        """Write files into an existing folder. `load` loads the package on this machine, such as for a test vector. `name` is the
        model's name, a C identifier. Raises `Unsupported`, naming the source node, for a model that cannot run without Inlaid."""
