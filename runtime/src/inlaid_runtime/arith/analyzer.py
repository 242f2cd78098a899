"""Simplification, bounds and proofs for integer expressions.

All results are computed from one canonical form: a sum of atoms with integer coefficients plus a constant. An atom is a variable, a
product of atoms, or a division, remainder, minimum, select or comparison with canonical operands. An expression that has only one
value within the bounds of its variables is folded. The cost is linear in the size of an expression, except for products of sums,
which are expanded if they are short.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping
from math import gcd

from inlaid_runtime.arith import interval
from inlaid_runtime.arith.expr import (
    ONE,
    ZERO,
    Add,
    And,
    Compare,
    Const,
    Dim,
    Expr,
    FloorDiv,
    FloorMod,
    Max,
    Min,
    Mul,
    Not,
    Opaque,
    Or,
    Select,
    SizeVar,
    Var,
    add,
    balanced,
    compare,
    free_vars,
    levels,
    logical_and,
    logical_or,
    maximum,
    minimum,
    mul,
    post_order,
    reads_data,
    select,
    substitute,
    wrap,
)
from inlaid_runtime.arith.forms import Linear, constant_form, summands
from inlaid_runtime.arith.interval import EVERYTHING, TRUTH, Interval

Bounds = Mapping[Expr, tuple[Dim | None, Dim | None]]
"""Inclusive bounds of variables; None: unbounded. A bound may be an expression over other variables."""

_LONGEST_PRODUCT = 16
"""Largest number of terms for which a product of two sums is expanded."""
_ELIMINATIONS = 8
"""Maximum number of variables that one proof may replace by their symbolic bounds."""
_CASES = 3
"""Maximum number of minima and maxima that one proof may split into cases."""
_LEVELS = 16
"""Depth of recursion beyond which subexpressions are analyzed before the expressions that contain them."""
_LARGEST_DIVISOR = 1 << 31
"""Largest divisor that merging nested divisions may produce, as from x // a // b to x // (a * b). A larger one could exceed the
integers of kernels."""
_MERGES = 16
"""Maximum number of nested divisions that are merged into one."""
_DEEP = 40
"""Number of levels of an expression above which its nodes store canonical forms and bounds."""
_ATOM = "atom"
"""Stored in an atom in place of its canonical form, which would refer to the atom itself."""
_INTERVALS = {
    Add: interval.add,
    Mul: interval.mul,
    FloorDiv: interval.floordiv,
    FloorMod: interval.floormod,
    Min: interval.minimum,
    Max: interval.maximum,
}


class Analyzer:
    """Simplifies and proves expressions under one set of bounds, and memoizes the results."""

    __slots__ = ("_around", "_bounds", "_forms", "_interned", "_level", "_ranges", "_variables")

    def __init__(self, bounds: Bounds | None = None, around: Analyzer | None = None) -> None:
        """Set the bounds. `around` is an enclosing analyzer, whose bounds also hold, except for variables that `bounds` covers."""
        inner_bounds: Bounds = {} if bounds is None else bounds
        self._around = around
        self._variables = frozenset(inner_bounds)
        self._bounds: Bounds = inner_bounds if around is None else {**around._bounds, **inner_bounds}
        self._forms: dict[Expr, Linear] = {}
        self._interned: dict[Hashable, Expr] = {} if around is None else around._interned
        self._ranges: dict[Expr, Interval] = {}
        self._level = 0

    def inside(self, bounds: Bounds) -> Analyzer:
        """Return a nested analyzer with bounds of further variables. Results that do not depend on those are memoized in `self`."""
        return Analyzer(bounds, self)

    # --- queries ----------------------------------------------------------------------------------------------------------

    def simplify(self, expr: Dim) -> Expr:
        """Simplify an expression under the bounds. The result has the same value."""
        if isinstance(expr, int):
            return Const(expr)
        if type(expr) is Const:
            return expr
        form = self.linear(expr)
        simple = form.expr()
        if simple not in form.terms and not self._bounds and levels(simple) > _DEEP:
            simple.form = form
        return simple

    def bounds(self, expr: Dim) -> Interval:
        """Return the known bounds of the value, inclusive; None on a side that is unbounded."""
        if isinstance(expr, int):
            return expr, expr
        return self._range(self.linear(expr))

    def prove(self, condition: Dim) -> bool:
        """Test whether the condition is known to be nonzero for all values within the bounds."""
        lower, upper = self.bounds(condition)
        return (lower is not None and lower > 0) or (upper is not None and upper < 0)

    def equal(self, a: Dim, b: Dim) -> bool:
        """Test whether two expressions are known to have the same value."""
        if a is b:
            return True
        if isinstance(a, int) and isinstance(b, int):
            return a == b
        return self.bounds(wrap(a) - b) == (0, 0)

    def linear(self, expr: Expr) -> Linear:
        """Return the canonical form of an expression."""
        form = self._forms.get(expr)
        if form is None:
            around = self._around
            if around is not None and self._variables.isdisjoint(free_vars(expr)):
                form = around.linear(expr)
            elif levels(expr) > _DEEP and around is None and self._variables.isdisjoint(free_vars(expr)):
                form = self._unbounded().linear(expr) if self._variables else self._deep(expr)
            else:
                form = self._nested(expr)
            self._forms[expr] = form
        return form

    def _nested(self, expr: Expr) -> Linear:
        """Compute the canonical form of an expression. If the recursion is deep, compute those of its subexpressions first."""
        level = self._level
        if level == _LEVELS:
            for node in post_order(expr, below=self._unknown):
                self._level = 0
                self.linear(node)
        self._level = level + 1
        form = self._canonical(expr)
        self._level = level
        return form

    def _unknown(self, expr: Expr) -> tuple[Expr, ...]:
        """Return the expressions whose canonical forms are needed for that of `expr`; none if that is already known."""
        stored = self._around is None and not self._variables and hasattr(expr, "form")
        return () if stored or expr in self._forms else _read_first(expr)

    def _unbounded(self) -> Analyzer:
        """Return an analyzer without bounds whose atoms are those of this one."""
        unbounded = Analyzer()
        unbounded._interned = self._interned
        return unbounded

    def _deep(self, expr: Expr) -> Linear:
        """Return the canonical form of a deep expression without bounds, and store it in the node. The sizes along a chain of
        operators contain one another, and each would otherwise be analyzed from its leaves again."""
        form = getattr(expr, "form", None)
        if isinstance(form, Linear):
            return form
        if form is _ATOM:
            return Linear({expr: 1}, 0)
        form = self._nested(expr)
        if expr not in form.terms:
            expr.form = form
        for atom in form.terms:
            if levels(atom) > _DEEP:
                atom.form = _ATOM
        return form

    def affine(self, expr: Dim, variable: Expr) -> tuple[Expr, Expr] | None:
        """Decompose into (stride, rest) with `expr == stride * variable + rest`; neither reads the variable. None if `expr` is not
        affine.

        The stride is 0 for an expression that does not read the variable.
        """
        form = self.linear(wrap(expr))
        stride: Expr = ZERO
        rest: dict[Expr, int] = {}
        for atom, count in form.terms.items():
            if atom is variable or atom == variable:
                stride = add(stride, count)
            elif variable in free_vars(atom):
                cofactors = _without(_factors(atom), [variable])
                if cofactors is None or any(variable in free_vars(other) for other in cofactors):
                    return None
                product: Expr = Const(count)
                for other in cofactors:
                    product = mul(other, product)
                stride = add(stride, product)
            else:
                rest[atom] = count
        return stride, Linear(rest, form.constant).expr()

    # --- canonical forms --------------------------------------------------------------------------------------------------

    def _canonical(self, expr: Expr) -> Linear:
        kind = type(expr)  # hot path: `match` tries one class after another
        if kind is Add:
            return self._sum(expr)
        if kind is Var or kind is SizeVar or kind is Opaque:
            return self._atom(expr)
        if kind in _PRODUCTS:
            a, b = expr.operands
            return _PRODUCTS[kind](self, self.linear(a), self.linear(b))
        match expr:
            case Const(value=value):
                return constant_form(value)
            case Min(operands=(a, b)):
                return self._extremum(self.linear(a), self.linear(b), least=True)
            case Max(operands=(a, b)):
                return self._extremum(self.linear(a), self.linear(b), least=False)
            case Compare(op=op, operands=(a, b)):
                return self._compare(op, self.linear(a), self.linear(b))
            case And(operands=(a, b)):
                return self._folded(logical_and(self._truth(a), self._truth(b)))
            case Or(operands=(a, b)):
                return self._folded(logical_or(self._truth(a), self._truth(b)))
            case Not(operands=(a,)):
                return self._not(self._truth(a))
            case Select(operands=(condition, then, otherwise)):
                truth = self._truth(condition)
                if isinstance(truth, Const):
                    return self.linear(then if truth.value else otherwise)
                chosen, other = self.linear(then), self.linear(otherwise)
                difference = chosen.plus(other, -1)
                if not difference.terms and not difference.constant:
                    return chosen
                if self._vanishes(difference, truth):
                    return other
                return self._atom(select(truth, chosen.expr(), other.expr()))
        raise AssertionError(type(expr).__name__)

    def _atom(self, atom: Expr) -> Linear:
        """Return the form of a canonical expression: the expression itself, or its value if the bounds permit only one. An
        expression that reads data is kept even then, since its evaluation includes a bounds check."""
        lower, upper = self._atom_range(atom)
        if lower is not None and lower == upper and not reads_data(atom):
            return constant_form(lower)
        return Linear({atom: 1}, 0)

    def _vanishes(self, form: Linear, condition: Expr) -> bool:
        """Test whether a form is 0 if a condition that fixes a variable holds: n - min(n, 512) is 0 if n == 1."""
        match condition:
            case Compare(op="==", operands=(Var() | SizeVar() as variable, Const() as value)):
                if not reads_data(expr := form.expr()):
                    substituted = self.linear(substitute(expr, {variable: value}))
                    return not substituted.terms and not substituted.constant
        return False

    def _folded(self, expr: Expr) -> Linear:
        return constant_form(expr.value) if isinstance(expr, Const) else self._atom(expr)

    def _intern(self, key: Hashable, atom: Expr) -> Expr:
        """Intern an atom under a key that does not depend on operand order."""
        return self._interned.setdefault(key, atom)

    @staticmethod
    def _key(form: Linear) -> Hashable:
        return frozenset(form.terms.items()), form.constant

    def _sum(self, expr: Expr) -> Linear:
        terms: dict[Expr, int] = {}
        constant = 0
        for node, factor in summands(expr):
            if type(node) is Const:
                constant += factor * node.value
            else:
                form = self.linear(node)
                constant += factor * form.constant
                for atom, count in form.terms.items():
                    terms[atom] = terms.get(atom, 0) + factor * count
        return self._rejoined(Linear({atom: count for atom, count in terms.items() if count}, constant))

    def _rejoined(self, form: Linear) -> Linear:
        """Recombine quotients and remainders: `x // c * c + x % c` to `x`; `x // c % d * c + x % c` and `x % (c * d) // c * c + x %
        c` to `x % (c * d)`."""
        for atom, count in form.terms.items():
            if type(atom) is not FloorMod:
                continue
            base, divisor = atom.operands
            if type(divisor) is not Const:
                quotient = FloorDiv(base, divisor)
                quotient_times_divisor = self._product(Linear({quotient: 1}, 0), self.linear(divisor))
                if quotient_times_divisor.terms and all(
                    form.terms.get(product) == count * times for product, times in quotient_times_divisor.terms.items()
                ):
                    rest = {
                        key: value for key, value in form.terms.items() if key != atom and key not in quotient_times_divisor.terms
                    }
                    return self._rejoined(Linear(rest, form.constant).plus(self.linear(base), count))
                continue
            if form.terms.get(FloorDiv(base, divisor)) == count * divisor.value:
                rest = {key: value for key, value in form.terms.items() if key not in (atom, FloorDiv(base, divisor))}
                return self._rejoined(Linear(rest, form.constant).plus(self.linear(base), count))
            for other, times in form.terms.items():
                modulus = _joint_modulus(other, base, divisor) if times == count * divisor.value else None
                if modulus is not None:
                    rest = {key: value for key, value in form.terms.items() if key not in (atom, other)}
                    joined = self._floormod(self.linear(base), constant_form(modulus))
                    return self._rejoined(Linear(rest, form.constant).plus(joined, count))
        return form

    def _product(self, a: Linear, b: Linear) -> Linear:
        if not a.terms:
            a, b = b, a
        if not b.terms:
            return a.scaled(b.constant)
        if len(a.terms) * len(b.terms) > _LONGEST_PRODUCT:
            return Linear({self._monomial(self._closed(a), self._closed(b)): 1}, 0)
        result = a.scaled(b.constant)
        if a.constant:
            result = result.plus(Linear(b.terms, 0), a.constant)
        for x, x_count in a.terms.items():
            for y, y_count in b.terms.items():
                result = result.plus(Linear({self._monomial(x, y): 1}, 0), x_count * y_count)
        return result

    def _closed(self, form: Linear) -> Expr:
        return self._intern(("sum", self._key(form)), form.expr())

    def _monomial(self, a: Expr, b: Expr) -> Expr:
        factors = [*_factors(a), *_factors(b)]
        counts: dict[Expr, int] = {}
        for factor in factors:
            counts[factor] = counts.get(factor, 0) + 1
        return self._intern(("product", frozenset(counts.items())), balanced(Mul, factors))

    def _floordiv(self, a: Linear, b: Linear, merges: int = _MERGES) -> Linear:
        if b.terms:
            outer, inner = self._split_symbolic(a, b)
            if not self._within(inner, b):
                atom = self._intern(("div", self._key(inner), self._key(b)), FloorDiv(inner.expr(), b.expr()))
                outer = outer.plus(self._atom(atom))
            return outer
        divisor = b.constant
        if divisor < 0:
            return self._floordiv(a.scaled(-1), constant_form(-divisor))
        if divisor == 0:
            return Linear({FloorDiv(a.expr(), ZERO): 1}, 0)
        outer = Linear({atom: count // divisor for atom, count in a.terms.items() if count % divisor == 0}, a.constant // divisor)
        inner = Linear({atom: count for atom, count in a.terms.items() if count % divisor}, a.constant % divisor)
        return outer.plus(self._floordiv_rest(inner, divisor, merges))

    def _floordiv_rest(self, a: Linear, divisor: int, merges: int) -> Linear:
        """Return the form of a // divisor, for a divisor that divides no coefficient of `a`. Merges at most `merges` divisions."""
        quotient = _common_quotient(self._range(a), divisor)
        if quotient is not None:
            return constant_form(quotient)
        split = self._coarse(a, divisor)
        if split is not None:
            coarse, _, step = split
            return self._floordiv(coarse, constant_form(divisor // step), merges)
        if len(a.terms) == 1:
            ((atom, count),) = a.terms.items()
            if count == 1 and type(atom) is FloorDiv and type(atom.operands[1]) is Const and atom.operands[1].value > 0:
                finer = atom.operands[1].value
                if merges and finer * divisor <= _LARGEST_DIVISOR:
                    dividend = self.linear(atom.operands[0]).plus(constant_form(a.constant * finer))
                    return self._floordiv(dividend, constant_form(finer * divisor), merges - 1)
        return self._atom(self._intern(("div", self._key(a), divisor), FloorDiv(a.expr(), Const(divisor))))

    def _floormod(self, a: Linear, b: Linear) -> Linear:
        if b.terms:
            _, inner = self._split_symbolic(a, b)
            if self._within(inner, b):
                return inner
            return self._atom(self._intern(("mod", self._key(inner), self._key(b)), FloorMod(inner.expr(), b.expr())))
        divisor = b.constant
        if divisor <= 0:
            return Linear({FloorMod(a.expr(), Const(divisor)): 1}, 0)
        inner = Linear({atom: count for atom, count in a.terms.items() if count % divisor}, a.constant % divisor)
        quotient = _common_quotient(self._range(inner), divisor)
        if quotient is not None:
            return inner.plus(constant_form(-quotient * divisor))
        split = self._coarse(inner, divisor)
        if split is not None:
            coarse, fine, step = split
            return self._rejoined(fine.plus(self._floormod(coarse, constant_form(divisor // step)), step))
        if len(inner.terms) == 1:
            ((atom, count),) = inner.terms.items()
            if type(atom) is FloorMod and type(atom.operands[1]) is Const and (count * atom.operands[1].value) % divisor == 0:
                return self._floormod(self.linear(atom.operands[0]).scaled(count).plus(constant_form(inner.constant)), b)
        return self._atom(self._intern(("mod", self._key(inner), divisor), FloorMod(inner.expr(), Const(divisor))))

    def _coarse(self, a: Linear, divisor: int) -> tuple[Linear, Linear, int] | None:
        """Decompose `a` into `coarse * step + fine` with 0 <= fine < step, for a step > 1 that divides the divisor."""
        steps = {gcd(count, divisor) for count in a.terms.values()}
        for step in sorted(steps, reverse=True):
            if step == 1:
                break
            fine = Linear({atom: count for atom, count in a.terms.items() if count % step}, a.constant % step)
            quotient = _common_quotient(self._range(fine), step)
            if quotient is not None:
                coarse = {atom: count // step for atom, count in a.terms.items() if count % step == 0}
                return Linear(coarse, a.constant // step + quotient), fine.plus(constant_form(-quotient * step)), step
        return None

    def _split_symbolic(self, a: Linear, b: Linear) -> tuple[Linear, Linear]:
        """Return (q, r) with a == q * b + r. q collects the terms of `a` that are syntactically multiples of `b`."""
        outer, inner = constant_form(0), a
        if len(b.terms) == 1 and b.constant == 0:
            ((divisor, step),) = b.terms.items()
            divisor_factors = _factors(divisor)
            for atom, count in a.terms.items():
                rest = _without(_factors(atom), divisor_factors)
                if rest is not None and count % step == 0:
                    inner = inner.plus(Linear({atom: 1}, 0), -count)
                    factor: Expr = ONE
                    for part in rest:
                        factor = mul(factor, part)
                    outer = outer.plus(self.linear(factor), count // step)
        else:
            difference = a.plus(b, -1)
            if not difference.terms and not difference.constant:
                return constant_form(1), constant_form(0)
        return outer, inner

    def _within(self, a: Linear, size: Linear) -> bool:
        """Test whether 0 <= a < size is known to hold."""
        lower = self._range(a)[0]
        if lower is None or lower < 0:
            return False
        upper = self._range(a.plus(size, -1))[1]
        return upper is not None and upper < 0

    def _extremum(self, a: Linear, b: Linear, *, least: bool) -> Linear:
        lower, upper = self._range(a.plus(b, -1))
        if upper is not None and upper <= 0:
            return a if least else b
        if lower is not None and lower >= 0:
            return b if least else a
        key = ("min" if least else "max", frozenset((self._key(a), self._key(b))))
        return self._atom(self._intern(key, (minimum if least else maximum)(a.expr(), b.expr())))

    def _compare(self, op: str, a: Linear, b: Linear) -> Linear:
        difference = a.plus(b, -1)
        if op == "<=":  # over the integers a <= b is a - b - 1 < 0
            op, difference = "<", difference.plus(constant_form(-1))
        lower, upper = self._range(difference)
        if op == "<":
            if upper is not None and upper < 0:
                return constant_form(1)
            if lower is not None and lower >= 0:
                return constant_form(0)
        else:
            unequal = (lower is not None and lower > 0) or (upper is not None and upper < 0)
            if unequal or (lower == 0 and upper == 0):
                return constant_form(int(unequal == (op == "!=")))
        if op == "<":
            difference = self._without_fine(difference)
        step = gcd(*difference.terms.values())
        if op != "<" and difference.constant % step:
            return constant_form(int(op == "!="))
        # sum < limit, or sum == limit, with the common factor taken out
        limit = -(difference.constant // step)
        left = {atom: count // step for atom, count in difference.terms.items() if count > 0}
        right = {atom: -count // step for atom, count in difference.terms.items() if count < 0}
        left_constant, right_constant = (0, limit) if left and (limit >= 0 or not right) else (-limit, 0)
        key = (op, frozenset(left.items()), frozenset(right.items()), limit)
        comparison = compare(op, Linear(left, left_constant).expr(), Linear(right, right_constant).expr())
        return self._atom(self._intern(key, comparison))

    def _without_fine(self, form: Linear) -> Linear:
        """Drop terms that cannot change the sign. The result is negative exactly if `form` is. For b in [0, 15], 16 a + b - 64 is
        negative exactly if 16 a - 64 is."""
        for step in sorted({abs(count) for count in form.terms.values()} - {1}, reverse=True):
            fine = {atom: count for atom, count in form.terms.items() if count % step}
            if fine and len(fine) < len(form.terms):
                rest = form.constant % step
                lower, upper = self._range(Linear(fine, rest))
                if lower is not None and upper is not None and lower >= 0 and upper < step:
                    coarse = {atom: count for atom, count in form.terms.items() if atom not in fine}
                    return Linear(coarse, form.constant - rest)
        return form

    def _truth(self, condition: Expr) -> Expr:
        """Simplify a condition. The result is a constant if the bounds decide the condition."""
        form = self.linear(condition)
        lower, upper = self._range(form)
        if lower is not None and upper is not None and (lower > 0 or upper < 0):
            return ONE
        return form.expr()

    def _not(self, condition: Expr) -> Linear:
        match condition:
            case Const(value=value):
                return constant_form(int(not value))
            case Compare(op="<", operands=(a, b)):
                return self._compare("<=", self.linear(b), self.linear(a))
            case Compare(op=op, operands=(a, b)):
                return self._compare("!=" if op == "==" else "==", self.linear(a), self.linear(b))
            case Not(operands=(And() | Or() | Not() as inner,)):
                return self._folded(inner)
        return self._atom(Not(condition))

    # --- bounds -----------------------------------------------------------------------------------------------------------

    def _range(self, form: Linear, cases: int = _CASES) -> Interval:
        low: int | None = form.constant
        high: int | None = form.constant
        for atom, count in form.terms.items():
            least, greatest = self._atom_range(atom)
            if count < 0:
                least, greatest = greatest, least
            low = None if low is None or least is None else low + count * least
            high = None if high is None or greatest is None else high + count * greatest
        if len(form.terms) > 1:
            if cases and (high is None or low is None or low < 0 < high):
                low, high = interval.intersect((low, high), self._branches(form, cases - 1))
            if low is None:
                low = self._eliminated(form, upper=False)
            if high is None:
                high = self._eliminated(form, upper=True)
        return low, high

    def _branches(self, form: Linear, cases: int) -> Interval:
        """Return bounds of a sum that contains a minimum, maximum or division, by case distinction. Terms of a case may cancel."""
        for atom, count in form.terms.items():
            if not isinstance(atom, (Min, Max, FloorDiv)):
                continue
            rest = Linear({key: value for key, value in form.terms.items() if key is not atom}, form.constant)
            if isinstance(atom, FloorDiv):
                divisor = atom.operands[1]
                if isinstance(divisor, Const) and divisor.value > 0 and count % divisor.value == 0:
                    # a // b * b is a minus a value in [0, b)
                    times = count // divisor.value
                    dividend_range = self._range(rest.plus(self.linear(atom.operands[0]), times), cases)
                    return interval.add(dividend_range, interval.scale((1 - divisor.value, 0), times))
            else:
                a, b = (self._range(rest.plus(self.linear(operand), count), cases) for operand in atom.operands)
                return interval.minimum(a, b) if isinstance(atom, Min) == (count > 0) else interval.maximum(a, b)
        return EVERYTHING

    def _eliminated(self, form: Linear, *, upper: bool) -> int | None:
        """Return a bound of a sum after replacing variables by their symbolic bounds, which may cancel against other terms."""
        for _ in range(_ELIMINATIONS):
            for atom, count in form.terms.items():
                limits = self._bounds.get(atom)
                limit = None if limits is None else limits[int(upper == (count > 0))]
                if isinstance(limit, Expr) and not isinstance(limit, Const):
                    rest = Linear({key: value for key, value in form.terms.items() if key is not atom}, form.constant)
                    form = rest.plus(self.linear(limit), count)
                    break
            else:
                return None
            total: int | None = form.constant
            for atom, count in form.terms.items():
                end = self._atom_range(atom)[int(upper == (count > 0))]
                total = None if total is None or end is None else total + count * end
            if total is not None:
                return total
        return None

    def _atom_range(self, atom: Expr) -> Interval:
        atom_interval = self._ranges.get(atom)
        if atom_interval is None:
            around = self._around
            shared = around is not None and self._variables.isdisjoint(free_vars(atom))
            if around is not None and shared:
                atom_interval = around._atom_range(atom)
            elif around is None and levels(atom) > _DEEP and self._variables.isdisjoint(free_vars(atom)):
                atom_interval = getattr(atom, "interval", None) or (self._unbounded() if self._variables else self)._work_out_range(
                    atom
                )
                atom.interval = atom_interval
            else:
                atom_interval = self._work_out_range(atom)
            self._ranges[atom] = atom_interval
        return atom_interval

    def _work_out_range(self, atom: Expr) -> Interval:
        match atom:
            case Const(value=value):
                return value, value
            case Var():
                return self._declared(atom)
            case SizeVar(lower=lower, upper=upper):
                end = None if upper is None else self.bounds(upper)[1]
                return interval.intersect((lower, end), self._declared(atom))
            case Opaque(lower=least, upper=greatest):
                return self.bounds(least)[0], self.bounds(greatest)[1]
            case Compare() | And() | Or() | Not():
                return TRUTH
            case Select(operands=(_, a, b)):
                return interval.union(self.bounds(a), self.bounds(b))
        first, second = (self.bounds(operand) for operand in atom.operands)
        return _INTERVALS[type(atom)](first, second)

    def _declared(self, variable: Expr) -> Interval:
        limits = self._bounds.get(variable)
        if limits is None:
            return EVERYTHING
        lower, upper = limits
        return (
            lower if lower is None or isinstance(lower, int) else self.bounds(lower)[0],
            upper if upper is None or isinstance(upper, int) else self.bounds(upper)[1],
        )


_PRODUCTS = {Mul: Analyzer._product, FloorDiv: Analyzer._floordiv, FloorMod: Analyzer._floormod}


def _joint_modulus(digit: Expr, base: Expr, divisor: Const) -> int | None:
    """Return c * d if `digit` is x // c % d or x % (c * d) // c, the digit above x % c; None for any other expression."""
    match digit:
        case FloorMod(operands=(quotient, Const(value=size))) if quotient == FloorDiv(base, divisor):
            return divisor.value * size
        case FloorDiv(operands=(FloorMod(operands=(number, Const(value=modulus))), step)) if number == base and step == divisor:
            return modulus if divisor.value > 0 and modulus % divisor.value == 0 else None
    return None


def _common_quotient(values: Interval, step: int) -> int | None:
    """Return the quotient by `step` that all values share; None if the quotients may differ."""
    lower, upper = values
    if lower is None or upper is None or lower // step != upper // step:
        return None
    return lower // step


def _read_first(expr: Expr) -> tuple[Expr, ...]:
    """Return the expressions whose canonical forms are needed for that of `expr`."""
    match expr:
        case Add():
            return tuple(node for node, _ in summands(expr))
        case SizeVar(upper=Expr() as upper):
            return (upper,)
        case Opaque(lower=lower, upper=upper):
            return lower, upper
    return expr.operands


def _factors(atom: Expr) -> list[Expr]:
    if type(atom) is not Mul:
        return [atom]
    factors: list[Expr] = []
    stack: list[Expr] = [atom]
    while stack:
        node = stack.pop()
        if type(node) is Mul:
            stack += (node.operands[1], node.operands[0])
        else:
            factors.append(node)
    return factors


def _without(factors: list[Expr], divisors: Iterable[Expr]) -> list[Expr] | None:
    """Return `factors` without `divisors`; None if one of the divisors is no factor."""
    left = list(factors)
    for factor in divisors:
        if factor not in left:
            return None
        left.remove(factor)
    return left


def simplify(expr: Dim, bounds: Bounds | None = None) -> Expr:
    """Simplify an expression under bounds of its variables. The result has the same value."""
    if isinstance(expr, (Const, Var)) and not bounds:
        return expr
    return Analyzer(bounds).simplify(expr)


def bounds(expr: Dim, variable_bounds: Bounds | None = None) -> Interval:
    """Return the smallest and largest value of an expression, inclusive; None on a side that is unbounded."""
    return Analyzer(variable_bounds).bounds(expr)


def prove(condition: Dim, bounds: Bounds | None = None) -> bool:
    """Test whether a condition provably holds for all values within the bounds. False means unknown."""
    return Analyzer(bounds).prove(condition)


def linear(expr: Dim, bounds: Bounds | None = None) -> Linear:
    """Convert an expression to a sum of atoms with integer coefficients. A nonlinear subexpression becomes an atom."""
    return Analyzer(bounds).linear(wrap(expr))


def affine(expr: Dim, variable: Expr, bounds: Bounds | None = None) -> tuple[Expr, Expr] | None:
    """Decompose an expression as `Analyzer.affine` does, under bounds."""
    return Analyzer(bounds).affine(expr, variable)
