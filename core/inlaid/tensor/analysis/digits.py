"""Mixed-radix analysis: which variables are determined by the values of index expressions."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from inlaid_runtime import arith


def is_determined(var: arith.Var, extent: arith.Expr, indices: Sequence[arith.Expr], ranges: arith.Bounds) -> bool:
    """Test whether the values of `indices` determine the value of `var` in [0, extent). `ranges` gives the bounds of all variables.

    The value of a mixed-radix number, whose weights may be symbolic, determines its digits. Conversely, digits `e // a % b` that
    together cover an expression `e` determine `e`, which may itself be a mixed-radix number. If they cover only the lowest part of
    `e`, they determine a remainder of `e`. A digit `e // a % b` is also a digit of every expression that differs from `e` by a
    multiple of `a * b`.
    """
    return are_determined({var: extent}, indices, ranges)


def are_determined(extents: Mapping[arith.Var, arith.Expr], indices: Sequence[arith.Expr], ranges: arith.Bounds) -> bool:
    """Test whether the values of `indices` determine all variables in `extents`, which gives their extents; see `is_determined`."""
    analyzer = arith.Analyzer(ranges)
    variables = {var for var, extent in extents.items() if not analyzer.prove(arith.compare("<=", extent, 1))}
    if not variables:
        return True
    facts = _Facts(analyzer, ranges)
    numbers = [analyzer.simplify(index) for index in indices]
    for index in (*numbers, *numbers):  # twice: a later index may determine what an earlier one needs
        facts.learn(index)
    return variables <= facts.variables


Factors = tuple[arith.Expr, ...]
"""Factors of a product. Products of long sums are not expanded, so that they have no canonical form."""


@dataclass
class _Facts:
    """The facts that the values of known expressions imply: the known variables, and the known digits of each expression. A digit
    is given by the factors of its divisor and its size (None: all higher digits). `complete` are the expressions that their digits
    determine; `remainders` are the pairs (expression, modulus) whose remainder is known."""

    analyzer: arith.Analyzer
    ranges: arith.Bounds
    variables: set[arith.Expr] = field(default_factory=set)
    values: set[arith.Expr] = field(default_factory=set)
    digits: dict[arith.Expr, list[tuple[Factors, arith.Expr | None]]] = field(default_factory=dict)
    complete: set[arith.Expr] = field(default_factory=set)
    remainders: set[tuple[arith.Expr, int]] = field(default_factory=set)

    def learn(self, number: arith.Expr) -> None:
        """Record an expression whose value is known, and the facts that it implies."""
        self.values.add(number)
        weights: dict[arith.Expr, arith.Expr] = {}
        for atom, count in self.analyzer.linear(number).terms.items():
            weight, digit = _weighted(atom, count)
            if _varies(digit):
                weights[digit] = weights.get(digit, arith.ZERO) + weight
        for digit, weight in weights.items():
            other_terms = [(other, factor) for other, factor in weights.items() if other is not digit]
            if not all(self._proves("<=", 0, other) and self._proves("<=", 0, factor) for other, factor in other_terms):
                continue
            rest = self.analyzer.simplify(sum((other * factor for other, factor in other_terms), arith.ZERO))
            max_rest = sum((self._max_digit(other) * factor for other, factor in other_terms), arith.ZERO)
            if self._proves("<", rest, weight) or self._proves("<", max_rest, weight):
                self._learn_digit(digit)
                self.learn(rest)
                return

    def _proves(self, op: str, a: arith.Dim, b: arith.Dim) -> bool:
        return self.analyzer.prove(arith.compare(op, a, b))

    def _max_digit(self, digit: arith.Expr) -> arith.Expr:
        """Return the largest value of a digit, or the digit itself if its maximum is unknown."""
        if isinstance(digit, arith.FloorMod):
            return digit.operands[1] - 1
        upper_bound = self.ranges.get(digit, (None, None))[1]
        return digit if upper_bound is None else arith.wrap(upper_bound)

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
        divisor: Factors = ()
        while (digit_of_dividend := self._dividend_digit(base, divisor, size)) is not None:
            base, divisor, size = digit_of_dividend
        while (undivided := self._undivided(base)) is not None:
            base, divisor = undivided[0], (*divisor, arith.Const(undivided[1]))
        self.digits.setdefault(base, []).append((divisor, size))
        for number in [number for number in self.digits if number not in self.complete]:
            if number in self.complete:
                continue
            reach = self._reach(number, self._collect_digits(number))
            if reach is None or self._remainder_determines(number, reach):
                self.complete.add(number)
                self.learn(number)
            elif isinstance(reach, arith.Const):
                self._learn_remainder(number, reach.value)

    def _remainder_determines(self, number: arith.Expr, reach: arith.Expr) -> bool:
        """Test whether the remainder of `number` by `reach` determines `number`: its quotient is known, or `number` is in [0,
        reach). The quotient may be known in lower terms: (16 * a + b) // 10 for (32 * a + 2 * b + c) // 20."""
        if self.analyzer.simplify(number // reach) in self.values:
            return True
        return self._proves("<=", 0, number) and self._proves("<", number, reach)

    def _learn_remainder(self, number: arith.Expr, modulus: int) -> None:
        """Record the facts that a known remainder implies: `n * 16 + i` modulo 80 determines `i` in [0, 16)."""
        form = self.analyzer.linear(number)
        for weight in sorted({abs(count) for count in form.terms.values()}):
            low_terms = {atom: count for atom, count in form.terms.items() if count % weight}
            if modulus % weight or not low_terms or (number, weight) in self.remainders:
                continue
            rest = arith.Linear(low_terms, form.constant % weight).expr()
            if self._proves("<=", 0, rest) and self._proves("<", rest, weight):
                self.remainders.add((number, weight))
                self.learn(self.analyzer.simplify(rest))

    def _dividend_digit(
        self, base: arith.Expr, divisor: Factors, size: arith.Expr | None
    ) -> tuple[arith.Expr, Factors, arith.Expr | None] | None:
        """Rewrite a digit of a quotient or remainder as a digit of its dividend: `n % 6 // 3` is `n // 3 % 2`."""
        match base:
            case arith.FloorDiv(operands=(number, factor)):
                return number, (*divisor, factor), size
            case arith.FloorMod(operands=(number, arith.Const(value=modulus))) if (divisor_value := _constant(divisor)) is not None:
                max_size, rest = divmod(modulus, divisor_value)
                if not rest and (
                    size is None or (isinstance(size, arith.Const) and (size.value >= max_size or max_size % size.value == 0))
                ):
                    return number, divisor, arith.Const(max_size) if size is None else arith.minimum(size, max_size)
        return None

    def _undivided(self, number: arith.Expr) -> tuple[arith.Expr, int] | None:
        """Write a sum that contains a quotient as one quotient: `n * 16 + i // 2` as (`n * 32 + i`, 2). None for any other sum."""
        form = self.analyzer.linear(number)
        for atom, count in form.terms.items():
            match atom:
                case arith.FloorDiv(operands=(dividend, arith.Const(value=factor))) if count == 1 and len(form.terms) > 1:
                    rest = arith.Linear({other: times for other, times in form.terms.items() if other is not atom}, form.constant)
                    return self.analyzer.simplify(rest.scaled(factor).expr() + dividend), factor
        return None

    def _collect_digits(self, number: arith.Expr) -> list[tuple[Factors, arith.Expr | None]]:
        """Return the known digits of `number`: those recorded for `number` itself, for expressions that differ from it by a
        multiple of the digit's divisor times its size, and for quotients of `number`, such as `n` if `number` is `n * 32 + i`."""
        digits_of_number = list(self.digits[number])
        form = self.analyzer.linear(number)
        for other, digits in self.digits.items():
            if other is number:
                continue
            times = self._constant_divisor(form, number, other)
            for divisor, size in digits:
                if times is not None:
                    digits_of_number.append(((*divisor, arith.Const(times)), size))
                elif (divisor_value := _constant(divisor)) is not None and isinstance(size, arith.Const):
                    difference = self.analyzer.simplify((number - other) % (divisor_value * size.value))
                    if difference == arith.ZERO:
                        digits_of_number.append((divisor, size))
        return digits_of_number

    def _constant_divisor(self, form: arith.Linear, number: arith.Expr, quotient: arith.Expr) -> int | None:
        """Return the constant divisor for which `number // divisor` is `quotient`; None if there is no such constant."""
        atom, count = next(iter(self.analyzer.linear(quotient).terms.items()), (None, 0))
        times = form.terms.get(atom, 0) // count if atom is not None else 0
        if times < 2:
            return None
        rest = self.analyzer.simplify(number - quotient * times)
        return times if self._proves("<=", 0, rest) and self._proves("<", rest, times) else None

    def _reach(self, number: arith.Expr, digits: list[tuple[Factors, arith.Expr | None]]) -> arith.Expr | None:
        """Return the modulus by which the digits determine the remainder of `number`; None if they determine `number` itself."""
        reach: Factors = ()
        while digits:
            following = next((digit for digit in digits if self._starts_within(digit[0], reach)), None)
            if following is None and not reach:
                # The lowest digits of 8 * a + b are the lowest digits of b.
                lowest = min(
                    (divisor_value for divisor, _ in digits if (divisor_value := _constant(divisor)) is not None), default=0
                )
                if lowest and self.analyzer.simplify(number % lowest) in self.values:
                    reach = (arith.Const(lowest),)
                    continue
            if following is None:
                break
            divisor, size = following
            if size is None:
                return None
            digits.remove(following)
            end = (*divisor, size)
            # If the divisor is less than `reach`, both are constants, and the digit may also end below `reach`.
            low, high = _constant(reach), _constant(end)
            reach = end if low is None or high is None else (arith.Const(max(low, high)),)
        return self.analyzer.simplify(arith.product(reach))

    def _starts_within(self, divisor: Factors, reach: Factors) -> bool:
        """Test whether the digit with divisor `divisor` begins at or below `reach`, so that it extends or overlaps the digits
        below."""
        low, high = _constant(divisor), _constant(reach)
        if low is not None and high is not None:
            return low <= high
        if Counter(divisor) == Counter(reach):
            return True
        return self.analyzer.equal(arith.product(divisor), arith.product(reach))


def _constant(factors: Factors) -> int | None:
    """Return the product of constant factors; None if one is not constant."""
    values = [factor.value for factor in factors if isinstance(factor, arith.Const)]
    return math.prod(values) if len(values) == len(factors) else None


def _weighted(atom: arith.Expr, count: int) -> tuple[arith.Expr, arith.Expr]:
    """Split a term into a loop-invariant weight and the remaining factors."""
    weight: arith.Expr = arith.Const(count)
    digit: arith.Expr = arith.ONE
    stack = [atom]
    while stack:
        factor = stack.pop()
        if isinstance(factor, arith.Mul):
            stack.extend(factor.operands)
        elif _varies(factor):
            digit = digit * factor
        else:
            weight = weight * factor
    return weight, digit


def _varies(expr: arith.Expr) -> bool:
    """Test whether an expression depends on index variables."""
    return any(isinstance(var, arith.Var) for var in arith.free_vars(expr))
