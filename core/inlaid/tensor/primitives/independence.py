"""Whether the iterations of a loop may run in any order, or at the same time."""

from __future__ import annotations

from collections.abc import Sequence

from inlaid import arith
from inlaid.tensor import ir
from inlaid.tensor.footprint import inside
from inlaid.tensor.lower_blocks import bound_iters
from inlaid.tensor.primitives.place import failed, loop_of
from inlaid.tensor.primitives.regions import covers, produced_box, touched_box
from inlaid.tensor.transform import Path, Ranges, Site, loop_ranges, loops_around, sites, spans_of


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
    if not determined(loop.var, loop.extent, whole, arith.Analyzer(ranges)):
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


def determined(var: arith.Var, extent: arith.Expr, indices: Sequence[arith.Expr], analyzer: arith.Analyzer) -> bool:
    """Whether the indices together tell which of its values a variable in [0, extent) has.

    Each index that reads the variable must be a number in mixed radix whose digits are variables, or digits of them
    (`v // a % b`), so that it determines its digits; the digits of the variable must then cover the whole of it. Radices may be
    symbolic: where one is 0 the loop does not run. Quotient and remainder of a division determine what is divided.
    """
    digits: list[tuple[arith.Expr, arith.Expr | None]] = []
    for index in (*indices, *_divided(indices, analyzer)):
        found = _digits(analyzer.linear(index), analyzer)
        if found is not None:
            digits += [(divisor, size) for name, divisor, size in found if name is var]
    reach: arith.Expr = arith.ONE
    while True:
        following = next((digit for digit in digits if _reaches(digit[0], reach, analyzer)), None)
        if following is None:
            return analyzer.prove(arith.compare("<=", extent, reach)) or analyzer.equal(extent, reach)
        digits.remove(following)
        divisor, size = following
        if size is None:
            return True
        whole = analyzer.simplify(divisor * size)
        if not analyzer.prove(arith.compare("<=", whole, reach)):
            reach = whole


def _reaches(divisor: arith.Expr, reach: arith.Expr, analyzer: arith.Analyzer) -> bool:
    if isinstance(divisor, arith.Const) and isinstance(reach, arith.Const):
        return divisor.value <= reach.value
    return analyzer.equal(divisor, reach)


def _divided(indices: Sequence[arith.Expr], analyzer: arith.Analyzer) -> list[arith.Expr]:
    """Each `x` of which indices tell both `x // d` and `x % d`, be it times a number that is more than what is added to it."""
    told: set[arith.Expr] = set()
    for index in indices:
        for atom, count in analyzer.linear(index).terms.items():
            if isinstance(atom, (arith.FloorDiv, arith.FloorMod)) and count > 0 and analyzer.simplify(index // count) == atom:
                told.add(atom)
    return [atom.operands[0] for atom in told if isinstance(atom, arith.FloorDiv) and arith.FloorMod(*atom.operands) in told]


def _digits(form: arith.Linear, analyzer: arith.Analyzer) -> list[tuple[arith.Expr, arith.Expr, arith.Expr | None]] | None:
    """The digits (variable, divisor, size or None for all above) of a number in mixed radix; None where it is none."""
    found: list[tuple[arith.Expr, arith.Expr, arith.Expr | None]] = []
    reach = 0
    for atom, count in sorted(form.terms.items(), key=lambda term: abs(term[1])):
        digit = _digit(atom)
        low, high = analyzer.bounds(atom)
        if digit is None or abs(count) <= reach or (low is None and len(form.terms) > 1):
            return None
        if high is None and count != max(form.terms.values(), key=abs):
            return None
        reach += 0 if high is None or low is None else abs(count) * (high - low)
        found.append(digit)
    return found


def _digit(atom: arith.Expr) -> tuple[arith.Expr, arith.Expr, arith.Expr | None] | None:
    match atom:
        case arith.Var():
            return atom, arith.ONE, None
        case arith.FloorMod(operands=(arith.Var() | arith.FloorDiv() as base, size)):
            inner = _digit(base)
            return None if inner is None else (inner[0], inner[1], size)
        case arith.FloorDiv(operands=(arith.Var() | arith.FloorDiv() as base, divisor)):
            inner = _digit(base)
            return None if inner is None else (inner[0], arith.mul(inner[1], divisor), None)
    return None
