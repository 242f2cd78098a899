"""How often expressions are used, while a sweep changes them."""

from __future__ import annotations

from inlaid.graph.ir import Expr, children, post_order


class UseCounts:
    """Use counts of the expressions under a root, carried over to what a `transform` makes of them.

    A rewrite that takes an expression into another one must know that nothing else reads it: else it would be computed twice.
    """

    def __init__(self, root: Expr) -> None:
        self._counts: dict[int, int] = {}
        self._kept: list[Expr] = []
        for expr in post_order(root):
            for child in children(expr):
                self._counts[id(child)] = self._counts.get(id(child), 0) + 1

    def single(self, expr: Expr) -> bool:
        """Whether an expression has at most one use. One that no `note` has mentioned is new, made for one use."""
        return self._counts.get(id(expr), 1) <= 1

    def note(self, old: Expr, new: Expr) -> None:
        """Say that `new` has taken the place of `old`; to be called at the end of each visit of the sweep."""
        if new is not old:
            self._kept.append(new)
            self._counts[id(new)] = self._counts.get(id(new), 0) + self._counts.get(id(old), 0)
