"""Printing of value expressions, loads and stores, scalar or widened to the lanes of a vectorised loop.

An expression that does not depend on the lane stays scalar. A load whose index has the lane with coefficient 1 is printed as one
vector load, any other load as a gather. Under a mask, inactive lanes neither access memory nor are bounds-checked.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager

from inlaid.tensor import ir
from inlaid_runtime import arith
from inlaid_runtime.errors import CompileError
from inlaid_x86.llvm import arithmetic
from inlaid_x86.llvm.access import AccessGuard
from inlaid_x86.llvm.function import FunctionPrinter, mangle
from inlaid_x86.llvm.indices import INDEX, IndexPrinter, Split
from inlaid_x86.llvm.intrinsics import MathEmitter
from inlaid_x86.llvm.rounding import known_bounds, rounded
from inlaid_x86.llvm.upper_half import print_upper_half, upper_half
from inlaid_x86.llvm.values import Value, literal, memory_type, scalar_type, splat, vector_type

INDEX_ERROR = 1
"""Error code that a kernel returns if it computes an index out of bounds."""

MOST_RISKS = 16
"""Maximum number of loads and checked indices that are memoized per expression."""

Flat = tuple[arith.Expr, int]
"""Row-major position of an element: non-constant terms and a constant, which are added."""

RECURSION = 50
"""Maximum depth to which expressions are printed recursively, which is faster than with a stack."""

CUT_BYTES = 64
"""Padding in bytes after a register buffer, since the last vector access may extend past its end."""


def table_of(lanes: int) -> str:
    """Return the name of the emitter of look-ups in a table of 256 bytes. Its operands are the table's address and a vector of
    bytes."""
    return f"table.{lanes}"


class ExpressionPrinter:
    """Prints expressions of a kernel into the current function.

    pointers: base address of each buffer. In a vectorised loop, lane is the loop variable, lanes the extent, mask the active lanes
    (None: all), and private the buffers with a copy per lane. versions count stores to each buffer and epoch counts backward jumps;
    a loaded value stays valid until a count changes. guard: printer of bounds checks, None if checks are off.
    """

    def __init__(self, name: str, declarations: dict[str, str], math: Mapping[str, MathEmitter]) -> None:
        self.name = name
        self.math = math
        self.declarations = declarations
        self.p = FunctionPrinter(declarations)
        self.index = IndexPrinter(self.p, self._checked, self._choose)
        self.pointers: dict[ir.Buffer, str] = {}
        self.lane: arith.Expr | None = None
        self.lanes = 0
        self.mask: Value | None = None
        self.private: set[ir.Buffer] = set()
        self.versions: dict[ir.Buffer, int] = {}
        self.epoch = 0
        self.guard: AccessGuard | None = None
        self._depth = 0
        self._pitches: dict[ir.Buffer, tuple[int, ...]] = {}
        self._positions: dict[tuple[ir.Buffer, int], tuple[*Split, tuple[arith.Expr, ...]]] = {}
        self._guarded: dict[ir.Expr, tuple[ir.Expr, ...] | None] = {}
        self._squares: dict[tuple[ir.Buffer, arith.Expr, arith.Dim], set[int]] = {}
        self._combs: dict[tuple[ir.Buffer, arith.Expr, int], dict[int, Value | None]] = {}
        self._transposed: dict[tuple[ir.Buffer, arith.Expr, arith.Dim, int], list[Value]] = {}

    # --- memory ---

    def _strides(self, buffer: ir.Buffer) -> tuple[int, ...]:
        """Return the elements from one index of each axis to the next; 0 if symbolic."""
        found = self._pitches.get(buffer)
        if found is None:
            below = (arith.product(buffer.shape[axis:]) for axis in range(1, len(buffer.shape) + 1))
            found = self._pitches[buffer] = tuple(step if isinstance(step, int) else 0 for step in below)
        return found

    def _flat(self, buffer: ir.Buffer, indices: tuple[arith.Expr, ...]) -> Flat:
        """Return the row-major position of an element, at the current iteration of unrolled loops."""
        key = (buffer, id(indices))
        found = self._positions.get(key)
        if found is None:
            found = *self._position(buffer, indices), indices  # the memo holds the indices, so that their id stays theirs
            self._positions[key] = found
        rest, constant, steps, _ = found
        for number, step in steps:
            constant += number[0] * step
        if buffer in self.private:
            assert self.lane is not None
            return arith.add(arith.mul(rest, self.lanes), self.lane), constant * self.lanes
        return rest, constant

    def _position(self, buffer: ir.Buffer, indices: tuple[arith.Expr, ...]) -> Split:
        """Split the row-major position of an element. Elements whose indices differ by constants share the terms."""
        place: arith.Expr = arith.ZERO
        steps: list[tuple[list[int], int]] = []
        constant = 0
        for index, extent, stride in zip(indices, buffer.shape, self._strides(buffer), strict=True):
            rest, more, own = self.index.split(index)
            place = arith.add(arith.mul(place, extent), rest if stride else index)
            constant += more * stride
            steps += [(number, step * stride) for number, step in own]
        return place, constant, tuple(steps)

    def _inside(self, buffer: ir.Buffer, flat: Flat | Value, count: int = 1) -> None:
        """Print the bounds check, unless off, of `count` elements from `flat`; for a vector, of an element per lane."""
        if self.guard is not None:
            index = flat if isinstance(flat, Value) else self.index.print(arith.add(*flat))
            if index.lanes and (count > 1 or self.lane is None):
                index = self.p.op(f"extractelement {index}, i64 0", INDEX)
            self.guard.check(self.p, self.index.print, buffer, index, count, self.mask)

    def _address(self, buffer: ir.Buffer, flat: Flat) -> str:
        rest, constant = flat
        offset = self.index.print(rest)
        if offset.lanes:
            # A value merged from branches is a vector, here with equal lanes.
            offset = self.p.op(f"extractelement {offset}, i64 0", INDEX)
        if constant:
            offset = Value(str(constant), INDEX) if offset.ref == "0" else self.p.op(f"add nsw {offset}, {constant}", INDEX)
        return self._pointer(buffer, offset).ref

    def _pointer(self, buffer: ir.Buffer, offset: Value) -> Value:
        base = self.pointers[buffer]
        if offset.ref == "0":
            return Value(base, "ptr")
        # Under a mask, an address may be out of bounds if no lane accesses it, so it must not be `inbounds`.
        opcode = "getelementptr inbounds" if self.mask is None else "getelementptr"
        return self.p.op(f"{opcode} {memory_type(buffer.dtype)}, ptr {base}, {offset}", "ptr", offset.lanes)

    def _by_lane(self, flat: Flat) -> tuple[Flat, arith.Dim | None]:
        """Return (base, stride) if an index is base + stride * lane and neither depends on the lane, else (index, None)."""
        rest, constant = flat
        if self.lane is None or rest is arith.ZERO:
            return flat, 0
        key = ("by lane", rest, self.lane, self.lanes)
        found: tuple[Flat, arith.Dim | None] | None = self.p.recall(key)
        if found is None:
            found = self.p.remember(key, self._stride(rest), lasting=self.index.lasts(rest))
        (base, more), stride = found
        return (base, more + constant), stride

    def _stride(self, index: arith.Expr) -> tuple[Flat, arith.Dim | None]:
        if not self._varies(index):
            return (index, 0), 0
        assert self.lane is not None
        found = self.index.analyzer.affine(index, self.lane)
        if found is None or self._varies(found[0]) or self._varies(found[1]):
            return (index, 0), None
        return self.index.split(found[1])[:2], arith.unwrap(found[0])

    def _varies(self, expr: arith.Expr) -> bool:
        """Test whether an index depends on the lane, directly or through a let-bound variable."""
        values = self.index.values
        if any(variable == self.lane or (variable in values and values[variable].lanes) for variable in arith.free_vars(expr)):
            return True
        payloads = [node.payload for node in arith.walk(expr) if isinstance(node, arith.Opaque)] if self.private else []
        below = ir.walk_exprs(*(payload for payload in payloads if isinstance(payload, ir.Expr)))
        return any(isinstance(node, ir.Load) and node.buffer in self.private for node in below)

    def _load(self, load: ir.Load) -> Value:
        """Print a load of one element, or of one element per lane. Reuses an earlier load if no store to the buffer intervenes."""
        buffer, flat = load.buffer, self._flat(load.buffer, load.indices)
        base, stride = self._by_lane(flat)
        if stride != 0 and stride != 1:
            value = (
                self._looked_up(load) if stride is None else self._column(buffer, base, stride) or self._every(buffer, base, stride)
            )
            return self._from_memory(value or self._gather(buffer, flat), buffer)
        mask = None if self.mask is None else self.mask.ref
        key = ("load", *base, stride and self.lanes, buffer, self.versions.get(buffer, 0), self.epoch, mask)
        known: Value | None = self.p.recall(key)
        if known is not None:
            return known
        value = self._from_memory((self._vector_load if stride else self._scalar_load)(buffer, base), buffer)
        return self.p.remember(key, value, lasting=self.index.lasts(base[0]))

    def _find_squares(self, body: ir.Stmt) -> None:
        """Find gathers that `_column` can replace by loads of rows, in a vectorised loop that consists of stores."""
        self._squares, self._transposed = {}, {}
        stores = body.stmts if isinstance(body, ir.Seq) else ()
        if len(stores) < self.lanes or self.lanes & (self.lanes - 1):
            return
        written = {item.buffer for item in stores if isinstance(item, ir.Store)}
        for item in stores:
            if not isinstance(item, ir.Store):
                self._squares = {}
                return
            if isinstance(item.value, ir.Load) and item.value.buffer not in written:
                (rest, constant), stride = self._by_lane(self._flat(item.value.buffer, item.value.indices))
                if stride is not None and stride not in (0, 1):
                    self._squares.setdefault((item.value.buffer, rest, stride), set()).add(constant)

    def _find_combs(self, body: ir.Stmt) -> None:
        """Find strided stores that `_interleaved` can merge, in a vectorised loop that consists of stores."""
        self._combs = {}
        stores = body.stmts if isinstance(body, ir.Seq) else ()
        if not stores or not all(isinstance(item, ir.Store) for item in stores):
            return
        for item in stores:
            assert isinstance(item, ir.Store)
            (rest, constant), stride = self._by_lane(self._flat(item.buffer, item.indices))
            if isinstance(stride, int) and stride in (2, 4, 8):
                self._combs.setdefault((item.buffer, rest, stride), {})[constant] = None
        read = {
            node.buffer
            for item in stores
            if isinstance(item, ir.Store)
            for node in ir.walk_exprs(item.value)
            if isinstance(node, ir.Load)
        }
        self._combs = {
            key: places
            for key, places in self._combs.items()
            if len(places) == key[2] == max(places) - min(places) + 1 and key[0] not in read
        }

    def _interleaved(self, buffer: ir.Buffer, base: Flat, stride: arith.Dim, value: Value) -> bool:
        """Defer a strided store until the stores to the elements between are known, then print all as one contiguous store. Returns
        False, and prints nothing, if no stores fill all gaps."""
        rest, constant = base
        places = self._combs.get((buffer, rest, stride)) if isinstance(stride, int) else None
        if places is None:
            return False
        places[constant] = value
        parts = [part for _, part in sorted(places.items()) if part is not None]
        if len(parts) == stride:
            whole, first = self.p.interleave(parts), (rest, min(places))
            self._inside(buffer, first, whole.lanes)
            address = self._address(buffer, first)
            self.p.emit(f"store {whole}, ptr {address}, align {buffer.dtype.bytes}")
        return True

    def _column(self, buffer: ir.Buffer, base: Flat, stride: arith.Dim) -> Value | None:
        """Print a gather as a column of a square matrix. If n gathers of n lanes read adjacent elements, the n x n square is loaded
        by rows and transposed once. Returns None if there are fewer such gathers."""
        rest, constant = base
        places = self._squares.get((buffer, rest, stride))
        if self.mask is not None or places is None:
            return None
        first = min(places)
        first += (constant - first) // self.lanes * self.lanes
        if any(place not in places for place in range(first, first + self.lanes)):
            return None
        key = (buffer, rest, stride, first)
        if key not in self._transposed:
            starts = (self.index.split(arith.add(rest, arith.mul(stride, row)))[:2] for row in range(self.lanes))
            rows = [self._vector_load(buffer, (start, more + first)) for start, more in starts]
            self._transposed[key] = self.p.transpose(rows)
        return self._transposed[key][constant - first]

    def _every(self, buffer: ir.Buffer, base: Flat, stride: arith.Dim) -> Value | None:
        """Print a load of stride 2, 3 or 4 as contiguous loads and shuffles. They read nothing past the last element of the load.
        Returns None for other strides."""
        if self.mask is not None or not isinstance(stride, int) or stride not in (2, 3, 4):
            return None
        lanes, ends = self.lanes, (self.lanes - 1) * stride + 1
        found = self._vector_load(buffer, base)
        # For each lane of the result, its source lane in two vectors; lanes that are in neither come with a later vector.
        taken = [lane * stride for lane in range(lanes)]
        for part in range(1, stride):
            start = min(lanes * part, ends - lanes)
            run = self._vector_load(buffer, (base[0], base[1] + start))
            ahead = [min(lanes + place - start, 2 * lanes - 1) for place in range(0, ends, stride)]
            taken = [
                a if place >= lanes * part else own for a, own, place in zip(ahead, taken, range(0, ends, stride), strict=True)
            ]
            found = self.p.shuffle(found, run, taken)
            taken = list(range(lanes))
        return found

    def _looked_up(self, load: ir.Load) -> Value | None:
        """Print a look-up in a table of 256 bytes by a vector of bytes, which cannot be out of bounds. Returns None for any other
        load."""
        match load:
            case ir.Load(buffer=ir.Buffer(shape=(256,)) as table, indices=(arith.Opaque(payload=ir.Cast(a=index)),)):
                emit = self.math.get(table_of(self.lanes))
                if emit is not None and table.dtype.bits == 8 and index.dtype.name == "uint8":
                    return emit(self.p, (Value(self.pointers[table], "ptr"), self.p.widen(self._expr(index), self.lanes)))
        return None

    def _scalar_load(self, buffer: ir.Buffer, flat: Flat) -> Value:
        self._inside(buffer, flat)
        kind = memory_type(buffer.dtype)
        return self.p.op(f"load {kind}, ptr {self._safe(self._address(buffer, flat))}, align {buffer.dtype.bytes}", kind)

    def _safe(self, address: str) -> str:
        """Return an address that is always readable: `address` if a lane is active, else the address of a zero."""
        if self.mask is None:
            return address
        return self.p.op(f"select {self._any(self.mask)}, ptr {address}, ptr {self.p.zero()}", "ptr").ref

    def _any(self, flag: Value) -> Value:
        """Print the test of whether a flag is set in any lane."""
        known: Value | None = self.p.recall(("any", flag.ref))
        if known is not None:
            return known
        name = f"llvm.vector.reduce.or.v{flag.lanes}i1"
        self.declarations[name] = f"declare i1 @{name}({flag.type})"
        return self.p.remember(("any", flag.ref), self.p.op(f"call i1 @{name}({flag})", "i1"))

    def _vector_load(self, buffer: ir.Buffer, base: Flat) -> Value:
        self._inside(buffer, base, self.lanes)
        kind, align, address = memory_type(buffer.dtype), buffer.dtype.bytes, self._address(buffer, base)
        wide = vector_type(kind, self.lanes)
        if self.mask is None or self._holds_all(buffer, base):
            return self.p.op(f"load {wide}, ptr {address}, align {align}", kind, self.lanes)
        name = f"llvm.masked.load.{mangle(kind, self.lanes)}.p0"
        self.declarations[name] = f"declare {wide} @{name}(ptr, <{self.lanes} x i1>, {wide})"
        return self.p.op(f"call {wide} @{name}(ptr align {align} {address}, {self.mask}, {wide} zeroinitializer)", kind, self.lanes)

    def _gather(self, buffer: ir.Buffer, flat: Flat) -> Value:
        kind, align = memory_type(buffer.dtype), buffer.dtype.bytes
        wide = vector_type(kind, self.lanes)
        places = self.p.widen(self.index.print(arith.add(*flat)), self.lanes)
        self._inside(buffer, places)
        addresses = self._pointer(buffer, places)
        mask = self.mask or Value(splat("true", "i1", self.lanes), "i1", self.lanes)
        name = f"llvm.masked.gather.{mangle(kind, self.lanes)}.v{self.lanes}p0"
        self.declarations[name] = f"declare {wide} @{name}(<{self.lanes} x ptr>, <{self.lanes} x i1>, {wide})"
        pointers = f"<{self.lanes} x ptr> align {align} {addresses.ref}"
        return self.p.op(f"call {wide} @{name}({pointers}, {mask}, {wide} zeroinitializer)", kind, self.lanes)

    def _store(self, buffer: ir.Buffer, flat: Flat, value: Value) -> None:
        kind, align = memory_type(buffer.dtype), buffer.dtype.bytes
        if self.lane is None:
            stored = self._to_memory(value, buffer)
            self._inside(buffer, flat)
            self.p.emit(f"store {stored}, ptr {self._address(buffer, flat)}, align {align}")
            return
        stored = self._to_memory(self.p.widen(value, self.lanes), buffer)
        base, stride = self._by_lane(flat)
        if stride == 1:
            self._inside(buffer, base, self.lanes)
            address = self._address(buffer, base)
            if self.mask is not None and self._holds_all(buffer, base):
                before = self.p.op(f"load {stored.type}, ptr {address}, align {align}", kind, self.lanes)
                stored = self._merge(self.mask, stored, before)
            elif self.mask is not None:
                self._masked_store(stored, address, align)
                return
            self.p.emit(f"store {stored}, ptr {address}, align {align}")
            return
        if stride is not None and self._interleaved(buffer, base, stride, stored):
            return
        places = self.p.widen(self.index.print(arith.add(*flat)), self.lanes)
        self._inside(buffer, places)
        addresses = self._pointer(buffer, places)
        mask = self.mask or Value(splat("true", "i1", self.lanes), "i1", self.lanes)
        name = f"llvm.masked.scatter.{mangle(kind, self.lanes)}.v{self.lanes}p0"
        self.declarations[name] = f"declare void @{name}({stored.type}, <{self.lanes} x ptr>, <{self.lanes} x i1>)"
        self.p.emit(f"call void @{name}({stored}, <{self.lanes} x ptr> align {align} {addresses.ref}, {mask})")

    def _masked_store(self, stored: Value, address: str, align: int) -> None:
        name = f"llvm.masked.store.{mangle(stored.scalar, self.lanes)}.p0"
        self.declarations[name] = f"declare void @{name}({stored.type}, ptr, <{self.lanes} x i1>)"
        self.p.emit(f"call void @{name}({stored}, ptr align {align} {address}, {self.mask})")

    def _holds_all(self, buffer: ir.Buffer, base: Flat) -> bool:
        """Test whether a register buffer holds all lanes of a vector, including inactive lanes. If so, vectors are loaded and
        stored without a mask, because LLVM does not promote memory to registers if a masked store writes it."""
        rest, first = base
        size = arith.product(buffer.shape)
        room = size + CUT_BYTES // buffer.dtype.bytes if isinstance(size, int) else 0
        return buffer.scope == "register" and rest == arith.ZERO and first + self.lanes <= room

    def _from_memory(self, value: Value, buffer: ir.Buffer) -> Value:
        if buffer.dtype.kind != "bool":
            return value
        return self.p.op(f"icmp ne {value}, {splat('0', 'i8', value.lanes)}", "i1", value.lanes)

    def _to_memory(self, value: Value, buffer: ir.Buffer) -> Value:
        if buffer.dtype.kind != "bool":
            return value
        return self.p.op(f"zext {value} to {vector_type('i8', value.lanes)}", "i8", value.lanes)

    # --- checks ---

    def _checked(self, node: arith.Opaque) -> Value:
        known: Value | None = self.p.recall(("checked", node))
        if known is not None:
            return known
        assert isinstance(node.payload, ir.Expr)
        value = self._to_index(self._expr(node.payload), node.payload)
        return self.p.remember(("checked", node), self._check(value, node.lower, node.upper))

    def _check(self, value: Value, lower: arith.Expr, upper: arith.Expr) -> Value:
        """Print code that returns an error if an index is outside [lower, upper]. Under a mask, only active lanes are checked.
        Values out of bounds become `lower`, since addresses are computed for all lanes."""
        p = self.p
        low, high = self.index.print(lower), self.index.print(upper)
        value, low, high = self._same_lanes(value, low, high)
        below = p.op(f"icmp slt {value}, {low.ref}", "i1", value.lanes)
        above = p.op(f"icmp sgt {value}, {high.ref}", "i1", value.lanes)
        bad = p.op(f"or {below}, {above.ref}", "i1", value.lanes)
        if value.lanes or self.mask is not None:
            value = p.op(f"select {bad}, {low}, {value}", INDEX, value.lanes)
        if value.lanes:
            bad = self._any(p.op(f"and {bad}, {self.mask.ref}", "i1", value.lanes) if self.mask is not None else bad)
        elif self.mask is not None:
            bad = p.op(f"and {bad}, {self._any(self.mask).ref}", "i1")
        fine, failed = p.fresh("inside"), p.fresh("outside")
        p.branch_if(bad, failed, fine)
        p.label(failed)
        p.emit(f"ret i32 {INDEX_ERROR}")
        p.label(fine)
        return value

    # --- expressions ---

    def _expr(self, expr: ir.Expr) -> Value:
        """Print an expression. Recursive only to a limited depth, since fused expressions may be thousands of nodes deep."""
        found = self._known(expr)
        if found is None and self._depth < RECURSION:
            self._depth += 1
            found = self.p.remember(id(expr), self._node(expr))
            self._depth -= 1
        stack = [expr] if found is None else []
        while stack:
            node = stack[-1]
            found = self._known(node)
            if found is None:
                waiting = [arg for arg in self._eager(node) if self._known(arg) is None]
                if waiting:
                    stack.extend(reversed(waiting))
                    continue
                found = self.p.remember(id(node), self._node(node))
            stack.pop()
        assert found is not None
        return found

    def _known(self, expr: ir.Expr) -> Value | None:
        known: Value | None = self.p.recall(id(expr))
        if known is None and type(expr) is ir.Const:
            known = self.p.remember(id(expr), Value(literal(expr.value, expr.dtype), scalar_type(expr.dtype)), lasting=True)
        return known

    def _eager(self, expr: ir.Expr) -> tuple[ir.Expr, ...]:
        """Return the operands that may be evaluated unconditionally: all except the branches of a choice that need a guard."""
        if self.lanes and type(expr) is ir.Cast and (half := upper_half(expr)) is not None:
            return half[1]
        if type(expr) is ir.Select and (self._needs_guard(expr.then) or self._needs_guard(expr.otherwise)):
            return (expr.condition,)
        return ir.operands(expr)

    def _needs_guard(self, expr: ir.Expr) -> bool:
        """Test whether an expression may be evaluated only if chosen, because it reads memory or checks an index. It needs no guard
        if each load is provably inside its buffer or already printed, for example for the condition."""
        risks = self._risks(expr)
        return risks is None or any(self._known(risk) is None and not self._is_inside(risk) for risk in risks)

    def _is_inside(self, risk: ir.Expr) -> bool:
        """Test whether an expression is a load that is always inside its buffer."""
        if not isinstance(risk, ir.Load) or any(map(arith.reads_data, risk.indices)):
            return False
        size = arith.product(risk.buffer.shape)
        low, high = self.index.analyzer.bounds(arith.add(*self._flat(risk.buffer, risk.indices)))
        return isinstance(size, int) and low is not None and high is not None and low >= 0 and high < size

    def _risks(self, expr: ir.Expr) -> tuple[ir.Expr, ...] | None:
        """Return the loads and bounds checks in an expression; None if there are more than `MOST_RISKS`."""
        stack = [expr]
        while stack:
            node = stack[-1]
            below = ir.operands(node)
            waiting = [arg for arg in below if arg not in self._guarded]
            if waiting:
                stack.extend(waiting)
                continue
            stack.pop()
            if isinstance(node, ir.Load) or (isinstance(node, ir.Index) and arith.reads_data(node.index)):
                self._guarded[node] = (node,)
                continue
            found: dict[ir.Expr, None] | None = {}
            for arg in below:
                own = self._guarded[arg]
                found = None if own is None or found is None else {**found, **dict.fromkeys(own)}
            self._guarded[node] = None if found is None or len(found) > MOST_RISKS else tuple(found)
        return self._guarded[expr]

    def _node(self, expr: ir.Expr) -> Value:
        p = self.p
        match expr:
            case ir.Load():
                return self._load(expr)
            case ir.Index(index=index, dtype=dtype):
                if dtype.kind == "bool":
                    return self.index.condition(index)
                value = self.index.print(index)
                to = scalar_type(dtype)
                return value if to == INDEX else self._narrow(value, to)
            case ir.Binary(op=op, a=a, b=b):
                left, right = self._same_lanes(self._expr(a), self._expr(b))
                if op in ("min", "max") and a.dtype.is_float and known_bounds(b) is not None:
                    return arithmetic.limited(p, op, left, right)
                return arithmetic.binary(p, op, left, right, a.dtype)
            case ir.Unary(op=op, a=a):
                return arithmetic.unary(p, op, self._expr(a), a.dtype)
            case ir.Cast() if (parts := rounded(expr)) is not None:
                return self._rounded(expr, *parts)
            case ir.Cast() if self.lanes and (half := upper_half(expr)) is not None:
                return self._upper_half(*half)
            case ir.Cast(a=a, dtype=dtype):
                return arithmetic.convert(p, self._expr(a), a.dtype, dtype)
            case ir.Bitcast(a=a, dtype=dtype):
                return arithmetic.reinterpret(p, self._expr(a), dtype)
            case ir.Fma(a=a, b=b, c=c):
                return arithmetic.fma(p, expr.dtype, *self._same_lanes(self._expr(a), self._expr(b), self._expr(c)))
            case ir.CallMath(name=name, args=args) if name in self.math:
                return self.math[name](p, tuple(self._same_lanes(*map(self._expr, args))))
            case ir.Select(condition=condition, then=then, otherwise=otherwise):
                return self._select(condition, then, otherwise)
        raise CompileError(f"kernel {self.name}: expected expanded expressions, found a {type(expr).__name__}")

    def _rounded(self, expr: ir.Cast, real: ir.Expr, other: ir.Expr | None) -> Value:
        a = self._expr(real)
        whole = self.p.intrinsic("lrint", a.scalar, [a], result="i32")
        if other is not None:
            whole, added = self._same_lanes(whole, self._expr(other))
            whole = arithmetic.binary(self.p, "add", whole, added, other.dtype)
        return arithmetic.convert(self.p, whole, expr.a.dtype, expr.dtype)

    def _upper_half(self, whole: ir.Expr, parts: tuple[ir.Expr, ...]) -> Value:
        values = {part: self._expr(part) for part in parts}
        lanes = max(value.lanes for value in values.values())
        if lanes and lanes % 2 == 0:
            return print_upper_half(self.p, whole, values, lanes)
        shifted = arithmetic.binary(self.p, "shr", self._expr(whole), Value("32", "i64"), whole.dtype)
        return self.p.op(f"trunc {shifted} to {vector_type('i32', lanes)}", "i32", lanes)

    def _narrow(self, value: Value, to: str) -> Value:
        if not value.ref.startswith("%") and not value.lanes:
            return Value(str(int(value.ref) & ((1 << int(to[1:])) - 1)), to)
        return self.p.op(f"trunc {value} to {vector_type(to, value.lanes)}", to, value.lanes)

    def _same_lanes(self, *values: Value) -> list[Value]:
        lanes = max([value.lanes for value in values])
        return [value if value.lanes == lanes else self.p.widen(value, lanes) for value in values]

    def _to_index(self, value: Value, expr: ir.Expr) -> Value:
        if value.scalar == INDEX:
            return value
        to = vector_type(INDEX, value.lanes)
        return self.p.op(f"{'sext' if expr.dtype.kind == 'int' else 'zext'} {value} to {to}", INDEX, value.lanes)

    def _not(self, flag: Value) -> Value:
        return self.p.op(f"xor {flag}, {splat('true', 'i1', flag.lanes)}", "i1", flag.lanes)

    @contextmanager
    def _under(self, flag: Value) -> Iterator[None]:
        """Restrict the active lanes to those where `flag` holds."""
        outer = self.mask
        self.mask = flag if outer is None else self.p.op(f"and {outer}, {flag.ref}", "i1", flag.lanes)
        yield
        self.mask = outer

    def _select(self, condition: ir.Expr, then: ir.Expr, otherwise: ir.Expr) -> Value:
        flag = self._expr(condition)
        if self._needs_guard(then) or self._needs_guard(otherwise):
            return self._choose(flag, lambda: self._expr(then), lambda: self._expr(otherwise))
        return self._merge(flag, self._expr(then), self._expr(otherwise))

    def _choose(self, flag: Value, then: Callable[[], Value], otherwise: Callable[[], Value]) -> Value:
        """Print a choice between two values. `then` and `otherwise` print the values, under a mask or in a branch."""
        p = self.p
        if flag.lanes:
            with self._under(flag), p.scope():
                a = then()
            with self._under(self._not(flag)), p.scope():
                b = otherwise()
            return self._merge(flag, a, b)
        yes, no, done = p.fresh("then"), p.fresh("else"), p.fresh("endif")
        p.branch_if(flag, yes, no)
        sides = []
        for label, side in ((yes, then), (no, otherwise)):
            p.label(label)
            with p.scope():
                value = side()
                # Both sides must have the same type, and the other side's type is not known yet.
                sides.append((p.widen(value, self.lanes) if self.lanes else value, p.block))
            p.branch(done)
        p.label(done)
        (a, left), (b, right) = sides
        return p.op(f"phi {a.type} [ {a.ref}, %{left} ], [ {b.ref}, %{right} ]", a.scalar, a.lanes)

    def _merge(self, flag: Value, a: Value, b: Value) -> Value:
        lanes = max(flag.lanes, a.lanes, b.lanes)
        if lanes:
            a, b = self.p.widen(a, lanes), self.p.widen(b, lanes)
        return self.p.op(f"select {flag}, {a}, {b}", a.scalar, lanes)
