"""Primitives that map a loop nest to a tensor intrinsic: blockize, tensorize."""

from __future__ import annotations

from inlaid.tensor import ir
from inlaid.tensor.analysis.footprint import reads, semantic_access, writes
from inlaid.tensor.primitives.lookup import block_path, failed, last_block, last_loop, loop_path
from inlaid.tensor.transform.lower_blocks import conjuncts, flatten_blocks
from inlaid.tensor.transform.paths import (
    Site,
    fresh_iters,
    loop_ranges,
    loops_around,
    nest,
    rebuilt,
    sites,
    unique_name,
    with_bindings,
    with_body,
)
from inlaid.tensor.transform.rewrite import Rewriter
from inlaid_runtime import arith
from inlaid_runtime.arith import SizeVar, Var
from inlaid_runtime.records import dataclass, replace


@dataclass(frozen=True, slots=True)
class TensorIntrin:
    """A tensor instruction of a target.

    `semantics` defines its effect, and is run by the interpreter. It is a program of loops with fixed or symbolic extents around
    one store; each operand box is a buffer. Inputs are read. Outputs are written, or updated if the semantics also reads them or
    stores them under a condition. `over` names the thread axes of a collective instruction. Cost models use `cost`, its time in
    multiply-adds, and `scratch`, the number of vector registers that it needs besides its operands.
    """

    name: str
    semantics: ir.LoopProgram
    over: tuple[str, ...] = ()
    cost: float = 1
    scratch: int = 0

    def on(self, *regions: ir.BufferRegion, args: tuple[ir.Expr, ...] = ()) -> ir.Intrinsic:
        """Call the instruction on regions, in the order of the parameters of its semantics; `args` are its scalar inputs."""
        access = semantic_access(self.semantics)
        scalars = range(len(self.semantics.inputs) - len(args), len(self.semantics.inputs))
        return ir.Intrinsic(
            self.name, regions, tuple(item for position, item in enumerate(access) if position not in scalars), args, self.over
        )


def blockize(program: ir.LoopProgram, loop: Var) -> tuple[ir.LoopProgram, str]:
    """Make a block of a loop and the loops inside it. The new block iterates over tiles.

        for i: for j in 4: block b(v = i * 4 + j): c[v] = a[v]
    blockize(j) gives
        for i: block b_tile(w = i): for j in 4: block b(v = w * 4 + j): c[v] = a[v]

    An init moves to the new block, with its own loops. Returns the new block's name. Raises `ScheduleError` if the loops contain
    more than one block, or do not fill whole tiles.
    """
    path = loop_path(program, loop)
    block = _chain_end(last_loop(path))
    if not isinstance(block, ir.Block):
        raise failed(program, f"loop {loop} must be a nest around one block", last_loop(path))
    (site,) = sites(path[-1])
    outer_iters: list[ir.IterVar] = []
    outer_bindings: list[arith.Expr] = []
    inner_bindings: list[arith.Expr] = []
    for item, binding in zip(block.iters, block.bindings, strict=True):
        outer, inner, size = _divided(program, site, item, binding)
        if outer == arith.ZERO:
            inner_bindings.append(inner)
            continue
        tiles = arith.simplify(arith.ceildiv(item.extent, size))
        var = Var(item.var.name)
        outer_iters.append(ir.IterVar(var, tiles, item.kind))
        outer_bindings.append(outer)
        inner_bindings.append(arith.simplify(var * size + inner))
    inner_vars = {item.var for item in site.loops}
    for part in conjuncts(block.predicate):
        if not inner_vars.isdisjoint(arith.free_vars(part)):
            raise failed(program, f"the tiles of block {block.name} must be whole, found condition {part!r}", block, "pad it first")
    body = rebuilt((*site.loops, block), with_bindings(replace(block, init=None), tuple(inner_bindings), arith.ONE))
    init = None if block.init is None else _tile_init(program, site, tuple(inner_bindings))
    name = unique_name(program, f"{block.name}_tile")
    tile = ir.Block(
        name, tuple(outer_iters), tuple(outer_bindings), reads(body), writes(body), body, init, block.predicate, block.annotations
    )
    return with_body(program, rebuilt(path, tile)), name


def tensorize(program: ir.LoopProgram, loop: Var, intrinsic: TensorIntrin) -> ir.LoopProgram:
    """Replace a loop and the loops inside it by a tensor intrinsic whose semantics they match.

        for i: for j in 4: block b(v = i * 4 + j): c[v] = c[v] + a[v]
    tensorize(j, vadd4) gives
        for i: block b_tile(w = i): vadd4(a[w * 4 .. + 4], c[w * 4 .. + 4])

    Raises `ScheduleError` if the loops do not match (the message names the difference), or if blockize raises it.
    """
    program, name = blockize(program, loop)
    path = block_path(program, name)
    tile = last_block(path)
    target = _flat_nest(tile.body)
    pattern = _flat_nest(flatten_blocks(intrinsic.semantics).body)
    match = _Match(intrinsic)
    problem = match.nests(pattern, target)
    if problem:
        raise failed(program, f"loop {loop} does not match intrinsic {intrinsic.name}: {problem}", tile)
    for outer in loops_around(path):
        if outer.thread in intrinsic.over:
            raise failed(program, f"{intrinsic.name}, collective over {outer.thread}, must not be in loop {outer.var}", outer)
    body = intrinsic.on(*(match.region(buffer) for buffer in intrinsic.semantics.params))
    return with_body(program, rebuilt(path, replace(tile, body=body)))


def _chain_end(loop: ir.For) -> ir.Stmt:
    stmt: ir.Stmt = loop
    while isinstance(stmt, ir.For):
        stmt = stmt.body
    return stmt


def _divided(
    program: ir.LoopProgram, site: Site, item: ir.IterVar, binding: arith.Expr
) -> tuple[arith.Expr, arith.Expr, arith.Expr]:
    """Return (o, r, size) with `binding == o * size + r`. r depends only on the inner loops and takes every value in [0, size)."""
    inner_loops = {loop.var: loop for loop in site.loops}
    analyzer = arith.Analyzer(loop_ranges(*site.loops))
    form = analyzer.linear(binding)
    inner_terms = {atom: count for atom, count in form.terms.items() if not arith.free_vars(atom).isdisjoint(inner_loops)}
    tile_size: arith.Expr = arith.ONE
    for atom, count in sorted(inner_terms.items(), key=lambda term: term[1]):
        if not isinstance(atom, Var) or not analyzer.equal(tile_size, count):
            raise failed(program, f"{item.var} of block {site.block.name} must cover whole tiles, got {binding!r}", site.block)
        tile_size = analyzer.simplify(tile_size * inner_loops[atom].extent)
    inner = arith.Linear(inner_terms, 0).expr()
    outer = arith.Linear({atom: count for atom, count in form.terms.items() if atom not in inner_terms}, form.constant).expr()
    tile = analyzer.simplify(outer // tile_size)
    if not analyzer.equal(tile * tile_size, outer):
        raise failed(program, f"{item.var} of block {site.block.name} must start at a tile, got {binding!r}", site.block)
    return tile, inner, tile_size


def _tile_init(program: ir.LoopProgram, site: Site, bindings: tuple[arith.Expr, ...]) -> ir.Stmt:
    """Build the init of a block over those loops of a tile that are not part of the reduction."""
    block = site.block
    assert block.init is not None
    reduction_vars: set[arith.Expr] = set()
    for item, binding in zip(block.iters, bindings, strict=True):
        if item.kind is ir.IterKind.REDUCTION:
            reduction_vars |= arith.free_vars(binding)
    loops = [loop for loop in site.loops if loop.var not in reduction_vars]
    renamed: dict[arith.Expr, arith.Expr] = {loop.var: Var(loop.var.name) for loop in loops}
    spatial = tuple(item for item in block.iters if item.kind is not ir.IterKind.REDUCTION)
    iters, variables = fresh_iters(spatial)
    body = Rewriter(variables).stmt(block.init)
    values = tuple(
        arith.substitute(binding, renamed)
        for item, binding in zip(block.iters, bindings, strict=True)
        if item.kind is not ir.IterKind.REDUCTION
    )
    init = ir.Block(unique_name(program, f"{block.name}_init"), iters, values, reads(body), writes(body), body)
    return nest([(var, loop.extent) for loop, var in zip(loops, renamed.values(), strict=True) if isinstance(var, Var)], init)


def _flat_nest(stmt: ir.Stmt) -> tuple[list[ir.For], ir.Stmt]:
    flat = flatten_blocks(ir.LoopProgram("", (), (), stmt)).body
    loops = []
    while isinstance(flat, ir.For):
        loops.append(flat)
        flat = flat.body
    return loops, flat


class _Match:
    """Matches the semantics of an intrinsic against a program, and records the variables and buffers that correspond. Methods
    return a description of the first difference, or an empty string if there is none."""

    def __init__(self, intrinsic: TensorIntrin) -> None:
        self._intrinsic = intrinsic
        self._values: dict[arith.Expr, arith.Expr] = {}
        self._operand_bases: dict[ir.Buffer, tuple[ir.Buffer, tuple[arith.Expr, ...]]] = {}
        self._inner: set[arith.Expr] = set()
        self._analyzer = arith.Analyzer()

    def region(self, buffer: ir.Buffer) -> ir.BufferRegion:
        """Return the region of the program's buffer that a buffer of the intrinsic's semantics matches."""
        target, base = self._operand_bases[buffer]
        lead = len(base) - len(buffer.shape)
        extents = [arith.ONE] * lead + [arith.simplify(self._resolve(arith.wrap(dim))) for dim in buffer.shape]
        return ir.BufferRegion(target, tuple(zip(base, extents, strict=True)))

    def _resolve(self, expr: arith.Expr) -> arith.Expr:
        return arith.substitute(expr, self._values)

    def nests(self, pattern: tuple[list[ir.For], ir.Stmt], target: tuple[list[ir.For], ir.Stmt]) -> str:
        """Match loops around one store, each given as (loops, body)."""
        (loops, store), (actual_loops, actual) = pattern, target
        if len(loops) != len(actual_loops):
            return f"expected {len(loops)} loops, found {len(actual_loops)}"
        for loop, other in zip(loops, actual_loops, strict=True):
            if isinstance(loop.extent, SizeVar):
                self._values.setdefault(loop.extent, other.extent)
            if not self._analyzer.equal(self._resolve(loop.extent), other.extent):
                return f"expected extent {loop.extent!r} of loop {other.var}, found {other.extent!r}"
            self._values[loop.var] = other.var
            self._inner.add(other.var)
        self._analyzer = arith.Analyzer(loop_ranges(*actual_loops))
        if not isinstance(store, ir.Store) or not isinstance(actual, ir.Store):
            return "expected loops around one store"
        missing = [buffer for buffer in self._intrinsic.semantics.params if not self._occurs(buffer, store)]
        assert not missing, f"{self._intrinsic.name} does not use its parameters {missing}"
        return self._access(store.buffer, store.indices, actual.buffer, actual.indices) or self._exprs(store.value, actual.value)

    @staticmethod
    def _occurs(buffer: ir.Buffer, store: ir.Store) -> bool:
        loads = (node.buffer for node in ir.walk_exprs(store.value) if isinstance(node, ir.Load))
        return buffer is store.buffer or buffer in loads

    def _access(self, buffer: ir.Buffer, indices: tuple[arith.Expr, ...], other: ir.Buffer, actual: tuple[arith.Expr, ...]) -> str:
        if buffer.dtype is not other.dtype:
            return f"expected {other} of dtype {buffer.dtype}, found {other.dtype}"
        if buffer.scope not in ("", other.scope):
            return f"expected {other} in scope {buffer.scope!r}, found {other.scope!r}"
        lead = len(actual) - len(indices)
        if lead < 0:
            return f"expected at least {len(indices)} dimensions of {other} for {buffer}, found {len(actual)}"
        expected = [arith.ZERO] * lead + [self._resolve(index) for index in indices]
        base = tuple(
            self._analyzer.simplify(actual_index - expected_index)
            for actual_index, expected_index in zip(actual, expected, strict=True)
        )
        for axis, first in enumerate(base):
            if not self._inner.isdisjoint(arith.free_vars(first)):
                return f"expected index {axis} of {other} to vary as index {axis - lead} of {buffer}, found {actual[axis]!r}"
        operand = self._operand_bases.setdefault(buffer, (other, base))
        if operand[0] is not other or not all(map(self._analyzer.equal, operand[1], base)):
            return f"expected one box for {buffer}, found two, in {operand[0]} and {other}"
        return ""

    def _exprs(self, pattern: ir.Expr, actual: ir.Expr) -> str:
        if type(pattern) is not type(actual) or pattern.dtype is not actual.dtype:
            return f"expected {type(pattern).__name__} of {pattern.dtype}, found {type(actual).__name__} of {actual.dtype}"
        match pattern, actual:
            case ir.Load(buffer=buffer, indices=indices), ir.Load(buffer=other, indices=other_indices):
                return self._access(buffer, indices, other, other_indices)
            case ir.Index(index=index), ir.Index(index=other_index):
                is_equal = self._analyzer.equal(self._resolve(index), other_index)
                return "" if is_equal else f"expected {index!r}, found {other_index!r}"
            case ir.Const(value=value), ir.Const(value=other_value):
                return "" if value == other_value else f"expected {value}, found {other_value}"
            case ir.Binary(op=op), ir.Binary(op=other_op) if op == other_op and op in (
                "add",
                "mul",
                "min",
                "max",
                "and",
                "or",
                "xor",
            ):
                saved_bases = dict(self._operand_bases)
                problem = self._compare_operands(pattern, actual)
                if problem:  # the operands of a commutative operator may be swapped
                    self._operand_bases = saved_bases
                    swapped = ir.with_operands(actual, tuple(reversed(ir.operands(actual))))
                    return problem if self._compare_operands(pattern, swapped) else ""
                return ""
        for field in ("op", "name"):
            if getattr(pattern, field, None) != getattr(actual, field, None):
                return f"expected {getattr(pattern, field)}, found {getattr(actual, field)}"
        return self._compare_operands(pattern, actual)

    def _compare_operands(self, pattern: ir.Expr, actual: ir.Expr) -> str:
        for part, actual_part in zip(ir.operands(pattern), ir.operands(actual), strict=True):
            problem = self._exprs(part, actual_part)
            if problem:
                return problem
        return ""
