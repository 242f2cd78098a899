"""Semantics of tile instructions, and selection of the target's instructions for given element types.

A tile is a register of a memory scope that holds a small matrix. Instructions load and store a tile row by row, and add the product
of two tiles to a third. The left operand is row-major: rows of a matrix, or channels of adjacent pixels. The right operand is
packed as K/g N g: the g factors that an instruction multiplies and sums for one element are contiguous.
"""

from __future__ import annotations

from dataclasses import dataclass

from inlaid.tensor import ir
from inlaid.tensor.analysis.keys import structurally_equal
from inlaid.tensor.primitives import TensorIntrin
from inlaid.tensor.scheduling.rule import KernelContext
from inlaid.tensor.transform.paths import nest
from inlaid_runtime import arith
from inlaid_runtime.arith import Expr, SizeVar, Var
from inlaid_runtime.types import MemoryScope, dtype


def tile_zero(total: str, scope: str) -> ir.LoopProgram:
    """Return the semantics t[i, j] = 0: clear an accumulator tile."""
    m, n, i, j = SizeVar("m"), SizeVar("n"), Var("i"), Var("j")
    tile = ir.Buffer("t", (m, n), dtype(total), scope)
    store = ir.Store(tile, (i, j), ir.const(0, dtype(total)))
    return ir.LoopProgram("tile_zero", (), (tile,), nest([(i, m), (j, n)], store))


def tile_sums(total: str, scope: str) -> ir.LoopProgram:
    """Return the semantics s[i, j] = t[i, j]: store accumulators to memory."""
    m, n, i, j = SizeVar("m"), SizeVar("n"), Var("i"), Var("j")
    a, b = ir.Buffer("t", (m, n), dtype(total), scope), ir.Buffer("s", (m, n), dtype(total))
    return ir.LoopProgram("tile_sums", (a,), (b,), nest([(i, m), (j, n)], ir.Store(b, (i, j), ir.load(a, (i, j)))))


def tile_rows(dtype_name: str, step: int, scope: str) -> ir.LoopProgram:
    """Return the semantics t[i, j] = s[i * step, j]: load a left operand with row stride `step`."""
    m, n, i, j = SizeVar("m"), SizeVar("n"), Var("i"), Var("j")
    a = ir.Buffer("s", (arith.unwrap((m - 1) * step + 1), n), dtype(dtype_name))
    b = ir.Buffer("t", (m, n), dtype(dtype_name), scope)
    return ir.LoopProgram("tile_rows", (a,), (b,), nest([(i, m), (j, n)], ir.Store(b, (i, j), ir.load(a, (i * step, j)))))


def tile_groups(dtype_name: str, group: int, scope: str) -> ir.LoopProgram:
    """Return the semantics t[k, j, p] = s[k, j, p]: load a packed right operand."""
    depth, n, k, j, p = SizeVar("k"), SizeVar("n"), Var("k"), Var("j"), Var("p")
    a, b = ir.Buffer("s", (depth, n, group), dtype(dtype_name)), ir.Buffer("t", (depth, n, group), dtype(dtype_name), scope)
    store = ir.Store(b, (k, j, p), ir.load(a, (k, j, p)))
    return ir.LoopProgram("tile_groups", (a,), (b,), nest([(k, depth), (j, n), (p, arith.wrap(group))], store))


def tile_product(a: str, b: str, total: str, group: int, scope: str) -> ir.LoopProgram:
    """Return the semantics t[i, j] += sum over k, p < group of a[i, k * group + p] * b[k, j, p]: multiply two tiles."""
    m, n, depth = SizeVar("m"), SizeVar("n"), SizeVar("k")
    left = ir.Buffer("a", (m, arith.unwrap(depth * group)), dtype(a), scope)
    right = ir.Buffer("b", (depth, n, group), dtype(b), scope)
    tile = ir.Buffer("t", (m, n), dtype(total), scope)
    i, j, k, p = Var("i"), Var("j"), Var("k"), Var("p")
    product = ir.cast(ir.load(left, (i, k * group + p)), total) * ir.cast(ir.load(right, (k, j, p)), total)
    store = ir.Store(tile, (i, j), ir.load(tile, (i, j)) + product)
    loops = [(i, m), (j, n), (k, depth), (p, arith.wrap(group))]
    return ir.LoopProgram("tile_product", (left, right), (tile,), nest(loops, store))


@dataclass(frozen=True)
class TileUnit:
    """Instructions on the tiles of one scope for operands of two types. An instruction sums `group` products per element. `step`:
    row stride of a left operand."""

    scope: MemoryScope
    group: int
    step: int
    types: tuple[str, str, str]
    zero: TensorIntrin
    rows: TensorIntrin
    groups: TensorIntrin
    product: TensorIntrin
    store: TensorIntrin

    @property
    def columns(self) -> int:
        """Number of columns of an accumulator tile."""
        return self.scope.row_bytes // dtype(self.types[2]).bytes

    @property
    def side(self) -> int:
        """Number of tiles per side of the square block of accumulators. A larger block needs fewer loads per product."""
        return max(side for side in range(self.scope.count) if side * side + 2 * side <= self.scope.count)

    @property
    def depth(self) -> int:
        """Maximum elements of a row of the left operand."""
        return self.scope.rows * self.group

    def rows_per_tile(self, length: Expr) -> Expr:
        """Return the number of rows per tile, at least 1, if the minimum number of tiles shares `length` rows evenly."""
        tiles = arith.maximum(arith.ceildiv(length, self.scope.rows), 1)
        even = arith.simplify(arith.maximum(arith.ceildiv(length, tiles), 1))
        return even if isinstance(even, arith.Const) else arith.minimum(even, self.scope.rows)


def find_unit(context: KernelContext, a: str, b: str, total: str, step: int = 1) -> TileUnit | None:
    """Find the target's unit for products of these types with row stride `step` of the left operand; None if unavailable."""
    group = dtype(total).bytes // dtype(a).bytes
    for scope in context.capabilities.scopes:
        semantics = (
            tile_zero(total, scope.name),
            tile_rows(a, step, scope.name),
            tile_groups(b, group, scope.name),
            tile_product(a, b, total, group, scope.name),
            tile_sums(total, scope.name),
        )
        intrinsics = [item for program in semantics if (item := _intrinsic(context, program)) is not None]
        if len(intrinsics) == len(semantics):
            return TileUnit(scope, group, step, (a, b, total), *intrinsics)
    return None


def _intrinsic(context: KernelContext, semantics: ir.LoopProgram) -> TensorIntrin | None:
    """Find the target's intrinsic with these semantics."""
    kinds = _kinds(semantics)
    fitting = (item for item in context.intrinsics if _kinds(item.semantics) == kinds)
    return next((item for item in fitting if structurally_equal(item.semantics, semantics)), None)


def _kinds(program: ir.LoopProgram) -> list[tuple[str, str, int]]:
    """Return element type, scope and rank of each parameter. They are compared before semantics, which takes longer."""
    return [(buffer.dtype.name, buffer.scope, len(buffer.shape)) for buffer in program.params]
