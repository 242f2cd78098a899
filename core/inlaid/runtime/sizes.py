"""Sizes at run time: dimension expressions under the values of one run."""

from __future__ import annotations

import math
from collections.abc import Mapping

from inlaid import arith
from inlaid.arith import Dim, SizeVar
from inlaid.artifact import ALIGNMENT
from inlaid.errors import KernelFault, OutOfMemory

Sizes = dict[arith.Expr, int]
Shape = tuple[int, ...]

LIMIT = 1 << 47
"""No dimension and no buffer is larger: the address space of a process."""


def known(dim: Dim, sizes: Mapping[arith.Expr, int]) -> int | None:
    """The value of an expression; None while a variable in it has none. Raises `KernelFault` for a negative value,
    `OutOfMemory` for one beyond `LIMIT`."""
    if type(dim) is int:
        return dim
    try:
        value = arith.evaluate(dim, sizes)
    except KeyError:
        return None
    except ZeroDivisionError as error:
        raise KernelFault(f"the size {dim!r} divides by zero") from error
    if value >= LIMIT:
        raise OutOfMemory(f"the size {dim!r} is {value}, more than an address space")
    if value < 0:
        raise KernelFault(f"the size {dim!r} is {value}, which no buffer can have")
    return value


def known_shape(shape: tuple[Dim, ...], sizes: Mapping[arith.Expr, int]) -> Shape | None:
    """The values of a shape; None while any is unknown."""
    found = []
    for dim in shape:
        value = known(dim, sizes)
        if value is None:
            return None
        found.append(value)
    return tuple(found)


def bounded(dim: Dim, sizes: Mapping[arith.Expr, int]) -> int | None:
    """The value of an expression, existential dimensions that have none yet counted with their upper bounds; None where there is no
    bound."""
    limits = dict(sizes)
    return None if isinstance(dim, arith.Expr) and not _bound(dim, limits) else known(dim, limits)


def _bound(dim: arith.Expr, limits: Sizes) -> bool:
    """Give every variable of an expression a value in `limits`; False where one has no bound."""
    for variable in arith.free_vars(dim):
        if variable in limits:
            continue
        upper = variable.upper if isinstance(variable, SizeVar) and variable.existential else None
        value = None if upper is None else bounded(upper, limits)
        if value is None:
            return False
        limits[variable] = value
    return True


def byte_count(shape: Shape, itemsize: int) -> int:
    """Bytes of an array. Raises `OutOfMemory` where that is more than an address space."""
    size = math.prod(shape) * itemsize
    if size >= LIMIT:
        raise OutOfMemory(f"an array of shape {shape} takes {size} bytes")
    return size


def align_up(size: int) -> int:
    """The size rounded up to a multiple of 64."""
    return -(-size // ALIGNMENT) * ALIGNMENT
