"""Random statements over a few small buffers: what is loaded once is loaded again wherever a store may have changed it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from inlaid.tensor import ir, te
from inlaid.tensor.build import Builder
from inlaid_runtime import arith
from inlaid_runtime.types import dtype

from .native import Array, check

I64, SIZE = "int64", 8
VECTOR = ir.ForKind.VECTORIZED


class Statements:
    """Random statements, all of whose indices lie inside."""

    def __init__(self, draw: Callable[..., Any], b: Builder, stores: list[ir.Buffer], loads: list[ir.Buffer]) -> None:
        self.draw = draw
        self.b = b
        self.stores = stores
        self.loads = loads
        self.variables: list[arith.Var] = []
        self.conditions: list[ir.Expr] = []

    def number(self, low: int, high: int) -> int:
        value: int = self.draw(st.integers(low, high))
        return value

    def pick(self, items: list[Any]) -> Any:
        return items[self.number(0, len(items) - 1)]

    def index(self) -> arith.Expr:
        constant = arith.wrap(self.number(0, SIZE - 1))
        match self.number(0, 4) if self.variables else 0:
            case 0:
                return constant
            case 1:
                return (self.pick(self.variables) + constant) % SIZE
            case 2:
                return arith.minimum(self.pick(self.variables), SIZE - 1)
            case 3:
                return te.checked(self.pick(self.loads)[constant] & te.const(SIZE - 1, I64), 0, SIZE - 1)
            case _:
                return (self.pick(self.variables) * self.number(1, 3) + self.pick(self.variables)) % SIZE

    def value(self, depth: int = 2) -> ir.Expr:
        match self.number(0, 4) if depth else 0:
            case 0 | 1:
                return self.pick(self.loads)[self.index()]  # type: ignore[no-any-return]
            case 2:
                return te.select(self.flag(), self.value(depth - 1), self.value(depth - 1))
            case 3 if self.variables:
                return ir.Index(dtype(I64), self.pick(self.variables) + self.number(-2, 2))
            case _:
                return ir.binary(self.pick(["add", "sub", "xor"]), self.value(depth - 1), self.value(depth - 1))

    def flag(self) -> ir.Expr:
        """A condition; sometimes one that was used before, as the same expression."""
        if self.conditions and self.number(0, 1):
            return self.pick(self.conditions)  # type: ignore[no-any-return]
        condition = self.pick(self.loads)[arith.wrap(self.number(0, SIZE - 1))] < te.const(self.number(-9, 9), I64)
        self.conditions.append(condition)
        return condition

    def block(self, depth: int, steps: int) -> None:
        for _ in range(steps):
            self.statement(depth)

    def statement(self, depth: int) -> None:
        match self.number(0, 5) if depth else 0:
            case 0 | 1:
                self.b.store(self.pick(self.stores), self.index(), self.value())
            case 2:
                with self.b.loop(self.number(1, 3), "i") as i:
                    self.scoped(i, depth)
            case 3:
                with self.b.if_(self.flag()):
                    self.scoped(None, depth)
                if self.number(0, 1):
                    with self.b.else_():
                        self.scoped(None, depth)
            case 4:
                # Lanes read and write places of their own.
                target = self.pick(self.stores)
                sources = [buffer for buffer in self.loads if buffer is not target]
                lanes = self.number(2, SIZE)
                with self.b.loop(lanes, "lane", VECTOR) as lane:
                    value = self.pick(sources)[(lane + self.number(0, 3)) % SIZE] + target[lane]
                    if self.number(0, 1):
                        with self.b.if_(self.pick(sources)[lane] < te.const(3, I64)):
                            self.b.store(target, lane, value)
                    else:
                        self.b.store(target, lane, te.select(self.pick(sources)[lane] < te.const(0, I64), value, target[lane]))
            case _:
                index = self.b.let(self.pick(self.loads)[self.index()] & te.const(SIZE - 1, I64), bounds=(0, SIZE - 1))
                self.variables.append(index)
                self.b.store(self.pick(self.stores), index, self.value())

    def scoped(self, variable: arith.Var | None, depth: int) -> None:
        outer = list(self.variables)
        if variable is not None:
            self.variables.append(variable)
        self.block(depth - 1, self.number(1, 3))
        self.variables = outer


@st.composite
def random_programs(draw: Callable[..., Any]) -> tuple[list[ir.LoopProgram], list[Array]]:
    programs, arrays = [], []
    for number in range(5):
        x = ir.Buffer("x", (SIZE,), dtype(I64))
        y, z = (ir.Buffer(name, (SIZE,), dtype(I64)) for name in "yz")
        b = Builder()
        with b.loop(SIZE, "i") as i:
            b.store(y, i, x[i] + te.const(1, I64))
            b.store(z, i, te.const(5, I64))
        tmp = b.alloc((SIZE,), I64)
        with b.loop(SIZE, "i") as i:
            b.store(tmp, i, ir.Index(dtype(I64), i))
        Statements(draw, b, [y, z, tmp], [x, y, z, tmp]).block(3, draw(st.integers(2, 5)))
        with b.loop(SIZE, "i") as i:
            b.store(z, i, z[i] ^ tmp[i])
        programs.append(ir.LoopProgram(f"kernel{number}", (x,), (y, z), b.finish()))
        arrays.append(np.random.default_rng(number).integers(-9, 10, SIZE))
    return programs, arrays


@settings(max_examples=25, deadline=None)
@given(random_programs())
def test_random_statements(case: tuple[list[ir.LoopProgram], list[Array]]) -> None:
    check(*case)
