"""Rewrite products of 8-bit integers to products of int16, for targets that multiply int16 faster.

A vector unit that multiplies pairs of int16 must otherwise extend bytes inside the product's loop, again for each tile. This pass
casts data to int16 once, where the data is computed or copied, and casts constants at compile time. All sums are unchanged:

    conv(x: uint8, w: int8)    =>    conv(cast(x, int16), w: int16)

Other readers of the data cast the int16 values back to bytes.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any, TypeGuard

from inlaid import ops
from inlaid.graph.ir import Call, Constant, Expr, Function, call, constant, operator_traits, post_order
from inlaid.graph.operator import Choice
from inlaid.graph.transform import transform_function
from inlaid.lowering.kernels.kernel import tensor_type
from inlaid.ops.compose import cast_to
from inlaid.passes.supported import Supports, is_supported, supports_everything
from inlaid.tensor.scheduling.dot_products import product_speed
from inlaid.tensor.scheduling.rule import KernelContext
from inlaid_runtime.arith import IMAGE_SIDE, size_hint

WIDE = "int16"
BYTES = ("int8", "uint8")


def wide_products(function: Function, context: KernelContext, supports: Supports = supports_everything) -> Function:
    """Rewrite the products of bytes that the target computes faster in int16. Returns the same object if there are none, or if the
    target does not support an operator on int16."""
    products = [expr for expr in post_order(function) if isinstance(expr, Call) and _is_faster_wide(expr, context)]
    if not products:
        return function
    changed = transform_function(function, _Widening(function, products).visit)
    assert isinstance(changed, Function)
    return changed if is_supported(changed.body, supports, *post_order(function)) else function


def multiplies_bytes(call: Call) -> bool:
    """Test whether a call is a convolution or matrix product of 8-bit integers, summed in int32."""
    if call.callee not in (ops.conv, ops.matmul):
        return False
    *factors, total = (tensor_type(item.type).dtype.name for item in (*call.args, call))
    return total == "int32" and all(name in BYTES for name in factors)


def is_shared(product: Call, context: KernelContext) -> bool:
    """Test whether enough rows of data read the same weights for a product to be computed in a wider type. Fewer rows are bound by
    reading weights."""
    result, data, weights = (tensor_type(item.type) for item in (product, *product.args))
    if product.callee is ops.conv:
        attrs: Any = product.attrs
        # With one input channel per group, there are no pairs of products to add.
        if weights.shape[1] == 1 and attrs.groups != 1:
            return False
        rows = size_hint(result.shape[0]) * math.prod(size_hint(dim, IMAGE_SIDE) for dim in result.shape[2:])
    elif min(data.rank, weights.rank) < 2:
        return False
    else:
        rows = math.prod(map(size_hint, data.shape[:-1] if weights.rank == 2 else data.shape[-2:-1]))
    return rows >= context.capabilities.core.costs.widened_rows


def _is_faster_wide(expr: Call, context: KernelContext) -> bool:
    """Test whether an expression is a product of bytes that the target computes faster in int16."""
    if not multiplies_bytes(expr) or not is_shared(expr, context):
        return False
    data, weights = (tensor_type(item.type).dtype.name for item in expr.args)
    return product_speed(WIDE, WIDE, "int32", context) > product_speed(data, weights, "int32", context)


class _Widening:
    """Rewrites expressions in one sweep. `_wide` maps ids of original 8-bit expressions to their int16 form."""

    def __init__(self, function: Function, products: list[Call]) -> None:
        self._products = {id(expr) for expr in products}
        self._operand_ids = {id(arg) for expr in products for arg in expr.args}
        self._wide: dict[int, Expr] = {}
        for expr in reversed(list(post_order(function))):
            if id(expr) in self._operand_ids and _is_moved(expr):
                self._operand_ids.update(map(id, expr.args))

    def visit(self, old: Expr, new: Expr) -> Expr:
        """Rewrite an expression, and record its int16 form if a product reads it."""
        if isinstance(new, Call) and isinstance(old, Call) and id(old) in self._products:
            attrs: Any = new.attrs
            new = call(new.callee, [self._wide[id(arg)] for arg in old.args], replace(attrs, out_dtype="int32"), new.span)
        if id(old) not in self._operand_ids:
            return new
        if isinstance(old, Constant):
            self._wide[id(old)] = constant(old.data.astype(WIDE), span=old.span)
            return new
        wide = cast_to(new, WIDE)
        if isinstance(old, Call) and isinstance(new, Call) and _is_moved(old):
            wide = call(new.callee, [self._wide[id(arg)] for arg in old.args], new.attrs, new.span)
        self._wide[id(old)] = wide
        return cast_to(wide, tensor_type(old.type).dtype) if isinstance(old, Call) else new


def _is_moved(expr: Expr) -> TypeGuard[Call]:
    """Test whether a call only copies elements of its operands, selected by position or by comparison, not by an index operand."""
    moves = operator_traits(expr).moves if isinstance(expr, Call) else None
    return moves is not None and moves.by is not Choice.INDEX
