"""Representative sizes of symbolic dimensions, for cost models."""

from __future__ import annotations

from inlaid.arith.expr import Dim, Expr, SizeVar, evaluate, free_vars

UNKNOWN_SIZE = 128
"""Size assumed for a size variable without an upper bound."""
IMAGE_SIDE = 224
"""Size assumed for the side of an image without an upper bound, in image kernels; most networks are trained at this size."""
LARGEST_SIZE = 4096
"""Largest size assumed for a size variable with an upper bound. Bounds often far exceed typical sizes."""


def size_hint(dim: Dim, unknown: int = UNKNOWN_SIZE) -> int:
    """Return the size that cost models assume for a dimension. An integer is itself. A size variable has half its upper bound, or
    `unknown` if it has none: tiles chosen for the bound itself would be partial at every smaller size. Raises AssertionError for a
    loop variable, which has no assumed size."""
    if isinstance(dim, int):
        return dim
    found = evaluate(dim, {variable: _variable(variable, unknown) for variable in free_vars(dim)})
    # A difference may be 0 at the assumed sizes, where every cost would be 0.
    return max(found, 1) if dim.operands else found


def _variable(variable: Expr, unknown: int) -> int:
    assert isinstance(variable, SizeVar), f"{variable!r} is a loop variable: expected a symbolic dimension"
    if variable.usual is not None:
        return size_hint(variable.usual, unknown)
    if variable.upper is None:
        return max(unknown, variable.lower)
    return max(min(-(-size_hint(variable.upper, unknown) // 2), LARGEST_SIZE), variable.lower)
