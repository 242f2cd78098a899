"""Representative sizes of symbolic dimensions, for cost models."""

from __future__ import annotations

from inlaid.arith.expr import Dim, Expr, SizeVar, evaluate, free_vars

UNKNOWN_SIZE = 128
"""Of a size variable without an upper bound."""
IMAGE_SIDE = 224
"""Of a side of an image without an upper bound, where kernels compute images: what most networks are trained on."""
LARGEST_SIZE = 4096
"""Of a size variable with an upper bound, at most: bounds are often far beyond what is usual."""


def size_hint(dim: Dim, unknown: int = UNKNOWN_SIZE) -> int:
    """The size that cost models take a dimension to have: an integer as it is; in an expression each size variable has half its
    upper bound, since tiles for the bound itself would be cut off at every smaller size, or `unknown` where it has none. Raises
    AssertionError for variables of loops, which have no size."""
    if isinstance(dim, int):
        return dim
    found = evaluate(dim, {variable: _variable(variable, unknown) for variable in free_vars(dim)})
    # What a difference leaves at these sizes may be nothing, of which no cost can be told.
    return max(found, 1) if dim.operands else found


def _variable(variable: Expr, unknown: int) -> int:
    assert isinstance(variable, SizeVar), f"{variable!r} is no dimension"
    if variable.upper is None:
        return max(unknown, variable.lower)
    return max(min(-(-size_hint(variable.upper, unknown) // 2), LARGEST_SIZE), variable.lower)
