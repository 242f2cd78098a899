"""Hoists divisions by symbolic numbers out of loops, and computes a quotient from the quotient of a nearby dividend by the same
divisor."""

from __future__ import annotations

from dataclasses import replace

from inlaid.tensor import ir
from inlaid.tensor.transform.rewrite import Rewriter
from inlaid_runtime import arith
from inlaid_runtime.types import dtype

Division = arith.FloorDiv | arith.FloorMod


def hoist_divisions(program: ir.LoopProgram) -> ir.LoopProgram:
    """Compute each quotient and remainder with a symbolic divisor directly inside the innermost loop whose variable it reads.
    Compilers do not hoist a division out of a loop that may run zero times:

        for p: for q: a[p // n, q]    becomes    for p: let d = p // n: for q: a[d, q]

    Divisions whose dividends differ by less than the divisor are derived from each other,

        (p + 3) // n, (p + 3) % n    become    p // n + c, p % n + 3 - n * c    where c is n <= p % n + 3

    and, with a second comparison, those whose dividends differ by less than twice the divisor. Copies of a statement for
    neighboring elements (made by unrolling) then divide once. The program must have no blocks; one with threads is unchanged.
    """
    sizes = any(not isinstance(dim, int) for buffer in program.params for dim in buffer.shape) or program.sizes
    if not sizes or any(isinstance(stmt, ir.For) and stmt.kind is ir.ForKind.THREAD for stmt in ir.walk_stmts(program.body)):
        return program
    sharing = _Sharing()
    body = sharing.stmt(program.body)
    body = _Hoisting().stmt(body) if sharing.divides else body
    return program if body is program.body else replace(program, body=body)


class _Divisions(Rewriter):
    """Replaces divisions by non-constant numbers, inner divisions first, and records whether there were any."""

    divides = False

    def index(self, index: arith.Expr) -> arith.Expr:
        if type(index) is arith.Const or type(index) is arith.Var:
            return index
        result = self._indices.get(index)
        if result is None:
            result = self._rebuilt_index(index)
            if isinstance(result, Division) and not isinstance(result.operands[1], arith.Const) and not arith.reads_data(result):
                self.divides = True
                result = self._indices[index] = self._replaced(result)
        return result

    def _replaced(self, division: Division) -> arith.Expr:
        raise NotImplementedError


class _Sharing(_Divisions):
    """Derives divisions from each other. Ignores loop ranges, since indices are already simplified by them."""

    def __init__(self) -> None:
        super().__init__()
        self._analyzer = arith.Analyzer()

    def _replaced(self, division: Division) -> arith.Expr:
        dividend, divisor = division.operands
        form = self._analyzer.linear(dividend)
        comparisons: dict[arith.Expr, int] = {atom: count for atom, count in form.terms.items() if isinstance(atom, arith.Compare)}
        rest = arith.Linear({atom: count for atom, count in form.terms.items() if atom not in comparisons}, 0).expr()
        increment = arith.Linear(comparisons, form.constant).expr()
        low, high = self._analyzer.bounds(increment)
        min_divisor = self._analyzer.bounds(divisor)[0]
        if rest == arith.ZERO or low is None or low < 0 or not high or min_divisor is None or 2 * min_divisor < high:
            return division
        raw_remainder = rest % divisor + increment
        ends = (divisor,) if high <= min_divisor else (divisor, divisor * 2)
        steps = [arith.compare("<=", end, raw_remainder) for end in ends]
        if isinstance(division, arith.FloorDiv):
            return sum(steps, rest // divisor)
        remainder = raw_remainder
        for end, step in zip(ends, steps, strict=True):
            remainder = arith.select(step, raw_remainder - end, remainder)
        return remainder


class _Hoisting(_Divisions):
    """Binds each division to a variable, inside the innermost loop or binding whose variable it reads. Each statement is rebuilt
    once, by the rewriter of the loop around it. `outer` is the rewriter of the enclosing loop; None at the top level."""

    def __init__(self, loop: arith.Var | None = None, outer: _Hoisting | None = None) -> None:
        super().__init__()
        self._loop = loop
        self._outer = outer
        self._values: dict[arith.Expr, arith.Var] = {}
        self._loop_variables: set[arith.Expr] = set() if loop is None else {loop}

    def stmt(self, stmt: ir.Stmt) -> ir.Stmt:
        match stmt:
            case ir.For(var=var, extent=extent, body=body, kind=kind) if kind is not ir.ForKind.VECTORIZED:
                new_extent, new_body = self.index(extent), _Hoisting(var, self).body(body)
                return stmt if new_extent is extent and new_body is body else replace(stmt, extent=new_extent, body=new_body)
            case ir.Let(var=var, value=value, body=body, bounds=None):
                new_value, new_body = self.expr(value), _Hoisting(var, self).body(body)
                return stmt if new_value is value and new_body is body else ir.Let(var, new_value, new_body)
        return super().stmt(stmt)

    def body(self, stmt: ir.Stmt) -> ir.Stmt:
        """Rewrite the body of a loop or binding, and bind inside it the divisions that depend on its variable."""
        body = self.stmt(stmt)
        for value, variable in reversed(self._values.items()):
            body = ir.Let(variable, ir.Index(dtype("int64"), value), body)
        return body

    def _replaced(self, division: Division) -> arith.Expr:
        unbound_variables = {var for var in arith.free_vars(division) if isinstance(var, arith.Var)}
        innermost: _Hoisting | None = None
        level: _Hoisting | None = self
        while level is not None and unbound_variables:
            innermost = innermost or (level if unbound_variables & level._loop_variables else None)
            unbound_variables -= level._loop_variables
            level = level._outer
        if innermost is None or unbound_variables:
            return division
        variable = innermost._values.setdefault(division, arith.Var(f"{innermost._loop}_d{len(innermost._values)}"))
        innermost._loop_variables.add(variable)
        return variable
