"""Loop pass that loads operand tiles by the tensor memory accelerator (TMA, PTX `cp.async.bulk.tensor`, sm_90a).

One thread issues the load of a tile, given a tensor map and the coordinates of the tile's first element. An mbarrier per tile in
shared memory counts the bytes that arrive. All threads wait for its phase before they multiply. In the IR, a load is a write by one
thread, so a block barrier separates products from the next load to the same tile.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import prod

from inlaid.codegen.threads.indices import flat_index
from inlaid.schedules.threads.contraction import ContractionAxis
from inlaid.tensor import ir
from inlaid.tensor.analysis.races import variable_bounds
from inlaid.tensor.transform.lower_blocks import conjuncts, joined, mapped
from inlaid_cuda.capabilities import SHARED
from inlaid_cuda.driver import MAX_BOX, MAX_RANK, STRIDE_BYTES, TensorMap
from inlaid_cuda.tensor_cores.wgmma import SWIZZLED, chunk_size
from inlaid_runtime import arith
from inlaid_runtime.arith import Expr, Var
from inlaid_runtime.errors import CompileError
from inlaid_runtime.types import dtype

LOAD, AWAIT, BARRIERS, END = "cuda.load_tile", "cuda.await_tile", "cuda.tile_barriers", "cuda.end_tile_barriers"
THREAD_AXES = ("threadIdx.x", "threadIdx.y", "threadIdx.z")
_INT32 = dtype("int32")
_Counts = Mapping[ir.Buffer, Expr]


def has_tensor_map(
    value: ir.Expr, side: Sequence[ContractionAxis], depth: Sequence[ContractionAxis], params: Sequence[ir.Buffer]
) -> bool:
    """Test whether a tensor map can describe the tiles of an operand, with zeros out of bounds. The operand must be a parameter of
    constant shape. One dimension is the axis `side`, one is the axis `depth`, and neither axis indexes the other dimensions."""
    if not isinstance(value, ir.Load) or value.buffer not in params or len(side) != 1 or len(depth) != 1:
        return False
    buffer = value.buffer
    axes: dict[Expr, Expr] = {axis.var: axis.extent for axis in (*side, *depth)}
    if not all(isinstance(dim, int) and 0 < dim < 1 << 31 for dim in buffer.shape):
        return False
    dims = [(index, dim) for index, dim in zip(value.indices, buffer.shape, strict=True) if dim != 1]
    tile_indices = [index for index, dim in dims if index in axes and arith.wrap(dim) == axes[index]]
    outer_indices = [index for index, _ in dims if index not in tile_indices]
    if (
        len(tile_indices) != len(axes)
        or len(set(tile_indices)) != len(axes)
        or any(not axes.keys().isdisjoint(arith.free_vars(i)) for i in outer_indices)
    ):
        return False
    strides = _strides(buffer)[: len(buffer.shape) - 1]
    aligned = all(stride % STRIDE_BYTES == 0 for stride, dim in zip(strides, buffer.shape, strict=False) if dim != 1)
    return aligned and len(dims) <= MAX_RANK and dims[-1][0] in tile_indices and not any(map(arith.reads_data, value.indices))


def _strides(buffer: ir.Buffer) -> list[int]:
    """Return the stride in bytes of each dimension."""
    sizes = [dim for dim in buffer.shape if isinstance(dim, int)]
    return [prod(sizes[axis + 1 :]) * buffer.dtype.bytes for axis in range(len(sizes))]


def load_tiles(program: ir.LoopProgram) -> ir.LoopProgram:
    """Load the operands of swizzled products by tensor maps.

        for q in 4: { for i in 64: for k in 64: s[i, k] = select(i < 50, x[i, 64 * q + k], 0); product on s }
    becomes
        tile_barriers; for q in 4: { load_tile on x, s; await_tile; product on s }; end_tile_barriers

    Must run before loops are peeled. Raises `CompileError` if other statements fill an operand.
    """
    products = [stmt for stmt in ir.walk_stmts(program.body) if isinstance(stmt, ir.Intrinsic) and _is_product(stmt)]
    operands = {region.buffer for stmt in products for region in stmt.regions[:2]}
    if not operands:
        return program
    return replace(program, body=_Loads(program, operands).kernel(program.body))


def _is_product(stmt: ir.Stmt) -> bool:
    return isinstance(stmt, ir.Intrinsic) and stmt.name.startswith(SWIZZLED)


@dataclass
class _Loads:
    """Rewrites a kernel. `_stages`: number of tiles per operand in shared memory. `_barriers`: one mbarrier per tile."""

    program: ir.LoopProgram
    operands: set[ir.Buffer]
    _stages: int = 0
    _barriers: ir.Buffer = field(init=False)

    def __post_init__(self) -> None:
        self._analyzer = arith.Analyzer(variable_bounds(self.program.body))
        nests = list(self._nests(self.program.body))
        stages = {_size(nest[1].buffer) // prod(nest[0].values()) for nest in nests}
        if {nest[1].buffer for nest in nests} != self.operands or len(stages) != 1:
            raise self._refused("expected serial loops around one store for each tile, found another structure")
        self._stages = stages.pop()
        self._barriers = ir.Buffer("tile_barriers", (self._stages,), dtype("uint64"), SHARED)

    def _refused(self, problem: str) -> CompileError:
        return CompileError(f"kernel {self.program.name}, operands of swizzled products: {problem}")

    def kernel(self, stmt: ir.Stmt) -> ir.Stmt:
        """Rewrite the grid of a kernel. Each block first initializes its mbarriers and finally invalidates them."""
        if isinstance(stmt, ir.For) and stmt.kind is ir.ForKind.THREAD and not stmt.over_threads:
            return mapped(stmt, self.kernel)
        if isinstance(stmt, (ir.Seq, ir.If, ir.Let)) and not any(map(self._is_load, ir.substatements(stmt))):
            product_parts = [part for part in ir.substatements(stmt) if self._has_product(part)]
            if len(product_parts) == 1:
                return mapped(stmt, lambda part: self.kernel(part) if part is product_parts[0] else part)
        region = ir.BufferRegion(self._barriers, ((arith.ZERO, arith.Const(self._stages)),))
        start, end = (ir.Intrinsic(f"{name}.{self._stages}", (region,), (ir.AccessMode.WRITE,)) for name in (BARRIERS, END))
        body, _, _ = self._stmt(stmt, dict.fromkeys(self.operands, arith.ZERO), arith.ZERO)
        return ir.Alloc(self._barriers, joined(start, body, end))

    def _has_product(self, stmt: ir.Stmt) -> bool:
        return any(_is_product(item) for item in ir.walk_stmts(stmt))

    def _is_load(self, stmt: ir.Stmt) -> bool:
        return self._nest(stmt) is not None

    def _stores_operand(self, stmt: ir.Stmt) -> bool:
        return any(isinstance(item, ir.Store) and item.buffer in self.operands for item in ir.walk_stmts(stmt))

    def _nest(self, stmt: ir.Stmt) -> tuple[dict[Var, int], ir.Store] | None:
        """Match serial loops of constant extent around a store to an operand; None for any other statement."""
        loops: dict[Var, int] = {}
        while isinstance(stmt, ir.For) and stmt.kind is ir.ForKind.SERIAL and isinstance(stmt.extent, arith.Const):
            loops[stmt.var] = stmt.extent.value
            stmt = stmt.body
        return (loops, stmt) if isinstance(stmt, ir.Store) and stmt.buffer in self.operands else None

    def _nests(self, stmt: ir.Stmt) -> Iterator[tuple[dict[Var, int], ir.Store]]:
        """Yield all nests in a statement."""
        nest = self._nest(stmt)
        if nest is not None:
            yield nest
            return
        for part in ir.substatements(stmt):
            yield from self._nests(part)

    def _stmt(self, stmt: ir.Stmt, loaded: _Counts, awaited: Expr) -> tuple[ir.Stmt, _Counts, Expr]:
        """Rewrite a statement. loaded: number of tiles of each operand loaded before it. awaited: number of tiles waited for
        before it. Returns the statement and both numbers after it."""
        nest = self._nest(stmt)
        if nest is not None:
            buffer = nest[1].buffer
            return self._load(*nest, loaded[buffer]), {**loaded, buffer: loaded[buffer] + 1}, awaited
        if not self._has_product(stmt) and not self._stores_operand(stmt):
            return stmt, loaded, awaited
        match stmt:
            case ir.Seq(stmts=stmts):
                return self._phases(stmts, loaded, awaited)
            case ir.Alloc(body=body):
                body, loaded, awaited = self._stmt(body, loaded, awaited)
                return ir.Alloc(stmt.buffer, body), loaded, awaited
            case ir.For(var=var, extent=extent, body=body, kind=ir.ForKind.SERIAL) if self._stores_operand(stmt):
                # Each iteration loads one tile of each operand, and uses one.
                loaded_inside = {buffer: count + var for buffer, count in loaded.items()}
                body, _, _ = self._stmt(body, loaded_inside, awaited + var)
                loaded_after = {buffer: count + extent for buffer, count in loaded.items()}
                return ir.For(var, extent, body, stmt.kind), loaded_after, awaited + extent
        raise self._refused(f"expected loads and products in sequences and serial loops, found {type(stmt).__name__}")

    def _phases(self, stmts: Sequence[ir.Stmt], loaded: _Counts, awaited: Expr) -> tuple[ir.Stmt, _Counts, Expr]:
        phases: list[ir.Stmt] = []
        last: Sequence[Expr] = ()
        for stmt in stmts:
            if self._has_product(stmt) and not self._stores_operand(stmt):
                product = next(item for item in ir.walk_stmts(stmt) if _is_product(item))
                assert isinstance(product, ir.Intrinsic)
                position = product.regions[0].ranges[0][0]
                if not last or position != last[0]:
                    phases.append(self._await(awaited))
                    awaited, last = awaited + 1, (position,)
                phases.append(stmt)
                continue
            stmt, loaded, awaited = self._stmt(stmt, loaded, awaited)
            phases.append(stmt)
        return joined(*phases), loaded, awaited

    def _await(self, number: Expr) -> ir.Stmt:
        """Return the wait of all threads for tile `number` of each operand."""
        parity = ir.Index(_INT32, self._analyzer.simplify(number // self._stages % 2))
        return ir.Intrinsic(AWAIT, (self._barrier(number),), (ir.AccessMode.READ,), (parity,), THREAD_AXES)

    def _barrier(self, number: Expr) -> ir.BufferRegion:
        return ir.BufferRegion(self._barriers, ((self._analyzer.simplify(number % self._stages), arith.ONE),))

    def _load(self, loops: Mapping[Var, int], store: ir.Store, number: Expr) -> ir.Stmt:
        """Return the load of tile `number` of an operand, which replaces the nest that stores it."""
        analyzer, zero = self._analyzer, dict.fromkeys([*map(arith.wrap, loops)], arith.ZERO)
        match store.value:
            case ir.Select(condition=ir.Index(index=condition), then=ir.Load() as value):
                guard = list(conjuncts(condition))
            case ir.Load() as value:
                guard = []
            case _:
                raise self._refused(f"expected a copy from main memory, found {store!r}")
        source = value.buffer
        first = [analyzer.simplify(arith.substitute(index, zero)) for index in value.indices]
        offsets = [analyzer.simplify(index - start) for index, start in zip(value.indices, first, strict=True)]
        across, along = (axis for axis, step in enumerate(offsets) if step != arith.ZERO)
        sizes = {axis: self._extent(offsets[axis], loops) for axis in (along, across)}
        limits = [analyzer.simplify(arith.compare("<", value.indices[axis], source.shape[axis])) for axis in sizes]
        if not all(analyzer.simplify(part) in limits for part in guard):
            raise self._refused(f"expected only bounds checks of {source} as conditions, found {guard}")
        chunk = chunk_size(source.dtype.name, True)
        start = arith.substitute(flat_index(store.buffer, store.indices), zero)
        chunked_offset = offsets[along] // chunk * (sizes[across] * chunk) + offsets[across] * chunk + offsets[along] % chunk
        if not analyzer.equal(flat_index(store.buffer, store.indices) - start, chunked_offset):
            raise self._refused(f"expected chunks of {chunk} elements, found {store!r}")
        boxes = sizes[along] // chunk if sizes[along] > chunk else -(-sizes[across] // MAX_BOX)
        box = (chunk, sizes[across] if sizes[along] > chunk else sizes[across] // boxes)
        order = [along, across, *(axis for axis, dim in enumerate(source.shape) if dim != 1 and axis not in (along, across))]
        name = f"{LOAD}.{'_'.join(map(str, order))}.{box[0]}_{box[1]}.{boxes}.{int(sizes[along] <= chunk)}"
        read = [
            (at, arith.minimum(sizes[axis], arith.wrap(source.shape[axis]) - at) if axis in sizes else arith.ONE)
            for axis, at in enumerate(first)
        ]
        spans = [(analyzer.simplify(arith.substitute(index, zero)), index) for index in store.indices]
        written = [(at, arith.Const(self._extent(analyzer.simplify(index - at), loops))) for at, index in spans]
        regions = ir.BufferRegion(source, tuple(read)), ir.BufferRegion(store.buffer, tuple(written)), self._barrier(number)
        access = ir.AccessMode.READ, ir.AccessMode.WRITE, ir.AccessMode.READ
        return ir.Intrinsic(name, regions, access, tuple(ir.Index(_INT32, first[axis]) for axis in order))

    def _extent(self, step: Expr, loops: Mapping[Var, int]) -> int:
        """Return the number of elements that an offset spans over loops."""
        bounds = arith.Analyzer({var: (0, extent - 1) for var, extent in loops.items()}).bounds(step)
        if bounds[0] != 0 or not isinstance(bounds[1], int):
            raise self._refused(f"expected constant extents, found offset {step}")
        return bounds[1] + 1


def _size(buffer: ir.Buffer) -> int:
    size = arith.product(buffer.shape)
    assert isinstance(size, int), "operands of products have constant sizes"
    return size


def build_tensor_map(stmt: ir.Intrinsic) -> TensorMap:
    """Return the tensor map of a load. It describes the dimensions of the source, innermost first, and one box of the tile."""
    _, _, order, box, *_ = stmt.name.split(".")
    source = stmt.regions[0].buffer
    axes = [int(axis) for axis in order.split("_")]
    shape, strides = list(source.shape), _strides(source)
    sizes = tuple(size for axis in axes if isinstance(size := shape[axis], int))
    boxes = (*map(int, box.split("_")), *(1 for _ in axes[2:]))
    return TensorMap(source.dtype.bytes, sizes, tuple(strides[axis] for axis in axes[1:]), boxes)
