"""Primitives on reductions: decompose_reduction, rfactor."""

from __future__ import annotations

from dataclasses import replace

from inlay import arith
from inlay.arith import Var
from inlay.tensor import ir
from inlay.tensor.footprint import reads, writes
from inlay.tensor.lower_blocks import conjuncts, joined, truth
from inlay.tensor.primitives.cache import last_box, nest_of
from inlay.tensor.primitives.place import block_of, failed, outer_block, written_buffer
from inlay.tensor.primitives.regions import domain_of, regenerated
from inlay.tensor.rewrite import Rewriter
from inlay.tensor.transform import (
    Path,
    add_alloc,
    fresh_iters,
    loop_ranges,
    loops_around,
    nest,
    rebuilt,
    replace_alloc,
    unique_name,
    with_body,
)

COMMUTATIVE = ("add", "mul", "min", "max", "and", "or", "xor")
"""Binary operators by which a reduction may combine."""


def decompose_reduction(program: ir.LoopProgram, block: str, loop: Var) -> tuple[ir.LoopProgram, str]:
    """The init of a reduction becomes a block of its own, in front of a loop.

        for i: for k: block b(v = i, r = k): init: c[v] = 0; c[v] += a[v, r]
    decompose_reduction("b", k) gives
        for i:
            block b_init(v = i): c[v] = 0
            for k: block b(v = i, r = k): c[v] += a[v, r]

    Returns the new block's name. Raises `ScheduleError` where the block has no init, or a loop outside runs the reduction.
    """
    path = outer_block(program, block)
    old = block_of(path)
    place = next((place for place, stmt in enumerate(path) if isinstance(stmt, ir.For) and stmt.var is loop), None)
    if old.init is None or place is None:
        problem = "has no init" if old.init is None else f"is not inside loop {loop}"
        raise failed(program, f"block {block} {problem}", old)
    outside = {item.var for item in loops_around(path[:place])}
    reducing: set[arith.Expr] = set()
    for item, binding in zip(old.iters, old.bindings, strict=True):
        if item.kind is ir.IterKind.REDUCTION:
            reducing |= arith.free_vars(binding)
    _check_start(program, old, reducing)
    if not outside.isdisjoint(reducing):
        raise failed(program, f"loop {loop} is inside the reduction of block {block}", old, "choose a loop further out")
    inner = [item for item in loops_around(path[place:]) if item.var not in reducing]
    if any(item.kind is ir.IterKind.OPAQUE for item in old.iters) and _goes_round(path, place):
        raise failed(program, f"what block {block} writes goes round in loop {loop}", old, "choose a loop inside")
    renamed: dict[arith.Expr, arith.Expr] = {item.var: Var(item.var.name) for item in inner}
    spatial = tuple(item for item in old.iters if item.kind is not ir.IterKind.REDUCTION)
    iters, variables = fresh_iters(spatial)
    bindings = []
    for item, binding in zip(old.iters, old.bindings, strict=True):
        if item.kind is not ir.IterKind.REDUCTION:
            if not reducing.isdisjoint(arith.free_vars(binding)):
                raise failed(program, f"{item.var} of block {block} shares loops with the reduction", old)
            bindings.append(arith.substitute(binding, renamed))
    predicate: arith.Expr = arith.ONE
    for part in conjuncts(old.predicate):
        used = arith.free_vars(part)
        if reducing.isdisjoint(used):
            predicate = arith.logical_and(predicate, arith.substitute(part, renamed))
        elif not used <= reducing | {item for item in used if isinstance(item, arith.SizeVar)}:
            raise failed(program, f"the condition {part!r} of block {block} joins the reduction with other loops", old)
    body = Rewriter(variables).stmt(old.init)
    name = unique_name(program, f"{block}_init")
    init = ir.Block(name, iters, tuple(bindings), reads(body), writes(body), body, None, predicate)
    loops = [(var, item.extent) for item, var in zip(inner, renamed.values(), strict=True) if isinstance(var, Var)]
    update = rebuilt(path[place:], replace(old, init=None))
    program = with_body(program, rebuilt(path[: place + 1], joined(nest(loops, init), update)))
    for region in old.writes:
        program = replace_alloc(program, region.buffer)
    return program, name


def rfactor(program: ir.LoopProgram, block: str, loop: Var, axis: int = 0) -> tuple[ir.LoopProgram, str]:
    """A loop of a reduction runs outside it: partial results, one per iteration, are reduced at the end.

        for i: for k: for j in 4: block b(v = i, r = k * 4 + j): init: c[v] = 0; c[v] += a[v, r]
    rfactor("b", j) gives
        for i: for k: for j in 4: block b_rf(v = i, p = j, r = k): init: c_rf[p, v] = 0; c_rf[p, v] += a[v, r * 4 + p]
        for i: for j in 4: block b(v = i, p = j): init: c[v] = 0; c[v] += c_rf[p, v]

    `axis` is the place of the new dimension in the buffer of partial results. Sums of floats are reassociated. Returns the name of
    the block of partial results; the other keeps its name. Raises `ScheduleError` where the loop does not run the reduction alone,
    or the block combines otherwise than by one of add, mul, min, max, and, or, xor.
    """
    path = outer_block(program, block)
    old = block_of(path)
    buffer = written_buffer(program, old)
    chosen = next((item for item in loops_around(path) if item.var is loop), None)
    if chosen is None or old.init is None:
        problem = "has no init" if old.init is None else f"is not inside loop {loop}"
        raise failed(program, f"block {block} {problem}", old)
    if any(item.kind is ir.IterKind.OPAQUE for item in old.iters):
        raise failed(program, f"what block {block} writes goes round", old)
    op, indices, value, identity = _combination(program, old)
    reducing: set[arith.Expr] = set()
    for item, binding in zip(old.iters, old.bindings, strict=True):
        if item.kind is ir.IterKind.REDUCTION:
            reducing |= arith.free_vars(binding)
    for item, binding in zip(old.iters, old.bindings, strict=True):
        if item.kind is not ir.IterKind.REDUCTION and not reducing.isdisjoint(arith.free_vars(binding)):
            raise failed(program, f"{item.var} of block {block} shares loops with the reduction", old)
    _check_start(program, old, reducing)
    if loop not in reducing:
        raise failed(program, f"loop {loop} runs no reduction of block {block}", old)
    if not 0 <= axis <= len(buffer.shape):
        raise failed(program, f"axis {axis} is none of a buffer of {len(buffer.shape) + 1} dimensions", old)

    # Partial results: the loops of the reduction become iteration variables themselves, the chosen one a spatial one.
    spatial = tuple(item for item in old.iters if item.kind is not ir.IterKind.REDUCTION)
    iters, variables = fresh_iters(spatial)
    over = [item for item in loops_around(path) if item.var in reducing]
    part = ir.IterVar(Var(loop.name), chosen.extent)
    rest = tuple(ir.IterVar(Var(item.var.name), item.extent, ir.IterKind.REDUCTION) for item in over if item is not chosen)
    as_iters: dict[arith.Expr, arith.Expr] = {
        item.var: new.var for item, new in zip((i for i in over if i is not chosen), rest, strict=True)
    }
    as_iters[loop] = part.var
    bindings = []
    for item, binding in zip(old.iters, old.bindings, strict=True):
        if item.kind is ir.IterKind.REDUCTION:
            variables[item.var] = arith.substitute(binding, as_iters)
        else:
            bindings.append(binding)
    name = unique_name(program, f"{block}_rf")
    shape = (*buffer.shape[:axis], arith.unwrap(chosen.extent), *buffer.shape[axis:])
    partial = ir.Buffer(f"{buffer.name}_rf", shape, buffer.dtype, buffer.scope)
    rewriter = Rewriter(variables)
    at = tuple(map(rewriter.index, indices))
    place = (*at[:axis], part.var, *at[axis:])
    new = rewriter.expr(value)
    predicate: arith.Expr = arith.ONE
    for condition in conjuncts(old.predicate):
        if reducing.isdisjoint(arith.free_vars(condition)):
            predicate = arith.logical_and(predicate, condition)
        else:  # a partial result is initialised even where the condition never holds
            new = ir.select(truth(_over_iters(program, old, condition, as_iters)), new, identity)
    body = ir.Store(partial, place, ir.binary(op, ir.Load(partial.dtype, partial, place), new))
    init = ir.Store(partial, place, identity)
    first = ir.Block(
        name,
        (*iters, part, *rest),
        (*bindings, loop, *(item.var for item in over if item is not chosen)),
        reads(body),
        writes(body),
        body,
        init,
        predicate,
        old.annotations,
    )

    # The final reduction over the chosen loop.
    iters, variables = fresh_iters(spatial)
    last = ir.IterVar(Var(loop.name), chosen.extent, ir.IterKind.REDUCTION)
    at = tuple(arith.substitute(index, variables) for index in indices)
    source = ir.load(partial, (*at[:axis], last.var, *at[axis:]))
    body = ir.Store(buffer, at, ir.binary(op, ir.Load(buffer.dtype, buffer, at), source))
    final = ir.Block(block, (*iters, last), (), reads(body), writes(body), body, ir.Store(buffer, at, identity))
    top, below = nest_of(path, buffer)
    outer = loop_ranges(*loops_around(top[:-1]))
    box, condition = last_box(program, below, buffer, outer)
    summed = regenerated(final, domain_of(final, [(buffer, box)], arith.Analyzer(outer)), outer, condition)
    program = with_body(program, rebuilt(top, joined(rebuilt(path[len(top) - 1 :], first), summed)))
    return add_alloc(program, partial), name


def _goes_round(path: Path, place: int) -> bool:
    """Whether what the last block on a path writes may be overwritten in turn by the loops from a place inwards: they feed a
    variable whose order matters, or hold the buffer's allocation."""
    block = block_of(path)
    inner = {loop.var for loop in loops_around(path[place:])}
    buffers = {region.buffer for region in block.writes}
    return any(isinstance(stmt, ir.Alloc) and stmt.buffer in buffers for stmt in path[place:]) or any(
        item.kind is ir.IterKind.OPAQUE and not inner.isdisjoint(arith.free_vars(binding))
        for item, binding in zip(block.iters, block.bindings, strict=True)
    )


def _check_start(program: ir.LoopProgram, block: ir.Block, loops: set[arith.Expr]) -> None:
    """Check that the first round of the loops of a reduction is the one that initialises it."""
    start = dict.fromkeys(loops, arith.ZERO)
    for item, binding in zip(block.iters, block.bindings, strict=True):
        if item.kind is ir.IterKind.REDUCTION and arith.simplify(arith.substitute(binding, start)) != arith.ZERO:
            raise failed(program, f"the loops around block {block.name} do not start {item.var}, {binding!r}, at 0", block)


def _combination(program: ir.LoopProgram, block: ir.Block) -> tuple[str, tuple[arith.Expr, ...], ir.Expr, ir.Expr]:
    """(operator, place, value, identity) of a block that stores `place = place op value`."""
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
                return store.value.op, store.indices, value, init.value
    raise failed(program, f"block {block.name} is no reduction by one of {', '.join(COMMUTATIVE)}", block)


def _over_iters(
    program: ir.LoopProgram, block: ir.Block, condition: arith.Expr, as_iters: dict[arith.Expr, arith.Expr]
) -> arith.Expr:
    """A condition on the loops of a reduction, in terms of iteration variables."""
    inside = arith.substitute(condition, as_iters)
    known = set(as_iters.values())
    if any(isinstance(var, Var) and var not in known for var in arith.free_vars(inside)):
        raise failed(program, f"the condition {condition!r} of block {block.name} joins the reduction with other loops", block)
    return inside
