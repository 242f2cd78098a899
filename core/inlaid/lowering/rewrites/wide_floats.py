"""Multiply narrow floats in float32, where the target has no instruction for products of them.

    conv(x: float16, w: float16)    =>    cast(conv(cast(x, float32), cast(w, float32)), float16)

Sums are in float32 either way, and each result is rounded to its type once. Data is converted where it is computed or copied, once
for all products that read it, and constants at compile time: in the product's loop, each element would be converted as often as
it is multiplied.
"""

from __future__ import annotations

import dataclasses

from inlaid import ops
from inlaid.graph.ir import Call, Constant, Expr, Function, call, constant
from inlaid.graph.transform import transform_function
from inlaid.lowering.kernels.kernel import tensor_type
from inlaid.lowering.rewrites.wide_products import is_shared
from inlaid.ops.compose import cast_to
from inlaid.passes.supported import Supports, is_supported, supports_everything
from inlaid.tensor.scheduling.dot_products import find_dots
from inlaid.tensor.scheduling.rule import KernelContext

NARROW, WIDE = ("float16", "bfloat16"), "float32"


def wide_floats(function: Function, context: KernelContext, supports: Supports = supports_everything) -> Function:
    """Rewrite convolutions and matrix products of narrow floats to float32. Returns the same object if there are none, or if the
    target does not support a rewritten operator."""
    widened: dict[int, tuple[Expr, Expr]] = {}

    def widen(operand: Expr) -> Expr:
        return widened.setdefault(id(operand), (operand, _widened(operand)))[1]

    def visit(old: Expr, new: Expr) -> Expr:
        if not isinstance(new, Call) or new.callee not in (ops.conv, ops.matmul) or not _is_slow(new, context):
            return new
        product = call(new.callee, list(map(widen, new.args)), dataclasses.replace(new.attrs, out_dtype=WIDE), new.span)
        narrow = cast_to(product, tensor_type(new.type).dtype)
        return narrow if is_supported(narrow, supports, *new.args) else new

    return transform_function(function, visit)


def _is_slow(product: Call, context: KernelContext) -> bool:
    """Test whether a product of narrow floats has no instruction of its own. Products with few rows are excluded: they are bound by
    reading weights, which are smaller in their own type."""
    names = {tensor_type(arg.type).dtype.name for arg in product.args}
    if len(names) != 1 or names.isdisjoint(NARROW) or not is_shared(product, context):
        return False
    (name,) = names
    return not find_dots(name, name, WIDE, context)


def _widened(operand: Expr) -> Expr:
    if isinstance(operand, Constant):
        return constant(operand.data.astype(WIDE), span=operand.span)
    return cast_to(operand, WIDE)
