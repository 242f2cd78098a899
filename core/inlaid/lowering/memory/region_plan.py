"""Last stage of lowering a region: order its calls and place its buffers in the arena."""

from __future__ import annotations

from collections.abc import Sequence, Set

from inlaid.graph import ir as graph
from inlaid.lowering.emission.buffers import Emitted
from inlaid.lowering.emission.emit import Emission
from inlaid.lowering.memory.arrange import arrange
from inlaid.lowering.memory.calls import ByteRange, Root
from inlaid.lowering.signature import bound_bytes, build_signature
from inlaid.plugins.contract import StaticMemory
from inlaid.tensor.region import KernelCall, KernelSchedule, RegionBuffer, RegionProgram
from inlaid_runtime import arith
from inlaid_runtime.arith import Constraint, Dim
from inlaid_runtime.artifact import Signature
from inlaid_runtime.records import replace
from inlaid_runtime.types import ROW_MAJOR, type_vars


def plan_region(
    name: str,
    function: graph.Function,
    emission: Emission,
    schedules: tuple[KernelSchedule, ...],
    memory: StaticMemory | None,
    conditions: Sequence[Constraint] = (),
) -> RegionProgram:
    """Order calls, assign arena offsets, attach `conditions` to the calls that define their sizes, and build the region program."""
    sizes = [bound_bytes(buffer.layout.shape(buffer.shape), buffer.dtype.bytes) for buffer in emission.buffers]
    roots = {
        number: Root(buffer.storage, size)
        for number, (buffer, size) in enumerate(zip(emission.buffers, sizes, strict=True))
        if buffer.root == number
    }
    ranges = [ByteRange(buffer.root, buffer.start, size) for buffer, size in zip(emission.buffers, sizes, strict=True)]
    arrangement = arrange(emission.kernels, emission.calls, ranges, roots, memory)
    region = arrangement.region
    calls = with_checks(region.calls, conditions, _visible_sizes(function))

    def placed(buffer: Emitted) -> RegionBuffer:
        window = region.windows.get(buffer.root)
        shape = buffer.layout.shape(buffer.shape) if window is None else ROW_MAJOR.shape(window.shape)
        offset = arith.unwrap(arith.add(arrangement.offsets.get(buffer.root, 0), buffer.start))
        return RegionBuffer(
            buffer.name, buffer.storage, shape, buffer.dtype, buffer.index, offset, buffer.root in arrangement.quick
        )

    return RegionProgram(
        name,
        region.kernels,
        calls,
        tuple(map(placed, emission.buffers)),
        _signature(function, calls, (arrangement.size, *arrangement.offsets.values())),
        emission.weights,
        arrangement.size,
        arrangement.fast,
        schedules,
        emission.aliases,
    )


def with_checks(
    calls: tuple[KernelCall, ...], conditions: Sequence[Constraint], visible: Set[arith.Expr]
) -> tuple[KernelCall, ...]:
    """Attach each condition that reads sizes defined by the calls to a call: the one that defines the last of these sizes. The
    caller checks the conditions that read only sizes in `visible`. A condition that reads any other size is dropped: a rewrite
    removed the call that defined the size, and no kernel reads it."""
    definers: dict[arith.Expr, int] = {size: number for number, call in enumerate(calls) for size in call.defines}
    checks: dict[int, list[Constraint]] = {}
    for condition in conditions:
        numbers = [definers[size] for size in condition.sizes if size in definers]
        if numbers and all(size in definers or size in visible for size in condition.sizes):
            checks.setdefault(max(numbers), []).append(condition)
    return tuple(replace(call, checks=tuple(checks.get(number, ()))) for number, call in enumerate(calls)) if checks else calls


def _visible_sizes(function: graph.Function) -> frozenset[arith.Expr]:
    """Return the sizes in the types of a region's parameters. The caller knows them."""
    return frozenset().union(*(type_vars(param.type) for param in function.params))


def _signature(function: graph.Function, calls: tuple[KernelCall, ...], arena: tuple[Dim, ...]) -> Signature:
    """Build the signature of the region. It also has the dimensions that calls, their checks and the expressions of the arena read,
    such as the bound of an input's existential size; those that no call defines are arguments."""
    defined = [size for call in calls for size in call.defines]
    read_exprs = [size for call in calls for size in call.sizes]
    read_exprs += [dim for dim in arena if isinstance(dim, arith.Expr)]
    read_exprs += [item.condition for call in calls for item in call.predicates if isinstance(item.condition, arith.Expr)]
    checked_sizes = [check.sizes for call in calls for check in call.checks]
    read_dims = frozenset().union(*map(arith.free_vars, read_exprs), *checked_sizes)
    return build_signature(function, defined, read_dims)
