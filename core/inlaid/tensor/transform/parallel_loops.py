"""Parallelizes independent serial loops of unscheduled loop programs."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from inlaid.tensor import ir
from inlaid.tensor.analysis.footprint import statement_accesses
from inlaid.tensor.transform.lower_blocks import mapped, simplify_program
from inlaid.tensor.transform.rewrite import Rewriter
from inlaid_runtime import arith


def parallel_loops(program: ir.LoopProgram) -> ir.LoopProgram:
    """Fuse the provably independent loops of a serial nest into one parallel loop, and move it outermost.

        for i in n: let at = p[i] in 0..9: for j in 8: y[at, j] = x[i, j]
    becomes
        for j in 8, parallel: for i in n: let at = p[i] in 0..9: y[at, j] = x[i, j]

    A loop is independent if each buffer that the nest writes has a dimension that all accesses index by `j + c`, with one constant
    c: its iterations then touch disjoint elements. Buffers that are allocated inside are private. Nests with thread loops are
    unchanged. Expects no blocks.
    """
    body = _parallel(program.body)
    return program if body is program.body else simplify_program(replace(program, body=body))


def _parallel(stmt: ir.Stmt) -> ir.Stmt:
    match stmt:
        case ir.Seq() | ir.Alloc() | ir.If():
            return mapped(stmt, _parallel)
        case ir.For(kind=ir.ForKind.SERIAL | ir.ForKind.PARALLEL):
            return _parallel_nest(stmt)
    return stmt


def _parallel_nest(stmt: ir.For) -> ir.Stmt:
    if any(isinstance(node, ir.Intrinsic) or (isinstance(node, ir.For) and _is_bound(node)) for node in ir.walk_stmts(stmt)):
        return stmt
    chain: list[ir.For | ir.Let] = []
    body: ir.Stmt = stmt
    while isinstance(body, ir.Let) or (isinstance(body, ir.For) and body.kind in (ir.ForKind.SERIAL, ir.ForKind.PARALLEL)):
        chain.append(body)
        body = body.body
    chain_vars = {node.var for node in chain}
    parallel_loops = [
        node
        for node in chain
        if isinstance(node, ir.For)
        and chain_vars.isdisjoint(arith.free_vars(node.extent))
        and not arith.reads_data(node.extent)
        and (node.kind is ir.ForKind.PARALLEL or _independent(stmt, node.var))
    ]
    if not parallel_loops:
        return stmt
    return _fuse([node for node in chain if node not in parallel_loops], parallel_loops, body)


def _is_bound(loop: ir.For) -> bool:
    return loop.kind in (ir.ForKind.THREAD, ir.ForKind.VTHREAD)


def _fuse(outer_nodes: list[ir.For | ir.Let], parallel_loops: list[ir.For], body: ir.Stmt) -> ir.Stmt:
    """Fuse the chosen loops into one parallel loop around the others."""
    for node in reversed(outer_nodes):
        body = replace(node, body=body)
    if len(parallel_loops) == 1:
        return replace(parallel_loops[0], body=body, kind=ir.ForKind.PARALLEL)
    fused = arith.Var("_".join(loop.var.name for loop in parallel_loops))
    values: dict[arith.Expr, arith.Expr] = {}
    rest: arith.Expr = fused
    for loop in reversed(parallel_loops[1:]):
        values[loop.var], rest = rest % loop.extent, rest // loop.extent
    values[parallel_loops[0].var] = rest
    extent = arith.wrap(arith.product(tuple(loop.extent for loop in parallel_loops)))
    return ir.For(fused, arith.simplify(extent), Rewriter(values).stmt(body), ir.ForKind.PARALLEL)


def _independent(nest: ir.Stmt, var: arith.Var) -> bool:
    """Test whether each shared buffer that a nest writes has a dimension that all accesses index by var + constant."""
    local_buffers = {node.buffer for node in ir.walk_stmts(nest) if isinstance(node, ir.Alloc)}
    accesses = list(_accesses(nest))
    written_buffers = {region.buffer for region, access in accesses if access & ir.AccessMode.WRITE} - local_buffers
    for buffer in written_buffers:
        points = [tuple(first for first, _ in region.ranges) for region, _ in accesses if region.buffer is buffer]
        if not any(_indexes(points, axis, var) for axis in range(len(buffer.shape))):
            return False
    return bool(written_buffers)


def _accesses(nest: ir.Stmt) -> Iterator[tuple[ir.BufferRegion, ir.AccessMode]]:
    for stmt in ir.walk_stmts(nest):
        yield from statement_accesses(stmt)


def _indexes(points: list[tuple[arith.Expr, ...]], axis: int, var: arith.Var) -> bool:
    """Test whether dimension `axis` of all points is the variable plus the same constant."""
    offsets = set()
    for point in points:
        form = arith.affine(point[axis], var)
        if form is None or form[0] != arith.ONE or not isinstance(form[1], arith.Const):
            return False
        offsets.add(form[1].value)
    return len(offsets) == 1
