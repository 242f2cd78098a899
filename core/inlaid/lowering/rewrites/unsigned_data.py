"""Store int8 data as uint8, for targets whose dot-product instructions multiply unsigned data by signed weights.

x is stored as x + 128, which flips its sign bit. This costs nothing in the producer, whose zero points, limits and constants shift
by 128. It costs nothing in a product: (x + 128) w = x w + 128 (sum of w), and the second term merges into the bias. All sums are
unchanged:

    conv(x: int8, w) + b    =>    conv(x': uint8, w) + (b - 128 sum(w))
    cast(clip(y + z, -128, 127), int8)    =>    cast(clip(y + (z + 128), 0, 255), uint8)

Only data that such products read, possibly through data movement, is stored as uint8. Other readers, including the region's caller,
get the int8 value.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from inlaid import ops
from inlaid.graph.ir import Call, Constant, Expr, Function, call, constant, operator_traits, post_order
from inlaid.graph.operator import Choice, Operator
from inlaid.graph.rewrite import rewrite_expr
from inlaid.graph.transform import transform_function
from inlaid.ops.compose import cast_to, scalar
from inlaid.ops.fixed_point import SINGLE
from inlaid.passes.canonicalize_quantized import SUM_OF_CONSTANTS
from inlaid.passes.supported import Supports, supports_everything
from inlaid.tensor.scheduling.dot_products import product_speed
from inlaid.tensor.scheduling.rule import KernelContext
from inlaid_runtime.types import TensorType

OFFSET = 128


def unsigned_data(function: Function, context: KernelContext, supports: Supports = supports_everything) -> Function:
    """Store the int8 data of products as uint8. Returns the same object if there is none, if the target's dot products are no
    faster for uint8, or if it does not support an operator on uint8."""
    data_ids = _collect_data_ids(function)
    if not data_ids or _speed("uint8", context) <= _speed("int8", context):
        return function
    changed = rewrite_expr(transform_function(function, _UnsignedRewriter(data_ids).visit), (SUM_OF_CONSTANTS,))
    assert isinstance(changed, Function)
    original_kinds = {_kind(expr) for expr in post_order(function) if isinstance(expr, Call)}
    new = (expr for expr in post_order(changed) if isinstance(expr, Call) and _kind(expr) not in original_kinds)
    return changed if all(map(supports, new)) else function


def _kind(call: Call) -> tuple[object, ...]:
    """Return a key of a call; a target supports either all calls of a key or none."""
    return call.callee, call.attrs, call.type, *(arg.type for arg in call.args)


def _speed(data: str, context: KernelContext) -> tuple[bool, float]:
    """Return the speed of products of data with int8 weights."""
    return product_speed(data, "int8", "int32", context)


# --- which data to store as uint8 -------------------------------------------------------------------------------------


def _collect_data_ids(function: Function) -> set[int]:
    """Collect the ids of the int8 values that products read, directly or through data movement and clips."""
    ids: set[int] = set()
    for expr in reversed(list(post_order(function))):
        if isinstance(expr, Call) and _uses_dot_product(expr):
            ids.add(id(expr.args[0]))
        elif isinstance(expr, Call) and id(expr) in ids and (_moves(expr) or expr.callee in (ops.clip, ops.relu)):
            ids.update(id(arg) for arg in expr.args if _is_signed(arg) and not isinstance(arg, Constant))
    return ids


def _uses_dot_product(expr: Call) -> bool:
    """Test whether a call is an int8 product of non-constant data with a reduction that dot-product instructions can compute."""
    if not _is_product(expr) or isinstance(expr.args[0], Constant):
        return False
    # A group with one input channel has no channels to sum.
    attrs: Any = expr.attrs
    return expr.callee is ops.matmul or bool(attrs.groups == 1 or _shape(expr.args[1])[1] != 1)


def _is_product(expr: Call) -> bool:
    """Test whether a call is an int8 product in int32 that can read its data as uint8."""
    if expr.callee not in (ops.conv, ops.matmul) or not all(map(_is_signed, expr.args)):
        return False
    assert isinstance(expr.type, TensorType)
    return expr.type.dtype.name == "int32" and min(map(_rank, expr.args)) >= 2


def _moves(expr: Expr) -> bool:
    """Test whether an operator commutes with adding 128 to all its operands: it selects elements by position or by order."""
    moves = operator_traits(expr).moves
    return moves is not None and moves.by is not Choice.INDEX


def _is_signed(expr: Expr) -> bool:
    return isinstance(expr.type, TensorType) and expr.type.dtype.name == "int8"


# --- rewriting --------------------------------------------------------------------------------------------------------


class _UnsignedRewriter:
    """Rewrites expressions in one sweep. `_unsigned` maps ids of original int8 expressions to their uint8 form."""

    def __init__(self, data_ids: set[int]) -> None:
        self._data_ids = data_ids
        self._unsigned: dict[int, Expr] = {}

    def visit(self, old: Expr, new: Expr) -> Expr:
        """Rewrite an expression. Its uint8 form is recorded if a product reads it."""
        if isinstance(old, Call) and isinstance(new, Call):
            rewritten = self._reading_unsigned(old, new)
            new = new if rewritten is None else rewritten
        if id(old) not in self._data_ids or isinstance(old, Constant):
            return new
        unsigned = self._compute_unsigned(old, new)
        if unsigned is None:
            self._unsigned[id(old)] = ops.bitwise_xor(ops.bitcast(new, dtype="uint8"), scalar(OFFSET, "uint8"), span=new.span)
            return new
        self._unsigned[id(old)] = unsigned
        return ops.bitcast(ops.bitwise_xor(unsigned, scalar(OFFSET, "uint8"), span=new.span), dtype="int8", span=new.span)

    def _reading_unsigned(self, old: Call, new: Call) -> Expr | None:
        """Rewrite an operator that can read uint8 data; None for any other operator."""
        x = self._unsigned.get(id(old.args[0])) if old.args else None
        if x is None:
            return self._centered(old, new)
        if _is_product(old):
            return _product(new, x)
        if old.callee is ops.cast and isinstance(new.type, TensorType) and new.type.dtype.name in ("int16", "int32"):
            return ops.add(cast_to(x, new.type.dtype), scalar(-OFFSET, new.type.dtype), span=new.span)
        if old.callee is ops.dequantize:
            shifted_point = _shifted_point(new)
            return None if shifted_point is None else call(ops.dequantize, (x, new.args[1], shifted_point), new.attrs, new.span)
        return None

    def _centered(self, old: Call, new: Call) -> Expr | None:
        """Rewrite int32 data minus a zero point: the offset merges into the zero point."""
        wide = old.args[0] if old.callee is ops.sub else None
        if not isinstance(wide, Call) or wide.callee is not ops.cast or not isinstance(new.args[1], Constant):
            return None
        x, point = self._unsigned.get(id(wide.args[0])), new.args[1].data
        return (
            None
            if x is None or point.dtype != np.int32
            else ops.sub(cast_to(x, "int32"), constant(point + np.int32(OFFSET)), span=new.span)
        )

    def _compute_unsigned(self, old: Expr, new: Expr) -> Expr | None:
        """Compute an expression directly as uint8; None if the operator cannot compute uint8."""
        if not isinstance(old, Call) or not isinstance(new, Call):
            return None
        if _moves(old):
            args = [self._unsigned[id(arg)] if id(arg) in self._unsigned else _shifted_constant(arg) for arg in old.args]
            unsigned_args = [arg for arg in args if arg is not None]
            return None if len(unsigned_args) < len(args) else call(new.callee, unsigned_args, new.attrs, new.span)
        producer = _PRODUCERS.get(old.callee) if isinstance(old.callee, Operator) else None
        return None if producer is None else producer(new, self._unsigned.get(id(old.args[0])))


def _product(new: Call, x: Expr) -> Expr:
    """Build a product over uint8 data, corrected by 128 times the sums of weights."""
    w = new.args[1]
    attrs: Any = dataclasses.replace(new.attrs, out_dtype="int32")
    rank = _rank(w)
    spatial = 0 if new.callee is ops.matmul else rank - 2
    if spatial and any(amount != 0 for amount in attrs.pads):
        data_pads = (0, 0, *attrs.pads[:spatial], 0, 0, *attrs.pads[spatial:])
        x = ops.pad(x, scalar(OFFSET, "uint8"), pads=data_pads, span=new.span)
        attrs = dataclasses.replace(attrs, pads=())
    summed_axes = (rank - 2,) if new.callee is ops.matmul else tuple(range(1, rank))
    along_outputs = () if new.callee is ops.matmul else (_shape(w)[0], *(1,) * spatial)
    correction: Expr
    if isinstance(w, Constant):
        sums = -OFFSET * w.data.astype(np.int32).sum(axis=summed_axes, keepdims=True, dtype=np.int32)
        correction = constant(sums.reshape(along_outputs) if along_outputs else sums)
    else:
        correction = ops.reduce_sum(cast_to(w, "int32"), axes=summed_axes, keepdims=True, span=new.span)
        correction = ops.reshape(correction, shape=along_outputs) if along_outputs else correction
        correction = ops.mul(correction, scalar(-OFFSET, "int32"), span=new.span)
    return ops.add(call(new.callee, (x, w), attrs, new.span), correction, span=new.span)


# --- producers of bytes -----------------------------------------------------------------------------------------------


def _cast(new: Call, x: Expr | None) -> Expr | None:
    source_type = new.args[0].type
    assert isinstance(source_type, TensorType)
    # Only the low byte is kept, so the addition may wrap.
    return cast_to(_plus_offset(new.args[0]), "uint8") if source_type.dtype.name == "int32" else None


def _plus_offset(expr: Expr) -> Expr:
    """Add 128 to an int32 whose low byte is kept, by shifting limits and constants if possible."""
    if isinstance(expr, Call) and expr.callee is ops.clip and _is_far_from_wrapping(expr.args[0]):
        return ops.clip(
            _plus_offset(expr.args[0]), minimum=expr.attrs.minimum + OFFSET, maximum=expr.attrs.maximum + OFFSET, span=expr.span
        )
    if isinstance(expr, Call) and expr.callee is ops.add and isinstance(expr.args[1], Constant):
        with np.errstate(over="ignore"):
            return ops.add(expr.args[0], constant(expr.args[1].data + np.int32(OFFSET)), span=expr.span)
    return ops.add(expr, scalar(OFFSET, "int32"), span=expr.span)


def _is_far_from_wrapping(expr: Expr) -> bool:
    """Test whether an int32 is known to be at most about half of the maximum, such as a fixed-point product with a right shift."""
    if isinstance(expr, Call) and expr.callee is ops.add and isinstance(expr.args[1], Constant):
        return bool(np.all(np.abs(expr.args[1].data.astype(np.int64)) <= 2 * OFFSET)) and _is_far_from_wrapping(expr.args[0])
    if not isinstance(expr, Call) or expr.callee is not ops.multiply_fixed or expr.attrs.rounding in SINGLE:
        return False
    shift = expr.args[2]
    return isinstance(shift, Constant) and bool(np.all(shift.data < 0))


def _requantize(new: Call, x: Expr | None) -> Expr | None:
    total, scale, point = new.args
    shifted_point = _shifted_constant(point)
    if shifted_point is None:
        return None
    return call(ops.requantize, (total, scale, shifted_point), dataclasses.replace(new.attrs, dtype="uint8"), new.span)


def _quantize(new: Call, x: Expr | None) -> Expr | None:
    shifted_point = _shifted_point(new)
    if shifted_point is None:
        return None
    return call(ops.quantize, (*new.args[:2], shifted_point), dataclasses.replace(new.attrs, dtype="uint8"), new.span)


def _clip(new: Call, x: Expr | None) -> Expr | None:
    low, high = max(new.attrs.minimum, -128.0), min(new.attrs.maximum, 127.0)
    if x is None or not float(low).is_integer() or not float(high).is_integer():
        return None
    return ops.clip(x, minimum=low + OFFSET, maximum=high + OFFSET, span=new.span)


def _relu(new: Call, x: Expr | None) -> Expr | None:
    return None if x is None else ops.maximum(x, scalar(OFFSET, "uint8"), span=new.span)


def _take(new: Call, x: Expr | None) -> Expr | None:
    table = _shifted_constant(new.args[0])
    return None if table is None else call(ops.take, (table, new.args[1]), new.attrs, new.span)


_PRODUCERS: Mapping[Operator, Callable[[Call, Expr | None], Expr | None]] = {
    ops.cast: _cast,
    ops.clip: _clip,
    ops.quantize: _quantize,
    ops.relu: _relu,
    ops.requantize: _requantize,
    ops.take: _take,
}


def _shifted_constant(expr: Expr) -> Expr | None:
    """Add 128 to a constant; None for any other expression."""
    return constant((expr.data.view(np.uint8) ^ np.uint8(OFFSET)), span=expr.span) if isinstance(expr, Constant) else None


def _shifted_point(new: Call) -> Expr | None:
    """Return 128 plus the zero point of a `quantize` or `dequantize`; None if zero point or number of scales is not constant."""
    if len(new.args) == 3:
        return _shifted_constant(new.args[2])
    shape = _shape(new.args[1])
    return constant(np.full(shape, OFFSET, np.uint8)) if all(isinstance(dim, int) for dim in shape) else None


def _rank(expr: Expr) -> int:
    return len(_shape(expr))


def _shape(expr: Expr) -> tuple[Any, ...]:
    assert isinstance(expr.type, TensorType)
    return expr.type.shape
