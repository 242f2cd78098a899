"""Tiled form of a contraction, from which schedules for threads start.

    left[b, mo, q, ki, mj, m] = left factor at row m of run mj of tile mo and depth q * K + ki; 0 out of bounds
    right[b, no, q, ki, nj, n] = the same for columns
    acc[b, mo, no, mt, nt, mj, mv, nj, nv] = sum over q, ki of left * right
    out[...] = epilogue(acc), if row and column are in bounds

Tiles are full for all extents: elements out of bounds are zero and are not stored. A tile of M rows is `mt` threads times `mj` runs
of `mv` rows per thread; columns likewise. Only the blocks `left` and `right` depend on the operands' layouts, so that transposed
operands, padded images and windows need no copy.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from inlaid.schedules.threads.contraction import (
    Contraction,
    ContractionAxis,
    coordinates,
    find_contraction,
    has_single_index,
    total_extent,
)
from inlaid.tensor import ir
from inlaid.tensor.schedule import Transform
from inlaid.tensor.transform.lower_blocks import joined as in_order
from inlaid.tensor.transform.lower_blocks import truth
from inlaid.tensor.transform.paths import block_nest
from inlaid.tensor.transform.rewrite import Rewriter
from inlaid_runtime import arith
from inlaid_runtime.arith import ONE, ZERO, Const, Var
from inlaid_runtime.names import unique
from inlaid_runtime.types import DType


@dataclass(frozen=True)
class Side:
    """Distribution of a tile's rows or columns: `threads` threads with `runs` runs of `lanes` adjacent rows or columns each."""

    threads: int
    runs: int
    lanes: int

    @property
    def per_thread(self) -> int:
        """Rows or columns per thread."""
        return self.runs * self.lanes

    @property
    def size(self) -> int:
        """Rows or columns per tile."""
        return self.threads * self.per_thread


@dataclass(frozen=True)
class Tiling:
    """Tile of a block of threads, `depth` of a step, and split-K factor `parts`. `joined`: threads of one block compute the parts
    and add them in shared memory; otherwise different blocks do, and a second kernel adds them."""

    rows: Side
    columns: Side
    depth: int
    parts: int = 1
    joined: bool = False

    @property
    def threads(self) -> int:
        """Threads of a block."""
        return self.rows.threads * self.columns.threads


class _BlockVars:
    """Iteration variables of a block, by name."""

    def __init__(self, **extents: arith.Expr | int) -> None:
        self.items = {name: ir.IterVar(Var(f"v{name}"), arith.wrap(extent)) for name, extent in extents.items()}

    def __getitem__(self, name: str) -> arith.Expr:
        item = self.items.get(name)
        return ZERO if item is None else item.var

    def pick(self, *names: str, reduced: Sequence[str] = ()) -> tuple[ir.IterVar, ...]:
        """Return the existing variables of these names, in order."""
        pairs = ((name, self.items[name]) for name in names if name in self.items)
        return tuple(replace(item, kind=ir.IterKind.REDUCTION) if name in reduced else item for name, item in pairs)

    def indices(self, *names: str) -> tuple[arith.Expr, ...]:
        return tuple(self.items[name].var for name in names if name in self.items)

    def shape(self, *names: str) -> tuple[arith.Dim, ...]:
        return tuple(arith.unwrap(self.items[name].extent) for name in names if name in self.items)


_Groups = Sequence[tuple[tuple[ContractionAxis, ...], arith.Expr]]
"""Groups of axes that are flattened together, each with the position along the flattened axis."""
LEFT, RIGHT = ("b", "mo", "p", "q", "ki", "mj", "m"), ("b", "no", "p", "q", "ki", "nj", "n")
SUM = ("p", "b", "mo", "no", "mt", "nt", "mj", "mv", "nj", "nv")


def tiled(
    program: ir.LoopProgram,
    rows: tuple[int, int, int],
    columns: tuple[int, int, int],
    depth: int,
    parts: int,
    joined: bool = False,
) -> ir.LoopProgram:
    """Rewrite a contraction to its tiled form; any other kernel is returned unchanged.

    `rows` and `columns` are the fields of `Side`. With `parts` > 1, one block stores the partial sums and another adds them before
    the epilogue: per tile if `joined`, else over all elements in row-major order."""
    contraction = find_contraction(program)
    if contraction is None:
        return program
    return _TiledContraction(program, contraction, Tiling(Side(*rows), Side(*columns), depth, parts, joined)).program()


TILE_PRODUCT = Transform("tile_product", tiled)


class _TiledContraction:
    """Builds the tiled form of a contraction in a program."""

    def __init__(self, program: ir.LoopProgram, contraction: Contraction, tiling: Tiling) -> None:
        self._program, self._contraction, self._tiling = program, contraction, tiling
        self._rows, self._columns, self._depth = map(total_extent, (contraction.rows, contraction.columns, contraction.depth))
        steps = arith.ceildiv(self._depth, tiling.depth)
        self._steps = _single(arith.simplify(arith.ceildiv(steps, tiling.parts)))
        self._buffers: dict[ir.Buffer, ir.Buffer] = {}
        param_names = {buffer.name for buffer in program.params}
        self._allocs = [stmt.buffer for stmt in ir.walk_stmts(program.body) if isinstance(stmt, ir.Alloc)]
        self._names_in_use = param_names | {buffer.name for buffer in self._allocs}
        items = [*contraction.anchor.spatial, *contraction.anchor.reduced]
        self._groups = [
            _group(item, contraction.values) for item in contraction.anchor.spatial if contraction.values[item.var] is not item.var
        ]
        self._units: dict[arith.Expr, arith.Expr] = {item.var: ZERO for item in items if item.extent == ONE}

    def program(self) -> ir.LoopProgram:
        """Build the tiled program."""
        left, fetch_left = self._operand("rows", self._contraction.left, self._contraction.rows, self._tiling.rows, LEFT)
        right, fetch_right = self._operand(
            "columns", self._contraction.right, self._contraction.columns, self._tiling.columns, RIGHT
        )
        acc, total = self._sum(left, right)
        stores = self._stores(acc)
        last = self._contraction.anchor.after if self._contraction.inverse is None else ()
        remaining_nests = [nest for nest in _nests(self._program.body) if any(stmt in last for stmt in ir.walk_stmts(nest))]
        body: ir.Stmt = in_order(fetch_left, fetch_right, total, *stores, *remaining_nests)
        dropped_buffers = () if last else (self._contraction.anchor.buffer,)
        for buffer in reversed((*(item for item in self._allocs if item not in dropped_buffers), left, right, acc)):
            body = ir.Alloc(buffer, body)
        program = replace(self._program, body=body)
        return Rewriter(buffers=self._buffers).program(program) if self._buffers else program

    def _new(self, name: str, shape: tuple[arith.Dim, ...], dtype: DType, scope: str = "") -> ir.Buffer:
        return ir.Buffer(unique(name, self._names_in_use), shape, dtype, scope)

    def _operand(
        self, name: str, value: ir.Expr, axes: tuple[ContractionAxis, ...], side: Side, order: tuple[str, ...]
    ) -> tuple[ir.Buffer, ir.Stmt]:
        """Build the buffer of a factor's tiles, and the loop nest that fills the buffer."""
        outer, run, inner = order[1], order[-2], order[-1]
        extents: dict[str, arith.Expr | int] = {outer: self._count(axes, side), inner: side.threads * side.lanes}
        if side.runs > 1:
            extents[run] = side.runs
        names = self._names(**extents)
        position = names[outer] * side.size + (names[run] * (side.threads * side.lanes) + names[inner])
        depth = self._position(names)
        buffer = self._new(name, names.shape(*order), value.dtype)
        axis_positions = {
            **self._batch(names),
            **coordinates(axes, position),
            **coordinates(self._contraction.depth, depth),
            **self._units,
        }
        groups = ((axes, position), (self._contraction.depth, depth))
        element = self._at(value, groups, axis_positions)
        in_bounds = _inside(
            (position, total_extent(axes), side.size), (depth, self._depth, self._tiling.depth * self._tiling.parts)
        )
        if in_bounds != ONE:
            element = ir.select(truth(in_bounds), element, ir.const(0, value.dtype))
        fetch_order = (*order[:-3], run, inner, "ki") if runs_along(value, self._contraction.depth, axes) else order
        return buffer, block_nest(buffer.name, names.pick(*fetch_order), ir.Store(buffer, names.indices(*order), element))

    def _names(self, **extents: arith.Expr | int) -> _BlockVars:
        """Create iteration variables of a tile: batch, part, step, depth within a step, and `extents`. Unit axes are omitted."""
        batch = total_extent(self._contraction.batch)
        axis_extents: dict[str, arith.Expr | int] = {"q": self._steps, "ki": self._tiling.depth, **extents}
        if batch != ONE:
            axis_extents["b"] = batch
        if self._tiling.parts > 1:
            axis_extents["p"] = self._tiling.parts
        return _BlockVars(**axis_extents)

    def _count(self, axes: tuple[ContractionAxis, ...], side: Side) -> arith.Expr:
        return _single(arith.simplify(arith.ceildiv(total_extent(axes), side.size)))

    def _position(self, names: _BlockVars) -> arith.Expr:
        """Return the position along the depth. Parts are interleaved by steps, so that concurrent parts read adjacent memory."""
        return (names["q"] * self._tiling.parts + names["p"]) * self._tiling.depth + names["ki"]

    def _batch(self, names: _BlockVars) -> dict[arith.Expr, arith.Expr]:
        return coordinates(self._contraction.batch, names["b"])

    def _at(self, value: ir.Expr, groups: _Groups, axis_positions: Mapping[arith.Expr, arith.Expr]) -> ir.Expr:
        """Substitute positions for axes in a value. If the axes of a group are adjacent dimensions of an input that only `value`
        reads, the dimensions are fused, so that contiguity is visible."""

        def load(node: ir.Expr) -> ir.Expr | None:
            if not isinstance(node, ir.Load) or node.buffer not in self._program.inputs:
                return None
            if not has_single_index(self._program, node.buffer):
                return None
            buffer, indices = self._merged(node.buffer, node.indices, groups)
            return None if buffer is node.buffer else ir.load(buffer, indices)

        return Rewriter(axis_positions).expr(Rewriter(expr=load).expr(value))

    def _merged(
        self, buffer: ir.Buffer, indices: Sequence[arith.Expr], groups: _Groups
    ) -> tuple[ir.Buffer, tuple[arith.Expr, ...]]:
        """Reshape a buffer: fuse the adjacent dimensions of each group, and split grouped channels into two. Returns buffer and
        indices."""
        shape, merged_indices = list(buffer.shape), list(indices)
        for number, index in reversed(list(enumerate(indices))):
            group = next((item for item in self._groups if arith.Analyzer().equal(item[0], index)), None)
            if group is not None and shape[number] == group[1] * group[2]:
                shape[number : number + 1], merged_indices[number : number + 1] = group[1:3], group[3:]
        for axes, position in groups:
            run: list[arith.Expr] = [axis.var for axis in axes]
            for start in range(len(merged_indices) - len(run) + 1):
                dims = [arith.wrap(dim) for dim in shape[start : start + len(run)]]
                if len(run) > 1 and merged_indices[start : start + len(run)] == run and dims == [axis.extent for axis in axes]:
                    shape[start : start + len(run)] = [arith.unwrap(total_extent(axes))]
                    merged_indices[start : start + len(run)] = [position]
                    break
        if tuple(shape) != buffer.shape:
            buffer = self._buffers.setdefault(buffer, ir.Buffer(buffer.name, tuple(shape), buffer.dtype, buffer.scope))
        return buffer, tuple(merged_indices)

    def _sum(self, left: ir.Buffer, right: ir.Buffer) -> tuple[ir.Buffer, ir.Stmt]:
        """Build the accumulators of a tile, and the loop nest of their reduction."""
        names = self._tile_names()
        block = self._contraction.anchor.block
        acc = self._new("acc", names.shape(*SUM), self._contraction.anchor.buffer.dtype, "register")
        (rows, columns), operands = (self._tiling.rows, self._tiling.columns), dict(zip("mn", (left, right), strict=True))
        a, b = (
            ir.cast(
                ir.load(operands[axis], (*names.indices(*order[:-1]), names[f"{axis}t"] * side.lanes + names[f"{axis}v"])),
                acc.dtype,
            )
            for axis, order, side in (("m", LEFT, rows), ("n", RIGHT, columns))
        )
        indices = names.indices(*SUM)
        product = b * a if self._contraction.swapped else a * b
        body = ir.Store(acc, indices, ir.load(acc, indices) + product)
        assert isinstance(block.init, ir.Store)
        init = ir.Store(acc, indices, block.init.value)
        return acc, block_nest(block.name, names.pick(*SUM, "q", "ki", reduced=("q", "ki")), body, init)

    def _tile_names(self) -> _BlockVars:
        rows, columns = self._tiling.rows, self._tiling.columns
        runs = {"mj": rows.runs, "mv": rows.lanes, "nj": columns.runs, "nv": columns.lanes}
        extents: dict[str, arith.Expr | int] = {name: count for name, count in runs.items() if count > 1 or name == "nv"}
        extents |= {"mo": self._count(self._contraction.rows, rows), "no": self._count(self._contraction.columns, columns)}
        return self._names(**extents, mt=rows.threads, nt=columns.threads)

    def _stores(self, acc: ir.Buffer) -> list[ir.Stmt]:
        """Build the loop nests after the reduction, which store and add partial sums and apply the epilogue."""
        names, contraction = self._tile_names(), self._contraction
        rows, columns, in_bounds = self._row_and_column(names)
        extents = (total_extent(contraction.rows), total_extent(contraction.columns))
        total = ir.load(acc, names.indices(*SUM))
        has_epilogue = bool(contraction.anchor.after) and contraction.inverse is not None
        name = contraction.anchor.after[-1].name if has_epilogue else f"{contraction.anchor.block.name}_store"
        if self._tiling.parts == 1:
            return [
                block_nest(
                    name,
                    names.pick(*SUM),
                    self._result(total, self._axis_positions(names, rows, columns), rows, columns),
                    None,
                    in_bounds,
                )
            ]
        if self._tiling.joined:
            return self._joined(names, total, name)
        element_count = total_extent((*contraction.batch, *contraction.rows, *contraction.columns))
        flat, element = _BlockVars(e=element_count, p=self._tiling.parts), _BlockVars(e=element_count)
        batch = total_extent(contraction.batch)
        shape = tuple(map(arith.unwrap, (batch, *extents)))
        parts = self._new("parts", (self._tiling.parts, *shape), acc.dtype)
        added = self._new("added", flat.shape("e"), acc.dtype, "register")
        self._allocs += [parts, added]
        store_part = ir.Store(parts, (names["p"], names["b"], rows, columns), total)
        assert isinstance(contraction.anchor.block.init, ir.Store)
        init = ir.Store(added, flat.indices("e"), contraction.anchor.block.init.value)
        position = _unflatten(flat["e"], extents, batch)
        add_part = ir.Store(added, flat.indices("e"), ir.load(added, flat.indices("e")) + ir.load(parts, (flat["p"], *position)))
        _, row, column = _unflatten(element["e"], extents, batch)
        axis_positions = {**coordinates((*contraction.batch, *contraction.rows, *contraction.columns), element["e"]), **self._units}
        result = self._result(ir.load(added, element.indices("e")), axis_positions, row, column)
        anchor = contraction.anchor.block.name
        return [
            block_nest(f"{anchor}_part", names.pick(*SUM), store_part, None, in_bounds),
            block_nest(f"{anchor}_sum", flat.pick("e", "p", reduced=("p",)), add_part, init),
            block_nest(name, element.pick("e"), result),
        ]

    def _joined(self, names: _BlockVars, total: ir.Expr, name: str) -> list[ir.Stmt]:
        """Store the partial sums of a tile, add them, and apply the epilogue."""
        add_names, store_names = self._tile_names(), self._tile_names()
        order = [axis for axis in SUM if axis != "p"]
        parts = self._new("parts", names.shape("p", *order), total.dtype)
        added = self._new("added", names.shape(*order), total.dtype, "register")
        self._allocs += [parts, added]
        anchor = self._contraction.anchor.block
        assert isinstance(anchor.init, ir.Store)
        store_part = ir.Store(parts, names.indices("p", *order), total)
        indices = add_names.indices(*order)
        add = ir.Store(added, indices, ir.load(added, indices) + ir.load(parts, add_names.indices("p", *order)))
        init = ir.Store(added, indices, anchor.init.value)
        rows, columns, in_bounds = self._row_and_column(store_names)
        result = self._result(
            ir.load(added, store_names.indices(*order)), self._axis_positions(store_names, rows, columns), rows, columns
        )
        return [
            block_nest(f"{anchor.name}_part", names.pick("b", "mo", "no", "p", *order[3:]), store_part),
            block_nest(f"{anchor.name}_sum", add_names.pick(*order, "p", reduced=("p",)), add, init),
            block_nest(name, store_names.pick(*order), result, None, in_bounds),
        ]

    def _row_and_column(self, names: _BlockVars) -> tuple[arith.Expr, arith.Expr, arith.Expr]:
        """Return the row, the column, and the condition that both are in bounds."""
        rows = names["mo"] * self._tiling.rows.size + _thread_offset(names, "m", self._tiling.rows)
        columns = names["no"] * self._tiling.columns.size + _thread_offset(names, "n", self._tiling.columns)
        extents = (total_extent(self._contraction.rows), total_extent(self._contraction.columns))
        return rows, columns, _inside((rows, extents[0], self._tiling.rows.size), (columns, extents[1], self._tiling.columns.size))

    def _axis_positions(self, names: _BlockVars, row: arith.Expr, column: arith.Expr) -> dict[arith.Expr, arith.Expr]:
        """Return the values of the axes at an element of a tile."""
        contraction = self._contraction
        return {
            **self._batch(names),
            **coordinates(contraction.rows, row),
            **coordinates(contraction.columns, column),
            **self._units,
        }

    def _result(
        self, total: ir.Expr, axis_positions: Mapping[arith.Expr, arith.Expr], row: arith.Expr, column: arith.Expr
    ) -> ir.Store:
        """Build the store that applies the epilogue to the accumulator at a row and a column."""
        anchor, contraction = self._contraction.anchor, self._contraction
        groups = ((contraction.rows, row), (contraction.columns, column))
        block = anchor.block if contraction.inverse is None or not anchor.after else anchor.after[-1]
        axis_values = contraction.values if block is anchor.block else contraction.inverse
        assert isinstance(block.body, ir.Store) and axis_values is not None
        value, buffer = total, block.body.buffer
        if block is not anchor.block:
            total_rewriter = Rewriter(
                expr=lambda node: total if isinstance(node, ir.Load) and node.buffer is anchor.buffer else None
            )
            value = Rewriter(axis_values).expr(block.body.value)
            value = total_rewriter.expr(self._at(value, groups, axis_positions))
        indices = tuple(arith.substitute(index, axis_values) for index in block.body.indices)
        if buffer in self._program.outputs:
            buffer, indices = self._merged(buffer, indices, groups)
        return ir.Store(buffer, tuple(arith.substitute(index, axis_positions) for index in indices), value)


def _group(item: ir.IterVar, values: Mapping[arith.Expr, arith.Expr]) -> tuple[arith.Expr, int, int, arith.Expr, arith.Expr]:
    """Describe a grouped axis: its value, number of groups, group size, and the variables of group and position."""
    value = values[item.var]
    offset = next(var for var in arith.free_vars(value) if (step := arith.affine(value, var)) is not None and step[0] == ONE)
    (group,) = arith.free_vars(value) - {offset}
    step = arith.affine(value, group)
    assert step is not None and isinstance(step[0], Const) and isinstance(item.extent, Const)
    return value, item.extent.value // step[0].value, step[0].value, group, offset


def _unflatten(
    element: arith.Expr, shape: tuple[arith.Expr, arith.Expr], batch: arith.Expr
) -> tuple[arith.Expr, arith.Expr, arith.Expr]:
    """Unflatten an element's row-major number into batch, row and column."""
    rows, columns = shape
    row = element // columns
    return (ZERO, row, element % columns) if batch == ONE else (row // rows, row % rows, element % columns)


def _single(count: arith.Expr) -> arith.Expr:
    """Replace a number of tiles by 1 if it is at most 1. If it is 0, the tile is out of bounds: it is zero and is not stored."""
    upper_bound = arith.bounds(count)[1]
    return ONE if upper_bound is not None and upper_bound <= 1 else count


def _thread_offset(names: _BlockVars, axis: str, side: Side) -> arith.Expr:
    """Return the position in a tile of a thread's row ("m") or column ("n"). Within a run, adjacent threads are adjacent."""
    return (names[f"{axis}j"] * side.threads + names[f"{axis}t"]) * side.lanes + names[f"{axis}v"]


def _inside(*positions: tuple[arith.Expr, arith.Expr, int]) -> arith.Expr:
    """Build the bounds check of each (position, extent, tile size), except of constant extents that the tile size divides."""
    condition: arith.Expr = ONE
    for position, extent, size in positions:
        if not isinstance(extent, Const) or extent.value % size:
            condition = arith.logical_and(condition, arith.compare("<", position, extent))
    return condition


def runs_along(value: ir.Expr, axes: Sequence[ContractionAxis], other_axes: Sequence[ContractionAxis]) -> bool:
    """Test whether the loads of a factor are contiguous along `axes`, and `other_axes` do not index the same dimension."""
    for node in ir.walk_exprs(value):
        if isinstance(node, ir.Load):
            last = [index for index, dim in zip(node.indices, node.buffer.shape, strict=True) if dim != 1][-1:]
            if any(axis.var in arith.free_vars(index) for index in last for axis in other_axes):
                return False
            steps = (arith.affine(index, axis.var) for index in last for axis in axes)
            if any(step is not None and step[0] == ONE for step in steps):
                return True
    return False


def _nests(body: ir.Stmt) -> list[ir.Stmt]:
    """Return the top-level loop nests of an unscheduled program."""
    while isinstance(body, ir.Alloc):
        body = body.body
    return list(body.stmts) if isinstance(body, ir.Seq) else [body]
