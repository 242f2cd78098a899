"""Branches inside a region: the arms of `If`, and the versions of a kernel."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from inlaid.graph import ir as graph
from inlaid.graph.scopes import Scope, analyse
from inlaid.tensor.ir import LoopProgram
from inlaid.tensor.region import Predicate
from inlaid.tensor.scheduling.rule import Offer
from inlaid_runtime import arith

Arms = tuple[tuple[graph.If, bool], ...]
"""The branches that enclose an expression, outermost first, as (`If`, whether the expression is in its `then` arm)."""


def in_arms(exprs: Sequence[graph.Expr]) -> list[tuple[graph.Expr, Arms]]:
    """Order the expressions of a region, operands first and the body last, each with its enclosing arms. The expressions of one arm
    are contiguous: they directly precede the expressions of the other arm, or the `If`."""
    if not any(isinstance(expr, graph.If) for expr in exprs):
        return [(expr, ()) for expr in exprs]
    scopes = analyse(exprs[-1])
    exprs_by_scope: dict[int, list[graph.Expr]] = {}
    for expr in exprs:
        # Leaves belong to no scope; order them with the root scope.
        exprs_by_scope.setdefault(id(scopes.expr_scopes.get(id(expr), scopes.root)), []).append(expr)
    expr_arms: list[tuple[graph.Expr, Arms]] = []
    waiting: list[tuple[Scope | graph.If, Arms]] = [(scopes.root, ())]
    while waiting:
        item, arms = waiting.pop()
        if isinstance(item, graph.If):
            expr_arms.append((item, arms))
            continue
        order = exprs_by_scope.pop(id(item), [])
        for index, expr in enumerate(order):
            if isinstance(expr, graph.If):
                then, otherwise = scopes.branches(expr)
                exprs_by_scope[id(item)] = order[index + 1 :]
                waiting += [(item, arms), (expr, arms), (otherwise, (*arms, (expr, False))), (then, (*arms, (expr, True)))]
                break
            expr_arms.append((expr, arms))
    return expr_arms


def applicable_versions(
    source: LoopProgram, offer: Offer, names: Mapping[arith.Expr, arith.Expr], branches: bool
) -> Iterator[tuple[int, tuple[Predicate, ...], tuple[arith.Expr, ...]]]:
    """Yield the versions of a kernel that may run at a call: the version's number, the predicates under which it is the first
    version whose condition holds, and the same condition over the kernel's dimensions. `names` maps the kernel's dimensions to the
    region's. If `branches` is false, only versions with a statically proved condition are used."""
    predicates: tuple[Predicate, ...] = ()
    failed: tuple[arith.Expr, ...] = ()
    for number, version in enumerate(() if source.defines else offer.versions):
        condition = arith.substitute(version.condition, names)
        if not arith.prove(arith.logical_not(condition)):
            if arith.prove(condition):
                yield number, predicates, (*failed, version.condition)
                return
            if not branches:
                continue
            yield number, (*predicates, Predicate(condition)), (*failed, version.condition)
            predicates = (*predicates, Predicate(condition, False))
        failed = (*failed, arith.logical_not(version.condition))
    yield len(offer.versions), predicates, failed
