"""Random control flow over expressions of any operators: branches, bindings, loops, closures, recursion and tuples."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from inlaid import ops
from inlaid.graph import ir
from inlaid_runtime.arith import Dim
from inlaid_runtime.types import FunctionType, TensorType, TupleType, Type

COUNT = TensorType((), "int64")
F32 = "float32"

Step = Callable[[list[ir.Expr], int], ir.Expr]
"""Makes an expression from a pool of those in scope, with the number of scopes that may still be nested."""


class Generator:
    """Grows pools of expressions in scope. `number(low, high)` draws an integer, both bounds included. `functions` has the module's
    functions other than `main`. A subclass defines `step`, and `dtypes`, the element types that control flow carries."""

    dtypes: Sequence[str] = (F32,)

    def __init__(self, number: Callable[[int, int], int]) -> None:
        self.number = number
        self.functions: dict[str, Any] = {}

    def pick(self, items: Sequence[Any]) -> Any:
        """Draw one of the items."""
        return items[self.number(0, len(items) - 1)]

    def variable(self, type_: Type) -> ir.Var:
        """Make a variable. Names repeat, and some need quotes in text."""
        return ir.var(f"{self.pick(['v', 'x', 'a/b', '7'])}{self.number(0, 2)}", type_)

    def tensors(self, pool: list[ir.Expr]) -> list[ir.Expr]:
        """Return the tensors of the pool that control flow can carry."""
        return [expr for expr in pool if isinstance(expr.type, TensorType) and expr.type.dtype.name in self.dtypes]

    def tensor(self, pool: list[ir.Expr]) -> ir.Expr:
        """Draw a tensor that control flow can carry."""
        return self.pick(self.tensors(pool))

    def grow(self, pool: list[ir.Expr], depth: int, steps: int) -> ir.Expr:
        """Add expressions to a pool, and return the last one."""
        for _ in range(steps):
            pool.append(self.step(pool, depth))
        return pool[-1]

    def step(self, pool: list[ir.Expr], depth: int) -> ir.Expr:
        """Make an expression from those of a pool."""
        raise NotImplementedError

    def control(self) -> list[Step]:
        """Return the kinds of control flow."""
        return [self.branch, self.binding, self.iterate, self.closure, self.recurse, self.pair]

    def branch(self, pool: list[ir.Expr], depth: int) -> ir.Expr:
        """Make an `If`. Its condition may be constant."""
        condition = self.flag(pool) if self.number(0, 4) else ir.constant(bool(self.number(0, 1)))
        value = self.tensor(pool)
        # Both arms must have one type: each adds something of its own to one value.
        arms = [moved(value, self.grow(list(pool), depth - 1, self.number(1, 3))) for _ in range(2)]
        return ir.if_(condition, arms[0], arms[1])

    def binding(self, pool: list[ir.Expr], depth: int) -> ir.Expr:
        """Make a `Let`."""
        value = self.tensor(pool)
        variable = self.variable(value.type)
        return ir.let(variable, value, self.grow([*pool, variable], depth - 1, self.number(1, 2)))

    def iterate(self, pool: list[ir.Expr], depth: int) -> ir.Expr:
        """Make a `Loop` with a state, a stacked output and sometimes a scanned input and a condition on data. Returns one of its
        results."""
        state, xs = self.tensor(pool), self.tensor(pool)
        scanned = [xs] if tensor_shape(xs) and self.number(0, 1) else []
        i, total = self.variable(COUNT), self.variable(state.type)
        rows = [self.variable(TensorType(tensor_shape(item)[1:], tensor_dtype(item))) for item in scanned]
        inner = self.grow([*pool, total, *rows], depth - 1, self.number(1, 3))
        new = moved(total, inner)
        keep = ir.constant(True) if self.number(0, 1) else ops.less(scalar(new), ir.constant(np.float32(3)))
        body = ir.function([i, total, *rows], ir.tuple_([keep, new, scalar(inner)]))
        trips = ir.constant(np.int64(self.number(0, 3)))
        result = ir.loop(body, state=[state], scanned=scanned, trip_count=trips)
        return ir.tuple_item(result, 0) if self.number(0, 1) else ops.reduce_sum(ir.tuple_item(result, 1), axes=(0,))

    def closure(self, pool: list[ir.Expr], depth: int) -> ir.Expr:
        """Call a function that reads values around it, twice."""
        arg = self.tensor(pool)
        param = self.variable(arg.type)
        body = self.grow([*pool, param], depth - 1, self.number(1, 3))
        if isinstance(body.type, TupleType):
            body = ir.tuple_item(body, 0)
        target = ir.function([param], body)
        first, second = ir.call(target, [arg]), ir.call(target, [moved(arg, arg)])
        # Two calls may give two sizes, which need not broadcast when it runs.
        return moved(first, second) if self.number(0, 1) and isinstance(first.type, TensorType) and carried(first) else first

    def recurse(self, pool: list[ir.Expr], depth: int) -> ir.Expr:
        """Call a new function of the module that calls itself."""
        type_ = TensorType((), F32)
        name = f"f{len(self.functions)}"
        self.functions[name] = None
        n, x = self.variable(COUNT), self.variable(type_)
        kind = FunctionType((COUNT, type_), type_)
        inner = scalar(self.grow([x], depth - 1, self.number(1, 2)))
        again = ir.call(ir.global_var(name, kind), [ops.sub(n, ir.constant(np.int64(1))), inner])
        body = ir.if_(ops.less(n, ir.constant(np.int64(1))), x, ops.add(again, x))
        self.functions[name] = ir.function([n, x], body, result=type_)
        return ir.call(ir.global_var(name, kind), [ir.constant(np.int64(self.number(0, 3))), scalar(self.tensor(pool))])

    def pair(self, pool: list[ir.Expr], depth: int) -> ir.Expr:
        """Make a tuple, or take one apart."""
        value = ir.tuple_([self.tensor(pool), self.tensor(pool)])
        if self.number(0, 1):
            return value
        variable = self.variable(value.type)
        return ir.let(variable, value, ir.tuple_item(variable, self.number(0, 1)))

    def flag(self, pool: list[ir.Expr]) -> ir.Expr:
        """Make a condition on data."""
        return ops.less(scalar(self.tensor(pool)), ir.constant(np.float32(self.number(-2, 2))))


def tensor_shape(expr: ir.Expr) -> tuple[Dim, ...]:
    """Return the shape of a tensor."""
    assert isinstance(expr.type, TensorType)
    return expr.type.shape


def tensor_dtype(expr: ir.Expr) -> str:
    """Return the name of a tensor's element type."""
    assert isinstance(expr.type, TensorType)
    return expr.type.dtype.name


def scalar(expr: ir.Expr) -> ir.Expr:
    """Sum the elements of an expression (of a tuple, the first) as a 0-d float32 in [-9, 9]. A NaN stays one."""
    while isinstance(expr.type, TupleType):
        expr = ir.tuple_item(expr, 0)
    if not carried(expr):
        return ir.constant(np.float32(1))
    numbers = expr if tensor_dtype(expr) == F32 else ops.cast(expr, dtype=F32)
    return ops.clip(ops.reduce_sum(numbers, axes=tuple(range(len(tensor_shape(expr))))), minimum=-9.0, maximum=9.0)


def carried(expr: ir.Expr) -> bool:
    """Test whether an expression is a tensor of numbers or truth values."""
    return isinstance(expr.type, TensorType) and expr.type.dtype.kind in ("float", "int", "uint", "bool")


def moved(value: ir.Expr, by: ir.Expr) -> ir.Expr:
    """Add to a tensor what `scalar` makes of another expression; truth values change where that is negative."""
    step = scalar(by)
    if tensor_dtype(value) == "bool":
        return ops.logical_xor(value, ops.less(step, ir.constant(np.float32(0))))
    return ops.add(value, step if tensor_dtype(value) == F32 else ops.cast(step, dtype=tensor_dtype(value)))
