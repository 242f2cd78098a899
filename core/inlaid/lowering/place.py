"""Last stage of lowering a region: order its calls and place its buffers in the arena."""

from __future__ import annotations

from inlaid import arith
from inlaid.artifact import Signature
from inlaid.graph import ir as graph
from inlaid.lowering.arrange import arrange
from inlaid.lowering.calls import ByteRange, Root
from inlaid.lowering.emit import Emission
from inlaid.lowering.planned import Emitted
from inlaid.lowering.signature import bound_bytes, signature_of
from inlaid.plugins.contract import StaticMemory
from inlaid.tensor.region import KernelCall, KernelSchedule, RegionBuffer, RegionProgram
from inlaid.types import ROW_MAJOR


def place(
    name: str, function: graph.Function, emission: Emission, schedules: tuple[KernelSchedule, ...], memory: StaticMemory | None
) -> RegionProgram:
    """Order calls, assign arena offsets, and build the region program."""
    sizes = [bound_bytes(buffer.layout.shape(buffer.shape), buffer.dtype.bytes) for buffer in emission.buffers]
    roots = {
        number: Root(buffer.storage, size)
        for number, (buffer, size) in enumerate(zip(emission.buffers, sizes, strict=True))
        if buffer.root == number
    }
    inside = [ByteRange(buffer.root, buffer.start, size) for buffer, size in zip(emission.buffers, sizes, strict=True)]
    arrangement = arrange(emission.kernels, emission.calls, inside, roots, memory)
    region = arrangement.region

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
        region.calls,
        tuple(map(placed, emission.buffers)),
        _signature(function, region.calls),
        emission.weights,
        arrangement.size,
        arrangement.fast,
        schedules,
        emission.aliases,
    )


def _signature(function: graph.Function, calls: tuple[KernelCall, ...]) -> Signature:
    """Build the signature of the region. Each dimension that its calls read is an argument or defined by an earlier call."""
    defined = [size for call in calls for size in call.defines]
    read = [size for call in calls for size in call.sizes]
    read += [item.condition for call in calls for item in call.predicates if isinstance(item.condition, arith.Expr)]
    needed = frozenset().union(*map(arith.free_vars, read))
    return signature_of(function, defined, needed)
