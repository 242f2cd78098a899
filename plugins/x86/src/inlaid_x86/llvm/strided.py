"""Print strided accesses of a vectorized loop as contiguous ones: gathers that together read a square matrix by columns, loads of
every second to fourth element, and stores that interleave."""

from __future__ import annotations

from inlaid.tensor import ir
from inlaid_runtime import arith
from inlaid_x86.llvm.memory import MemoryPrinter
from inlaid_x86.llvm.positions import Flat, Positions
from inlaid_x86.llvm.state import PrinterState
from inlaid_x86.llvm.values import Value


class StridedAccesses:
    """Finds strided accesses that together are contiguous, and prints contiguous ones in their place."""

    def __init__(self, state: PrinterState, positions: Positions, memory: MemoryPrinter) -> None:
        self._state = state
        self._positions = positions
        self._memory = memory
        self._squares: dict[tuple[ir.Buffer, arith.Expr, arith.Dim], set[int]] = {}
        self._combs: dict[tuple[ir.Buffer, arith.Expr, int], dict[int, Value | None]] = {}
        self._transposed: dict[tuple[ir.Buffer, arith.Expr, arith.Dim, int], list[Value]] = {}

    def find_squares(self, body: ir.Stmt) -> None:
        """Find gathers that `column` can replace by loads of rows, in a vectorized loop that consists of stores."""
        state = self._state
        self._squares, self._transposed = {}, {}
        stores = body.stmts if isinstance(body, ir.Seq) else ()
        if len(stores) < state.lanes or state.lanes & (state.lanes - 1):
            return
        written = {item.buffer for item in stores if isinstance(item, ir.Store)}
        for item in stores:
            if not isinstance(item, ir.Store):
                self._squares = {}
                return
            if isinstance(item.value, ir.Load) and item.value.buffer not in written:
                (rest, constant), stride = self._positions.by_lane(self._positions.flat(item.value.buffer, item.value.indices))
                if stride is not None and stride not in (0, 1):
                    self._squares.setdefault((item.value.buffer, rest, stride), set()).add(constant)

    def find_combs(self, body: ir.Stmt) -> None:
        """Find strided stores that `interleaved` can merge, in a vectorized loop that consists of stores."""
        self._combs = {}
        stores = body.stmts if isinstance(body, ir.Seq) else ()
        if not stores or not all(isinstance(item, ir.Store) for item in stores):
            return
        for item in stores:
            assert isinstance(item, ir.Store)
            (rest, constant), stride = self._positions.by_lane(self._positions.flat(item.buffer, item.indices))
            if isinstance(stride, int) and stride in (2, 3, 4, 8):
                self._combs.setdefault((item.buffer, rest, stride), {})[constant] = None
        read = {
            node.buffer
            for item in stores
            if isinstance(item, ir.Store)
            for node in ir.walk_exprs(item.value)
            if isinstance(node, ir.Load)
        }
        self._combs = {
            key: positions
            for key, positions in self._combs.items()
            if len(positions) == key[2] == max(positions) - min(positions) + 1 and key[0] not in read
        }

    def column(self, buffer: ir.Buffer, base: Flat, stride: arith.Dim) -> Value | None:
        """Print a gather as a column of a square matrix. If n gathers of n lanes read adjacent elements, the n x n square is loaded
        by rows and transposed once. Returns None if there are fewer such gathers."""
        state = self._state
        rest, constant = base
        positions = self._squares.get((buffer, rest, stride))
        if state.mask is not None or positions is None:
            return None
        first = min(positions)
        first += (constant - first) // state.lanes * state.lanes
        if any(position not in positions for position in range(first, first + state.lanes)):
            return None
        key = (buffer, rest, stride, first)
        if key not in self._transposed:
            starts = (state.index.split(arith.add(rest, arith.mul(stride, row)))[:2] for row in range(state.lanes))
            rows = [self._memory.load_vector(buffer, (start, offset + first)) for start, offset in starts]
            self._transposed[key] = state.p.transpose(rows)
        return self._transposed[key][constant - first]

    def every(self, buffer: ir.Buffer, base: Flat, stride: arith.Dim) -> Value | None:
        """Print a load of stride 2, 3 or 4 as contiguous loads and shuffles. They read nothing past the last element of the load.
        Returns None for other strides."""
        state = self._state
        if state.mask is not None or not isinstance(stride, int) or stride not in (2, 3, 4):
            return None
        lanes, ends = state.lanes, (state.lanes - 1) * stride + 1
        vector = self._memory.load_vector(buffer, base)
        # For each lane of the result, its source lane in two vectors; lanes that are in neither come with a later vector.
        shuffle_lanes = [lane * stride for lane in range(lanes)]
        for part in range(1, stride):
            start = min(lanes * part, ends - lanes)
            next_vector = self._memory.load_vector(buffer, (base[0], base[1] + start))
            ahead = [min(lanes + offset - start, 2 * lanes - 1) for offset in range(0, ends, stride)]
            shuffle_lanes = [
                a if offset >= lanes * part else index
                for a, index, offset in zip(ahead, shuffle_lanes, range(0, ends, stride), strict=True)
            ]
            vector = state.p.shuffle(vector, next_vector, shuffle_lanes)
            shuffle_lanes = list(range(lanes))
        return vector

    def interleaved(self, buffer: ir.Buffer, base: Flat, stride: arith.Dim, value: Value) -> bool:
        """Defer a strided store until the stores to the elements between are known, then print all as contiguous stores. Returns
        False, and prints nothing, if no stores fill all gaps."""
        rest, constant = base
        positions = self._combs.get((buffer, rest, stride)) if isinstance(stride, int) else None
        if positions is None:
            return False
        positions[constant] = value
        parts = [part for _, part in sorted(positions.items()) if part is not None]
        if len(parts) == stride:
            start = min(positions)
            for vector in self._state.p.interleave(parts):
                self._memory.inside(buffer, (rest, start), vector.lanes)
                address = self._memory.address(buffer, (rest, start))
                self._state.p.emit(f"store {vector}, ptr {address}, align {buffer.dtype.bytes}")
                start += vector.lanes
        return True
