"""From scheduled programs to what code generators print: no blocks, no unrolled loops, simplified indices."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from inlay import arith
from inlay.arith import Analyzer
from inlay.errors import ScheduleError
from inlay.tensor import ir
from inlay.tensor.rewrite import Rewriter
from inlay.types import dtype

Ranges = Mapping[arith.Expr, tuple[arith.Dim | None, arith.Dim | None]]


def lower_program(program: ir.LoopProgram) -> ir.LoopProgram:
    """All steps in order. Raises `ScheduleError` for a register buffer with a varying index."""
    program = simplify_program(unroll_loops(flatten_blocks(program)))
    check_registers(program)
    return program


# --- blocks -----------------------------------------------------------------------------------------------------------


def flatten_blocks(program: ir.LoopProgram) -> ir.LoopProgram:
    """Blocks become their bodies, with the values of the iteration variables put in.

        for i: for k: block(vi = i, vk = k): init: c[vi] = 0; c[vi] = c[vi] + a[vi, vk]
    becomes
        for i: c[i] = 0; for k: c[i] = c[i] + a[i, k]

    An init goes before the outermost loop that only reduction variables use, where no spatial loop lies inside that; else it stays
    in place, under the condition that every reduction variable is 0. A predicate becomes a condition.
    """
    return replace(program, body=_flatten(program.body))


def _flatten(stmt: ir.Stmt) -> ir.Stmt:
    match stmt:
        case ir.For():
            return _flatten_loop(stmt)
        case ir.Block():
            return _block_body(stmt, with_init=stmt.init is not None)
        case ir.While(condition=condition, body=body):
            return ir.While(condition, _flatten(body))
        case ir.If(condition=condition, then=then, otherwise=otherwise):
            return ir.If(condition, _flatten(then), None if otherwise is None else _flatten(otherwise))
        case ir.Let(body=body) | ir.Alloc(body=body):
            return replace(stmt, body=_flatten(body))
        case ir.Seq(stmts=stmts):
            return ir.Seq(tuple(map(_flatten, stmts)))
    return stmt


def _flatten_loop(loop: ir.For) -> ir.Stmt:
    """A loop; the init of a block right below a chain of reduction loops goes before the chain."""
    if loop.kind in (ir.ForKind.SERIAL, ir.ForKind.UNROLLED):
        block, loops = _chain(loop)
        if block is not None and block.init is not None and _only_reduction(block, loops):
            body = _block_body(block, with_init=False)
            for item in reversed(loops):
                body = replace(item, body=body)
            return ir.Seq((_init(block), body))
    return replace(loop, body=_flatten(loop.body))


def _chain(loop: ir.For) -> tuple[ir.Block | None, list[ir.For]]:
    """The block directly below a chain of loops, and the loops."""
    loops = []
    stmt: ir.Stmt = loop
    while isinstance(stmt, ir.For):
        loops.append(stmt)
        stmt = stmt.body
    return (stmt if isinstance(stmt, ir.Block) else None), loops


def _only_reduction(block: ir.Block, loops: list[ir.For]) -> bool:
    """Whether loops feed reduction variables alone, and reduction variables nothing but them."""
    variables = {loop.var for loop in loops}
    for item, binding in zip(block.iters, block.bindings, strict=True):
        used = arith.free_vars(binding)
        if item.kind is ir.IterKind.REDUCTION:
            if not used <= variables:
                return False
        elif used & variables:
            return False
    return not arith.free_vars(block.predicate) & {item.var for item in block.iters if item.kind is ir.IterKind.REDUCTION}


def _init(block: ir.Block) -> ir.Stmt:
    assert block.init is not None
    body = Rewriter(_spatial(block)).stmt(block.init)
    return _guard(block, body)


def _spatial(block: ir.Block) -> dict[arith.Expr, arith.Expr]:
    return dict(zip((item.var for item in block.iters), block.bindings, strict=True))


def _guard(block: ir.Block, body: ir.Stmt) -> ir.Stmt:
    predicate = arith.substitute(block.predicate, _spatial(block))
    return body if predicate == arith.ONE else ir.If(ir.Index(dtype("bool"), predicate), body)


def _block_body(block: ir.Block, with_init: bool) -> ir.Stmt:
    mapping = _spatial(block)
    body = _flatten(Rewriter(mapping).stmt(block.body))
    if with_init:
        assert block.init is not None
        first: arith.Expr = arith.ONE
        for item, binding in zip(block.iters, block.bindings, strict=True):
            if item.kind is ir.IterKind.REDUCTION:
                first = arith.logical_and(first, arith.compare("==", binding, 0))
        init = _flatten(Rewriter(mapping).stmt(block.init))
        body = ir.Seq((init if first == arith.ONE else ir.If(ir.Index(dtype("bool"), first), init), body))
    return _guard(block, body)


# --- unrolling --------------------------------------------------------------------------------------------------------


def unroll_loops(program: ir.LoopProgram) -> ir.LoopProgram:
    """Loops marked as unrolled become one copy of their body per iteration. Raises `ScheduleError` where an extent is not constant."""
    return replace(program, body=Rewriter(stmt=_unroll).stmt(program.body))


def _unroll(stmt: ir.Stmt) -> ir.Stmt | None:
    if not isinstance(stmt, ir.For) or stmt.kind is not ir.ForKind.UNROLLED:
        return None
    extent = arith.wrap(Analyzer().simplify(stmt.extent))
    if not isinstance(extent, arith.Const):
        raise ScheduleError(f"loop {stmt.var.name} is marked to be unrolled, but its extent {stmt.extent!r} is not constant")
    return ir.Seq(tuple(Rewriter({stmt.var: arith.Const(index)}).stmt(stmt.body) for index in range(extent.value)))


# --- simplification ---------------------------------------------------------------------------------------------------


def simplify_program(program: ir.LoopProgram) -> ir.LoopProgram:
    """Indices, extents and conditions simplified by the ranges of the loops around; loops of one iteration and conditions that are
    decided are gone, sequences are flat."""
    return replace(program, body=_Simplifier({}).stmt(program.body))


class _Simplifier:
    """Simplifies under one set of ranges of variables."""

    def __init__(self, ranges: Ranges) -> None:
        self._ranges = ranges
        self._analyzer = Analyzer(ranges)
        self._memo: dict[int, ir.Expr] = {}

    def index(self, index: arith.Expr) -> arith.Expr:
        """An integer expression simplified, checked values in it included."""
        new = self._analyzer.simplify(self._checked(index))
        return index if new == index else new

    def _checked(self, index: arith.Expr) -> arith.Expr:
        if isinstance(index, arith.Opaque):
            assert isinstance(index.payload, ir.Expr)
            payload, lower, upper = self.expr(index.payload), self.index(index.lower), self.index(index.upper)
            unchanged = payload is index.payload and lower is index.lower and upper is index.upper
            return index if unchanged else ir.checked(payload, lower, upper)
        if not index.operands:
            return index
        operands = tuple(map(self._checked, index.operands))
        return index if all(a is b for a, b in zip(operands, index.operands, strict=True)) else index.rebuild(operands)

    def expr(self, expr: ir.Expr) -> ir.Expr:
        """A value expression with simplified indices; choices on decided conditions are made."""
        return ir.map_expr(expr, _decide, self.index, self._memo)

    def inside(self, variable: arith.Expr, low: arith.Dim | None, high: arith.Dim | None) -> _Simplifier:
        """The simplifier under one more range."""
        return _Simplifier({**self._ranges, variable: (low, high)})

    def stmt(self, stmt: ir.Stmt) -> ir.Stmt:
        """A statement simplified."""
        match stmt:
            case ir.For():
                return self._loop(stmt)
            case ir.Store(buffer=buffer, indices=indices, value=value):
                return ir.Store(buffer, tuple(map(self.index, indices)), self.expr(value))
            case ir.Seq(stmts=stmts):
                return _sequence([self.stmt(item) for item in stmts])
            case ir.If(condition=condition, then=then, otherwise=otherwise):
                return self._if(self.expr(condition), then, otherwise)
            case ir.Let(var=variable, value=value, body=body, bounds=bounds):
                limits = None if bounds is None else (self.index(bounds[0]), self.index(bounds[1]))
                inner = self if limits is None else self.inside(variable, *limits)
                return ir.Let(variable, self.expr(value), inner.stmt(body), limits)
            case ir.Alloc(buffer=buffer, body=body):
                return ir.Alloc(buffer, self.stmt(body))
            case ir.While(condition=condition, body=body):
                return ir.While(self.expr(condition), self.stmt(body))
            case ir.Intrinsic(name=name, regions=regions, args=args):
                new = tuple(ir.Region(r.buffer, tuple((self.index(a), self.index(b)) for a, b in r.ranges)) for r in regions)
                return ir.Intrinsic(name, new, tuple(map(self.expr, args)))
        return stmt

    def _loop(self, loop: ir.For) -> ir.Stmt:
        extent = self.index(loop.extent)
        if isinstance(extent, arith.Const) and extent.value <= 1 and loop.kind is not ir.ForKind.THREAD:
            if extent.value < 1:
                return ir.Seq(())
            return self.stmt(Rewriter({loop.var: arith.ZERO}).stmt(loop.body))
        body = self.inside(loop.var, 0, arith.unwrap(extent - 1)).stmt(loop.body)
        return body if isinstance(body, ir.Seq) and not body.stmts else replace(loop, extent=extent, body=body)

    def _if(self, condition: ir.Expr, then: ir.Stmt, otherwise: ir.Stmt | None) -> ir.Stmt:
        decided = _truth(condition)
        if decided is not None:
            chosen = then if decided else otherwise
            return ir.Seq(()) if chosen is None else self.stmt(chosen)
        return ir.If(condition, self.stmt(then), None if otherwise is None else self.stmt(otherwise))


def _truth(condition: ir.Expr) -> bool | None:
    """What a condition is known to be."""
    if isinstance(condition, ir.Index) and isinstance(condition.index, arith.Const):
        return bool(condition.index.value)
    return bool(condition.value) if isinstance(condition, ir.Const) else None


def _decide(node: ir.Expr) -> ir.Expr | None:
    if not isinstance(node, ir.Select):
        return None
    decided = _truth(node.condition)
    return None if decided is None else node.then if decided else node.otherwise


def _sequence(stmts: list[ir.Stmt]) -> ir.Stmt:
    flat: list[ir.Stmt] = []
    for stmt in stmts:
        flat += stmt.stmts if isinstance(stmt, ir.Seq) else [stmt]
    return flat[0] if len(flat) == 1 else ir.Seq(tuple(flat))


# --- registers --------------------------------------------------------------------------------------------------------


def check_registers(program: ir.LoopProgram) -> None:
    """Buffers of scope "register" must have constant indices now, but for the index of a vectorised loop; else they would lie in
    memory. Raises `ScheduleError` naming the buffer and the loop."""
    _check_registers(program.body, frozenset())


def _check_registers(stmt: ir.Stmt, lanes: frozenset[arith.Expr]) -> None:
    if isinstance(stmt, ir.For) and stmt.kind is ir.ForKind.VECTORIZED:
        lanes = lanes | {stmt.var}
    roots = (
        [stmt.value] if isinstance(stmt, (ir.Store, ir.Let)) else [stmt.condition] if isinstance(stmt, (ir.If, ir.While)) else []
    )
    accesses = [(node.buffer, node.indices) for node in ir.walk_exprs(*roots) if isinstance(node, ir.Load)]
    if isinstance(stmt, ir.Store):
        accesses.append((stmt.buffer, stmt.indices))
    for buffer, indices in accesses:
        varying = frozenset().union(*map(arith.free_vars, indices)) - lanes if buffer.scope == "register" else None
        if varying:
            names = ", ".join(sorted(map(repr, varying)))
            raise ScheduleError(
                f"register buffer {buffer.name} is indexed by loop {names}",
                remedy="unroll that loop, or give the buffer another scope",
            )
    for child in ir.substatements(stmt):
        _check_registers(child, lanes)
