"""Finds unrolled loops that a code generator can print iteration by iteration, without copies of their bodies."""

from __future__ import annotations

from collections.abc import Collection, Iterator

from inlaid.tensor import ir
from inlaid_runtime import arith


def printable_loops(stmt: ir.Stmt) -> Iterator[ir.For]:
    """Yield the unrolled loops of which a code generator can print each iteration from the same body.

    Such a loop only stores elements. Its variable occurs only in indices that `separate` accepts, along axes with static strides.
    Loops that share a sequence with a guard are excluded, because `nest_guards` may move their copies. It moves nothing out of a
    loop, a binding, or a branch with an `else`, so a guard inside one of these does not concern the loops outside.
    """
    scopes = [stmt]
    while scopes:
        stack, unrolled, guarded = [scopes.pop()], [], False
        while stack:
            match stack.pop():
                case ir.For(kind=ir.ForKind.UNROLLED) as loop:
                    unrolled.append(loop)
                    stack.append(loop.body)
                case ir.For(kind=ir.ForKind.VECTORIZED, body=body):
                    guarded = guarded or any(isinstance(node, ir.If) for node in ir.walk_stmts(body))
                case ir.If(then=then, otherwise=None):
                    guarded = True
                    stack.append(then)
                case ir.Seq(stmts=stmts):
                    stack += stmts
                case node:
                    scopes += ir.substatements(node)
        if not guarded:
            yield from filter(_is_printable, unrolled)


def _is_printable(loop: ir.For) -> bool:
    accesses: list[tuple[ir.Buffer, tuple[arith.Expr, ...]]] = []
    invariant_exprs: list[arith.Expr] = []
    for stmt in ir.walk_stmts(loop):
        match stmt:
            case ir.For(kind=ir.ForKind.UNROLLED, extent=arith.Const()) | ir.Seq():
                pass
            case ir.For(body=body, kind=ir.ForKind.VECTORIZED) if not any(isinstance(part, ir.For) for part in ir.walk_stmts(body)):
                pass
            case ir.Store(buffer=buffer, indices=indices, value=value):
                nodes = list(ir.walk_exprs(value))
                accesses += [(buffer, indices), *((node.buffer, node.indices) for node in nodes if isinstance(node, ir.Load))]
                invariant_exprs += [node.index for node in nodes if isinstance(node, ir.Index)]
            case ir.Intrinsic(regions=regions, args=(), over=()):
                accesses += [(region.buffer, tuple(first for first, _ in region.ranges)) for region in regions]
                invariant_exprs += [extent for region in regions for _, extent in region.ranges]
            case _:
                return False
    for buffer, indices in accesses:
        for axis, index in enumerate(indices):
            if loop.var in arith.free_vars(index):
                static = isinstance(arith.product(buffer.shape[axis + 1 :]), int)
                if not static or arith.reads_data(index) or separate(index, (loop.var,)) is None:
                    return False
    return all(loop.var not in arith.free_vars(index) for index in invariant_exprs)


def separate(index: arith.Expr, variables: Collection[arith.Expr]) -> tuple[dict[arith.Expr, int], arith.Expr, int] | None:
    """Separate a sum into the factors of `variables`, its other terms and its constant. None if a term with a variable is not a
    constant multiple of the variable."""
    steps: dict[arith.Expr, int] = {}
    terms: dict[arith.Expr, int] = {}
    constant = 0
    for node, factor in arith.summands(index):
        if type(node) is arith.Const:
            constant += factor * node.value
        elif node in variables:
            steps[node] = steps.get(node, 0) + factor
        elif arith.free_vars(node).isdisjoint(variables):
            terms[node] = terms.get(node, 0) + factor
        else:
            return None
    return steps, arith.Linear({term: count for term, count in terms.items() if count}, 0).expr(), constant
