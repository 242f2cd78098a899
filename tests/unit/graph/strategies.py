"""Random modules: operators, tuples, branches, bindings, loops, closures, recursion, symbolic and existential sizes.

Values are small integers in float32 wherever it can be arranged, so that most results are exact.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from hypothesis import strategies as st

from inlaid import ops
from inlaid.graph.interp import evaluate
from inlaid.graph.ir import Expr, Module, Span, constant, function, tuple_, var
from inlaid.graph.operator import Operator
from inlaid.graph.text import show
from inlaid.graph.unify import fresh_size
from inlaid_runtime.arith import SizeVar
from inlaid_runtime.types import TensorType
from random_graphs import control
from random_graphs.control import F32 as F32
from random_graphs.control import tensor_shape as tensor_shape

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


class Generator(control.Generator):
    """Grows pools of expressions in scope by simple operators on float32 and by control flow. `draw` is hypothesis's."""

    def __init__(self, draw: Callable[..., Any]) -> None:
        super().__init__(lambda low, high: draw(st.integers(low, high)))
        self.draw = draw

    def constant(self, shape: tuple[int, ...]) -> Expr:
        seed = self.number(0, 7)
        data = (
            np.random.default_rng(seed).integers(-2, 3, shape).astype(np.float32) if seed > 2 else np.full(shape, seed, np.float32)
        )
        return constant(data)

    def step(self, pool: list[Expr], depth: int) -> Expr:
        kinds: list[control.Step] = [self.unary, self.binary, self.reduce, self.shape, self.simple, self.unary]
        if depth:
            kinds += [*self.control(), self.select_rows]
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
        return operator(a, b) if len(tensor_shape(a)) else operator(a, self.pick([*fitting, self.constant(())]))

    def reduce(self, pool: list[Expr], depth: int) -> Expr:
        x = self.tensor(pool)
        if not tensor_shape(x):
            return ops.neg(x)
        axis = self.number(0, len(tensor_shape(x)) - 1)
        operator = self.pick([ops.reduce_sum, ops.reduce_max])
        if operator is ops.reduce_max and not isinstance(tensor_shape(x)[axis], int):
            operator = ops.reduce_sum
        return operator(x, axes=(axis,), keepdims=bool(self.number(0, 1)))

    def shape(self, pool: list[Expr], depth: int) -> Expr:
        x = self.tensor(pool)
        shape = tensor_shape(x)
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

    def select_rows(self, pool: list[Expr], depth: int) -> Expr:
        x = self.tensor(pool)
        if not tensor_shape(x):
            return ops.neg(x)
        positive_rows = POSITIVE(x)
        k = tensor_shape(positive_rows)[0]
        twice = ops.concat(positive_rows, positive_rows, axis=0)
        return ops.reshape(twice, shape=(2, k, *tensor_shape(x)[1:]))


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
        param.name: rng.integers(-3, 4, [size if dim == N else dim for dim in tensor_shape(param)]).astype(np.float32)
        for param in params
    }
    return Program(module, inputs)


def run(module: Module, inputs: Inputs) -> Any:
    """The results, NaN and overflow allowed."""
    with np.errstate(all="ignore"):
        return evaluate(module, inputs)


def assert_close(a: Any, b: Any) -> None:
    """Equal results, up to the rounding that reassociation brings."""
    if isinstance(a, tuple):
        assert isinstance(b, tuple) and len(a) == len(b)
        for x, y in zip(a, b, strict=True):
            assert_close(x, y)
    else:
        assert a.shape == b.shape and a.dtype == b.dtype
        np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-5)
