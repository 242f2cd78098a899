"""Whether the iterations of a loop may run in any order, or at the same time."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from inlaid import arith
from inlaid.tensor import ir
from inlaid.tensor.analysis.footprint import inside
from inlaid.tensor.primitives.place import failed, loop_of
from inlaid.tensor.primitives.regions import covers, produced_box, touched_box
from inlaid.tensor.transform.lower_blocks import bound_iters
from inlaid.tensor.transform.paths import Path, Ranges, Site, loop_ranges, loops_around, sites, spans_of


def check_independent(program: ir.LoopProgram, path: Path) -> None:
    """Check that no iteration of the loop at the end of a path writes what another one reads or writes.

    Buffers that are allocated inside the loop are each iteration's own. Raises `ScheduleError`, which names what is shared.
    """
    loop = loop_of(path)
    private = {stmt.buffer for stmt in ir.walk_stmts(loop.body) if isinstance(stmt, ir.Alloc)}
    below = list(sites(loop.body))
    if any(not isinstance(stmt, (ir.For, ir.Seq, ir.Alloc, ir.If)) for stmt in _outside_blocks(loop.body)):
        raise failed(program, f"loop {loop.var} holds statements outside blocks, whose order may matter", loop)
    outer = loop_ranges(*loops_around(path))
    for site in below:
        _check_bindings(program, loop, site)
    for site in below:
        for region in site.block.writes:
            if region.buffer not in private:
                _check_own(program, loop, site, region, outer)
                _check_readers(program, loop, site, region.buffer, below, outer)


def _outside_blocks(stmt: ir.Stmt) -> list[ir.Stmt]:
    found: list[ir.Stmt] = []
    stack = [stmt]
    while stack:
        node = stack.pop()
        if not isinstance(node, ir.Block):
            found.append(node)
            stack.extend(ir.substatements(node))
    return found


def _check_bindings(program: ir.LoopProgram, loop: ir.For, site: Site) -> None:
    block = site.block
    for item, binding in zip(block.iters, block.bindings, strict=True):
        if item.kind is not ir.IterKind.SPATIAL and loop.var in arith.free_vars(binding):
            what = "reduces over" if item.kind is ir.IterKind.REDUCTION else "depends on the order of"
            raise failed(
                program, f"the iterations of loop {loop.var} are not independent: block {block.name} {what} {item.var}", block
            )


def _check_own(program: ir.LoopProgram, loop: ir.For, site: Site, region: ir.Region, outer: Ranges) -> None:
    """Check that each iteration writes elements of its own."""
    bound = bound_iters(site.block)
    ranges = outer | loop_ranges(*site.loops)
    analyzer = arith.Analyzer(ranges | {loop.var: (0, arith.unwrap(loop.extent - 2))})
    spans = spans_of(*site.loops)
    whole: list[arith.Expr] = []
    for first, extent in region.ranges:
        start = arith.substitute(first, bound)
        if loop.var not in arith.free_vars(start):
            continue
        if extent == arith.ONE:
            whole.append(start)
        touched = inside(start, arith.substitute(extent, bound), spans, analyzer)
        if touched is not None:
            low, high = touched
            step: dict[arith.Expr, arith.Expr] = {loop.var: loop.var + 1}
            ahead = (arith.substitute(low, step), arith.substitute(high, step))
            if analyzer.prove(arith.compare("<", high, ahead[0])) or analyzer.prove(arith.compare("<", ahead[1], low)):
                return
    if not determined(loop.var, loop.extent, whole, ranges):
        raise failed(
            program,
            f"the iterations of loop {loop.var} are not independent: several write the same elements of {region.buffer}",
            site.block,
            "allocate it inside the loop (compute_at), or choose another loop",
        )


def _check_readers(
    program: ir.LoopProgram, loop: ir.For, writer: Site, buffer: ir.Buffer, below: list[Site], outer: Ranges
) -> None:
    """Check that what is read of a shared buffer was written by the same iteration."""
    for reader in below:
        if not reader.reads(buffer):
            continue
        written = produced_box(writer, buffer, outer)
        for box in reader.regions(reader.block.reads, buffer):
            wanted = touched_box(reader, box, outer)
            analyzer = arith.Analyzer(outer)
            if wanted is None or written is None or not covers(written[0], wanted, analyzer):
                raise failed(
                    program,
                    f"the iterations of loop {loop.var} are not independent: block {reader.block.name} reads elements of {buffer} "
                    f"that other iterations write",
                    reader.block,
                )


# --- digits -----------------------------------------------------------------------------------------------------------


def determined(var: arith.Var, extent: arith.Expr, indices: Sequence[arith.Expr], ranges: Ranges) -> bool:
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
    ranges: Ranges
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
