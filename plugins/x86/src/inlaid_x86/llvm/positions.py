"""Row-major positions of elements, and how they depend on the lane of a vectorized loop."""

from __future__ import annotations

from inlaid.tensor import ir
from inlaid_runtime import arith
from inlaid_x86.llvm.indices import Split
from inlaid_x86.llvm.state import PrinterState

Flat = tuple[arith.Expr, int]
"""Row-major position of an element: non-constant terms and a constant, which are added."""


class Positions:
    """Positions of elements in the buffers of a kernel, memoized."""

    def __init__(self, state: PrinterState) -> None:
        self._state = state
        self._pitches: dict[ir.Buffer, tuple[int, ...]] = {}
        self._positions: dict[tuple[ir.Buffer, int], tuple[*Split, tuple[arith.Expr, ...]]] = {}

    def flat(self, buffer: ir.Buffer, indices: tuple[arith.Expr, ...]) -> Flat:
        """Return the row-major position of an element, at the current iteration of unrolled loops."""
        state = self._state
        key = (buffer, id(indices))
        position = self._positions.get(key)
        if position is None:
            position = *self._position(buffer, indices), indices  # the memo keeps the indices alive, so that their id is not reused
            self._positions[key] = position
        rest, constant, steps, _ = position
        for number, step in steps:
            constant += number[0] * step
        if buffer in state.private:
            assert state.lane is not None
            return arith.add(arith.mul(rest, state.lanes), state.lane), constant * state.lanes
        return rest, constant

    def by_lane(self, flat: Flat) -> tuple[Flat, arith.Dim | None]:
        """Return (base, stride) if an index is base + stride * lane and neither depends on the lane, else (index, None)."""
        state = self._state
        rest, constant = flat
        if state.lane is None or rest is arith.ZERO:
            return flat, 0
        key = ("by lane", rest, state.lane, state.lanes)
        base_and_stride: tuple[Flat, arith.Dim | None] | None = state.p.recall(key)
        if base_and_stride is None:
            base_and_stride = state.p.remember(key, self._stride(rest), lasting=state.index.lasts(rest))
        (base, base_constant), stride = base_and_stride
        return (base, base_constant + constant), stride

    def _strides(self, buffer: ir.Buffer) -> tuple[int, ...]:
        """Return the stride of each axis, in elements; 0 if symbolic."""
        pitches = self._pitches.get(buffer)
        if pitches is None:
            steps = (arith.product(buffer.shape[axis:]) for axis in range(1, len(buffer.shape) + 1))
            pitches = self._pitches[buffer] = tuple(step if isinstance(step, int) else 0 for step in steps)
        return pitches

    def _position(self, buffer: ir.Buffer, indices: tuple[arith.Expr, ...]) -> Split:
        """Split the row-major position of an element. Elements whose indices differ by constants share the terms."""
        position: arith.Expr = arith.ZERO
        steps: list[tuple[list[int], int]] = []
        constant = 0
        for index, extent, stride in zip(indices, buffer.shape, self._strides(buffer), strict=True):
            rest, index_constant, unrolled_steps = self._state.index.split(index)
            position = arith.add(arith.mul(position, extent), rest if stride else index)
            constant += index_constant * stride
            steps += [(number, step * stride) for number, step in unrolled_steps]
        return position, constant, tuple(steps)

    def _stride(self, index: arith.Expr) -> tuple[Flat, arith.Dim | None]:
        state = self._state
        if not self._varies(index):
            return (index, 0), 0
        assert state.lane is not None
        linear = state.index.analyzer.affine(index, state.lane)
        if linear is None or self._varies(linear[0]) or self._varies(linear[1]):
            return (index, 0), None
        return state.index.split(linear[1])[:2], arith.unwrap(linear[0])

    def _varies(self, expr: arith.Expr) -> bool:
        """Test whether an index depends on the lane, directly or through a let-bound variable."""
        state = self._state
        values = state.index.values
        if any(variable == state.lane or (variable in values and values[variable].lanes) for variable in arith.free_vars(expr)):
            return True
        payloads = [node.payload for node in arith.walk(expr) if isinstance(node, arith.Opaque)] if state.private else []
        nodes = ir.walk_exprs(*(payload for payload in payloads if isinstance(payload, ir.Expr)))
        return any(isinstance(node, ir.Load) and node.buffer in state.private for node in nodes)
