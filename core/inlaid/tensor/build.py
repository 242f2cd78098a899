"""Builds loop programs statement by statement.

b = Builder()
with b.loop(n, "i") as i:
    with b.if_(x[i] > 0):
        b.store(count, (), count[()] + 1)
body = b.finish()
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any

from inlaid.tensor import ir
from inlaid_runtime import arith
from inlaid_runtime.arith import Dim
from inlaid_runtime.errors import ExpressionError
from inlaid_runtime.records import dataclass
from inlaid_runtime.types import DType
from inlaid_runtime.types import dtype as as_dtype


class Builder:
    """Collects statements. Methods used in `with` open a nested scope."""

    def __init__(self) -> None:
        self._scopes: list[list[ir.Stmt]] = [[]]
        self._buffer_count = 0

    def finish(self) -> ir.Stmt:
        """Return the emitted statements as one statement."""
        assert len(self._scopes) == 1, "a scope is still open"
        return self._close(self._scopes[0])

    def emit(self, stmt: ir.Stmt) -> None:
        """Append a statement."""
        self._scopes[-1].append(stmt)

    def store(self, buffer: ir.Buffer, indices: Any, value: ir.Operand) -> None:
        """Append the statement buffer[indices] = value."""
        indices = indices if isinstance(indices, tuple) else (indices,)
        assert len(indices) == len(buffer.shape), f"{buffer.name} has {len(buffer.shape)} dimensions"
        expr = ir.as_expr(value, buffer.dtype)
        if expr.dtype is not buffer.dtype:
            raise ExpressionError(f"a store into {buffer.name} needs a {buffer.dtype}, got {expr.dtype}: cast it")
        self.emit(ir.Store(buffer, tuple(arith.wrap(index) for index in indices), expr))

    def alloc(self, shape: tuple[Dim, ...], dtype: str | DType, name: str = "tmp", scope: str = "") -> ir.Buffer:
        """Allocate a buffer for the rest of the scope."""
        self._buffer_count += 1
        buffer = ir.Buffer(f"{name}{self._buffer_count}", shape, as_dtype(dtype), scope)
        self.emit(_Open(lambda body: ir.Alloc(buffer, body)))
        return buffer

    def let(self, value: ir.Operand, name: str = "v", bounds: tuple[Dim, Dim] | None = None) -> arith.Var:
        """Bind an integer value to an index variable for the rest of the scope. With `bounds` (inclusive), the value is checked."""
        variable = arith.Var(name)
        checked = None if bounds is None else (arith.wrap(bounds[0]), arith.wrap(bounds[1]))
        self.emit(_Open(lambda body: ir.Let(variable, ir.as_expr(value), body, checked)))
        return variable

    @contextmanager
    def loop(self, extent: Dim, name: str = "i", kind: ir.ForKind = ir.ForKind.SERIAL, thread: str = "") -> Iterator[arith.Var]:
        """Open a loop over range(extent), with a variable called `name`. `thread` is the block or thread axis of a bound loop."""
        variable = arith.Var(name)
        kind = ir.ForKind.THREAD if thread else kind
        self._scopes.append([])
        yield variable
        self.emit_closed(lambda body: ir.For(variable, arith.wrap(extent), body, kind, thread))

    @contextmanager
    def loops(self, shape: Sequence[Dim]) -> Iterator[tuple[arith.Var, ...]]:
        """Open a nest of loops over all indices of a shape, row-major. The empty shape gives no loop."""
        with ExitStack() as nest:
            yield tuple(nest.enter_context(self.loop(extent, f"i{axis}")) for axis, extent in enumerate(shape))

    @contextmanager
    def while_(self, condition: ir.Expr) -> Iterator[None]:
        """Open a loop that runs while a condition holds. The condition is evaluated before each iteration."""
        self._scopes.append([])
        yield
        self.emit_closed(lambda body: ir.While(condition, body))

    @contextmanager
    def if_(self, condition: ir.Operand) -> Iterator[None]:
        """Open a branch that runs if a condition holds."""
        self._scopes.append([])
        yield
        self.emit_closed(lambda body: ir.If(ir.as_expr(condition, as_dtype("bool")), body))

    @contextmanager
    def else_(self) -> Iterator[None]:
        """Open the other branch of the preceding `if_`."""
        if_stmt = self._scopes[-1].pop()
        assert isinstance(if_stmt, ir.If) and if_stmt.otherwise is None, "else_ must follow an if_"
        self._scopes.append([])
        yield
        self.emit_closed(lambda body: ir.If(if_stmt.condition, if_stmt.then, body))

    def emit_closed(self, wrap: Any) -> None:
        """Close the innermost scope, and append the statement that `wrap` makes from its body."""
        body = self._close(self._scopes.pop())
        self.emit(wrap(body))

    @staticmethod
    def _close(stmts: list[ir.Stmt]) -> ir.Stmt:
        last_first: list[ir.Stmt] = []
        for stmt in reversed(stmts):
            if isinstance(stmt, _Open):
                last_first = [stmt.wrap(_seq(last_first[::-1]))]
            else:
                last_first.append(stmt)
        return _seq(last_first[::-1])


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class _Open(ir.Stmt):
    """An `alloc` or `let` whose body is the rest of its scope."""

    wrap: Callable[[ir.Stmt], ir.Stmt]


def _seq(stmts: list[ir.Stmt]) -> ir.Stmt:
    return stmts[0] if len(stmts) == 1 else ir.Seq(tuple(stmts))
