"""Random modules: operators, tuples, branches, bindings, loops, closures, recursion, symbolic and existential sizes.

Values are small integers in float32 wherever it can be arranged, so that most results are exact.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from hypothesis import strategies as st

from inlaid import ops
from inlaid.arith import Dim, SizeVar
from inlaid.graph.interp import evaluate
from inlaid.graph.ir import (
    Expr,
    Module,
    Span,
    Var,
    call,
    constant,
    function,
    global_var,
    if_,
    let,
    loop,
    tuple_,
    tuple_item,
    var,
)
from inlaid.graph.operator import Operator
from inlaid.graph.text import show
from inlaid.graph.unify import fresh_size
from inlaid.types import FunctionType, TensorType, TupleType, Type

F32 = "float32"
COUNT = TensorType((), "int64")
N = SizeVar("n", 1, 8)
POSITIVE = Operator(
    "test.positive",
    lambda attrs, x: TensorType((fresh_size("k", x.shape[0]), *x.shape[1:]), x.dtype),
    reference=lambda attrs, x: x[x.reshape(x.shape[0], -1).sum(axis=1) > 0],
)
"""The rows of positive sum: an operator whose result has a size that only a run knows."""
OPERATORS = {**ops.TABLE, POSITIVE.name: POSITIVE}

Inputs = dict[str, np.ndarray[Any, Any]]


class Program:
    """A module and inputs for its entry. Prints as text."""

    def __init__(self, module: Module, inputs: Inputs) -> None:
        self.module = module
        self.inputs = inputs

    def __repr__(self) -> str:
        return f"{show(self.module)}{self.inputs}"


def shape_of(expr: Expr) -> tuple[Dim, ...]:
    assert isinstance(expr.type, TensorType)
    return expr.type.shape


class Generator:
    """Grows pools of expressions in scope. `draw` is hypothesis's; `functions` the module's."""

    def __init__(self, draw: Callable[..., Any]) -> None:
        self.draw = draw
        self.functions: dict[str, Any] = {}
        self.names = 0

    def number(self, low: int, high: int) -> int:
        value: int = self.draw(st.integers(low, high))
        return value

    def pick(self, items: list[Any]) -> Any:
        return items[self.number(0, len(items) - 1)]

    def name(self) -> str:
        self.names += 1
        return f"{self.pick(['v', 'x', 'a/b', '7'])}{self.number(0, 2)}"

    def variable(self, type_: Type) -> Var:
        return var(self.name(), type_)

    def constant(self, shape: tuple[int, ...]) -> Expr:
        seed = self.number(0, 7)
        data = (
            np.random.default_rng(seed).integers(-2, 3, shape).astype(np.float32) if seed > 2 else np.full(shape, seed, np.float32)
        )
        return constant(data)

    def tensor(self, pool: list[Expr]) -> Expr:
        return self.pick([expr for expr in pool if isinstance(expr.type, TensorType) and expr.type.dtype.name == F32])

    def grow(self, pool: list[Expr], depth: int, steps: int) -> Expr:
        """Add expressions to a pool; one of them, or a tuple of several, is the result."""
        for _ in range(steps):
            made = self.step(pool, depth)
            pool.append(made)
        return pool[-1]

    def step(self, pool: list[Expr], depth: int) -> Expr:
        kinds: list[Callable[[list[Expr], int], Expr]] = [self.unary, self.binary, self.reduce, self.shape, self.simple, self.unary]
        if depth:
            kinds += [self.branch, self.binding, self.iterate, self.closure, self.recurse, self.pair, self.select_rows]
        return self.pick(kinds)(pool, depth)

    def span(self) -> Span | None:
        return Span("model", f"node{self.number(0, 3)}") if self.number(0, 1) else None

    def unary(self, pool: list[Expr], depth: int) -> Expr:
        operator = self.pick([ops.neg, ops.relu, ops.abs, ops.tanh, ops.floor])
        return operator(self.tensor(pool), span=self.span())

    def binary(self, pool: list[Expr], depth: int) -> Expr:
        operator = self.pick([ops.add, ops.sub, ops.mul, ops.maximum, ops.minimum])
        a = self.tensor(pool)
        fitting = [b for b in pool if b.type == a.type]
        b = self.pick([*fitting, self.constant(()), self.constant((1,))])
        return operator(a, b) if len(shape_of(a)) else operator(a, self.pick([*fitting, self.constant(())]))

    def reduce(self, pool: list[Expr], depth: int) -> Expr:
        x = self.tensor(pool)
        if not shape_of(x):
            return ops.neg(x)
        axis = self.number(0, len(shape_of(x)) - 1)
        operator = self.pick([ops.reduce_sum, ops.reduce_max])
        if operator is ops.reduce_max and not isinstance(shape_of(x)[axis], int):
            operator = ops.reduce_sum
        return operator(x, axes=(axis,), keepdims=bool(self.number(0, 1)))

    def shape(self, pool: list[Expr], depth: int) -> Expr:
        x = self.tensor(pool)
        shape = shape_of(x)
        rank = len(shape)
        match self.number(0, 4):
            case 0:
                return ops.transpose(x, perm=tuple(reversed(range(rank))))
            case 1:
                return ops.reshape(x, shape=(*shape, 1))
            case 2 if rank:
                return ops.concat(x, x, axis=0)
            case 3 if rank and isinstance(shape[-1], int):
                begin = (0,) * (rank - 1) + (min(shape[-1], 1),)
                return ops.strided_slice(x, begin=begin, end=shape, strides=(1,) * rank)
            case _:
                return ops.broadcast_to(x, shape=(2, *shape))

    def simple(self, pool: list[Expr], depth: int) -> Expr:
        """What simplification looks for."""
        x = self.tensor(pool)
        zero, one = constant(np.float32(-0.0)), constant(np.float32(1))
        return self.pick(
            [
                lambda: ops.mul(x, one),
                lambda: ops.add(x, zero),
                lambda: ops.neg(ops.neg(x)),
                lambda: ops.cast(ops.cast(x, dtype="float64"), dtype=F32),
                lambda: ops.div(x, constant(np.float32(4))),
                lambda: self.constant((3,)),
                lambda: ops.cast(ops.iota(shape=(3,), axis=0, dtype="int64"), dtype=F32),
            ]
        )()

    def flag(self, pool: list[Expr]) -> Expr:
        x = self.tensor(pool)
        total = ops.reduce_sum(x, axes=tuple(range(len(shape_of(x)))))
        return ops.less(total, constant(np.float32(self.number(-2, 2))))

    def branch(self, pool: list[Expr], depth: int) -> Expr:
        condition = self.flag(pool) if self.number(0, 4) else constant(bool(self.number(0, 1)))
        wanted = self.tensor(pool)
        arms = []
        for _ in range(2):
            arm = self.grow(list(pool), depth - 1, self.number(1, 3))
            # Both arms must have one type: each adds something of its own to one value.
            arms.append(ops.add(wanted, self.to_scalar(arm)))
        return if_(condition, arms[0], arms[1], self.span())

    def to_scalar(self, expr: Expr) -> Expr:
        if isinstance(expr.type, TupleType):
            expr = tuple_item(expr, 0)
        return ops.clip(ops.reduce_sum(expr, axes=tuple(range(len(shape_of(expr))))), minimum=-9.0, maximum=9.0)

    def binding(self, pool: list[Expr], depth: int) -> Expr:
        value = self.tensor(pool)
        variable = self.variable(value.type)
        return let(variable, value, self.grow([*pool, variable, ops.neg(variable)], depth - 1, self.number(1, 2)))

    def iterate(self, pool: list[Expr], depth: int) -> Expr:
        state, xs = self.tensor(pool), self.tensor(pool)
        scanned = [xs] if shape_of(xs) and self.number(0, 1) else []
        i, total = self.variable(COUNT), self.variable(state.type)
        rows = [self.variable(TensorType(shape_of(item)[1:], F32)) for item in scanned]
        inner = self.grow([*pool, total, *rows], depth - 1, self.number(1, 3))
        new = ops.add(total, self.to_scalar(inner))
        keep = constant(True) if self.number(0, 1) else ops.less(self.to_scalar(new), constant(np.float32(3)))
        body = function([i, total, *rows], tuple_([keep, new, self.to_scalar(inner)]))
        trips = constant(np.int64(self.number(0, 3)))
        result = loop(body, state=[state], scanned=scanned, trip_count=trips)
        return tuple_item(result, 0) if self.number(0, 1) else ops.reduce_sum(tuple_item(result, 1), axes=(0,))

    def closure(self, pool: list[Expr], depth: int) -> Expr:
        arg = self.tensor(pool)
        param = self.variable(arg.type)
        body = self.grow([*pool, param], depth - 1, self.number(1, 3))
        if isinstance(body.type, TupleType):
            body = tuple_item(body, 0)
        target = function([param], body)
        first, second = call(target, [arg]), call(target, [ops.neg(arg)])
        # Two calls may give two sizes, which need not broadcast when it runs.
        return ops.add(first, second) if first.type == second.type and self.number(0, 1) else first

    def recurse(self, pool: list[Expr], depth: int) -> Expr:
        scalar = TensorType((), F32)
        name = f"f{len(self.functions)}"
        self.functions[name] = None
        n, x = self.variable(COUNT), self.variable(scalar)
        kind = FunctionType((COUNT, scalar), scalar)
        inner = self.to_scalar(self.grow([x], depth - 1, self.number(1, 2)))
        again = call(global_var(name, kind), [ops.sub(n, constant(np.int64(1))), inner])
        body = if_(ops.less(n, constant(np.int64(1))), x, ops.add(again, x))
        self.functions[name] = function([n, x], body, result=scalar)
        return call(global_var(name, kind), [constant(np.int64(self.number(0, 3))), self.to_scalar(self.tensor(pool))])

    def pair(self, pool: list[Expr], depth: int) -> Expr:
        value = tuple_([self.tensor(pool), self.tensor(pool)])
        if self.number(0, 1):
            return value
        variable = self.variable(value.type)
        return let(variable, value, tuple_item(variable, self.number(0, 1)))

    def select_rows(self, pool: list[Expr], depth: int) -> Expr:
        x = self.tensor(pool)
        if not shape_of(x):
            return ops.neg(x)
        found = POSITIVE(x)
        k = shape_of(found)[0]
        twice = ops.concat(found, found, axis=0)
        return ops.reshape(twice, shape=(2, k, *shape_of(x)[1:]))


@st.composite
def programs(draw: Callable[..., Any], depth: int = 2) -> Program:
    """A module with inputs for its `main`, which returns a tensor or a tuple of tensors."""
    generator = Generator(draw)
    kinds = [TensorType((2, 3), F32), TensorType((N, 3), F32), TensorType((3,), F32), TensorType((), F32)]
    params = [var(name, type_) for name, type_ in zip("wxyz", kinds, strict=True)]
    pool: list[Expr] = list(params)
    generator.grow(pool, depth, generator.number(2, 7))
    results = pool[-generator.number(1, 3) :]
    body = results[0] if len(results) == 1 else tuple_(results)
    module = Module({**generator.functions, "main": function(params, body)})
    size = generator.number(1, 3)
    rng = np.random.default_rng(generator.number(0, 3))
    inputs = {
        param.name: rng.integers(-3, 4, [size if dim == N else dim for dim in shape_of(param)]).astype(np.float32)
        for param in params
    }
    return Program(module, inputs)


def run(module: Module, inputs: Inputs) -> Any:
    """The results, NaN and overflow allowed."""
    with np.errstate(all="ignore"):
        return evaluate(module, inputs)


def assert_same(a: Any, b: Any) -> None:
    """Equal results, up to the rounding that reassociation brings."""
    if isinstance(a, tuple):
        assert isinstance(b, tuple) and len(a) == len(b)
        for x, y in zip(a, b, strict=True):
            assert_same(x, y)
    else:
        assert a.shape == b.shape and a.dtype == b.dtype
        np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-5)
