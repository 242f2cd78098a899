"""Printer of one LLVM function: instructions, names, blocks, and a memo of computed values."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

from inlaid_x86.llvm.values import Value, scalar_bits, splat, vector_type

_Memoized = TypeVar("_Memoized")


class FunctionPrinter:
    """Emits instructions into the current block of one function.

    Computed values are memoized so that each is printed once. Invariant values are kept for all dominated blocks (`scope`). Values
    that were read from memory or depend on the lane are kept for one statement (`statement`). `declarations` collects the
    intrinsics used. Each loop has a preheader for hoisted instructions (`open_loop`, `before_loop`).
    """

    def __init__(self, declarations: dict[str, str]) -> None:
        self.lines: list[Any] = []
        self.allocas: list[str] = []
        self.declarations = declarations
        self.block = "entry"
        self._names = 0
        self._zero = ""
        self._memo: dict[Hashable, Any] = {}
        self.recall: Callable[[Hashable], Any] = self._memo.get
        """Return the value memoized under a key in this block or a block that dominates it; None if the key is unknown."""
        self._lasting: list[list[Hashable]] = [[]]  # keys to forget at the end of each open scope
        self._passing: list[list[Hashable]] = [[]]  # keys to forget at the end of each open statement
        self._loops: list[tuple[list[Any], int]] = []

    @property
    def depth(self) -> int:
        """Number of loops around the current block."""
        return len(self._loops)

    def fresh(self, hint: str = "") -> str:
        """Return an unused name."""
        self._names += 1
        return f"{hint}.{self._names}" if hint else f"v{self._names}"

    def emit(self, text: str) -> None:
        """Emit an instruction without a result."""
        self.lines.append(f"  {text}")

    def op(self, text: str, scalar: str, lanes: int = 0) -> Value:
        """Emit an instruction with a result of the given type."""
        self._names += 1
        name = f"%v{self._names}"
        self.lines.append(f"  {name} = {text}")
        return Value(name, scalar, lanes)

    def label(self, name: str) -> None:
        """Start a block."""
        self.lines.append(f"{name}:")
        self.block = name

    def branch(self, target: str, mark: str = "") -> None:
        """Emit a branch; `mark` is metadata of the instruction."""
        self.emit(f"br label %{target}{mark}")

    def branch_if(self, condition: Value, then: str, otherwise: str) -> None:
        """Emit a conditional branch on a scalar i1."""
        self.emit(f"br i1 {condition.ref}, label %{then}, label %{otherwise}")

    @contextmanager
    def scope(self) -> Iterator[None]:
        """Drop values memoized inside this context at its end, since they do not dominate the code after it."""
        self._lasting.append([])
        with self.statement():
            yield
        self._forget(self._lasting.pop())

    def open_loop(self) -> None:
        """Begin a loop at its preheader, into which `before_loop` prints hoisted instructions."""
        preheader: list[Any] = []
        self.lines.append(preheader)
        self._loops.append((preheader, len(self._lasting)))

    def close_loop(self) -> None:
        """End the innermost loop."""
        self._loops.pop()

    @contextmanager
    def before_loop(self, depth: int) -> Iterator[None]:
        """Print into the preheader of the loop at nesting `depth`, and memoize values in its scope. The printed code must have no
        side effects and start no block."""
        outer_state = self.lines, self._lasting, self._passing
        self.lines, scopes = self._loops[depth]
        inner_keys = [key for keys in (*self._passing, *self._lasting[scopes:]) for key in keys if key in self._memo]
        hidden = {key: self._memo.pop(key) for key in dict.fromkeys(inner_keys)}
        self._lasting, self._passing = self._lasting[:scopes], [[]]
        yield
        self._forget(self._passing.pop())
        self._memo |= hidden
        self.lines, self._lasting, self._passing = outer_state

    @contextmanager
    def statement(self) -> Iterator[None]:
        """Drop values memoized inside this context at its end, except values memoized with `lasting`."""
        self.open_statement()
        yield
        self.close_statement()

    def open_statement(self) -> None:
        """Begin a statement, as `statement` does."""
        self._passing.append([])

    def close_statement(self) -> None:
        """End a statement, as `statement` does."""
        self._forget(self._passing.pop())

    def _forget(self, keys: list[Hashable]) -> None:
        for key in keys:
            self._memo.pop(key, None)

    def remember(self, key: Hashable, value: _Memoized, lasting: bool = False) -> _Memoized:
        """Memoize a value until the end of this statement, or of this scope if `lasting`. Returns the value."""
        (self._lasting if lasting else self._passing)[-1].append(key)
        self._memo[key] = value
        return value

    def intrinsic(
        self, name: str, scalar: str, args: list[Value], result: str | None = None, extra: str = "", flag: str = ""
    ) -> Value:
        """Emit a call of overloaded intrinsic `llvm.name` on arguments of equal lanes. `flag`: a flag of the call."""
        lanes = args[0].lanes
        result = result or scalar
        suffix = mangle(scalar, lanes)
        if result != scalar:
            suffix = f"{mangle(result, lanes)}.{suffix}"
        types = ", ".join([arg.type for arg in args] + ([extra.split()[0]] if extra else []))
        full = f"llvm.{name}.{suffix}"
        self.declarations[full] = f"declare {vector_type(result, lanes)} @{full}({types})"
        text = ", ".join([*map(str, args), *([extra] if extra else [])])
        return self.op(f"call {flag}{' ' if flag else ''}{vector_type(result, lanes)} @{full}({text})", result, lanes)

    def widen(self, value: Value, lanes: int) -> Value:
        """Broadcast a scalar to `lanes` lanes; return a vector unchanged."""
        if value.lanes == lanes:
            return value
        assert not value.lanes, f"{value} does not have {lanes} lanes"
        if not value.ref.startswith("%"):
            return Value(splat(value.ref, value.scalar, lanes), value.scalar, lanes)
        key = ("widen", value.ref, lanes)
        cached: Value | None = self.recall(key)
        if cached is not None:
            return cached
        kind = vector_type(value.scalar, lanes)
        first = self.op(f"insertelement {kind} poison, {value}, i64 0", value.scalar, lanes)
        wide = self.op(f"shufflevector {first}, {kind} poison, <{lanes} x i32> zeroinitializer", value.scalar, lanes)
        return self.remember(key, wide, lasting=True)

    def transpose(self, rows: list[Value]) -> list[Value]:
        """Transpose a square matrix of n rows, vectors of n lanes; n is a power of two. Swaps off-diagonal blocks of side n/2, then
        of n/4 within each block, down to 1. Rows of 16 bytes are interleaved with those n/2 below instead, log2(n) times, for which
        there are instructions of every element type (PUNPCKLBW and its like)."""
        lanes, rows = len(rows), list(rows)
        size = lanes // 2
        if lanes * scalar_bits(rows[0].scalar) == 128:
            low, high = ([lane for at in range(start, start + size) for lane in (at, lanes + at)] for start in (0, size))
            for _ in range(lanes.bit_length() - 1):
                pairs = list(zip(rows[:size], rows[size:], strict=True))
                rows = [self.shuffle(a, b, order) for a, b in pairs for order in (low, high)]
            return rows
        while size:
            low = [lane if not lane & size else lanes + lane - size for lane in range(lanes)]
            high = [lane + size if not lane & size else lanes + lane for lane in range(lanes)]
            for row in range(lanes):
                if not row & size:
                    a, b = rows[row], rows[row + size]
                    rows[row], rows[row + size] = self.shuffle(a, b, low), self.shuffle(a, b, high)
            size //= 2
        return rows

    def interleave(self, parts: list[Value]) -> list[Value]:
        """Interleave vectors: the first elements of all, then the second elements, and so on. Returns vectors that hold these in
        order: one if the number of vectors is a power of two; for 3, as many."""
        count, lanes = len(parts), parts[0].lanes
        if count == 1:
            return parts
        if count % 2 == 0:
            (a,), (b,) = self.interleave(parts[::2]), self.interleave(parts[1::2])
            return [self.shuffle(a, b, [index for lane in range(a.lanes) for index in (lane, a.lanes + lane)])]
        results = []
        for start in range(0, count * lanes, lanes):
            merged = parts[0]
            for number in range(1, count):
                # Lanes of former parts are at their places from the first shuffle on.
                sources = [divmod(position, count) for position in range(start, start + lanes)]
                places = [
                    lanes + lane if part == number else lane if number == 1 else place for place, (lane, part) in enumerate(sources)
                ]
                merged = self.shuffle(merged, parts[number], places)
            results.append(merged)
        return results

    def shuffle(self, a: Value, b: Value, lanes: list[int]) -> Value:
        """Emit a shuffle of two vectors. `lanes`: source lane of each result lane; lanes of `b` follow those of `a`."""
        source_lanes = ", ".join(f"i32 {lane}" for lane in lanes)
        return self.op(f"shufflevector {a}, {b}, <{len(lanes)} x i32> <{source_lanes}>", a.scalar, len(lanes))

    def alloca(self, scalar: str, count: int, align: int = 64) -> str:
        """Allocate stack memory for the whole function. Returns the pointer's name."""
        name = f"%{self.fresh('local')}"
        self.allocas.append(f"  {name} = alloca [{count} x {scalar}], align {align}")
        return name

    def return_if_failed(self, status: Value) -> None:
        """Emit code that returns a status if it is not 0."""
        fine, failed = self.fresh("fine"), self.fresh("failed")
        self.branch_if(self.op(f"icmp ne {status}, 0", "i1"), failed, fine)
        self.label(failed)
        self.emit(f"ret {status}")
        self.label(fine)

    def zero(self) -> str:
        """Return the address of eight zero bytes on the stack."""
        if not self._zero:
            self._zero = self.alloca("i64", 1, align=8)
            self.allocas.append(f"  store i64 0, ptr {self._zero}, align 8")
        return self._zero

    def finish(self, header: str) -> str:
        """Return the text of the whole function."""
        lines = (line for item in self.lines for line in ([item] if isinstance(item, str) else item))
        return "\n".join([f"{header} {{", "entry:", *self.allocas, *lines, "}"])


def mangle(scalar: str, lanes: int) -> str:
    """Mangle a type for the name of an LLVM intrinsic."""
    plain = {"float": "f32", "double": "f64", "half": "f16"}.get(scalar, scalar)
    return f"v{lanes}{plain}" if lanes else plain
