"""Programs with symbolic sizes, and the sizes at which they are run."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from inlaid.graph import ir
from inlaid_runtime import arith
from inlaid_runtime.arith import SizeVar
from inlaid_runtime.types import OptionalType, SequenceType, TensorType, Type

Array = np.ndarray[Any, Any]
Sizes = Mapping[SizeVar, int]

LARGEST = 24
"""Greatest size that is tried, unless an example has a greater one."""
_HUGE = 1 << 20
"""Extent from which on all elements along an axis are one."""


@dataclass(frozen=True, eq=False)
class Program:
    """A program with symbolic sizes. `name` identifies it; `operator` is the operator that it calls, or the construct that it is
    about. `module` has symbolic sizes; `at` returns it with static ones and raises `TypeInferenceError`. `inputs` are the values of
    its parameters at the sizes `base`. `exact` is whether its results are defined exactly. `legal` tests whether sizes are legal;
    None: if static ones are. `cases` has all sizes that are tried; None: they are derived from `base`."""

    name: str
    operator: str
    module: ir.Module
    at: Callable[[Sizes], ir.Module]
    inputs: tuple[Any, ...]
    base: Sizes
    exact: bool
    legal: Callable[[Sizes], bool] | None = None
    cases: tuple[Sizes, ...] | None = None

    def values(self, sizes: Sizes, zeros: bool = False) -> list[Any]:
        """Return inputs at given sizes: elements of `inputs`, repeated or left out along each axis. With `zeros`, integers of all
        operands but the first are 0, so that they are indices into every axis that is not empty."""
        return [
            _resized(value, param.type, sizes, zeros and bool(number))
            for number, (value, param) in enumerate(zip(self.inputs, self.module.main.params, strict=True))
        ]


def _resized(value: Any, type_: Type, sizes: Sizes, zeros: bool) -> Any:
    match type_:
        case SequenceType(element=element):
            return [_resized(item, element, sizes, zeros) for item in value]
        case OptionalType(element=element):
            return None if value is None else _resized(value, element, sizes, zeros)
    assert isinstance(type_, TensorType)
    for axis, dim in enumerate(type_.shape):
        new_extent = dim if isinstance(dim, int) else arith.evaluate(dim, sizes)  # type: ignore[arg-type]
        extent = value.shape[axis]
        if not extent:
            value = np.zeros((*value.shape[:axis], new_extent, *value.shape[axis + 1 :]), value.dtype)
        elif new_extent >= _HUGE:
            value = np.broadcast_to(np.take(value, [0], axis), (*value.shape[:axis], new_extent, *value.shape[axis + 1 :]))
        elif extent != new_extent:
            value = np.take(value, np.arange(new_extent) % extent, axis)
    return np.zeros_like(value) if zeros and value.dtype.kind in "iu" else np.asarray(value)


@dataclass(frozen=True)
class Case:
    """Sizes at which a program is run; `name` lists those that differ from the program's base."""

    name: str
    sizes: Sizes


def cases(program: Program, constraints: Sequence[arith.Constraint]) -> Iterator[Case]:
    """Yield the base sizes; then each size in turn set to 0, 1, one less and one more, alone, and, if this breaks one of the
    `constraints`, with other sizes changed such that all hold. A program may list its cases instead."""
    yield Case("base", program.base)
    size_tuples = {tuple(program.base.values())}
    if program.cases is not None:
        for sizes in program.cases:
            if tuple(sizes.values()) not in size_tuples:
                size_tuples.add(tuple(sizes.values()))
                yield _case(program, sizes)
        return
    for size, usual in program.base.items():
        for value in dict.fromkeys((0, 1, usual - 1, usual + 1)):
            if value == usual or value < 0:
                continue
            alone = {**program.base, size: value}
            together = repaired(program, alone, size, constraints)
            for sizes in (alone, together):
                if sizes is not None and tuple(sizes.values()) not in size_tuples:
                    size_tuples.add(tuple(sizes.values()))
                    yield _case(program, sizes)


def _case(program: Program, sizes: Sizes) -> Case:
    return Case(" ".join(f"{name}={number}" for name, number in sizes.items() if number != program.base[name]), sizes)


def largest(usual: int) -> int:
    """Return the greatest size that is tried in place of `usual`."""
    return max(LARGEST, usual + 1)


def repaired(program: Program, sizes: Sizes, fixed_size: SizeVar, constraints: Sequence[arith.Constraint]) -> Sizes | None:
    """Change sizes other than `fixed_size` until all constraints hold, as little as possible. Returns None if none are found."""
    changed_sizes, fixed = dict(sizes), {fixed_size}
    for _ in range(len(sizes) + 1):
        broken = next((item for item in constraints if item.holds(changed_sizes) is False), None)
        if broken is None:
            return changed_sizes
        free = [size for size in sorted(arith.free_vars(broken.condition), key=repr) if size in changed_sizes and size not in fixed]
        change = next(
            (
                (size, value)
                for size in free
                for value in sorted(range(largest(program.base[size]) + 1), key=lambda value: abs(value - changed_sizes[size]))
                if broken.holds({**changed_sizes, size: value})
            ),
            None,
        )
        if change is None:
            return None
        changed_sizes[change[0]] = change[1]
        fixed.add(change[0])
    return None
