"""Affine forms of indices over a nest of loops: analysed once per statement, evaluated once per task."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from inlaid import arith
from inlaid.errors import ScheduleError
from inlaid.tensor import ir

Env = Mapping[arith.Expr, int]
"""Values of the loops around a nest."""


@dataclass(frozen=True, slots=True)
class Affine:
    """constant + sum of coefficient * term of `outer` + sum of `inner` * loop of the nest. The terms of `outer` are loops around
    the nest, or expressions of them."""

    constant: int
    outer: tuple[tuple[arith.Expr, int], ...]
    inner: tuple[int, ...]

    def at(self, env: Env) -> int:
        """The value where all loops of the nest are at 0."""
        found = self.constant
        for term, factor in self.outer:
            value = env.get(term)
            found += factor * (arith.evaluate(term, env) if value is None else value)
        return found


@dataclass(frozen=True, slots=True)
class Loop:
    """A loop of a nest. Its extent is constant."""

    var: arith.Var
    extent: int


def affine(expr: arith.Expr, loops: Sequence[Loop], what: str) -> Affine:
    """The affine form of an integer expression. Raises `ScheduleError`, which says `what` it is, where it is not affine."""
    form = arith.linear(expr)
    inner = tuple(form.terms.get(loop.var, 0) for loop in loops)
    variables = {loop.var for loop in loops}
    outer = tuple((term, factor) for term, factor in form.terms.items() if term not in variables)
    for term, _ in outer:
        if not variables.isdisjoint(arith.free_vars(term)) or arith.reads_data(term):
            raise ScheduleError(
                f"{what}: expected an index affine in the loops, found {expr!r}", remedy="split loops instead of fusing them"
            )
    return Affine(form.constant, outer, inner)


def element(buffer: ir.Buffer, indices: Sequence[arith.Expr], loops: Sequence[Loop], what: str) -> Affine:
    """The row-major number of an element of a buffer."""
    flat: arith.Expr = arith.ZERO
    for index, dim in zip(indices, buffer.shape, strict=True):
        flat = flat * dim + index
    return affine(flat, loops, f"{what}, buffer {buffer}")


@dataclass(frozen=True, slots=True)
class Guard:
    """The condition 0 <= value of a nest, which one loop of it varies at most: `loop` is its number, -1 for none."""

    value: Affine
    loop: int

    def narrow(self, env: Env, ranges: list[tuple[int, int]]) -> bool:
        """Narrow the ranges of loops to where the condition holds. False: it never does."""
        start = self.value.at(env)
        if self.loop < 0:
            return start >= 0
        factor = self.value.inner[self.loop]
        low, high = ranges[self.loop]
        if factor > 0:
            low = max(low, -(start // factor))
        else:
            high = min(high, start // -factor + 1)
        ranges[self.loop] = low, high
        return low < high


def guards(condition: arith.Expr, loops: Sequence[Loop], what: str) -> Iterator[Guard]:
    """The guards that a conjunction of comparisons consists of. Raises `ScheduleError` for any other condition."""
    if isinstance(condition, arith.And):
        for part in condition.operands:
            yield from guards(part, loops, what)
        return
    if condition == arith.ONE:
        return
    sides: tuple[arith.Expr, ...] = ()
    if isinstance(condition, arith.Compare):
        a, b = condition.operands
        sides = {"<": (b - a - 1,), "<=": (b - a,), "==": (b - a, a - b)}.get(condition.op, ())
    for side in sides:
        value = affine(side, loops, what)
        varied = [number for number, factor in enumerate(value.inner) if factor]
        if len(varied) > 1:
            sides = ()
            break
        yield Guard(value, varied[0] if varied else -1)
    if not sides:
        raise ScheduleError(
            f"{what}: expected comparisons with one loop each, found {condition!r}", remedy="guard whole rows and columns"
        )
