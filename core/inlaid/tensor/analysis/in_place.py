"""Computes how far a kernel's output buffer may overlap one of its input buffers.

An image kernel reads its input and writes its output at about the same pace. The two buffers can then overlap, with the output
beginning some bytes before the input, as long as no element is overwritten before its last read. The minimum distance follows from
the loops: it is the largest difference between the end of a store and the beginning of a later load.

    for y: for x: out[y, x] = f(in[y - 1 .. y + 1, x - 1 .. x + 1])        out must begin a row and two elements before in

Blacker, Bandy and Sidwell, "Reducing Memory Requirements for Deep Neural Networks by Diagonal Memory Optimization" (2020), find
such distances by tracing kernels.
"""

from __future__ import annotations

from collections.abc import Iterator

from inlaid.tensor import ir
from inlaid.tensor.analysis.accesses import Access, PathStep, StmtPath, UnknownAccessError, accesses
from inlaid_runtime import arith

_IN_ORDER = (ir.ForKind.SERIAL, ir.ForKind.UNROLLED)


def head_start(program: ir.LoopProgram, output: int, operand: int) -> int | None:
    """Return how many bytes output number `output` must at least begin before input number `operand` if the two overlap; negative
    if it may begin after. None if the program is not plain loops over static sizes, or no bound is known. Ignores the kernel's
    other parameters. If the kernel has loops in unspecified order, their iterations must be independent."""
    written, read = program.outputs[output], program.inputs[operand]
    try:
        stores = _grouped(accesses(program.body, written, reads=False), greatest=True)
        loads = _grouped(accesses(program.body, read, reads=True), greatest=False)
    except UnknownAccessError:
        return None
    found = [_distance(*store, *load) for store in stores for load in loads]
    needed = max((bound for bound in found if bound is not None), default=-_size(read))
    return max(needed, -_size(read)) if loads else None


def _size(buffer: ir.Buffer) -> int:
    size = arith.product(buffer.shape)
    return size * buffer.dtype.bytes if isinstance(size, int) else 0


def _grouped(accesses: Iterator[tuple[StmtPath, Access]], greatest: bool) -> list[tuple[StmtPath, Access]]:
    """Merge accesses of one statement with equal strides into the one that ends last (`greatest`) or begins first."""
    found: dict[tuple[tuple[int, ...], frozenset[tuple[arith.Expr, int]]], tuple[StmtPath, Access]] = {}
    for place, access in accesses:
        key = tuple(part for entry in place for part in (id(entry.stmt), entry.part)), frozenset(access.steps)
        known = found.get(key)
        if known is None or (access.high > known[1].high if greatest else access.low < known[1].low):
            found[key] = place, access
    return list(found.values())


def _distance(write_place: StmtPath, write: Access, read_place: StmtPath, read: Access) -> int | None:
    """Return the largest difference between the end of a store and the beginning of a later load; None if no load is later."""
    shared = 0
    for mine, other in zip(write_place, read_place, strict=False):
        if mine.stmt is not other.stmt or mine.part != other.part:
            break
        shared += 1
    both = [entry for entry in write_place[:shared] if isinstance(entry.stmt, ir.For)]
    apart = write.high - read.low
    apart += sum(_most(write.step(entry), entry) for entry in write_place[shared:])
    apart += sum(_most(-read.step(entry), entry) for entry in read_place[shared:])
    found = []
    for number, entry in enumerate(both):
        # Outer loops are at the same iteration, this loop advances between store and load, and inner loops are arbitrary.
        outer = sum(_most(write.step(item) - read.step(item), item) for item in both[:number])
        inner = sum(_most(write.step(item), item) + _most(-read.step(item), item) for item in both[number + 1 :])
        found += [apart + outer + inner + between for between in _between(entry, write.step(entry), read.step(entry))]
    if _before(write_place, read_place, shared):
        found.append(apart + sum(_most(write.step(item) - read.step(item), item) for item in both))
    return max(found, default=None)


def _before(write_place: StmtPath, read_place: StmtPath, shared: int) -> bool:
    """Test whether a store precedes a load in the same iteration of all loops around both."""
    if shared == len(write_place):
        return isinstance(write_place[-1].stmt, ir.Intrinsic)  # whose order of reads and writes is unknown
    if shared == len(read_place):
        return False  # the operands of a store are read before it
    write, read = write_place[shared], read_place[shared]
    return isinstance(write.stmt, ir.Seq) and write.part < read.part


def _most(step: int, loop: PathStep) -> int:
    """Return the largest product of a step and the number of an iteration of a loop, at least 0."""
    return max(0, step * (loop.count - 1))


def _between(loop: PathStep, write: int, read: int) -> list[int]:
    """Return the differences in bytes, at the extremes, between a store in one iteration of a loop and a load in a later one."""
    last = loop.count - 1
    if last < 1:
        return []
    pairs = [(0, 1), (0, last), (last - 1, last)]
    if isinstance(loop.stmt, ir.For) and loop.stmt.kind not in _IN_ORDER:
        pairs += [(later, earlier) for earlier, later in pairs]
    return [write * earlier - read * later for earlier, later in pairs]
