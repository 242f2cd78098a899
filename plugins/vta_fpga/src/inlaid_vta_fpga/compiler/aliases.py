"""Accumulator buffers that can share a tile: the ALU works in place."""

from __future__ import annotations

from collections.abc import Iterator

from inlaid import arith
from inlaid.errors import ScheduleError
from inlaid.tensor import ir
from inlaid.tensor.analysis.footprint import buffers_of
from inlaid_vta_fpga.compiler.alu import chain_of

_Path = tuple[arith.Var, ...]


def aliases(program: ir.LoopProgram) -> dict[ir.Buffer, ir.Buffer]:
    """The buffer whose tile each buffer in "vta.acc" shares; buffers with a tile of their own are left out.

    `b[i] = f(a[i])` works in place where both have one shape and are allocated in the same loops, this is the first use of b and
    the last of a, and no loop inside the allocation holds it together with another use of a.
    """
    allocated: dict[ir.Buffer, _Path] = {}
    uses: dict[ir.Buffer, list[tuple[int, _Path, ir.Stmt]]] = {}
    outermost: dict[ir.Buffer, int] = {}
    for number, (stmt, loops) in enumerate(_walk(program.body, ())):
        if isinstance(stmt, ir.Alloc):
            allocated[stmt.buffer] = loops
            outermost[stmt.buffer] = number
        elif isinstance(stmt, (ir.Store, ir.Intrinsic)):
            for buffer in buffers_of(stmt):
                uses.setdefault(buffer, []).append((number, loops, stmt))
    found: dict[ir.Buffer, ir.Buffer] = {}
    for target, all_uses in uses.items():
        number, loops, stmt = all_uses[0]
        if target.scope != "vta.acc" or not isinstance(stmt, ir.Store) or stmt.buffer is not target:
            continue
        try:
            first, operations = chain_of(stmt.value, program.name, target)
        except ScheduleError:
            continue
        if not isinstance(first, ir.Load) or first.buffer.scope != "vta.acc" or first.buffer is target:
            continue
        source = first.buffer
        around = allocated.get(source)
        others = [use for use in uses[source] if use[2] is not stmt]
        if (
            around is not None
            and source.shape == target.shape
            and around == allocated.get(target)
            and tuple(first.indices) == tuple(stmt.indices)
            and not any(isinstance(operand, ir.Load) and operand.buffer is source for _, operand in operations)
            and all(at < number and _common(path, loops) == len(around) for at, path, _ in others)
        ):
            group = found.get(source, source)
            found[target] = group
    return _by_outermost(found, outermost)


def _by_outermost(found: dict[ir.Buffer, ir.Buffer], order: dict[ir.Buffer, int]) -> dict[ir.Buffer, ir.Buffer]:
    """The same groups, each named by its outermost allocation."""
    groups: dict[ir.Buffer, list[ir.Buffer]] = {}
    for buffer, group in found.items():
        groups.setdefault(group, [group]).append(buffer)
    return {
        buffer: head
        for members in groups.values()
        for head in [min(members, key=order.__getitem__)]
        for buffer in members
        if buffer is not head
    }


def _common(a: _Path, b: _Path) -> int:
    """Loops around both."""
    count = 0
    for x, y in zip(a, b, strict=False):
        if x is not y:
            break
        count += 1
    return count


def _walk(stmt: ir.Stmt, loops: _Path) -> Iterator[tuple[ir.Stmt, _Path]]:
    yield stmt, loops
    inside = (*loops, stmt.var) if isinstance(stmt, ir.For) else loops
    for part in ir.substatements(stmt):
        yield from _walk(part, inside)
