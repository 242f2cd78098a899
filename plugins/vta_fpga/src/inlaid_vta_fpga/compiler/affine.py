"""Affine forms of indices over a loop nest. They are derived once per statement and evaluated once per task."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from inlaid.tensor import ir
from inlaid_runtime import arith
from inlaid_runtime.errors import ScheduleError

Env = Mapping[arith.Expr, int]
"""Values of the loop variables around a nest."""
Loops = tuple[tuple[arith.Var, int], ...]
"""The loops of a nest, outermost first, with their extents."""


@dataclass(frozen=True, slots=True)
class Affine:
    """The form `constant` + sum(factor * term over `outer`) + sum(`inner`[i] * loop i of the nest). The terms of `outer` are
    variables of loops around the nest, or expressions of such variables."""

    constant: int
    outer: tuple[tuple[arith.Expr, int], ...]
    inner: tuple[int, ...]

    def at(self, env: Env) -> int:
        """Evaluate the form for loop variables `env` around the nest, with all loops of the nest at 0."""
        total = self.constant
        for term, factor in self.outer:
            value = env.get(term)
            total += factor * (arith.evaluate(term, env) if value is None else value)
        return total

    def over(self, lanes: int, loop_numbers: Sequence[int], what: str) -> Affine:
        """Convert the index of a scalar, at lane 0 of an element of `lanes` scalars, to the index of the element. loop_numbers:
        the loops that the result keeps. Raises a `ScheduleError` that begins with `what` unless `lanes` divides all
        numbers of the form."""
        inner = [self.inner[number] for number in loop_numbers]
        if any(factor % lanes for factor in (self.constant, *(factor for _, factor in self.outer), *inner)):
            raise ScheduleError(f"{what}: expected steps of {lanes} scalars, found {self}", remedy="keep blocks of channels whole")
        outer = tuple((term, factor // lanes) for term, factor in self.outer)
        return Affine(self.constant // lanes, outer, tuple(factor // lanes for factor in inner))


def affine(expr: arith.Expr, loops: Loops, what: str) -> Affine:
    """Return the affine form of an expression. If not affine, raises a `ScheduleError` that begins with `what`."""
    form = arith.linear(expr)
    variables = {var for var, _ in loops}
    outer = tuple((term, factor) for term, factor in form.terms.items() if term not in variables)
    if any(not variables.isdisjoint(arith.free_vars(term)) or arith.reads_data(term) for term, _ in outer):
        raise ScheduleError(
            f"{what}: expected an index affine in the loops, found {expr!r}", remedy="split loops instead of fusing them"
        )
    return Affine(form.constant, outer, tuple(form.terms.get(var, 0) for var, _ in loops))


def scalar(buffer: ir.Buffer, indices: Sequence[arith.Expr], loops: Loops, what: str) -> Affine:
    """Return the row-major index of a scalar of a buffer."""
    flat: arith.Expr = arith.ZERO
    for index, dim in zip(indices, buffer.shape, strict=True):
        flat = flat * dim + index
    return affine(flat, loops, f"{what}, buffer {buffer}")


@dataclass(frozen=True, slots=True)
class Guard:
    """The condition 0 <= `value`. It depends on at most one loop of the nest. `loop`: number of this loop, or -1."""

    value: Affine
    loop: int

    def narrow(self, env: Env, ranges: list[tuple[int, int]]) -> bool:
        """Narrow `ranges` of the loops to the iterations in which the condition holds. Returns False if it never holds."""
        start = self.value.at(env)
        if self.loop < 0:
            return start >= 0
        factor = self.value.inner[self.loop]
        low, high = ranges[self.loop]
        ranges[self.loop] = low, high = (
            (max(low, -(start // factor)), high) if factor > 0 else (low, min(high, start // -factor + 1))
        )
        return low < high


def guards(condition: arith.Expr, loops: Loops, what: str) -> Iterator[Guard]:
    """Split a conjunction of comparisons into guards. Raises `ScheduleError` for any other condition."""
    if isinstance(condition, arith.And):
        for part in condition.operands:
            yield from guards(part, loops, what)
        return
    if condition == arith.ONE:
        return
    if isinstance(condition, arith.Compare) and condition.op != "!=":
        a, b = condition.operands
        for side in {"<": (b - a - 1,), "<=": (b - a,), "==": (b - a, a - b)}[condition.op]:
            value = affine(side, loops, what)
            varying_axes = [number for number, factor in enumerate(value.inner) if factor]
            if len(varying_axes) > 1:
                break
            yield Guard(value, varying_axes[0] if varying_axes else -1)
        else:
            return
    raise ScheduleError(
        f"{what}: expected comparisons of one loop each, found {condition!r}", remedy="guard whole rows and columns"
    )
