"""Paths to statements of a loop program, and rebuilding along paths. Statements off the path stay the same objects.

Loops are identified by their variables, each of which belongs to one loop of the program. Blocks are identified by their names.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import TypeVar

from inlaid.tensor import ir
from inlaid.tensor.analysis.footprint import Box, with_footprint
from inlaid.tensor.transform.lower_blocks import bound_iters, guarded, joined, mapped
from inlaid.tensor.transform.rewrite import Rewriter
from inlaid_runtime import arith
from inlaid_runtime.names import unique
from inlaid_runtime.records import dataclass, replace

Path = tuple[ir.Stmt, ...]
"""The statements around a statement, outermost first, followed by the statement."""
_Link = tuple[ir.Stmt, "_Link | None"]
"""A statement and a link to the statement around it."""
S = TypeVar("S", bound=ir.Stmt)
Ranges = dict[arith.Expr, tuple[arith.Dim | None, arith.Dim | None]]


def find(root: ir.Stmt, kind: type[S], predicate: Callable[[S], bool]) -> Path | None:
    """Find the path to the first statement of a kind that fulfills `predicate`, in pre-order. Stores in blocks are not searched."""
    stack: list[_Link] = [(root, None)]
    while stack:
        link = stack.pop()
        node = link[0]
        if type(node) is kind and predicate(node):
            return _unlinked(link)
        if isinstance(node, (ir.For, ir.Alloc)):
            stack.append((node.body, link))
        elif type(node) is not ir.Store and not (type(node) is ir.Block and type(node.body) is ir.Store):
            stack.extend([(child, link) for child in reversed(ir.substatements(node))])
    return None


def _unlinked(link: _Link) -> Path:
    path = [link[0]]
    while (outer := link[1]) is not None:
        link = outer
        path.append(link[0])
    return tuple(reversed(path))


def rebuilt(path: Path, new: ir.Stmt | None) -> ir.Stmt:
    """Replace the last statement of a path, or remove it (`new` None) along with statements left empty. Returns the new root."""
    for parent, old in zip(path[-2::-1], path[:0:-1], strict=True):
        new = _with_child(parent, old, new)
    return ir.Seq(()) if new is None else new


def _with_child(parent: ir.Stmt, old: ir.Stmt, new: ir.Stmt | None) -> ir.Stmt | None:
    if isinstance(parent, ir.For) and new is not None:
        return ir.For(parent.var, parent.extent, new, parent.kind, parent.thread, parent.annotations)
    if isinstance(parent, ir.Alloc) and new is not None:
        return ir.Alloc(parent.buffer, new)
    if isinstance(parent, ir.Seq):
        position = next(position for position, stmt in enumerate(parent.stmts) if stmt is old)
        stmts = (*parent.stmts[:position], *(() if new is None else (new,)), *parent.stmts[position + 1 :])
        return joined(*stmts) if stmts else None
    if isinstance(parent, ir.If) and parent.otherwise is not None:
        branch = new or ir.Seq(())
        return (
            ir.If(parent.condition, branch, parent.otherwise)
            if parent.then is old
            else ir.If(parent.condition, parent.then, branch)
        )
    if new is None:
        return None
    if isinstance(parent, ir.Block):
        return replace(parent, body=new) if parent.body is old else replace(parent, init=new)
    return mapped(parent, lambda child: new if child is old else child)


def with_body(program: ir.LoopProgram, body: ir.Stmt) -> ir.LoopProgram:
    """Replace the body of a program."""
    return replace(program, body=body)


def loops_around(path: Path) -> list[ir.For]:
    """Return the loops on a path, outermost first. The last statement counts if it is a loop."""
    return [stmt for stmt in path if isinstance(stmt, ir.For)]


def loop_ranges(*loops: ir.For) -> Ranges:
    """Return the ranges of loop variables, as bounds for an `Analyzer`."""
    return {loop.var: (0, arith.unwrap(_last(loop.extent))) for loop in loops}


def loop_spans(*loops: ir.For) -> dict[arith.Expr, arith.Span]:
    """Return the ranges of loop variables, as spans for `arith.span`."""
    return {loop.var: (arith.ZERO, _last(loop.extent)) for loop in loops}


def _last(extent: arith.Expr) -> arith.Expr:
    return arith.Const(extent.value - 1) if isinstance(extent, arith.Const) else extent - 1


@dataclass(frozen=True, slots=True)
class Site:
    """A block, and the loops between it and some enclosing statement, outermost first."""

    block: ir.Block
    loops: tuple[ir.For, ...]

    def regions(self, regions: tuple[ir.BufferRegion, ...], buffer: ir.Buffer) -> Iterator[Box]:
        """Iterate over the boxes of one buffer in the given regions of the block, in terms of the loops around the block."""
        bindings = bound_iters(self.block)
        for region in regions:
            if region.buffer is buffer:
                yield tuple(
                    (arith.substitute(first, bindings), arith.substitute(extent, bindings)) for first, extent in region.ranges
                )

    def reads(self, buffer: ir.Buffer) -> bool:
        """Test whether the block reads a buffer."""
        return any(region.buffer is buffer for region in self.block.reads)

    def writes(self, buffer: ir.Buffer) -> bool:
        """Test whether the block writes a buffer."""
        return any(region.buffer is buffer for region in self.block.writes)


def sites(stmt: ir.Stmt) -> Iterator[Site]:
    """Iterate over the outermost blocks below a statement, in order."""
    stack: list[tuple[ir.Stmt, tuple[ir.For, ...]]] = [(stmt, ())]
    while stack:
        node, loops = stack.pop()
        match node:
            case ir.Block():
                yield Site(node, loops)
            case ir.For():
                stack.append((node.body, (*loops, node)))
            case ir.Alloc():
                stack.append((node.body, loops))
            case _:
                stack.extend([(child, loops) for child in reversed(ir.substatements(node))])


def unique_name(program: ir.LoopProgram, base: str) -> str:
    """Make a block name that is not yet used in the program."""
    names = {stmt.name for stmt in ir.walk_stmts(program.body) if isinstance(stmt, ir.Block)}
    return unique(base, names)


def nest(loops: list[tuple[arith.Var, arith.Expr]], body: ir.Stmt) -> ir.Stmt:
    """Wrap a statement in serial loops, given outermost first."""
    for var, extent in reversed(loops):
        body = ir.For(var, extent, body)
    return body


def fresh_iters(iters: tuple[ir.IterVar, ...]) -> tuple[tuple[ir.IterVar, ...], dict[arith.Expr, arith.Expr]]:
    """Copy iteration variables. Returns the copies and the mapping from old to new."""
    new = tuple(ir.IterVar(arith.Var(item.var.name), item.extent, item.kind) for item in iters)
    return new, {old.var: item.var for old, item in zip(iters, new, strict=True)}


def block_nest(
    name: str, iters: tuple[ir.IterVar, ...], body: ir.Stmt, init: ir.Stmt | None = None, predicate: arith.Expr = arith.ONE
) -> ir.Stmt:
    """Build a block inside one loop per iteration variable."""
    loops, mapping = fresh_iters(iters)
    bindings = tuple(item.var for item in loops)
    block = with_footprint(ir.Block(name, iters, bindings, (), (), body, init, arith.substitute(predicate, mapping)))
    return nest([(item.var, item.extent) for item in loops], block)


def fresh_copy(stmt: ir.Stmt, names: set[str]) -> ir.Stmt:
    """Copy a statement with new loop variables, iteration variables and buffers. Its blocks get names that are not in `names`, and
    the new names are added to `names`."""
    variables: dict[arith.Expr, arith.Expr] = {}
    buffers: dict[ir.Buffer, ir.Buffer] = {}
    for node in ir.walk_stmts(stmt):
        match node:
            case ir.For(var=var) | ir.Let(var=var):
                variables[var] = arith.Var(var.name)
            case ir.Block(iters=iters):
                variables.update(fresh_iters(iters)[1])
            case ir.Alloc(buffer=buffer):
                buffers[buffer] = ir.Buffer(buffer.name, buffer.shape, buffer.dtype, buffer.scope)

    def renamed_var(old: arith.Var) -> arith.Var:
        new = variables[old]
        assert isinstance(new, arith.Var)
        return new

    def change(node: ir.Stmt) -> ir.Stmt | None:
        match node:
            case ir.For():
                return ir.For(renamed_var(node.var), node.extent, node.body, node.kind, node.thread, node.annotations)
            case ir.Let():
                return ir.Let(renamed_var(node.var), node.value, node.body, node.bounds)
            case ir.Block(iters=iters):
                new_iters = tuple(ir.IterVar(renamed_var(item.var), item.extent, item.kind) for item in iters)
                return replace(node, name=unique(node.name, names), iters=new_iters)
        return None

    return Rewriter(variables, buffers, stmt=change).stmt(stmt)


def rebound(
    stmt: ir.Stmt,
    mapping: Mapping[arith.Expr, arith.Expr],
    analyzer: arith.Analyzer,
    condition: arith.Expr = arith.ONE,
) -> ir.Stmt:
    """Replace loop variables in a statement, and guard the statement by a condition.

    Block bodies need no rewriting: blocks refer to loops only in their bindings and predicates.
    """

    def simplified(expr: arith.Expr) -> arith.Expr:
        new = arith.substitute(expr, mapping)
        return expr if new is expr else analyzer.simplify(new)

    def change(node: ir.Stmt) -> ir.Stmt:
        match node:
            case ir.Block():
                bindings = tuple(map(simplified, node.bindings))
                predicate = arith.logical_and(simplified(node.predicate), condition)
                if predicate is node.predicate and all(a is b for a, b in zip(bindings, node.bindings, strict=True)):
                    return node
                return with_bindings(node, bindings, predicate)
            case ir.For(extent=extent, body=body):
                return ir.For(node.var, simplified(extent), change(body), node.kind, node.thread, node.annotations)
            case ir.Seq() | ir.Alloc():
                return mapped(node, change)
            case ir.If() if condition == arith.ONE:
                return mapped(ir.If(rewriter.expr(node.condition), node.then, node.otherwise), change)
        return guarded(rewriter.stmt(node), condition)

    rewriter = Rewriter(mapping)
    return change(stmt)


def with_bindings(block: ir.Block, bindings: tuple[arith.Expr, ...], predicate: arith.Expr) -> ir.Block:
    """Replace the bindings and the predicate of a block."""
    return ir.Block(
        block.name, block.iters, bindings, block.reads, block.writes, block.body, block.init, predicate, block.annotations
    )


def remapped(
    program: ir.LoopProgram, maps: Mapping[ir.Buffer, tuple[ir.Buffer, Callable[[tuple[arith.Expr, ...]], tuple[arith.Expr, ...]]]]
) -> ir.LoopProgram:
    """Replace buffers, including parameters, and remap their elements. `maps` maps a buffer to its replacement and a function from
    old to new indices. The reads and writes of blocks are recomputed."""

    def rewriter(ranges: Ranges) -> Rewriter:
        simplify = arith.Analyzer(ranges).simplify

        def load(node: ir.Expr) -> ir.Expr | None:
            if not isinstance(node, ir.Load) or node.buffer not in maps:
                return None
            buffer, index_map = maps[node.buffer]
            return ir.load(buffer, tuple(map(simplify, index_map(node.indices))))

        def change(stmt: ir.Stmt) -> ir.Stmt | None:
            match stmt:
                case ir.Store(buffer=buffer) if buffer in maps:
                    other, index_map = maps[buffer]
                    return ir.Store(other, tuple(map(simplify, index_map(stmt.indices))), stmt.value)
                case ir.Alloc(buffer=buffer) if buffer in maps:
                    return ir.Alloc(maps[buffer][0], stmt.body)
                case ir.Block():
                    return with_footprint(stmt)
            return None

        return Rewriter(expr=load, stmt=change)

    def visit(stmt: ir.Stmt) -> ir.Stmt:
        if isinstance(stmt, ir.Block):
            if not any(region.buffer in maps for region in (*stmt.reads, *stmt.writes)):
                return stmt
            return rewriter({item.var: (0, arith.unwrap(item.extent - 1)) for item in stmt.iters}).stmt(stmt)
        if isinstance(stmt, ir.Alloc) and stmt.buffer in maps:
            return ir.Alloc(maps[stmt.buffer][0], visit(stmt.body))
        if isinstance(stmt, (ir.For, ir.Seq, ir.Alloc, ir.If, ir.Let, ir.While)):
            return mapped(stmt, visit)
        return rewriter({}).stmt(stmt)

    def params(buffers: tuple[ir.Buffer, ...]) -> tuple[ir.Buffer, ...]:
        return tuple(maps[buffer][0] if buffer in maps else buffer for buffer in buffers)

    return replace(program, inputs=params(program.inputs), outputs=params(program.outputs), body=visit(program.body))


# --- buffers ----------------------------------------------------------------------------------------------------------


def paths_to_users(root: ir.Stmt, buffer: ir.Buffer) -> Iterator[Path]:
    """Iterate over the paths to the outermost blocks that read or write a buffer, in order."""
    stack: list[_Link] = [(root, None)]
    while stack:
        link = stack.pop()
        node = link[0]
        match node:
            case ir.Block():
                if any(region.buffer is buffer for region in (*node.reads, *node.writes)):
                    yield _unlinked(link)
            case ir.For() | ir.Alloc():
                stack.append((node.body, link))
            case _:
                stack.extend([(child, link) for child in reversed(ir.substatements(node))])


def shared_length(a: Path, b: Path) -> int:
    """Return the length of the common prefix of two paths."""
    return next((depth for depth, (x, y) in enumerate(zip(a, b, strict=False)) if x is not y), min(len(a), len(b)))


def uses(stmt: ir.Stmt, buffer: ir.Buffer) -> bool:
    """Test whether a statement, or a block below it, reads or writes a buffer."""
    return any(site.reads(buffer) or site.writes(buffer) for site in sites(stmt))


def allocated(program: ir.LoopProgram, buffer: ir.Buffer) -> Path | None:
    """Return the path to the allocation of a buffer; None for a parameter of the program."""
    return find(program.body, ir.Alloc, lambda stmt: stmt.buffer is buffer)


def replace_allocs(program: ir.LoopProgram, buffers: Iterable[ir.Buffer]) -> ir.LoopProgram:
    """Move the allocations of buffers to the innermost statement around all uses. The contents live for one execution of this
    statement.

    Parameters have no allocation and are skipped."""
    for buffer in dict.fromkeys(buffers):
        path = None if buffer in program.params else allocated(program, buffer)
        if path is not None:
            alloc = path[-1]
            assert isinstance(alloc, ir.Alloc)
            program = add_alloc(with_body(program, rebuilt(path, alloc.body)), buffer)
    return program


def add_alloc(program: ir.LoopProgram, buffer: ir.Buffer) -> ir.LoopProgram:
    """Allocate a buffer in the innermost statement around all its uses."""
    paths = list(paths_to_users(program.body, buffer))
    path = paths[0]
    for other in paths[1:]:
        path = path[: shared_length(path, other)]
    # Values that a loop around a single user carries between iterations must outlive the iterations.
    stop_kinds = (ir.While, ir.For) if len(paths) == 1 else (ir.While,)
    end = next((depth for depth, stmt in enumerate(path) if isinstance(stmt, stop_kinds)), len(path) - 1)
    return with_body(program, rebuilt(path[: end + 1], ir.Alloc(buffer, path[end])))
