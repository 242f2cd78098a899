"""Numbers in mixed radix: which variables an index tells apart."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from inlaid import arith


def determined(var: arith.Var, extent: arith.Expr, indices: Sequence[arith.Expr], ranges: arith.Bounds) -> bool:
    """Whether the indices together tell which of its values a variable in [0, extent) has, given the ranges of all variables.

    A number in mixed radix, whose weights may be symbolic, tells its digits; digits `e // a % b` that cover all of an expression
    tell the expression, which may be such a number again.
    """
    analyzer = arith.Analyzer(ranges)
    if analyzer.prove(arith.compare("<=", extent, 1)):
        return True
    told = _Told(analyzer, ranges)
    for index in indices:
        told.learn(analyzer.simplify(index))
    return var in told.variables


@dataclass
class _Told:
    """What the values of some expressions tell: the values of variables, and digits of expressions, each by its divisor and its
    size (None for all above)."""

    analyzer: arith.Analyzer
    ranges: arith.Bounds
    variables: set[arith.Expr] = field(default_factory=set)
    digits: dict[arith.Expr, list[tuple[arith.Expr, arith.Expr | None]]] = field(default_factory=dict)

    def learn(self, number: arith.Expr) -> None:
        """Add what the value of an expression tells."""
        weights: dict[arith.Expr, arith.Expr] = {}
        for atom, count in self.analyzer.linear(number).terms.items():
            weight, digit = _weighted(atom, count)
            if _moves(digit):
                weights[digit] = weights.get(digit, arith.ZERO) + weight
        for digit, weight in weights.items():
            others = [(other, factor) for other, factor in weights.items() if other is not digit]
            if not all(self._proves("<=", 0, other) and self._proves("<=", 0, factor) for other, factor in others):
                continue
            rest = self.analyzer.simplify(sum((other * factor for other, factor in others), arith.ZERO))
            most = sum((self._most(other) * factor for other, factor in others), arith.ZERO)
            if self._proves("<", rest, weight) or self._proves("<", most, weight):
                self._learn_digit(digit)
                self.learn(rest)
                return

    def _proves(self, op: str, a: arith.Dim, b: arith.Dim) -> bool:
        return self.analyzer.prove(arith.compare(op, a, b))

    def _most(self, digit: arith.Expr) -> arith.Expr:
        """The greatest value of a digit, or the digit itself where that is not known."""
        if isinstance(digit, arith.FloorMod):
            return digit.operands[1] - 1
        most = self.ranges.get(digit, (None, None))[1]
        return digit if most is None else arith.wrap(most)

    def _learn_digit(self, digit: arith.Expr) -> None:
        size: arith.Expr | None = None
        match digit:
            case arith.Var():
                self.variables.add(digit)
                return
            case arith.FloorMod(operands=(base, size)):
                pass
            case arith.FloorDiv():
                base = digit
            case _:
                return
        divisor: arith.Expr = arith.ONE
        while isinstance(base, arith.FloorDiv):
            base, factor = base.operands
            divisor = self.analyzer.simplify(divisor * factor)
        known = self.digits.setdefault(base, [])
        known.append((divisor, size))
        if self._covered(base, list(known)):
            self.learn(base)

    def _covered(self, base: arith.Expr, digits: list[tuple[arith.Expr, arith.Expr | None]]) -> bool:
        """Whether digits leave nothing of an expression open."""
        reach: arith.Expr = arith.ONE
        while digits:
            following = next((digit for digit in digits if self._continues(digit[0], reach)), None)
            if following is None:
                break
            divisor, size = following
            if size is None:
                return True
            digits.remove(following)
            end = self.analyzer.simplify(divisor * size)
            # A divisor below what is reached is constant, and its digit may end there too.
            reach = arith.maximum(reach, end) if isinstance(end, arith.Const) and isinstance(reach, arith.Const) else end
        return self._proves("<=", 0, base) and self._proves("<", base, reach)

    def _continues(self, divisor: arith.Expr, reach: arith.Expr) -> bool:
        if isinstance(divisor, arith.Const) and isinstance(reach, arith.Const):
            return divisor.value <= reach.value
        return self.analyzer.equal(divisor, reach)


def _weighted(atom: arith.Expr, count: int) -> tuple[arith.Expr, arith.Expr]:
    """A term of a sum as a weight, which no loop changes, and the rest."""
    weight: arith.Expr = arith.Const(count)
    digit: arith.Expr = arith.ONE
    stack = [atom]
    while stack:
        factor = stack.pop()
        if isinstance(factor, arith.Mul):
            stack.extend(factor.operands)
        elif _moves(factor):
            digit = digit * factor
        else:
            weight = weight * factor
    return weight, digit


def _moves(expr: arith.Expr) -> bool:
    return any(isinstance(var, arith.Var) for var in arith.free_vars(expr))
