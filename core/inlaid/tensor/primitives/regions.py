"""Computes the boxes of buffers that blocks access, and rebuilds the loops that compute a given box."""

from __future__ import annotations

from inlaid.tensor import ir
from inlaid.tensor.analysis.footprint import Box, inside
from inlaid.tensor.transform.lower_blocks import conjuncts
from inlaid.tensor.transform.paths import Ranges, Site, loop_ranges, loop_spans, nest, with_bindings
from inlaid_runtime import arith
from inlaid_runtime.arith import Var

Spans = list[arith.Span]
"""The first and last index of each dimension."""


def touched_box(site: Site, box: Box, outer: Ranges) -> Spans | None:
    """Return the first and last index per dimension of a box, over all iterations of a site's loops; None if no bound is known."""
    analyzer = arith.Analyzer(outer | loop_ranges(*site.loops))
    spans = loop_spans(*site.loops)
    result = []
    for first, extent in box:
        span = inside(first, extent, spans, analyzer)
        if span is None:
            return None
        result.append(span)
    return result


def covers(outer: Spans, inner: Spans, analyzer: arith.Analyzer) -> bool:
    """Test whether one box provably contains another."""
    return all(
        analyzer.prove(arith.compare("<=", outer_span[0], inner_span[0]))
        and analyzer.prove(arith.compare("<=", inner_span[1], outer_span[1]))
        for outer_span, inner_span in zip(outer, inner, strict=True)
    )


def index_limits(block: ir.Block, analyzer: arith.Analyzer) -> set[arith.Expr]:
    """Return the simplified conditions under which a block's iteration variables are in range."""
    limits = set()
    for item, binding in zip(block.iters, block.bindings, strict=True):
        for limit in (arith.compare("<=", 0, binding), arith.compare("<", binding, item.extent)):
            limits.add(analyzer.simplify(limit))
    return limits


def produced_box(site: Site, buffer: ir.Buffer, outer: Ranges) -> tuple[Spans, arith.Expr] | None:
    """Return the box of a buffer that a block fills in one run of a site's loops, and the condition on outer loops under which it
    fills it. None if the written elements do not fill a box, apart from elements outside the block's extents."""
    block = site.block
    analyzer = arith.Analyzer(outer | loop_ranges(*site.loops))
    limits = index_limits(block, analyzer)
    loop_vars = {loop.var for loop in site.loops}
    condition: arith.Expr = arith.ONE
    for part in conjuncts(block.predicate):
        if loop_vars.isdisjoint(arith.free_vars(part)):
            condition = arith.logical_and(condition, part)
        elif analyzer.simplify(part) not in limits and not _bounds_reduction(block, part, loop_vars):
            return None
    for box in site.regions(block.writes, buffer):
        spans = touched_box(site, box, outer) if _without_gaps(site, box) else None
        if spans is not None:
            return spans, condition
    return None


def _bounds_reduction(block: ir.Block, part: arith.Expr, loop_vars: set[Var]) -> bool:
    """Test whether a condition only bounds a reduction: it depends only on reduction loops, and holds in their first iteration
    unless the reduction is empty."""
    spatial: set[arith.Expr] = set()
    for item, binding in zip(block.iters, block.bindings, strict=True):
        if item.kind is not ir.IterKind.REDUCTION:
            spatial |= arith.free_vars(binding)
    variables = arith.free_vars(part)
    if not spatial.isdisjoint(variables) or not any(item.kind is ir.IterKind.REDUCTION for item in block.iters):
        return False
    start = arith.substitute(part, dict.fromkeys(variables & loop_vars, arith.ZERO))
    sizes: Ranges = {var: (1, None) for var in arith.free_vars(start) if isinstance(var, arith.SizeVar)}
    return arith.Analyzer(sizes).prove(start)


def _without_gaps(site: Site, box: Box) -> bool:
    """Test whether loops fill a box without gaps: each loop advances one dimension by at most the extent that the loops of smaller
    stride fill."""
    extents = {loop.var: loop.extent for loop in site.loops}
    analyzer = arith.Analyzer(loop_ranges(*site.loops))
    for first, extent in box:
        filled_extent: int | None = analyzer.bounds(extent)[0] or 1
        terms = analyzer.linear(first).terms.items()
        loop_terms = [(atom, count) for atom, count in terms if not arith.free_vars(atom).isdisjoint(extents)]
        for atom, count in sorted(loop_terms, key=lambda term: abs(term[1])):
            if filled_extent is None or not isinstance(atom, Var) or atom not in extents or abs(count) > filled_extent:
                return False
            max_extent = analyzer.bounds(extents.pop(atom))[1]
            filled_extent = None if max_extent is None else filled_extent + abs(count) * (max_extent - 1)
    return True


def index_offset(index: arith.Expr, var: Var) -> arith.Expr | None:
    """Return `c` if the index is `var + c` and `c` does not depend on `var`; None otherwise."""
    if index is var:
        return arith.ZERO
    parts = arith.affine(index, var) if var in arith.free_vars(index) else None
    return parts[1] if parts is not None and parts[0] == arith.ONE else None


def loop_name(item: ir.IterVar) -> str:
    """Return the name of a new loop for an iteration variable: `i` for `vi`."""
    name = item.var.name.removeprefix("v")
    return name if name.isidentifier() else item.var.name


def regenerated(block: ir.Block, domain: dict[Var, arith.Span], outer: Ranges, condition: arith.Expr = arith.ONE) -> ir.Stmt:
    """Build new loops around a block over the given ranges of its iteration variables, under a condition on the outer loops."""
    loops: list[tuple[Var, arith.Expr]] = []
    bindings: list[arith.Expr] = []
    domain_bindings: list[tuple[ir.IterVar, arith.Expr]] = []
    analyzer = arith.Analyzer(outer)
    for item in block.iters:
        low, extent = _range(item, domain.get(item.var), analyzer)
        if extent == arith.ONE:
            bindings.append(low)
        else:
            var = Var(loop_name(item))
            loops.append((var, extent))
            bindings.append(analyzer.simplify(low + var))
        if item.var in domain:
            domain_bindings.append((item, bindings[-1]))
    inner = arith.Analyzer(outer | {var: (0, arith.unwrap(extent - 1)) for var, extent in loops})
    predicate = condition
    for item, binding in domain_bindings:
        for limit in (arith.compare("<=", 0, binding), arith.compare("<", binding, item.extent)):
            predicate = arith.logical_and(predicate, inner.simplify(limit))
    return nest(loops, with_bindings(block, tuple(bindings), predicate))


def _range(item: ir.IterVar, span: arith.Span | None, analyzer: arith.Analyzer) -> tuple[arith.Expr, arith.Expr]:
    """Return the first value and the number of values of an iteration variable."""
    if span is None:
        return arith.ZERO, item.extent
    low = analyzer.simplify(span[0])
    extent = analyzer.simplify(span[1] - low + 1)
    if not isinstance(extent, arith.Const):
        max_extent = analyzer.bounds(extent)[1]
        extent = extent if max_extent is None else arith.Const(max_extent)
    if analyzer.prove(arith.compare("<=", item.extent, extent)):
        return arith.ZERO, item.extent
    return low, extent


def infer_domain(block: ir.Block, boxes: list[tuple[ir.Buffer, Spans | None]], analyzer: arith.Analyzer) -> dict[Var, arith.Span]:
    """Return ranges of the iteration variables that compute at least the needed boxes. An omitted variable needs all values."""
    domain: dict[Var, arith.Span] = {}
    for item in block.iters:
        spans: Spans = []
        for buffer, box in boxes:
            span = None if box is None else _infer_span(block, item, buffer, box)
            if span is None:
                break
            spans.append(span)
        else:
            low, high = spans[0]
            for other in spans[1:]:
                low, high = analyzer.simplify(arith.minimum(low, other[0])), analyzer.simplify(arith.maximum(high, other[1]))
            domain[item.var] = (low, high)
    return domain


def _infer_span(block: ir.Block, item: ir.IterVar, buffer: ir.Buffer, box: Spans) -> arith.Span | None:
    if item.kind is not ir.IterKind.SPATIAL:
        return None
    for region in block.writes:
        if region.buffer is buffer:
            for (first, extent), (low, high) in zip(region.ranges, box, strict=True):
                offset = index_offset(first, item.var)
                if offset is not None and extent == arith.ONE and isinstance(offset, arith.Const):
                    return low - offset, high - offset
    return None
