"""The primitive that splits a reduction into independent partial reductions: rfactor."""

from __future__ import annotations

from inlaid.tensor import ir
from inlaid.tensor.analysis.footprint import reads, writes
from inlaid.tensor.primitives.cache import find_copy_position, last_box
from inlaid.tensor.primitives.lookup import failed, last_block, outer_block, written_buffer
from inlaid.tensor.primitives.reduction import check_start
from inlaid.tensor.primitives.regions import infer_domain, regenerated
from inlaid.tensor.transform.lower_blocks import conjuncts, joined, truth
from inlaid.tensor.transform.paths import add_alloc, fresh_iters, loop_ranges, loops_around, rebuilt, unique_name, with_body
from inlaid.tensor.transform.rewrite import Rewriter
from inlaid_runtime import arith
from inlaid_runtime.arith import Var
from inlaid_runtime.records import dataclass

COMMUTATIVE = ("add", "mul", "min", "max", "and", "or", "xor")
"""Binary operators with which rfactor can split a reduction."""


@dataclass(frozen=True, slots=True)
class _Update:
    """One step of a reduction, `buffer[indices] = buffer[indices] op value`. The reduction starts from `identity`."""

    op: str
    buffer: ir.Buffer
    indices: tuple[arith.Expr, ...]
    value: ir.Expr
    identity: ir.Expr

    @property
    def neutral(self) -> ir.Expr:
        """The neutral element of `op`. For sums of floats it is -0.0: adding 0.0 would turn -0.0 into 0.0."""
        return ir.const(-0.0, self.identity.dtype) if self.op == "add" and self.identity.dtype.is_float else self.identity

    def store(self, buffer: ir.Buffer, indices: tuple[arith.Expr, ...], value: ir.Expr) -> ir.Store:
        """Build the same reduction step for another element and another value."""
        return ir.Store(buffer, indices, ir.binary(self.op, ir.Load(buffer.dtype, buffer, indices), value))


def rfactor(program: ir.LoopProgram, block: str, loop: Var, axis: int = 0) -> tuple[ir.LoopProgram, str]:
    """Factor a loop out of a reduction: its iterations compute partial results, which are reduced at the end.

        for i: for k: for j in 4: block b(v = i, r = k * 4 + j): init: c[v] = 0; c[v] += a[v, r]
    rfactor("b", j) gives
        for i: for k: for j in 4: block b_rf(v = i, p = j, r = k): init: c_rf[p, v] = -0.0; c_rf[p, v] += a[v, r * 4 + p]
        for i: for j in 4: block b(v = i, p = j): init: c[v] = 0; c[v] += c_rf[p, v]

    `axis` is the position of the new dimension in the buffer of partial results. Sums of floats are reassociated. Returns the name
    of the block of partial results; the final block keeps its name. Raises `ScheduleError` if the loop is not only part of the
    reduction, or the block combines by an operator other than add, mul, min, max, and, or, xor.
    """
    path = outer_block(program, block)
    old = last_block(path)
    buffer = written_buffer(program, old)
    factored_loop = next((item for item in loops_around(path) if item.var is loop), None)
    if factored_loop is None or old.init is None:
        problem = "has no init" if old.init is None else f"is not inside loop {loop}"
        raise failed(program, f"block {block} {problem}", old)
    update = _match_update(program, old)
    reduction_loops = _reducing_loops(program, old, loops_around(path), loop)
    if not 0 <= axis <= len(buffer.shape):
        raise failed(program, f"axis must be in [0, {len(buffer.shape)}], got {axis}", old)
    shape = (*buffer.shape[:axis], arith.unwrap(factored_loop.extent), *buffer.shape[axis:])
    name = unique_name(program, f"{block}_rf")
    partial = ir.Buffer(buffer.name + name.removeprefix(block), shape, buffer.dtype, buffer.scope)
    partial_block = _partial_block(program, name, old, update, reduction_loops, factored_loop, partial, axis)
    final = _final_block(old, update, factored_loop, partial, axis)
    top, site = find_copy_position(path, buffer)
    outer = loop_ranges(*loops_around(top[:-1]))
    box, condition = last_box(program, site, buffer, outer)
    final_nest = regenerated(final, infer_domain(final, [(buffer, box)], arith.Analyzer(outer)), outer, condition)
    program = with_body(program, rebuilt(top, joined(rebuilt(path[len(top) - 1 :], partial_block), final_nest)))
    return add_alloc(program, partial), name


def _reducing_loops(program: ir.LoopProgram, block: ir.Block, loops: list[ir.For], variable: Var) -> list[ir.For]:
    """Return the loops that belong only to the reduction of a block. They must include the loop of `variable`."""
    reduction_vars: set[arith.Expr] = set()
    for item, binding in zip(block.iters, block.bindings, strict=True):
        if item.kind is ir.IterKind.REDUCTION:
            reduction_vars |= arith.free_vars(binding)
    for item, binding in zip(block.iters, block.bindings, strict=True):
        if item.kind is ir.IterKind.OPAQUE:
            raise failed(program, f"block {block.name} must not write a rolling buffer", block)
        if item.kind is ir.IterKind.SPATIAL and not reduction_vars.isdisjoint(arith.free_vars(binding)):
            raise failed(program, f"variable {item.var} of block {block.name} must not share loops with the reduction", block)
    check_start(program, block, reduction_vars)
    if variable not in reduction_vars:
        raise failed(program, f"loop {variable} must be part of the reduction of block {block.name}", block)
    return [loop for loop in loops if loop.var in reduction_vars]


def _partial_block(
    program: ir.LoopProgram,
    name: str,
    old: ir.Block,
    update: _Update,
    reduction_loops: list[ir.For],
    factored_loop: ir.For,
    partial: ir.Buffer,
    axis: int,
) -> ir.Block:
    """Build the block of partial results. The factored loop is one of its spatial variables; its reduction variables are the other
    loops of the reduction."""
    iters, variables = fresh_iters(tuple(item for item in old.iters if item.kind is ir.IterKind.SPATIAL))
    part = ir.IterVar(Var(factored_loop.var.name), factored_loop.extent)
    other_loops = [loop for loop in reduction_loops if loop is not factored_loop]
    rest = tuple(ir.IterVar(Var(loop.var.name), loop.extent, ir.IterKind.REDUCTION) for loop in other_loops)
    iter_by_loop: dict[arith.Expr, arith.Expr] = {loop.var: item.var for loop, item in zip(other_loops, rest, strict=True)}
    iter_by_loop[factored_loop.var] = part.var
    bindings: list[arith.Expr] = []
    for item, binding in zip(old.iters, old.bindings, strict=True):
        if item.kind is ir.IterKind.REDUCTION:
            variables[item.var] = arith.substitute(binding, iter_by_loop)
        else:
            bindings.append(binding)
    rewriter = Rewriter(variables)
    old_indices = tuple(map(rewriter.index, update.indices))
    indices = (*old_indices[:axis], part.var, *old_indices[axis:])
    value = rewriter.expr(update.value)
    predicate: arith.Expr = arith.ONE
    for condition in conjuncts(old.predicate):
        if arith.free_vars(condition).isdisjoint(iter_by_loop):
            predicate = arith.logical_and(predicate, condition)
        else:  # a partial result must be initialized even if the condition never holds
            value = ir.select(truth(_over_iters(program, old, condition, iter_by_loop)), value, update.neutral)
    body = update.store(partial, indices, value)
    return ir.Block(
        name,
        (*iters, part, *rest),
        (*bindings, factored_loop.var, *(loop.var for loop in other_loops)),
        reads(body),
        writes(body),
        body,
        ir.Store(partial, indices, update.neutral),
        predicate,
        old.annotations,
    )


def _final_block(old: ir.Block, update: _Update, factored_loop: ir.For, partial: ir.Buffer, axis: int) -> ir.Block:
    """Build the block that reduces the partial results. It is not yet bound to loops."""
    iters, variables = fresh_iters(tuple(item for item in old.iters if item.kind is ir.IterKind.SPATIAL))
    last = ir.IterVar(Var(factored_loop.var.name), factored_loop.extent, ir.IterKind.REDUCTION)
    indices = tuple(arith.substitute(index, variables) for index in update.indices)
    body = update.store(update.buffer, indices, ir.load(partial, (*indices[:axis], last.var, *indices[axis:])))
    init = ir.Store(update.buffer, indices, update.identity)
    return ir.Block(old.name, (*iters, last), (), reads(body), writes(body), body, init)


def _match_update(program: ir.LoopProgram, block: ir.Block) -> _Update:
    """Return the reduction step of a block. Raises `ScheduleError` if the block is not a reduction by a known operator."""
    store, init = block.body, block.init
    if isinstance(store, ir.Store) and isinstance(init, ir.Store) and isinstance(store.value, ir.Binary):
        a, b = store.value.a, store.value.b
        for acc, value in ((a, b), (b, a)):
            if (
                isinstance(acc, ir.Load)
                and acc.buffer is store.buffer
                and acc.indices == store.indices
                and store.value.op in COMMUTATIVE
                and isinstance(init.value, ir.Const)
                and not any(isinstance(node, ir.Load) and node.buffer is store.buffer for node in ir.walk_exprs(value))
            ):
                return _Update(store.value.op, store.buffer, store.indices, value, init.value)
    raise failed(program, f"block {block.name} must be a reduction by one of {', '.join(COMMUTATIVE)}", block)


def _over_iters(
    program: ir.LoopProgram, block: ir.Block, condition: arith.Expr, iter_by_loop: dict[arith.Expr, arith.Expr]
) -> arith.Expr:
    """Rewrite a condition on the loops of a reduction in terms of iteration variables."""
    result = arith.substitute(condition, iter_by_loop)
    iter_vars = set(iter_by_loop.values())
    if any(isinstance(var, Var) and var not in iter_vars for var in arith.free_vars(result)):
        raise failed(program, f"condition {condition!r} of block {block.name} must not mix reduction and other loops", block)
    return result
