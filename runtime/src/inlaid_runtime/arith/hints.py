"""Representative sizes of symbolic dimensions, for cost models."""

from __future__ import annotations

from collections.abc import Mapping

from inlaid_runtime.arith.expr import Dim, Expr, SizeVar, Var, evaluate, post_order

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
    hints: dict[Expr, int] = {}
    for node in post_order(dim, below=_read):
        assert not isinstance(node, Var), f"{node!r} is a loop variable: expected a symbolic dimension"
        if isinstance(node, SizeVar):
            hints[node] = _variable(node, unknown, hints)
    return _hint(dim, hints)


def _read(node: Expr) -> tuple[Expr, ...]:
    """Return the expressions that the assumed size of a node depends on."""
    if not isinstance(node, SizeVar):
        return node.operands
    bound = node.upper if node.usual is None else node.usual
    return (bound,) if isinstance(bound, Expr) else ()


def _variable(variable: SizeVar, unknown: int, hints: Mapping[Expr, int]) -> int:
    """Return the assumed size of a variable, given those of the variables that its bound reads."""
    if variable.usual is not None:
        return _hint(variable.usual, hints)
    if variable.upper is None:
        return max(unknown, variable.lower)
    return max(min(-(-_hint(variable.upper, hints) // 2), LARGEST_SIZE), variable.lower)


def _hint(dim: Dim, hints: Mapping[Expr, int]) -> int:
    # A difference of sizes may be 0 at the assumed sizes, which would make every cost 0.
    size = evaluate(dim, hints)
    return max(size, 1) if isinstance(dim, Expr) and dim.operands else size
