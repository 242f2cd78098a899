"""Use counts of expressions, maintained during a sweep."""

from __future__ import annotations

from collections.abc import Callable

from inlaid.graph.ir import Expr, Function, children, post_order
from inlaid.graph.transform import transform


class UseCounts:
    """Use counts of the expressions under a root. During a `transform`, replacements inherit the counts.

    A rewrite may absorb an expression into another one only if this is its single use. Else the expression would be computed twice.
    """

    def __init__(self, root: Expr) -> None:
        self._counts: dict[int, int] = {}
        self._replacements: list[Expr] = []
        for expr in post_order(root):
            for child in children(expr):
                self._counts[id(child)] = self._counts.get(id(child), 0) + 1

    def single(self, expr: Expr) -> bool:
        """Test whether an expression has at most one use. An expression without a count is new and has one use."""
        return self._counts.get(id(expr), 1) <= 1

    def note(self, old: Expr, new: Expr) -> None:
        """Record that `new` replaces `old`. Call it at the end of each visit of the sweep."""
        if new is not old:
            self._replacements.append(new)
            self._counts[id(new)] = self._counts.get(id(new), 0) + self._counts.get(id(old), 0)


def rewrite(function: Function, rule: Callable[[Expr, UseCounts], Expr | None]) -> Function:
    """Replace expressions by what `rule` returns for them, bottom-up; None keeps an expression. Returns the same object if nothing
    changes."""
    uses = UseCounts(function)

    def visit(old: Expr, new: Expr) -> Expr:
        replacement = rule(new, uses)
        uses.note(old, new if replacement is None else replacement)
        return new if replacement is None else replacement

    changed = transform(function, visit)
    assert isinstance(changed, Function)
    return changed
