"""Lowers scheduled blocks to plain loops for code generators: flattens blocks, simplifies indices."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from operator import is_not

from inlaid.tensor import ir
from inlaid.tensor.analysis.footprint import statement_values
from inlaid.tensor.transform.rewrite import Rewriter
from inlaid_runtime import arith
from inlaid_runtime.errors import ScheduleError
from inlaid_runtime.types import dtype

_BOOL = dtype("bool")


def truth(condition: arith.Expr) -> ir.Expr:
    """Convert an integer condition to a bool value."""
    return ir.Index(_BOOL, condition)


def guarded(stmt: ir.Stmt, condition: arith.Expr) -> ir.Stmt:
    """Guard a statement by a condition, unless the condition always holds."""
    return stmt if condition == arith.ONE else ir.If(truth(condition), stmt)


def joined(*stmts: ir.Stmt) -> ir.Stmt:
    """Join statements into one, flattening sequences."""
    parts = [part for stmt in stmts for part in (stmt.stmts if isinstance(stmt, ir.Seq) else (stmt,))]
    return parts[0] if len(parts) == 1 else ir.Seq(tuple(parts))


def conjuncts(condition: arith.Expr) -> Iterator[arith.Expr]:
    """Iterate over the conjuncts of a condition."""
    stack = [condition]
    while stack:
        node = stack.pop()
        if isinstance(node, arith.And):
            stack.extend(reversed(node.operands))
        elif node != arith.ONE:
            yield node


def bound_iters(block: ir.Block) -> dict[arith.Expr, arith.Expr]:
    """Map the iteration variables of a block to their bindings."""
    return dict(zip((item.var for item in block.iters), block.bindings, strict=True))


def mapped(stmt: ir.Stmt, change: Callable[[ir.Stmt], ir.Stmt]) -> ir.Stmt:
    """Apply a function to the direct substatements of a statement. Returns the same object for a block, or if nothing changes."""
    match stmt:
        case ir.For(body=body):
            new = change(body)
            return stmt if new is body else ir.For(stmt.var, stmt.extent, new, stmt.kind, stmt.thread, stmt.annotations)
        case ir.While(condition=condition, body=body):
            new = change(body)
            return stmt if new is body else ir.While(condition, new)
        case ir.Let(body=body):
            new = change(body)
            return stmt if new is body else ir.Let(stmt.var, stmt.value, new, stmt.bounds)
        case ir.Alloc(buffer=buffer, body=body):
            new = change(body)
            return stmt if new is body else ir.Alloc(buffer, new)
        case ir.If(condition=condition, then=then, otherwise=otherwise):
            new, other = change(then), None if otherwise is None else change(otherwise)
            return stmt if new is then and other is otherwise else ir.If(condition, new, other)
        case ir.Seq(stmts=stmts):
            new_stmts = tuple(map(change, stmts))
            return joined(*new_stmts) if any(map(is_not, new_stmts, stmts)) else stmt
    return stmt


# --- blocks -----------------------------------------------------------------------------------------------------------


def flatten_blocks(program: ir.LoopProgram) -> ir.LoopProgram:
    """Replace blocks by their bodies, guarded by their predicates, with iteration variables substituted.

        for i: for k: block(vi = i, vk = k): init: c[vi] = 0; c[vi] = c[vi] + a[vi, vk]
    becomes
        for i: c[i] = 0; for k: c[i] = c[i] + a[i, k]

    The init is hoisted out of the innermost loops that belong only to the reduction, if these form a perfect nest. Otherwise it
    stays in place, guarded by the condition that every reduction variable is 0.
    """
    body = _flatten(program.body)
    return program if body is program.body else replace(program, body=body)


def _flatten(stmt: ir.Stmt) -> ir.Stmt:
    if isinstance(stmt, ir.Block):
        return _flattened_block(stmt)
    if isinstance(stmt, ir.For):
        hoisted = _with_hoisted_init(stmt)
        if hoisted is not None:
            return hoisted
    return mapped(stmt, _flatten)


def _flattened_block(block: ir.Block) -> ir.Stmt:
    rewriter = Rewriter(bound_iters(block))
    body = rewriter.stmt(_flatten(block.body))
    if block.init is not None:
        is_first: arith.Expr = arith.ONE
        for item, binding in zip(block.iters, block.bindings, strict=True):
            if item.kind is ir.IterKind.REDUCTION:
                is_first = arith.logical_and(is_first, arith.compare("==", binding, 0))
        body = joined(guarded(rewriter.stmt(_flatten(block.init)), is_first), body)
    return guarded(body, rewriter.index(block.predicate))


def _with_hoisted_init(loop: ir.For) -> ir.Stmt | None:
    """Hoist the init of a block out of a perfect nest of reduction loops; None if the loop is not such a nest."""
    loops: list[ir.For] = []
    stmt: ir.Stmt = loop
    while isinstance(stmt, ir.For):
        if stmt.kind not in (ir.ForKind.SERIAL, ir.ForKind.UNROLLED):
            return None
        loops.append(stmt)
        stmt = stmt.body
    if not isinstance(stmt, ir.Block) or stmt.init is None:
        return None
    variables = {item.var for item in loops}
    start: dict[arith.Expr, arith.Expr] = dict.fromkeys(variables, arith.ZERO)
    for item, binding in zip(stmt.iters, stmt.bindings, strict=True):
        if item.kind is not ir.IterKind.REDUCTION:
            if not variables.isdisjoint(arith.free_vars(binding)):
                return None
        elif arith.simplify(arith.substitute(binding, start)) != arith.ZERO:
            return None
    first = {var: arith.substitute(value, start) for var, value in bound_iters(stmt).items()} | start
    rewriter = Rewriter(first)
    init = guarded(rewriter.stmt(_flatten(stmt.init)), rewriter.index(stmt.predicate))
    body = _flattened_block(replace(stmt, init=None))
    for enclosing_loop in reversed(loops):
        body = ir.For(
            enclosing_loop.var, enclosing_loop.extent, body, enclosing_loop.kind, enclosing_loop.thread, enclosing_loop.annotations
        )
    return joined(init, body)


# --- simplification ---------------------------------------------------------------------------------------------------


def simplify_program(program: ir.LoopProgram) -> ir.LoopProgram:
    """Simplify indices, extents and conditions by the ranges of enclosing loops. Removes loops of one iteration and conditions that
    are constant or implied by an enclosing condition, and flattens sequences. The program must have no blocks."""
    body = _Simplifier().stmt(program.body)
    return program if body is program.body else replace(program, body=body)


_Ranges = dict[arith.Expr, tuple[arith.Dim | None, arith.Dim | None]]


class _Simplifier(Rewriter):
    """Simplifies by the ranges of variables and by conditions that are known to hold."""

    def __init__(self, outer: _Simplifier | None = None, ranges: _Ranges | None = None) -> None:
        super().__init__(expr=self._folded)
        self._outer = outer
        self._ranges: _Ranges = {} if ranges is None else ranges
        self._facts: frozenset[arith.Expr] = frozenset() if outer is None else outer._facts
        self._analyzer: arith.Analyzer = arith.Analyzer(self._ranges) if outer is None else outer._analyzer.inside(self._ranges)
        self._loops: dict[tuple[arith.Var, arith.Expr], _Simplifier] = {}

    def index(self, index: arith.Expr) -> arith.Expr:
        if type(index) is arith.Const:
            return index
        result = self._indices.get(index)
        if result is None:
            result = self._simplified(index)
            result = self._indices[index] = index if result == index else result
        return result

    def _simplified(self, index: arith.Expr) -> arith.Expr:
        if type(index) is arith.Add and type(constant := index.operands[1]) is arith.Const:
            # Copies of a statement (made by unrolling) differ in constants: they share the result for the rest.
            rest = self.index(index.operands[0])
            if type(rest) is arith.Add and type(inner_constant := rest.operands[1]) is arith.Const:
                return arith.add(rest.operands[0], inner_constant.value + constant.value)
            return index if rest is index.operands[0] else arith.add(rest, constant)
        if self._outer is not None and self._ranges.keys().isdisjoint(arith.free_vars(index)) and not arith.reads_data(index):
            return self._outer.index(index)
        # `super().index` writes to the memo too: the result must be written after it.
        return self._analyzer.simplify(super().index(index) if arith.reads_data(index) else index)

    def stmt(self, stmt: ir.Stmt) -> ir.Stmt:
        match stmt:
            case ir.For():
                return self._loop(stmt, self.index(stmt.extent))
            case ir.If():
                return self._branch(stmt, self.expr(stmt.condition))
            case ir.Let(var=var, value=value, body=body, bounds=bounds) if bounds is not None:
                limits = (self.index(bounds[0]), self.index(bounds[1]))
                return ir.Let(var, self.expr(value), self._inside({var: limits}).stmt(body), limits)
            case ir.Let(var=var, value=ir.Index(index=index) as value, body=body):
                index_bounds = self._analyzer.bounds(index)
                return ir.Let(
                    var, self.expr(value), (self if index_bounds == (None, None) else self._inside({var: index_bounds})).stmt(body)
                )
            case ir.Seq(stmts=stmts):
                new = tuple(map(self.stmt, stmts))
                flat = joined(*new)
                return stmt if isinstance(flat, ir.Seq) and flat.stmts == stmts else flat
        return super().stmt(stmt)

    def _inside(self, ranges: _Ranges) -> _Simplifier:
        return _Simplifier(self, ranges)

    def _where(self, facts: frozenset[arith.Expr]) -> _Simplifier:
        """Return the simplifier of a branch in which `facts` hold. It shares results for indices and values, which ignore facts."""
        inner = _Simplifier(self._outer, self._ranges)
        inner._facts = self._facts | facts
        inner._analyzer, inner._indices, inner._exprs = self._analyzer, self._indices, self._exprs
        return inner

    def _loop(self, loop: ir.For, extent: arith.Expr) -> ir.Stmt:
        if isinstance(extent, arith.Const) and extent.value <= 0:
            return ir.Seq(())
        # Copies of a loop (made by unrolling) share the results computed for one of them.
        inner = self._loops.get((loop.var, extent))
        if inner is None:
            inner = self._loops[loop.var, extent] = self._inside({loop.var: (0, arith.unwrap(extent - 1))})
        body = inner.stmt(loop.body)
        runs_once = extent == arith.ONE and loop.kind is not ir.ForKind.THREAD
        if runs_once or (isinstance(body, ir.Seq) and not body.stmts):
            return body
        if extent is loop.extent and body is loop.body:
            return loop
        return ir.For(loop.var, extent, body, loop.kind, loop.thread, loop.annotations)

    def _branch(self, branch: ir.If, condition: ir.Expr) -> ir.Stmt:
        facts: frozenset[arith.Expr] = frozenset()
        if isinstance(condition, ir.Index):
            undecided = self._undecided(condition.index)
            condition = truth(undecided)
            # Values read from data may change while the branch runs.
            facts = frozenset(part for part in conjuncts(undecided) if not arith.reads_data(part))
        decided = _decided(condition)
        if decided is not None:
            side = branch.then if decided else branch.otherwise
            return ir.Seq(()) if side is None else self.stmt(side)
        then = (self._where(facts) if facts else self).stmt(branch.then)
        otherwise = None if branch.otherwise is None else self.stmt(branch.otherwise)
        if isinstance(then, ir.Seq) and not then.stmts and otherwise is None:
            return then
        return ir.If(condition, then, otherwise)

    def _undecided(self, condition: arith.Expr) -> arith.Expr:
        """Return the conjuncts of a condition that are not known to hold."""
        result: arith.Expr = arith.ONE
        for part in conjuncts(condition):
            if part not in self._facts:
                result = arith.logical_and(result, part)
        return result

    def _folded(self, node: ir.Expr) -> ir.Expr | None:
        if type(node) is ir.Load or (type(node) is ir.Binary and type(node.a) is not ir.Index and node.dtype is not _BOOL):
            return None  # hot path: nearly all nodes
        match node:
            case ir.Select(condition=condition, then=then, otherwise=otherwise):
                decided = _decided(condition)
                return None if decided is None else then if decided else otherwise
            case ir.Binary(op=op, a=ir.Index(index=a), b=ir.Index(index=b)):
                # 64-bit indices do not wrap, so they compare as mathematical integers.
                if op in _COMPARISONS and node.a.dtype.bits == 64:
                    return truth(self.index(arith.compare(_COMPARISONS[op], a, b)))
                if op in ("and", "or") and node.dtype is _BOOL:
                    return truth(self.index((arith.logical_and if op == "and" else arith.logical_or)(a, b)))
            case ir.Binary(op="and" | "or" as op, a=first, b=second) if node.dtype is _BOOL:
                for side, other in ((first, second), (second, first)):
                    decided = _decided(side)
                    if decided is not None:
                        return other if decided == (op == "and") else side
            case ir.Unary(op="not", a=ir.Index(index=index)) if node.dtype is _BOOL:
                return truth(self.index(arith.logical_not(index)))
        return None


_COMPARISONS = {"lt": "<", "le": "<=", "eq": "==", "ne": "!="}


def _decided(condition: ir.Expr) -> bool | None:
    """Return the value of a constant condition; None for any other condition."""
    if isinstance(condition, ir.Index) and isinstance(condition.index, arith.Const):
        return bool(condition.index.value)
    return bool(condition.value) if isinstance(condition, ir.Const) else None


# --- registers --------------------------------------------------------------------------------------------------------


def check_registers(program: ir.LoopProgram) -> None:
    """Check that indices into "register" buffers are constant, except for variables of vectorized loops, unrolled loops and threads
    (`to_spmd` gives each thread its part). A buffer with other indices would be in memory. Raises `ScheduleError`, which names the
    buffer, the index and the loop."""
    statements = list(ir.walk_stmts(program.body))
    if not any(isinstance(stmt, ir.Alloc) and stmt.buffer.scope == "register" for stmt in statements):
        return
    variable_kinds = (ir.ForKind.VECTORIZED, ir.ForKind.UNROLLED)
    allowed_vars: set[arith.Expr] = {
        stmt.var for stmt in statements if isinstance(stmt, ir.For) and (stmt.kind in variable_kinds or stmt.over_threads)
    }
    for stmt in statements:
        if isinstance(stmt, ir.Store) and stmt.buffer.scope == "register":
            _check_indices(program, stmt.buffer, stmt.indices, allowed_vars)
        if isinstance(stmt, ir.Intrinsic):
            for region in stmt.regions:
                if region.buffer.scope == "register":
                    _check_indices(program, region.buffer, tuple(first for first, _ in region.ranges), allowed_vars)
        for node in ir.walk_exprs(*statement_values(stmt)):
            if isinstance(node, ir.Load) and node.buffer.scope == "register":
                _check_indices(program, node.buffer, node.indices, allowed_vars)


def _check_indices(
    program: ir.LoopProgram, buffer: ir.Buffer, indices: tuple[arith.Expr, ...], allowed_vars: set[arith.Expr]
) -> None:
    for position, index in enumerate(indices):
        if type(index) is arith.Const:
            continue
        varying = sorted(repr(var) for var in arith.free_vars(index) - allowed_vars)
        if varying or arith.reads_data(index):
            raise ScheduleError(
                f"{program.name}: index {position} of register buffer {buffer}, {index!r}, must be constant, but varies with "
                + (f"loop {', '.join(varying)}" if varying else "data"),
                remedy="unroll that loop, or give the buffer another scope",
            )


def check_lanes(program: ir.LoopProgram) -> None:
    """Check that the lanes of vectorized loops are contiguous in "register" buffers, so that they form a vector register. Raises
    `ScheduleError`, which names the buffer, the index and the loop."""
    for stmt in ir.walk_stmts(program.body):
        if isinstance(stmt, ir.For) and stmt.kind is ir.ForKind.VECTORIZED:
            for store in ir.walk_stmts(stmt.body):
                if isinstance(store, ir.Store):
                    _check_step(program, store.buffer, store.indices, stmt)
                    for node in ir.walk_exprs(store.value):
                        if isinstance(node, ir.Load):
                            _check_step(program, node.buffer, node.indices, stmt)


def _check_step(program: ir.LoopProgram, buffer: ir.Buffer, indices: tuple[arith.Expr, ...], loop: ir.For) -> None:
    if buffer.scope != "register":
        return
    offset: arith.Expr = arith.ZERO
    for index, dim in zip(indices, buffer.shape, strict=True):
        offset = offset * dim + index
    step = arith.affine(offset, loop.var)
    if loop.extent != arith.ONE and (step is None or step[0] not in (arith.ZERO, arith.ONE)):
        detail = f"{', '.join(map(repr, indices))} of its shape {list(buffer.shape)}"
        raise ScheduleError(
            f"{program.name}: lanes of loop {loop.var} must be contiguous in register buffer {buffer}, got index {detail}",
            remedy="make the vectorized index the last one by transform_layout",
        )
