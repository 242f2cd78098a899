"""Loop nest around tile instructions, and the epilogue of a sum of products.

As many accumulator tiles as possible are kept in registers, with a row and a column of operand tiles. Sums are stored to a scratch
buffer, which fits the L1 cache. The epilogue reads vectors from it.

The last tile of a line of rows overlaps its predecessor. It starts early enough to have full size, so it reads nothing out of
bounds and needs no copy. Recomputed elements are not stored again.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from math import prod

from inlaid.schedules.shape import Anchor, inline_blocks, last_epilogue
from inlaid.tensor import ir
from inlaid.tensor.analysis.blocks import collect_blocks
from inlaid.tensor.analysis.footprint import full_region
from inlaid.tensor.build import Builder
from inlaid.tensor.schedule import Schedule
from inlaid.tensor.transform.lower_blocks import joined, truth
from inlaid.tensor.transform.rewrite import Rewriter
from inlaid_runtime import arith
from inlaid_runtime.arith import Dim, Expr, Var
from inlaid_runtime.errors import ScheduleError
from inlaid_runtime.types import dtype
from inlaid_x86.tiles.unit import TileUnit

LEAST_ROWS = 4
"""Minimum rows of a product. With fewer rows, tiles are not faster, since the right operand is loaded for each tile of rows."""

CACHED_PANEL_BYTES = 1 << 19
"""Bytes of the right operand kept in the L2 cache besides other data; cores with AMX have 2 MiB of L2."""
SHARES = 4
"""Minimum units of work per thread, for load balance."""


@dataclass(frozen=True)
class Epilogue:
    """Epilogue of a sum: a store of an expression that reads `sums` at `variables`, one variable per axis."""

    sums: ir.Buffer
    variables: tuple[Var, ...]
    result: ir.Store

    def reads(self, buffer: ir.Buffer) -> bool:
        """Test whether the expression reads a buffer."""
        return any(isinstance(node, ir.Load) and node.buffer is buffer for node in ir.walk_exprs(self.result.value))

    def at(self, indices: tuple[Expr, ...], value: ir.Expr) -> ir.Stmt:
        """Instantiate the store of the epilogue for the sum `value` at indices `indices`."""

        def replace_sum(node: ir.Expr) -> ir.Expr | None:
            return value if isinstance(node, ir.Load) and node.buffer is self.sums else None

        return Rewriter(dict(zip(self.variables, indices, strict=True)), expr=replace_sum).stmt(self.result)


def with_epilogue(program: ir.LoopProgram, anchor: Anchor) -> Schedule | None:
    """Fuse all consumers of an anchor into the last block. None if fusion fails or the kernel has several results."""
    schedule, final = Schedule(program), last_epilogue(anchor)
    try:
        inline_blocks(schedule, [block.name for block in anchor.after if block.name != final])
    except ScheduleError:
        return None
    return schedule if len(program.outputs) == 1 else None


def read_epilogue(program: ir.LoopProgram, anchor: Anchor) -> Epilogue | None:
    """Read the epilogue from the last block of a kernel, into which all consumers of an anchor are fused. Returns None unless each
    stored element depends on exactly one sum."""
    final = last_epilogue(anchor) or anchor.block.name
    block = next(block for block in collect_blocks(program) if block.name == final)
    assert isinstance(block.body, ir.Store)
    if not anchor.after:
        variables = tuple(item.var for item in block.iters[: len(anchor.spatial)])
        sums = ir.Buffer("sum", anchor.buffer.shape, anchor.buffer.dtype)
        return Epilogue(sums, variables, ir.Store(block.body.buffer, block.body.indices, ir.load(sums, variables)))
    name = anchor.buffer.name
    loads = [node for node in ir.walk_exprs(block.body.value) if isinstance(node, ir.Load) and node.buffer.name == name]
    load_indices, iter_vars = {load.indices for load in loads}, {item.var for item in block.iters}
    if len(load_indices) != 1 or block.predicate != arith.ONE:
        return None
    (indices,) = load_indices
    sum_vars = tuple(index for index in indices if isinstance(index, Var) and index in iter_vars)
    if len(set(sum_vars)) != len(iter_vars) or len(sum_vars) != len(indices):
        return None
    return Epilogue(loads[0].buffer, sum_vars, block.body)


@dataclass(frozen=True)
class TiledProduct:
    """A sum of products computed by tiles.

    Each of `batches` batches has a separate right operand with `columns` columns, and `lines` lines of `length` rows. A tile has
    `rows` rows of a line, 1 to `length`. `steps` are the reduction loops around the product of two tiles. A product sums over
    `depth` elements. `left(batch, line, tile, row)` returns the tile of the left operand with number `tile` in a line; it starts at
    `row`. `right(batch, tile)` returns a tile of the right operand. Both may use the variables of `steps`. `padded`: the left
    operand has padding rows, so tiles do not overlap. `store(batch, line, row, column, sum)` stores an element of the result.
    """

    unit: TileUnit
    batches: Expr
    lines: Expr
    length: Expr
    rows: Expr
    columns: int
    depth: int
    steps: tuple[tuple[Var, int], ...]
    left: Callable[[Expr, Expr, Expr, Expr], ir.BufferRegion]
    right: Callable[[Expr, Expr], ir.BufferRegion]
    store: Callable[[Expr, Expr, Expr, Expr, ir.Expr], ir.Stmt]
    padded: bool = False

    def nest(self, threads: int) -> ir.Stmt:
        """Build the loop nest:

        for batches, runs of panels, blocks of rows:    # parallel
            for panels of a run:
                t[2, 2] = 0
                for steps:
                    a[2], b[2] = left, right
                    t += a * b
                sums = t
                for rows: for columns: out = after(sums)

        A partial last block omits the missing rows of tiles.
        """
        unit, b = self.unit, Builder()
        per_line, column_tiles = arith.simplify(arith.ceildiv(self.length, self.rows)), -(-self.columns // unit.columns)
        tiles = arith.simplify(self.lines * per_line)
        rows = min(unit.side, tiles.value) if isinstance(tiles, arith.Const) else unit.side
        columns = min(unit.side, column_tiles)
        blocks, panels = arith.simplify(arith.ceildiv(tiles, rows)), -(-column_tiles // columns)
        run = self._run(panels, columns * unit.columns, blocks, threads)
        outer = (self.batches, arith.Const(panels // run), blocks)
        kind = ir.ForKind.PARALLEL if threads != 1 else ir.ForKind.SERIAL
        extent = arith.unwrap(arith.simplify(arith.product(tuple(map(arith.unwrap, outer)))))
        with b.loop(extent, "outer", kind) as number, b.loop(run, "inner") as panel_in_run:
            batch, run_number, block = unravel(number, outer)
            panel = run_number * run + panel_in_run
            # The first row of tiles of a block always exists.
            has_partial_block = arith.simplify(tiles % rows) != arith.ZERO
            positions = []
            for row in range(rows):
                tile = block * rows + row
                line, line_tile = unravel(arith.minimum(tile, tiles - 1), (self.lines, per_line))
                exists = arith.compare("<", tile, tiles) if row and has_partial_block else arith.ONE
                start = line_tile * self.rows
                first_row = start if self.padded else arith.minimum(start, self.length - self.rows)
                positions.append(_TilePosition(line, line_tile, first_row, exists))
            right_tiles = [arith.minimum(panel * columns + column, column_tiles - 1) for column in range(columns)]
            # Allocate for the maximum rows of a tile.
            sums = b.alloc((rows, arith.bounds(self.rows)[1] or unit.scope.rows, columns * unit.columns), unit.types[2], "sums")
            self._sum(b, sums, batch, positions, right_tiles)
            for row, position in enumerate(positions):
                with _where(b, position.exists):
                    self._finish(b, sums, row, batch, position, panel * columns)
        return b.finish()

    def _run(self, panels: int, width: int, blocks: Expr, threads: int) -> int:
        """Choose how many panels a block of rows processes in sequence: the most that stay in the L2 cache for the next block and
        leave enough runs of panels for every thread."""
        panel_bytes = prod(extent for _, extent in self.steps) * self.depth * width * dtype(self.unit.types[1]).bytes
        block_count = arith.size_hint(arith.unwrap(self.batches * blocks))
        least_runs = 1 if threads == 1 else -(-SHARES * max(threads, 1) // max(block_count, 1))
        runs = (run for run in range(1, panels + 1) if panels % run == 0)
        return max(run for run in runs if run == 1 or (run * panel_bytes <= CACHED_PANEL_BYTES and panels // run >= least_runs))

    def _sum(self, b: Builder, sums: ir.Buffer, batch: Expr, positions: list[_TilePosition], right_tiles: list[Expr]) -> None:
        unit, scope, rows = self.unit, self.unit.scope.name, arith.unwrap(self.rows)
        left, right, total = unit.types
        totals = [[b.alloc((rows, unit.columns), total, "t", scope) for _ in right_tiles] for _ in positions]
        lefts = [b.alloc((rows, self.depth), left, "a", scope) for _ in positions]
        rights = [b.alloc((self.depth // unit.group, unit.columns, unit.group), right, "b", scope) for _ in right_tiles]
        for tiles, position in zip(totals, positions, strict=True):
            with _where(b, position.exists):
                for tile in tiles:
                    b.emit(unit.zero.on(full_region(tile)))
        step = Builder()
        for tile, right_tile in zip(rights, right_tiles, strict=True):
            step.emit(unit.groups.on(self.right(batch, right_tile), full_region(tile)))
        for a, tiles, position in zip(lefts, totals, positions, strict=True):
            with _where(step, position.exists):
                step.emit(unit.rows.on(self.left(batch, position.line, position.tile, position.row), full_region(a)))
                for c, tile in zip(rights, tiles, strict=True):
                    step.emit(unit.product.on(*map(full_region, (a, c, tile))))
        body = step.finish()
        for var, extent in reversed(self.steps):
            body = ir.For(var, arith.wrap(extent), body)
        b.emit(body)
        for number, (tiles, position) in enumerate(zip(totals, positions, strict=True)):
            with _where(b, position.exists):
                for column, tile in enumerate(tiles):
                    ranges = ((number, 1), (0, rows), (column * unit.columns, unit.columns))
                    region = ir.BufferRegion(sums, tuple((arith.wrap(first), arith.wrap(extent)) for first, extent in ranges))
                    b.emit(unit.store.on(full_region(tile), region))

    def _finish(self, b: Builder, sums: ir.Buffer, row: int, batch: Expr, position: _TilePosition, first: Expr) -> None:
        """Store the sums of a row of tiles with the epilogue. first: number of the first column tile in the row."""
        lanes = self.unit.columns
        first_row = position.tile * self.rows
        count = arith.minimum(self.length - first_row, self.rows)
        width = sums.shape[2]
        assert isinstance(width, int)
        with b.loop(arith.unwrap(count), "row") as i:
            for column in range(width // lanes):
                with b.loop(lanes, "lane", ir.ForKind.VECTORIZED) as lane:
                    result_column = (first + column) * lanes + lane
                    value = ir.load(sums, (arith.wrap(row), first_row - position.row + i, column * lanes + lane))
                    with _where(b, arith.compare("<", result_column, self.columns) if self.columns % width else arith.ONE):
                        b.emit(self.store(batch, position.line, first_row + i, result_column, value))


@dataclass(frozen=True)
class _TilePosition:
    """Position of a tile of rows: its line, its number in the line, its first row. `exists`: whether it exists."""

    line: Expr
    tile: Expr
    row: Expr
    exists: Expr


def _where(b: Builder, condition: Expr) -> AbstractContextManager[None]:
    """Guard the statements inside by a condition, unless it is constant true."""
    return nullcontext() if condition == arith.ONE else b.if_(truth(condition))


def with_nest(program: ir.LoopProgram, anchor: Anchor, nest: ir.Stmt) -> ir.LoopProgram:
    """Return a kernel in which a loop nest replaces an anchor and its consumers."""
    final = last_epilogue(anchor)

    def replaced(stmt: ir.Stmt) -> ir.Stmt:
        match stmt:
            case ir.Alloc(buffer=buffer, body=body):
                return replaced(body) if buffer.name == anchor.buffer.name else ir.Alloc(buffer, replaced(body))
            case ir.Seq(stmts=stmts):
                return joined(*map(replaced, stmts))
        names = {block.name for block in ir.walk_stmts(stmt) if isinstance(block, ir.Block)}
        return nest if anchor.block.name in names else ir.Seq(()) if final in names else stmt

    return replace(program, body=replaced(program.body))


def find_buffer(program: ir.LoopProgram, name: str) -> ir.Buffer:
    """Return the parameter or allocation of a program that is named `name`."""
    local = (stmt.buffer for stmt in ir.walk_stmts(program.body) if isinstance(stmt, ir.Alloc))
    return next(buffer for buffer in (*program.params, *local) if buffer.name == name)


def box(buffer: ir.Buffer, *ranges: Expr | tuple[Expr, Dim]) -> ir.BufferRegion:
    """Create a region of a buffer. Each range is a single index or a pair of first index and extent."""
    pairs = (index if isinstance(index, tuple) else (index, 1) for index in ranges)
    return ir.BufferRegion(buffer, tuple((first, arith.wrap(extent)) for first, extent in pairs))


def unravel(number: Expr, extents: Sequence[Expr]) -> list[Expr]:
    """Compute the indices of an element from its row-major number."""
    indices: list[Expr] = []
    for axis in reversed(range(len(extents))):
        if all(extent == arith.ONE for extent in extents[:axis]):
            return [*[arith.ZERO] * axis, number, *indices]
        indices.insert(0, arith.floormod(number, extents[axis]))
        number = arith.floordiv(number, extents[axis])
    return indices
