"""Computes how far a kernel's output buffer may overlap one of its input buffers.

An image kernel reads its input and writes its output at about the same pace. The two buffers can then overlap, with the output
beginning some bytes before the input, as long as no element is overwritten before its last read. The minimum distance follows from
the loops: it is the largest difference between the end of a store and the beginning of a later load.

    for y: for x: out[y, x] = f(in[y - 1 .. y + 1, x - 1 .. x + 1])        out must begin a row and two elements before `in`

Blacker, Bandy and Sidwell, "Reducing Memory Requirements for Deep Neural Networks by Diagonal Memory Optimization" (2020), find
such distances by tracing kernels.
"""

from __future__ import annotations

from collections.abc import Iterator

from inlaid.tensor import ir
from inlaid.tensor.analysis.accesses import PathStep, StmtPath, StridedAccess, UnknownAccessError, accesses
from inlaid_runtime import arith

_IN_ORDER = (ir.ForKind.SERIAL, ir.ForKind.UNROLLED)


def head_start(program: ir.LoopProgram, output: int, operand: int) -> int | None:
    """Return the smallest number of bytes by which output number `output` must begin before input number `operand` if the two
    overlap; negative if the output may begin after the input. None if the program is not plain loops over static sizes, or no bound
    is known. Ignores the kernel's other parameters. If the kernel has loops in unspecified order, their iterations must be
    independent."""
    output_buffer, input_buffer = program.outputs[output], program.inputs[operand]
    try:
        stores = _grouped(accesses(program.body, output_buffer, reads=False), greatest=True)
        loads = _grouped(accesses(program.body, input_buffer, reads=True), greatest=False)
    except UnknownAccessError:
        return None
    distances = [_distance(*store, *load) for store in stores for load in loads]
    max_distance = max((bound for bound in distances if bound is not None), default=-_byte_size(input_buffer))
    return max(max_distance, -_byte_size(input_buffer)) if loads else None


def _byte_size(buffer: ir.Buffer) -> int:
    size = arith.product(buffer.shape)
    return size * buffer.dtype.bytes if isinstance(size, int) else 0


def _grouped(accesses: Iterator[tuple[StmtPath, StridedAccess]], greatest: bool) -> list[tuple[StmtPath, StridedAccess]]:
    """Of the accesses of one statement with equal strides, return only the one that ends last (`greatest`) or begins first."""
    groups: dict[tuple[tuple[int, ...], frozenset[tuple[arith.Expr, int]]], tuple[StmtPath, StridedAccess]] = {}
    for path, access in accesses:
        key = tuple(part for entry in path for part in (id(entry.stmt), entry.part)), frozenset(access.steps)
        previous = groups.get(key)
        if previous is None or (access.high > previous[1].high if greatest else access.low < previous[1].low):
            groups[key] = path, access
    return list(groups.values())


def _distance(write_path: StmtPath, write: StridedAccess, read_path: StmtPath, read: StridedAccess) -> int | None:
    """Return the largest difference between the end of a store and the beginning of a later load; None if no load is later."""
    prefix_length = 0
    for write_step, read_step in zip(write_path, read_path, strict=False):
        if write_step.stmt is not read_step.stmt or write_step.part != read_step.part:
            break
        prefix_length += 1
    common_loops = [entry for entry in write_path[:prefix_length] if isinstance(entry.stmt, ir.For)]
    base_distance = write.high - read.low
    base_distance += sum(_max_advance(write.step(entry), entry) for entry in write_path[prefix_length:])
    base_distance += sum(_max_advance(-read.step(entry), entry) for entry in read_path[prefix_length:])
    distances = []
    for number, entry in enumerate(common_loops):
        # Outer loops are at the same iteration, this loop advances between store and load, and inner loops are arbitrary.
        outer = sum(_max_advance(write.step(item) - read.step(item), item) for item in common_loops[:number])
        inner = sum(
            _max_advance(write.step(item), item) + _max_advance(-read.step(item), item) for item in common_loops[number + 1 :]
        )
        distances += [
            base_distance + outer + inner + advance for advance in _carried_distances(entry, write.step(entry), read.step(entry))
        ]
    if _before(write_path, read_path, prefix_length):
        distances.append(base_distance + sum(_max_advance(write.step(item) - read.step(item), item) for item in common_loops))
    return max(distances, default=None)


def _before(write_path: StmtPath, read_path: StmtPath, prefix_length: int) -> bool:
    """Test whether a store precedes a load in the same iteration of all loops around both."""
    if prefix_length == len(write_path):
        return isinstance(write_path[-1].stmt, ir.Intrinsic)  # whose order of reads and writes is unknown
    if prefix_length == len(read_path):
        return False  # the operands of a store are read before it
    write_step, read_step = write_path[prefix_length], read_path[prefix_length]
    return isinstance(write_step.stmt, ir.Seq) and write_step.part < read_step.part


def _max_advance(step: int, loop: PathStep) -> int:
    """Return the largest number of bytes by which an access advances over a loop at `step` bytes per iteration; 0 if `step` is
    negative."""
    return max(0, step * (loop.count - 1))


def _carried_distances(loop: PathStep, write_stride: int, read_stride: int) -> list[int]:
    """Return how far, in bytes, a store in one iteration of a loop is ahead of a load in a later iteration, for the pairs of
    iterations at which the distance can be largest. `write_stride` and `read_stride` are bytes per iteration. In a loop without
    order, any other iteration may be later."""
    last = loop.count - 1
    if last < 1:
        return []
    pairs = [(0, 1), (0, last), (last - 1, last)]
    if isinstance(loop.stmt, ir.For) and loop.stmt.kind not in _IN_ORDER:
        pairs += [(read_iteration, write_iteration) for write_iteration, read_iteration in pairs]
    return [write_stride * write_iteration - read_stride * read_iteration for write_iteration, read_iteration in pairs]
