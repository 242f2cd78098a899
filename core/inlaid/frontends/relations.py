"""Relations between sizes that an operator of a source model requires, and that no operator of its conversion states.

For example, the bias of a convolution has an element per channel; the conversion adds it by broadcasting, which would also allow a
single element. A converter states such a relation by the functions of `inlaid.graph.conditions`; it becomes a constraint of the
function or branch that the operator is converted in.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

from inlaid.graph.conditions import recording
from inlaid.graph.ir import Expr, post_order
from inlaid_runtime import arith
from inlaid_runtime.arith import Constraint
from inlaid_runtime.records import replace

Constraints = tuple[Constraint, ...]


@contextmanager
def stating(stated: list[Constraint], operator: str, node: str) -> Iterator[None]:
    """Add the relations on symbolic sizes that the block states to `stated`, with the names of the source operator and its node.
    Relations that are proved are left out. The block must not build operators, which state relations of their own. Raises
    ValueError for a relation that static sizes violate."""
    with recording() as recorded:
        yield
    stated += (replace(item, operator=operator, node=node) for item in recorded.symbolic if not arith.prove(item.condition))


@dataclass
class Relations:
    """The relations of the operators of one model, by the function or branch that is being converted, innermost last."""

    _open: list[list[tuple[tuple[Expr, ...], Constraints]]] = field(default_factory=list)

    @contextmanager
    def scope(self) -> Iterator[None]:
        """Collect the relations that are added in the context for one function or branch."""
        self._open.append([])
        try:
            yield
        finally:
            self._open.pop()

    def add(self, results: Sequence[Expr], stated: Sequence[Constraint]) -> None:
        """Add the relations of an operator with the given results to the innermost scope."""
        if stated:
            self._open[-1].append((tuple(results), tuple(stated)))

    def collect(self, results: Sequence[Expr]) -> Constraints:
        """Return the constraints of the innermost scope, a function or branch that returns `results`: the relations of operators
        that these depend on, without duplicates. An operator whose results nothing reads requires nothing."""
        if not self._open[-1]:
            return ()
        reachable_ids = {id(expr) for result in results for expr in post_order(result)}
        constraints: dict[arith.Dim, Constraint] = {}
        for values, stated in self._open[-1]:
            if any(id(value) in reachable_ids for value in values):
                constraints.update((item.condition, item) for item in stated if item.condition not in constraints)
        return tuple(constraints.values())
