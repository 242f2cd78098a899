"""Collapse adjacent dimensions that are always iterated together, so that inner loops are long."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from inlaid.tensor import ir
from inlaid.tensor.analysis.blocks import collect_blocks
from inlaid.tensor.analysis.footprint import reads, with_footprint, writes
from inlaid.tensor.primitives import TensorIntrin
from inlaid.tensor.schedule import Schedule, Transform
from inlaid.tensor.transform.paths import nest
from inlaid.tensor.transform.peel import REMAINDERS
from inlaid.tensor.transform.rewrite import Rewriter
from inlaid_runtime import arith
from inlaid_runtime.arith import Var
from inlaid_runtime.names import unique

Pair = tuple[object, object]
"""Two adjacent dimensions of a buffer, as (buffer, number of the first), or two adjacent iteration variables of a block."""


def collapse(program: ir.LoopProgram) -> ir.LoopProgram:
    """Merge dimensions of buffers and the corresponding loops; the bytes in memory are unchanged.

        for n, c, y in 7, x in 7: out[n, c] += a[n, c, y, x]    becomes    for nc, yx in 49: out[nc] += a[nc, yx]

    Two adjacent dimensions of a buffer are merged if every access indexes them by two adjacent iteration variables that cover them
    completely, and these variables have no other use. Loops of extent 1 are removed. A program that is scheduled, or whose blocks
    are not single stores, is returned unchanged.
    """
    while True:
        blocks = collect_blocks(program)
        nests = (ir.Alloc, ir.Seq, ir.For, ir.Block, ir.Store)
        if program.defines or not all(isinstance(stmt, nests) for stmt in ir.walk_stmts(program.body)):
            return program
        if not all(map(_is_plain, blocks)):
            return program
        merged_pairs = _mergeable(blocks)
        if not merged_pairs:
            has_unit_loop = any(isinstance(stmt, ir.For) and stmt.extent == arith.ONE for stmt in ir.walk_stmts(program.body))
            return _merged(program, blocks, merged_pairs) if has_unit_loop else program
        program = _merged(program, blocks, merged_pairs)


def _is_plain(block: ir.Block) -> bool:
    stores = isinstance(block.body, ir.Store) and (block.init is None or isinstance(block.init, ir.Store))
    return stores and block.predicate == arith.ONE and all(isinstance(binding, Var) for binding in block.bindings)


def stores(block: ir.Block) -> Iterator[ir.Store]:
    """Yield the stores of a block's init and body, which must be single stores."""
    for stmt in (block.init, block.body):
        if isinstance(stmt, ir.Store):
            yield stmt


def accesses(block: ir.Block) -> Iterator[tuple[ir.Buffer, tuple[arith.Expr, ...]]]:
    """Yield the accesses of a block as (buffer, indices)."""
    for store in stores(block):
        yield store.buffer, store.indices
        for node in ir.walk_exprs(store.value):
            if isinstance(node, ir.Load):
                yield node.buffer, node.indices


def _mergeable(blocks: list[ir.Block]) -> set[Pair]:
    """Find disjoint pairs that can be merged in one step: in a run of dimensions, every second pair."""
    links: dict[Pair, set[Pair]] = {}
    unmergeable: set[Pair] = set()
    for block in blocks:
        pairs = _neighbors(block)
        links.update((pair, set()) for pair in pairs)
        value_indices = [node for store in stores(block) for node in ir.walk_exprs(store.value) if isinstance(node, ir.Index)]
        value_vars = frozenset().union(*(arith.free_vars(node.index) for node in value_indices))
        unmergeable.update(pair for pair in pairs if not value_vars.isdisjoint(pair))
        for buffer, indices in accesses(block):
            for dim in range(len(indices)):
                index, following = indices[dim], indices[dim + 1] if dim + 1 < len(indices) else None
                dim_pair, pair = (buffer, dim), (index, following)
                links.setdefault(dim_pair, set())
                extents = pairs.get(pair)
                if extents is not None and _extents_match(extents, buffer.shape[dim : dim + 2]):
                    links[dim_pair].add(pair)
                    links[pair].add(dim_pair)
                else:
                    unmergeable.update((dim_pair, pair) if extents is not None else (dim_pair,))
                before = indices[dim - 1] if dim else None
                variables = arith.free_vars(index)
                unmergeable.update(
                    p for p in pairs if (p[0] in variables and p != pair) or (p[1] in variables and p != (before, index))
                )
    stack = list(unmergeable)
    while stack:
        for other in links.get(stack.pop(), ()):
            if other not in unmergeable:
                unmergeable.add(other)
                stack.append(other)
    return _disjoint_groups(links, unmergeable)


def _extents_match(extents: tuple[arith.Expr, arith.Expr], shape: tuple[arith.Dim, ...]) -> bool:
    """Test whether two loops cover two dimensions completely. Extents are simplified, since equal products may differ in form."""
    return all(a == arith.wrap(b) or arith.simplify(a - b) == arith.ZERO for a, b in zip(extents, shape, strict=True))


def _neighbors(block: ir.Block) -> dict[Pair, tuple[arith.Expr, arith.Expr]]:
    """Return the pairs of adjacent iteration variables of the same kind, with their extents."""
    return {(a.var, b.var): (a.extent, b.extent) for a, b in zip(block.iters, block.iters[1:], strict=False) if a.kind is b.kind}


def _disjoint_groups(links: dict[Pair, set[Pair]], unmergeable: set[Pair]) -> set[Pair]:
    """Select groups of linked mergeable pairs that share no dimension with other selected groups."""
    covered_parts: set[object] = set()
    merged_pairs: set[Pair] = set()
    for start in links:
        if start in unmergeable or start in merged_pairs:
            continue
        group, stack = {start}, [start]
        while stack:
            for other in links[stack.pop()]:
                if other not in group:
                    group.add(other)
                    stack.append(other)
        parts = {part for pair in group for part in _parts(pair)}
        if covered_parts.isdisjoint(parts):
            covered_parts |= parts
            merged_pairs |= group
    return merged_pairs


def _parts(pair: Pair) -> tuple[object, object]:
    first, second = pair
    return ((first, second), (first, second + 1)) if isinstance(second, int) else (first, second)


def _merged(program: ir.LoopProgram, blocks: list[ir.Block], merged_pairs: set[Pair]) -> ir.LoopProgram:
    buffers: dict[ir.Buffer, ir.Buffer] = {}
    local_buffers = [stmt.buffer for stmt in ir.walk_stmts(program.body) if isinstance(stmt, ir.Alloc)]
    for buffer in (*program.params, *local_buffers):
        first = [dim for dim in range(len(buffer.shape)) if (buffer, dim) in merged_pairs]
        if first:
            shape = tuple(
                arith.unwrap(arith.mul(extent, buffer.shape[dim + 1])) if dim in first else extent
                for dim, extent in enumerate(buffer.shape)
                if dim - 1 not in first
            )
            buffers[buffer] = ir.Buffer(buffer.name, shape, buffer.dtype, buffer.scope)
    body: ir.Stmt = ir.Seq(tuple(_block(block, merged_pairs, buffers) for block in blocks))
    for buffer in reversed(local_buffers):
        body = ir.Alloc(buffers.get(buffer, buffer), body)
    inputs, outputs = (tuple(buffers.get(buffer, buffer) for buffer in side) for side in (program.inputs, program.outputs))
    return replace(program, inputs=inputs, outputs=outputs, body=body)


def _block(block: ir.Block, merged_pairs: set[Pair], buffers: dict[ir.Buffer, ir.Buffer]) -> ir.Stmt:
    """Rebuild a block and its loops over merged iteration variables."""
    iters: list[ir.IterVar] = []
    for item in block.iters:
        if iters and (iters[-1].var, item.var) in merged_pairs:
            before = iters.pop()
            iters.append(ir.IterVar(before.var, arith.simplify(before.extent * item.extent), before.kind))
        else:
            iters.append(item)

    def merged_indices(buffer: ir.Buffer, indices: tuple[arith.Expr, ...]) -> tuple[arith.Expr, ...]:
        return tuple(index for dim, index in enumerate(indices) if (buffer, dim - 1) not in merged_pairs)

    def load(node: ir.Expr) -> ir.Expr | None:
        if not isinstance(node, ir.Load) or node.buffer not in buffers:
            return None
        return ir.load(buffers[node.buffer], merged_indices(node.buffer, node.indices))

    def store(stmt: ir.Stmt) -> ir.Stmt | None:
        if not isinstance(stmt, ir.Store) or stmt.buffer not in buffers:
            return None
        return ir.Store(buffers[stmt.buffer], merged_indices(stmt.buffer, stmt.indices), stmt.value)

    rewriter = Rewriter(expr=load, stmt=store)
    body = rewriter.stmt(block.body)
    init = None if block.init is None else rewriter.stmt(block.init)
    loops = [(Var(item.var.name), item.extent) for item in iters]
    return nest(
        [(var, extent) for var, extent in loops if extent != arith.ONE],
        ir.Block(
            block.name,
            tuple(iters),
            tuple(arith.ZERO if extent == arith.ONE else var for var, extent in loops),
            reads(body),
            writes(body),
            body,
            init,
        ),
    )


def without_empty(program: ir.LoopProgram) -> ir.LoopProgram | None:
    """Simplify a program for rules that initialize reductions unconditionally: remove the nests that fill results of empty
    reductions, give local buffers unique names, and drop iteration variables of extent 1 from index sums. None if a block is not a
    single store."""
    blocks = collect_blocks(program)
    if any(
        not isinstance(block.body, ir.Store) or not (block.init is None or isinstance(block.init, ir.Store)) for block in blocks
    ):
        return None
    names = _unique_names(program)
    reduced_buffers = {
        names.get(block.body.buffer, block.body.buffer)
        for block in blocks
        if block.init is not None and isinstance(block.body, ir.Store)
    }

    def simplified(stmt: ir.Stmt) -> ir.Stmt | None:
        if isinstance(stmt, ir.Block):
            return _without_zeros(stmt)
        if not isinstance(stmt, ir.If) or stmt.otherwise is not None:
            return None
        inner_stores = [item for item in ir.walk_stmts(stmt.then) if isinstance(item, ir.Store)]
        return (
            ir.Seq(())
            if all(item.buffer in reduced_buffers and isinstance(item.value, ir.Const) for item in inner_stores)
            else None
        )

    body = Rewriter(buffers=names, stmt=simplified).stmt(program.body)
    return program if body is program.body else replace(program, body=body)


def _without_zeros(block: ir.Block) -> ir.Block | None:
    """Drop iteration variables of extent 1 from index sums: x[y + k] with y = 0 becomes x[k]."""
    spatial = (item for item in block.iters if item.kind is ir.IterKind.SPATIAL)
    zeros: dict[arith.Expr, arith.Expr] = {item.var: arith.ZERO for item in spatial if item.extent == arith.ONE}

    def load(node: ir.Expr) -> ir.Expr | None:
        if not isinstance(node, ir.Load) or all(
            index in zeros or zeros.keys().isdisjoint(arith.free_vars(index)) for index in node.indices
        ):
            return None
        indices = (index if index in zeros else arith.simplify(arith.substitute(index, zeros)) for index in node.indices)
        return ir.load(node.buffer, tuple(indices))

    body = Rewriter(expr=load).stmt(block.body) if zeros else block.body
    return None if body is block.body else with_footprint(replace(block, body=body))


def _unique_names(program: ir.LoopProgram) -> dict[ir.Buffer, ir.Buffer]:
    """Rename local buffers uniquely, since primitives refer to them by name."""
    names = {buffer.name for buffer in program.params}
    renamed: dict[ir.Buffer, ir.Buffer] = {}
    for stmt in ir.walk_stmts(program.body):
        if isinstance(stmt, ir.Alloc):
            name = unique(stmt.buffer.name, names)
            if name != stmt.buffer.name:
                renamed[stmt.buffer] = ir.Buffer(name, stmt.buffer.shape, stmt.buffer.dtype, stmt.buffer.scope)
    return renamed


WITHOUT_EMPTY = Transform("without_empty", lambda program: without_empty(program) or program)
COLLAPSE = Transform("collapse", collapse)


def collapsed(
    program: ir.LoopProgram, intrinsics: tuple[TensorIntrin, ...] = (), between: tuple[Transform, int, int] | None = None
) -> Schedule:
    """Begin a schedule with the transforms `without_empty`, if applicable, and `collapse`. `between`: a transform to apply between
    the two, and its two arguments."""
    schedule = Schedule(program, intrinsics, (REMAINDERS,))
    schedule.apply(WITHOUT_EMPTY)
    if between is not None:
        schedule.apply(*between)
    schedule.apply(COLLAPSE)
    return schedule
