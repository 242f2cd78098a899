"""The primitive that separates a reduction's initialization from its update: decompose_reduction."""

from __future__ import annotations

from dataclasses import replace

from inlaid.tensor import ir
from inlaid.tensor.analysis.footprint import reads, writes
from inlaid.tensor.primitives.lookup import failed, last_block, outer_block
from inlaid.tensor.transform.lower_blocks import conjuncts, joined
from inlaid.tensor.transform.paths import (
    Path,
    fresh_iters,
    loops_around,
    nest,
    rebuilt,
    replace_allocs,
    unique_name,
    with_body,
)
from inlaid.tensor.transform.rewrite import Rewriter
from inlaid_runtime import arith
from inlaid_runtime.arith import Var


def decompose_reduction(program: ir.LoopProgram, block: str, loop: Var) -> tuple[ir.LoopProgram, str]:
    """Move the init of a reduction to a separate block, in front of a loop.

        for i: for k: block b(v = i, r = k): init: c[v] = 0; c[v] += a[v, r]
    decompose_reduction("b", k) gives
        for i:
            block b_init(v = i): c[v] = 0
            for k: block b(v = i, r = k): c[v] += a[v, r]

    Returns the new block's name. Raises `ScheduleError` if the block has no init, or a loop outside is part of the reduction.
    """
    path = outer_block(program, block)
    old = last_block(path)
    depth = next((depth for depth, stmt in enumerate(path) if isinstance(stmt, ir.For) and stmt.var is loop), None)
    if old.init is None or depth is None:
        problem = "has no init" if old.init is None else f"is not inside loop {loop}"
        raise failed(program, f"block {block} {problem}", old)
    outer_vars = {item.var for item in loops_around(path[:depth])}
    reduction_vars: set[arith.Expr] = set()
    for item, binding in zip(old.iters, old.bindings, strict=True):
        if item.kind is ir.IterKind.REDUCTION:
            reduction_vars |= arith.free_vars(binding)
    check_start(program, old, reduction_vars)
    if not outer_vars.isdisjoint(reduction_vars):
        raise failed(program, f"loops around {loop} must not reduce block {block}", old, "choose an outer loop")
    # An unused loop runs at most once (extent 1), and the init must run even where the reduction has no iteration.
    free_variables = frozenset().union(arith.free_vars(old.predicate), *map(arith.free_vars, old.bindings))
    inner = [
        item
        for item in loops_around(path[depth:])
        if item.var not in reduction_vars and (item.var in free_variables or item.extent == arith.ONE)
    ]
    if any(item.kind is ir.IterKind.OPAQUE for item in old.iters) and _may_overwrite_itself(path, depth):
        raise failed(program, f"block {block} overwrites a rolling buffer in loop {loop}", old, "choose an inner loop")
    renamed: dict[arith.Expr, arith.Expr] = {item.var: Var(item.var.name) for item in inner}
    spatial = tuple(item for item in old.iters if item.kind is not ir.IterKind.REDUCTION)
    iters, variables = fresh_iters(spatial)
    bindings = []
    for item, binding in zip(old.iters, old.bindings, strict=True):
        if item.kind is not ir.IterKind.REDUCTION:
            if not reduction_vars.isdisjoint(arith.free_vars(binding)):
                raise failed(program, f"variable {item.var} of block {block} must not share loops with the reduction", old)
            bindings.append(arith.substitute(binding, renamed))
    predicate: arith.Expr = arith.ONE
    for part in conjuncts(old.predicate):
        free_variables = arith.free_vars(part)
        if reduction_vars.isdisjoint(free_variables):
            predicate = arith.logical_and(predicate, arith.substitute(part, renamed))
        elif not free_variables <= reduction_vars | {item for item in free_variables if isinstance(item, arith.SizeVar)}:
            raise failed(program, f"condition {part!r} of block {block} must not mix reduction and other loops", old)
    body = Rewriter(variables).stmt(old.init)
    name = unique_name(program, f"{block}_init")
    init = ir.Block(name, iters, tuple(bindings), reads(body), writes(body), body, None, predicate)
    loops = [(var, item.extent) for item, var in zip(inner, renamed.values(), strict=True) if isinstance(var, Var)]
    update = rebuilt(path[depth:], replace(old, init=None))
    program = with_body(program, rebuilt(path[: depth + 1], joined(nest(loops, init), update)))
    return replace_allocs(program, (region.buffer for region in old.writes)), name


def _may_overwrite_itself(path: Path, depth: int) -> bool:
    """Test whether the last block on a path may overwrite its own results in the loops from `depth` inwards: these loops determine
    an opaque variable, or contain the buffer's allocation."""
    block = last_block(path)
    inner = {loop.var for loop in loops_around(path[depth:])}
    buffers = {region.buffer for region in block.writes}
    return any(isinstance(stmt, ir.Alloc) and stmt.buffer in buffers for stmt in path[depth:]) or any(
        item.kind is ir.IterKind.OPAQUE and not inner.isdisjoint(arith.free_vars(binding))
        for item, binding in zip(block.iters, block.bindings, strict=True)
    )


def check_start(program: ir.LoopProgram, block: ir.Block, loops: set[arith.Expr]) -> None:
    """Check that a reduction's init runs in the first iteration of its loops."""
    start = dict.fromkeys(loops, arith.ZERO)
    for item, binding in zip(block.iters, block.bindings, strict=True):
        if item.kind is ir.IterKind.REDUCTION and arith.simplify(arith.substitute(binding, start)) != arith.ZERO:
            raise failed(program, f"the loops around block {block.name} must start {item.var} at 0, got {binding!r}", block)
