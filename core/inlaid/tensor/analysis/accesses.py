"""The bytes of a buffer that statements read and write, in terms of the enclosing loops."""

from __future__ import annotations

import functools
from collections.abc import Iterator, Mapping

from inlaid.tensor import ir
from inlaid.tensor.analysis.footprint import statement_values
from inlaid_runtime import arith
from inlaid_runtime.records import dataclass


@dataclass(frozen=True)
class PathStep:
    """A step of the path to a statement: an enclosing statement, the number `part` of the substatement that the path enters, and
    the maximum number `count` of iterations of the enclosing statement."""

    stmt: ir.Stmt
    part: int = 0
    count: int = 1


StmtPath = tuple[PathStep, ...]


@dataclass(frozen=True)
class StridedAccess:
    """Bytes [low, high) of a buffer that a statement accesses if all loop variables are 0. `steps` are the byte strides by loop
    variable."""

    steps: tuple[tuple[arith.Expr, int], ...]
    low: int
    high: int

    def step(self, entry: PathStep) -> int:
        """Return the byte stride along a loop; 0 for any other statement."""
        return dict(self.steps).get(entry.stmt.var, 0) if isinstance(entry.stmt, ir.For) else 0


class UnknownAccessError(Exception):
    """Raised if the bytes of an access have no known bounds."""


Box = tuple[tuple[arith.Expr, arith.Expr], ...]
_Ranges = dict[arith.Expr, tuple[int, int]]
_Boxes = dict[tuple[ir.Buffer, bool], list[tuple[StmtPath, Box, _Ranges, arith.Analyzer]]]
"""Maps a buffer, and whether the access is a read, to the boxes accessed. Each comes with the path to its statement, the ranges of
enclosing loops, and an analyzer of these ranges."""


def accesses(body: ir.Stmt, buffer: ir.Buffer, reads: bool) -> Iterator[tuple[StmtPath, StridedAccess]]:
    """Iterate over the reads or writes of a buffer, each with the path to its statement. Raises `UnknownAccessError`."""
    for path, box, ranges, analyzer in _boxes(body).get((buffer, reads), ()):
        yield path, _access(buffer, box, ranges, analyzer)


@functools.lru_cache(maxsize=16)  # callers ask about one buffer of a statement after the other
def _boxes(body: ir.Stmt) -> _Boxes:
    boxes_by_access: _Boxes = {}
    stack: list[tuple[ir.Stmt, StmtPath, _Ranges, arith.Analyzer]] = [(body, (), {}, arith.Analyzer())]
    while stack:
        stmt, path, ranges, analyzer = stack.pop()
        if isinstance(stmt, (ir.While, ir.Block)):
            raise UnknownAccessError
        boxes: list[tuple[ir.Buffer, bool, Box]] = []
        if isinstance(stmt, ir.Intrinsic):
            for access, is_read in ((ir.AccessMode.READ, True), (ir.AccessMode.WRITE, False)):
                boxes += [(region.buffer, is_read, region.ranges) for region in stmt.touching(access)]
        for node in ir.walk_exprs(*statement_values(stmt)):
            if isinstance(node, ir.Load):
                boxes.append((node.buffer, True, tuple((index, arith.ONE) for index in node.indices)))
        if isinstance(stmt, ir.Store):
            boxes.append((stmt.buffer, False, tuple((index, arith.ONE) for index in stmt.indices)))
        for buffer, is_read, box in boxes:
            boxes_by_access.setdefault((buffer, is_read), []).append(((*path, PathStep(stmt)), box, ranges, analyzer))
        count = 1
        if isinstance(stmt, ir.For):
            max_extent = analyzer.bounds(stmt.extent)[1]
            if max_extent is None:
                raise UnknownAccessError
            count, ranges = max_extent, {**ranges, stmt.var: (0, max(max_extent, 1) - 1)}
            analyzer = arith.Analyzer(ranges)
        for part, inner in enumerate(ir.substatements(stmt)):
            stack.append((inner, (*path, PathStep(stmt, part, count)), ranges, analyzer))
    return boxes_by_access


def _access(
    buffer: ir.Buffer,
    box: Box,
    ranges: Mapping[arith.Expr, tuple[int, int]],
    analyzer: arith.Analyzer,
) -> StridedAccess:
    """Convert a box of a buffer to a range of bytes."""
    first: arith.Expr = arith.ZERO
    last: arith.Expr = arith.ZERO
    for (index, extent), size in zip(box, buffer.shape, strict=True):
        first = arith.add(arith.mul(first, size), index)
        last = arith.add(arith.mul(last, size), arith.add(index, arith.add(extent, -1)))
    form = analyzer.linear(first)
    steps = {atom: count for atom, count in form.terms.items() if atom in ranges}
    low = high = form.constant
    for atom, count in form.terms.items():
        if atom not in ranges:
            least, greatest = (None, None) if arith.reads_data(atom) else analyzer.bounds(atom)
            if least is None or greatest is None:
                raise UnknownAccessError
            low, high = low + min(count * least, count * greatest), high + max(count * least, count * greatest)
    last_offset = analyzer.bounds(arith.add(last, arith.mul(first, -1)))[1]
    if last_offset is None:
        raise UnknownAccessError
    element_bytes = buffer.dtype.bytes
    byte_steps = tuple((atom, count * element_bytes) for atom, count in steps.items())
    return StridedAccess(byte_steps, low * element_bytes, (high + last_offset + 1) * element_bytes)
