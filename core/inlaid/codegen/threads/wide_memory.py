"""Print loads and stores, scalar or over the lanes of a vectorized loop.

Unit-stride accesses are vector accesses. Accesses of other strides, or under a partial mask, are per lane.
"""

from __future__ import annotations

import math

from inlaid.codegen.c import c_type
from inlaid.codegen.c_expressions import is_name
from inlaid.codegen.c_values import ATOM, Text
from inlaid.codegen.threads.dialect import ThreadDialect
from inlaid.codegen.threads.indices import flat_index
from inlaid.codegen.threads.registers import RegisterNames
from inlaid.codegen.threads.wide_indices import WideIndices
from inlaid.tensor import ir
from inlaid.tensor.analysis.ranges import Ranges
from inlaid_runtime import arith
from inlaid_runtime.types import dtype

_BOOL = dtype("bool")
_MAX_RISKS = 16
"""Maximum loads and checked indices that are memoized per expression."""


class WideMemory(WideIndices):
    """Prints accesses to buffers. `spaces` maps buffers to address spaces, `bases` buffers in memory to their alignments in bytes,
    and `named` scalar-replaced buffers to their variables."""

    def __init__(self, program: ir.LoopProgram, dialect: ThreadDialect, index: str, ranges: Ranges) -> None:
        super().__init__(program, dialect, index, ranges)
        self.spaces: dict[ir.Buffer, str] = {}
        self.bases: dict[ir.Buffer, int] = {}
        self.named: dict[ir.Buffer, RegisterNames] = {}
        self._risks_by_expr: dict[ir.Expr, tuple[ir.Expr, ...] | None] = {}
        self._long_selects: dict[ir.Select, bool] = {}

    def element_index(self, buffer: ir.Buffer, indices: tuple[arith.Expr, ...]) -> arith.Expr:
        """Return the flat index of an access in the buffer's array."""
        flat = flat_index(buffer, indices)
        if buffer in self.private and self.lane is not None:
            flat = arith.add(arith.mul(flat, self.lanes), self.lane)
        return self.ranges.indices.simplify(flat)

    def element(self, buffer: ir.Buffer, indices: tuple[arith.Expr, ...]) -> str:
        return self._element(buffer, self.element_index(buffer, indices))

    def _elements(self, buffer: ir.Buffer, flat: arith.Expr, base_and_stride: tuple[arith.Expr, int] | None) -> list[str]:
        """Print the element of each lane; `base_and_stride` are those of the index, None if its stride is not constant."""
        if base_and_stride is None or buffer in self.named or isinstance(base_and_stride[0], arith.Const):
            return [self._element(buffer, flat, lane) for lane in range(self.lanes)]
        base, stride = self.index(base_and_stride[0]), base_and_stride[1]
        if not is_name(base):
            base = self.name_code(self.index_type, base)
        return [f"{self.buffers[buffer]}[{base}{f' + {lane * stride}' * bool(lane)}]" for lane in range(self.lanes)]

    def _element(self, buffer: ir.Buffer, flat: arith.Expr, lane: int | None = None) -> str:
        """Print the element at a flat index, in lane `lane` if the index varies by lane."""
        if buffer not in self.named:
            return f"{self.buffers[buffer]}[{self.index(flat) if lane is None else self.component(flat, lane)}]"
        if lane is not None and self.lane is not None:
            flat = arith.simplify(arith.substitute(flat, {self.lane: arith.Const(lane)}))
        assert isinstance(flat, arith.Const), f"{buffer}[{flat!r}] must have a constant index"
        name, part = self.named[buffer].at(flat.value)
        return name if self.named[buffer].width == 1 else self.dialect.lane(name, part, self.named[buffer].width)

    def _pointer(self, buffer: ir.Buffer, base: arith.Expr) -> str:
        index = self.index(base)
        return self.buffers[buffer] if index == "0" else f"{self.buffers[buffer]} + {index}"

    def _vector_variable(self, buffer: ir.Buffer, base: arith.Expr) -> str | None:
        """Return the vector variable of the elements from `base` on; None if the buffer has no variable of that width."""
        names = self.named.get(buffer)
        if names is None or names.width != self.lanes:
            return None
        assert isinstance(base, arith.Const), f"{buffer}[{base!r}] must have a constant index"
        return names.at(base.value)[0]

    def load(self, load: ir.Load) -> Text:
        """Load an element, or one per lane."""
        buffer, dtype = load.buffer, load.buffer.dtype
        flat = self.element_index(buffer, load.indices)
        base_and_stride = self.by_lane(flat)
        guard = None if self._is_inside(load) else self.mask
        if base_and_stride is not None and base_and_stride[1] == 0:
            text = self._element(buffer, flat)
            if guard is not None:
                text = self.name_code(c_type(dtype), f"{self.vectors.any(guard)} ? {text} : 0")
            return Text(f"{text} != 0") if dtype is _BOOL else Text(text, ATOM)
        consecutive = base_and_stride is not None and base_and_stride[1] == 1
        if base_and_stride is not None and consecutive:
            variable = self._vector_variable(buffer, base_and_stride[0])
            if variable is not None:
                return self.vectors.loaded(variable, dtype, self.lanes)
            if buffer not in self.named and guard is None:
                return self.vectors.loaded(self._load_run(buffer, base_and_stride[0]), dtype, self.lanes)
        parts = self._elements(buffer, flat, base_and_stride)
        if guard is None:
            return self.vectors.loaded(self.dialect.elements(parts, dtype), dtype, self.lanes)
        guarded = [f"{self.dialect.lane(guard.code, lane, self.lanes)} ? {part} : 0" for lane, part in enumerate(parts)]
        if base_and_stride is None or not consecutive:
            return self.vectors.loaded(self.dialect.elements(guarded, dtype), dtype, self.lanes)
        name = self.fresh("v")
        run = self._load_run(buffer, base_and_stride[0])
        self.line(f"{self.dialect.vector(dtype, self.lanes)} {name};")
        self.line(f"if ({self.vectors.all(guard)}) {name} = {run};")
        self.line(f"else {name} = {self.dialect.elements(guarded, dtype)};")
        return self.vectors.loaded(name, dtype, self.lanes)

    def _load_run(self, buffer: ir.Buffer, base: arith.Expr) -> str:
        aligned = self._aligned(buffer, base)
        return self.dialect.load(self._pointer(buffer, base), self.spaces[buffer], buffer.dtype, self.lanes, aligned)

    def _aligned(self, buffer: ir.Buffer, base: arith.Expr) -> int:
        """Return the alignment of an element's address in bytes, a power of two up to 16. Device buffers are aligned to
        `VECTOR_BYTES`, shared buffers to their offsets, local arrays to their elements."""
        if buffer not in self.bases:
            return buffer.dtype.bytes
        form = self.ranges.indices.linear(base)
        step = math.gcd(form.constant, *form.terms.values()) * buffer.dtype.bytes
        return math.gcd(step, self.bases[buffer])

    def store_lanes(self, stmt: ir.Store) -> None:
        """Store one element per lane."""
        buffer, dtype = stmt.buffer, stmt.buffer.dtype
        value = self.vectors.widen(self.value(stmt.value), stmt.value.dtype, self.lanes)
        flat = self.element_index(buffer, stmt.indices)
        base_and_stride = self.by_lane(flat)
        if base_and_stride is not None and base_and_stride[1] == 1:
            variable = self._vector_variable(buffer, base_and_stride[0])
            if variable is not None:
                if self.mask is not None:
                    value = self.vectors.choose(
                        self.mask, value, self.vectors.loaded(variable, dtype, self.lanes), stmt.value.dtype
                    )
                self.line(f"{variable} = {self.vectors.stored(value, dtype)};")
                return
        stored = value.code
        if dtype is _BOOL:
            stored = self.name_code(self.dialect.vector(dtype, self.lanes), self.vectors.stored(value, dtype))
        lanes = [self.dialect.lane(stored, lane, self.lanes) for lane in range(self.lanes)]
        if base_and_stride is not None and base_and_stride[1] == 1 and buffer not in self.named:
            aligned = self._aligned(buffer, base_and_stride[0])
            run = self.dialect.store(
                stored, self._pointer(buffer, base_and_stride[0]), self.spaces[buffer], dtype, self.lanes, aligned
            )
            if self.mask is None:
                self.line(f"{run};")
                return
            with self.block(f"if ({self.vectors.all(self.mask)})"):
                self.line(f"{run};")
            with self.block("else"):
                self._store_parts(self._elements(buffer, flat, base_and_stride), lanes)
            return
        self._store_parts(self._elements(buffer, flat, base_and_stride), lanes)

    def _store_parts(self, targets: list[str], lanes: list[str]) -> None:
        for lane, (target, part) in enumerate(zip(targets, lanes, strict=True)):
            guard = "" if self.mask is None else f"if ({self.dialect.lane(self.mask.code, lane, self.lanes)}) "
            self.line(f"{guard}{target} = {part};")

    # --- speculation ---

    def needs_guard(self, expr: ir.Expr) -> bool:
        """Test whether an expression must not be evaluated speculatively: it has a bounds check, or a load that is neither proved
        in bounds nor evaluated before."""
        risks = self._risks(expr)
        return risks is None or any(risk not in self.texts and not self._is_inside(risk) for risk in risks)

    def _is_inside(self, risk: ir.Expr) -> bool:
        if not isinstance(risk, ir.Load) or any(map(arith.reads_data, risk.indices)):
            return False
        if risk.buffer in self.named:
            return True
        size = arith.product(risk.buffer.shape)
        low, high = self.ranges.indices.bounds(flat_index(risk.buffer, risk.indices))
        return isinstance(size, int) and low is not None and high is not None and low >= 0 and high < size

    def _risks(self, expr: ir.Expr) -> tuple[ir.Expr, ...] | None:
        """Collect the loads and bounds checks in an expression; None if more than `_MAX_RISKS`."""
        memo, stack = self._risks_by_expr, [expr]
        while stack:
            node = stack[-1]
            operands = ir.operands(node)
            missing = [item for item in operands if item not in memo]
            if missing:
                stack += missing
                continue
            stack.pop()
            if isinstance(node, ir.Load) or (isinstance(node, ir.Index) and arith.reads_data(node.index)):
                memo[node] = (node,)
                continue
            parts = [memo[item] for item in operands]
            risks = dict.fromkeys(risk for part in parts for risk in part or ())
            memo[node] = None if None in parts or len(risks) > _MAX_RISKS else tuple(risks)
        return memo[expr]
