"""Linear forms: sums of atoms with integer coefficients, the canonical form of integer expressions."""

from __future__ import annotations

from collections.abc import Mapping

from inlaid_runtime.arith.expr import Add, Const, Expr, Mul, balanced, wrap
from inlaid_runtime.records import dataclass


@dataclass(frozen=True, slots=True)
class Linear:
    """The sum of `coefficient * atom` over `terms`, plus `constant`. No coefficient is 0."""

    terms: Mapping[Expr, int]
    constant: int

    def scaled(self, factor: int) -> Linear:
        """Return the form times an integer."""
        if factor == 1:
            return self
        if factor == 0:
            return Linear({}, 0)
        return Linear({atom: count * factor for atom, count in self.terms.items()}, self.constant * factor)

    def plus(self, other: Linear, factor: int = 1) -> Linear:
        """Return the form plus `factor` times another form."""
        terms = dict(self.terms)
        for atom, count in other.terms.items():
            total = terms.get(atom, 0) + count * factor
            if total:
                terms[atom] = total
            else:
                del terms[atom]
        return Linear(terms, self.constant + other.constant * factor)

    def expr(self) -> Expr:
        """Convert the form to an expression: terms in insertion order, then the constant."""
        if not self.terms:
            return wrap(self.constant)
        terms = [atom if count == 1 else Mul(atom, wrap(count)) for atom, count in self.terms.items()]
        result = terms[0] if len(terms) == 1 else balanced(Add, terms)
        return Add(result, wrap(self.constant)) if self.constant else result


def constant_form(value: int) -> Linear:
    """Make the linear form of an integer."""
    return Linear({}, value)


def summands(expr: Expr) -> list[tuple[Expr, int]]:
    """Split a sum into its terms, in order, each with a constant factor. Constant multiples of sums are split too."""
    terms = []
    stack = [(expr, 1)]
    while stack:
        node, factor = stack.pop()
        if type(node) is Add:
            stack += ((node.operands[1], factor), (node.operands[0], factor))
        elif type(node) is Mul and type(node.operands[1]) is Const:
            stack.append((node.operands[0], factor * node.operands[1].value))
        else:
            terms.append((node, factor))
    return terms
