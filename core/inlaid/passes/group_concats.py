"""Split concatenations of many tensors, of symbolic extents along the axis, into concatenations of few.

    concat(x0, ..., x99)    =>    concat(concat(x0, ..., x9), ..., concat(x90, ..., x99))

A kernel that reads many tensors at symbolic positions compares each index with every position, and each position is a sum of all
extents before it: the time to compile it grows with the cube of their number. Groups cost one more copy of the data. Tensors of
static extents are written to their places in the result instead.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from inlaid import ops
from inlaid.graph.ir import Call, Expr, Function
from inlaid.graph.transform import transform_function
from inlaid.passes.supported import Supports, is_supported, supports_everything
from inlaid_runtime.types import TensorType

WIDEST = 32
"""Maximum number of tensors that one kernel concatenates at symbolic positions."""


def group_concats(target: Function, supports: Supports = supports_everything) -> Function:
    """Split concatenations of more than `WIDEST` tensors. Returns the same object if there are none."""

    def visit(old: Expr, new: Expr) -> Expr:
        if not isinstance(new, Call) or symbolic_concat_arity(new) <= WIDEST:
            return new
        replacement = _grouped(new.args, new)
        return replacement if replacement.type == new.type and is_supported(replacement, supports, *new.args) else new

    return transform_function(target, visit)


def symbolic_concat_arity(expr: Expr) -> int:
    """Count the operands of a concatenation if one has a symbolic extent along the axis; 0 for any other expression."""
    if not isinstance(expr, Call) or expr.callee is not ops.concat:
        return 0
    attrs: Any = expr.attrs
    extents = [arg.type.shape[attrs.axis] for arg in expr.args if isinstance(arg.type, TensorType)]
    return 0 if all(isinstance(extent, int) for extent in extents) else len(extents)


def _grouped(parts: Sequence[Expr], old: Call) -> Expr:
    """Concatenate tensors in groups of about equal size, in as few levels as possible."""
    attrs: Any = old.attrs
    levels, count = 2, 2
    while WIDEST**levels < len(parts):
        levels += 1
    while count**levels < len(parts):
        count += 1
    while len(parts) > 1:
        groups = [parts[start : start + count] for start in range(0, len(parts), count)]
        parts = [ops.concat(*group, axis=attrs.axis, span=old.span) if len(group) > 1 else group[0] for group in groups]
    return parts[0]
