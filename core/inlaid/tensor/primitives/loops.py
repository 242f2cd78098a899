"""Primitives that restructure loops: split, fuse, tile, reorder."""

from __future__ import annotations

from math import prod

from inlaid.tensor import ir
from inlaid.tensor.primitives.lookup import failed, last_loop, loop_path
from inlaid.tensor.transform.paths import Path, loop_ranges, loops_around, nest, rebound, rebuilt, sites, with_body
from inlaid_runtime import arith
from inlaid_runtime.arith import Var


def split(program: ir.LoopProgram, loop: Var, factors: tuple[int | None, ...]) -> tuple[ir.LoopProgram, tuple[Var, ...]]:
    """Split a loop into a nest of loops. At most one factor may be None; it is then chosen to cover the extent.

        for i in 10: block(v = i)
    split(i, (None, 4)) gives
        for i_0 in 3: for i_1 in 4: block(v = i_0 * 4 + i_1) where i_0 * 4 + i_1 < 10

    The condition is omitted if the factors divide the extent exactly. Returns the new loops, outermost first. Raises
    `ScheduleError` for an annotated or non-serial loop, or factors that are too small.
    """
    path = loop_path(program, loop)
    old = last_loop(path)
    _check_unmarked(program, old)
    if sum(factor is None for factor in factors) > 1 or any(factor is not None and factor < 1 for factor in factors) or not factors:
        raise failed(program, f"factors for loop {loop} must be positive, at most one None, got {factors}", old)
    factor_product = prod(factor for factor in factors if factor is not None)
    analyzer = arith.Analyzer(loop_ranges(*loops_around(path[:-1])))
    rest = analyzer.simplify(arith.ceildiv(old.extent, factor_product))
    extents = tuple(rest if factor is None else arith.Const(factor) for factor in factors)
    total = arith.wrap(arith.product(tuple(map(arith.unwrap, extents))))
    if None not in factors and not analyzer.prove(arith.compare("<=", old.extent, total)):
        raise failed(program, f"factors {factors} do not cover loop {loop} of extent {old.extent!r}", old, "make one of them None")
    variables = tuple(Var(f"{loop.name}_{index}") for index in range(len(factors)))
    value: arith.Expr = arith.ZERO
    for variable, extent in zip(variables, extents, strict=True):
        value = value * extent + variable
    loops = list(zip(variables, extents, strict=True))
    inner_analyzer = arith.Analyzer(
        loop_ranges(*loops_around(path), *_loops_below(old.body)) | {var: (0, arith.unwrap(extent - 1)) for var, extent in loops}
    )
    condition = arith.ONE if analyzer.equal(old.extent, total) else arith.compare("<", inner_analyzer.simplify(value), old.extent)
    body = rebound(old.body, {loop: value}, inner_analyzer, condition)
    return with_body(program, rebuilt(path, nest(loops, body))), variables


def fuse(program: ir.LoopProgram, loops: tuple[Var, ...]) -> tuple[ir.LoopProgram, Var]:
    """Fuse nested loops into one.

        for i in 3: for j in 4: block(v = i, w = j)
    fuse(i, j) gives
        for i_j in 12: block(v = i_j // 4, w = i_j % 4)

    Raises `ScheduleError` if the loops are not directly nested in that order, or an extent depends on another of the loops.
    """
    path = loop_path(program, loops[0])
    chain = _chain(program, path, loops)
    fused = Var("_".join(loop.name for loop in loops))
    extent: arith.Expr = arith.ONE
    for loop in chain:
        _check_unmarked(program, loop)
        extent = arith.simplify(extent * loop.extent)
    mapping: dict[arith.Expr, arith.Expr] = {}
    value: arith.Expr = fused
    for loop in reversed(chain[1:]):
        mapping[loop.var] = value % loop.extent
        value = value // loop.extent
    mapping[chain[0].var] = value
    body = chain[-1].body
    analyzer = arith.Analyzer(loop_ranges(*loops_around(path), *_loops_below(body)) | {fused: (0, arith.unwrap(extent - 1))})
    return with_body(program, rebuilt(path, ir.For(fused, extent, rebound(body, mapping, analyzer)))), fused


def reorder(program: ir.LoopProgram, loops: tuple[Var, ...]) -> ir.LoopProgram:
    """Reorder nested loops into the given order. Loops between them that are not named keep their positions.

        for i: for j: for k: block
    reorder(k, i) gives
        for k: for j: for i: block

    Raises `ScheduleError` if the loops are not directly nested, an extent depends on another loop, or a block inside depends on
    the order of iterations.
    """
    if len(set(loops)) < len(loops):
        raise failed(program, f"reorder needs distinct loops, got {loops}")
    paths = sorted((loop_path(program, loop) for loop in loops), key=len)
    outer, inner = paths[0], paths[-1]
    if any(path != inner[: len(path)] for path in paths):
        raise failed(program, f"loops {', '.join(map(repr, loops))} must be nested in one another", last_loop(inner))
    chain = _chain(program, outer, tuple(loop.var for loop in loops_around(inner[len(outer) - 1 :])))
    for site in sites(chain[-1].body):
        _check_order(program, site.block, set(loops))
    positions = [index for index, loop in enumerate(chain) if loop.var in loops]
    by_var = {loop.var: loop for loop in chain}
    order = list(chain)
    for index, var in zip(positions, loops, strict=True):
        order[index] = by_var[var]
    body = chain[-1].body
    for loop in reversed(order):
        body = ir.For(loop.var, loop.extent, body, loop.kind, loop.thread, loop.annotations)
    return with_body(program, rebuilt(outer, body))


def _check_order(program: ir.LoopProgram, block: ir.Block, loops: set[Var]) -> None:
    """Check that permuting the loops around a block does not change its result."""
    variables: dict[ir.IterKind, set[arith.Expr]] = {kind: set() for kind in ir.IterKind}
    for item, binding in zip(block.iters, block.bindings, strict=True):
        variables[item.kind] |= arith.free_vars(binding)
    if not variables[ir.IterKind.OPAQUE].isdisjoint(loops):
        raise failed(program, f"block {block.name} depends on the order in which the loops run", block)
    # A loop that iterates over both reduction and spatial positions must start each reduction at 0.
    shared_loops = variables[ir.IterKind.REDUCTION] & variables[ir.IterKind.SPATIAL] & loops
    if block.init is not None and shared_loops:
        loop = min(map(repr, shared_loops))
        raise failed(program, f"loop {loop} iterates over both elements and reductions of block {block.name}", block)


def tile(program: ir.LoopProgram, loops: tuple[Var, ...], factors: tuple[int, ...]) -> tuple[ir.LoopProgram, tuple[Var, ...]]:
    """Split nested loops, and nest all inner parts inside all outer parts.

        for i in 16: for j in 16: block
    tile((i, j), (4, 8)) gives
        for i_0 in 4: for j_0 in 2: for i_1 in 4: for j_1 in 8: block

    Returns the outer loops, then the inner loops. Raises `ScheduleError` as split and reorder do.
    """
    if len(loops) != len(factors):
        raise failed(program, f"tile needs one factor per loop, got {len(factors)} for {len(loops)} loops")
    outer, inner = [], []
    for loop, factor in zip(loops, factors, strict=True):
        program, (first, second) = split(program, loop, (None, factor))
        outer.append(first)
        inner.append(second)
    order = (*outer, *inner)
    return reorder(program, order), order


def _check_unmarked(program: ir.LoopProgram, loop: ir.For) -> None:
    if loop.kind is not ir.ForKind.SERIAL or loop.annotations:
        raise failed(
            program, f"loop {loop.var} is already {loop.kind.value} or annotated", loop, "restructure loops before marking them"
        )


def _chain(program: ir.LoopProgram, path: Path, variables: tuple[Var, ...]) -> list[ir.For]:
    """Return the loops from the end of a path inwards. They must be `variables`, each directly inside the previous one."""
    chain = [last_loop(path)]
    for var in variables[1:]:
        inner = chain[-1].body
        if not isinstance(inner, ir.For):
            raise failed(program, f"loop {var} must be directly inside loop {chain[-1].var}: other statements intervene", inner)
        if inner.var is not var:
            raise failed(program, f"loop {var} is not directly inside loop {chain[-1].var}", inner)
        if not arith.free_vars(inner.extent).isdisjoint(loop.var for loop in chain):
            raise failed(program, f"the extent {inner.extent!r} of loop {var} must not depend on the loops around it", inner)
        chain.append(inner)
    return chain


def _loops_below(stmt: ir.Stmt) -> list[ir.For]:
    """Return the loops below a statement, except those inside blocks."""
    loops: dict[ir.For, None] = {}
    for site in sites(stmt):
        loops.update(dict.fromkeys(site.loops))
    return list(loops)
