"""Canonicalize quantized models: integer operators that produce int32, then `requantize`.

`quantize_integers` rewrites the pattern dequantize, convolve or multiply, quantize (ONNX QDQ) to that form, which the ONNX frontend
also builds for QLinearConv and the like. It moves data movement (transpose, concat) inside the quantized part. `narrow_integers`,
which runs after constant folding, narrows the operands of integer products from int32 back to 8-bit types and moves zero points out
of the sum, so that products match a target's instructions, with the right operand in int8. Both passes are bit-exact with a runtime
that fuses the pattern: accumulators wrap at 32 bits, so sums may be reassociated.

Products and global average pools are exact integer sums and one float32 multiplication, as in ONNX Runtime's optimized execution.
All other operators between dequantize and quantize (residual sums, activations, softmax) compute in float32, as in the ONNX
specification and ONNX Runtime's unoptimized execution. Its optimized execution may differ by one.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

import numpy as np

from inlaid.graph.ir import Call, Constant, Expr, Function, call, constant, operator_traits
from inlaid.graph.operator import Choice, Operator, Traits
from inlaid.graph.pattern import Match, Pattern, is_const, is_op, match, wildcard
from inlaid.graph.rewrite import RewriteRule, rewrite_expr
from inlaid.graph.transform import transform_function
from inlaid.graph.uses import UseCounts
from inlaid.ops.activation import relu
from inlaid.ops.compose import cast_to, scalar
from inlaid.ops.conversion import bitcast
from inlaid.ops.elementwise import add, bitwise_xor, maximum, minimum, mul, sub
from inlaid.ops.quantized import dequantize, quantize, requantize
from inlaid.ops.reduce import reduce_sum
from inlaid.ops.shape import concat, pad, reshape, transpose
from inlaid.passes.integer_products import SUM_LIMIT, greatest_sum, stored_operand
from inlaid_runtime import arith
from inlaid_runtime.types import TensorType, dtype

Array = np.ndarray[Any, Any]

MEAN_LIMIT = 1 << 23
"""Maximum number of 8-bit elements in a sum, so that the sum fits in 32 bits."""


def quantize_integers(target: Function) -> Function:
    """Rewrite products between dequantize and quantize to integer products."""
    sunk = rewrite_expr(target, _SINKING)
    assert isinstance(sunk, Function)
    uses = UseCounts(sunk)

    def visit(old: Expr, new: Expr) -> Expr:
        if isinstance(new, Call) and new.callee is quantize:
            new = _in_integers(new, uses)
        uses.note(old, new)
        return new

    return transform_function(sunk, visit)


def _in_integers(stored: Call, uses: UseCounts) -> Expr:
    """Rewrite a `quantize` so that as much of its operand as possible computes in integers."""
    rewritten = _without_detour(stored)
    if rewritten is None:
        rewritten = _integer_product(stored, uses)
    if rewritten is None:
        rewritten = _integer_mean(stored, uses)
    if rewritten is not None:
        return rewritten
    movement = stored.args[0]
    if not isinstance(movement, Call) or movement.callee not in (concat, reshape, transpose):
        return stored
    if not uses.single(movement) or _rank(stored.args[1]):
        return stored
    # Quantize the parts first, so that data movement copies integers.
    parts = [_in_integers(call(quantize, (part, *stored.args[1:]), stored.attrs, stored.span), uses) for part in movement.args]
    return call(movement.callee, parts, movement.attrs, movement.span)


# --- data movement on quantized values --------------------------------------------------------------------------------


def _transpose_stored(match: Match) -> Expr | None:
    """Rewrite transpose(dequantize(x)) to dequantize(transpose(x))."""
    stored, perm = match.call("dequantized"), match.attrs("outer").perm
    x, *parameters = stored.args
    if len({_rank(item) for item in parameters}) > 1:
        return None
    axis = perm.index(stored.attrs.axis) if _rank(parameters[0]) else stored.attrs.axis
    return dequantize(transpose(x, perm=perm), *parameters, dtype=stored.attrs.dtype, axis=axis)


_SINKING = (
    RewriteRule(
        "transpose of dequantize",
        is_op("transpose")(is_op("dequantize").has_attr(block_size=0).named("dequantized")).named("outer"),
        _transpose_stored,
    ),
)


def _without_detour(stored: Call) -> Expr | None:
    """Rewrite quantize(move(dequantize(x))) with equal parameters to move(x); None if the pattern does not match."""
    value = stored.args[0]
    if _is_dequantize(value):
        assert isinstance(value, Call)
        return value.args[0] if _have_equal_parameters(value, stored) and value.args[0].type == stored.type else None
    if not isinstance(value, Call) or not (_commutes(value) or value.callee is relu):
        return None
    sources: list[Expr] = []
    for arg in value.args:
        if not _is_dequantize(arg) or not _have_equal_parameters(arg, stored) or _rank(stored.args[1]):
            return None
        assert isinstance(arg, Call)
        if not isinstance(arg.type, TensorType) or _type(arg.args[0]).dtype is not _type(stored).dtype:
            return None
        sources.append(arg.args[0])
    if value.callee is relu:
        return maximum(sources[0], _zero_point(stored), span=stored.span)
    return call(value.callee, sources, value.attrs, stored.span)


def _commutes(expr: Expr) -> bool:
    """Test whether an operator commutes with per-tensor dequantize: it selects among elements and adds no fill value."""
    moves = operator_traits(expr).moves
    return moves is not None and moves.fill is None


def _is_dequantize(expr: Expr) -> bool:
    return isinstance(expr, Call) and expr.callee is dequantize and expr.attrs.block_size == 0


def _have_equal_parameters(a: Expr, b: Expr) -> bool:
    """Test whether two calls have equal constant zero points and equal, positive constant scales."""
    assert isinstance(a, Call) and isinstance(b, Call)
    scales, points = (a.args[1], b.args[1]), (_zero_point(a), _zero_point(b))
    parameters = [item.data for item in (*scales, *points) if isinstance(item, Constant)]
    if len(parameters) < 4 or (_rank(scales[0]) and a.attrs.axis != b.attrs.axis):
        return False
    first, second, p, q = parameters
    return first.shape == second.shape and bool(np.all((first == second) & (first > 0))) and bool(np.array_equal(p, q))


def _zero_point(stored: Call) -> Expr:
    """Return the zero point of a `quantize` or `dequantize`; 0 if it has no zero point operand."""
    if len(stored.args) == 3:
        return stored.args[2]
    element_dtype = _type(stored if stored.callee is quantize else stored.args[0]).dtype
    return constant(np.zeros((), element_dtype.numpy))


# --- products ---------------------------------------------------------------------------------------------------------


def _stored(name: str) -> Pattern:
    return is_op("dequantize").has_attr(block_size=0).has_dtype("float32").named(name)


_PRODUCT = is_op("conv", "conv_transpose", "matmul")(_stored("x"), _stored("w")).named("product")
_BIAS = is_op("dequantize").named("bias").optional(lambda bias: is_op("reshape")(bias).named("shaped"))
_BIASED = _PRODUCT.optional(lambda product: is_op("add")(product, _BIAS).named("sum"))
_BOUNDED = _BIASED.optional(lambda inner: is_op("relu", "clip")(inner).named("bound"))


def _integer_product(stored: Call, uses: UseCounts) -> Expr | None:
    """Rewrite quantize([bound](product(dequantize, dequantize) [+ dequantize(bias)])) to integers; None if it does not match."""
    product_match = match(_BOUNDED, stored.args[0])
    if product_match is None or _rank(stored.args[1]) or stored.attrs.block_size or not _type(stored).dtype.is_int:
        return None
    product, x, w = (product_match.call(name) for name in ("product", "x", "w"))
    inner = (product_match.get(name) for name in ("product", "sum", "bound"))
    if not all(uses.single(item) for item in inner if item is not None) or not _by_output_channel(product, x, w):
        return None
    scales = [_scale(item) for item in (x, w, stored)]
    if any(scale is None for scale in scales):
        return None
    x_scale, w_scale, y_scale = (scale for scale in scales if scale is not None)
    if _may_wrap(product, x, w):
        return None
    bias = _integer_bias(product_match, x_scale * w_scale)
    if bias is None and "bias" in product_match:
        return None
    assert isinstance(product.callee, Operator)
    # Constant int8 weights that are centered already stay narrow: copies in int32 would take time and memory.
    narrow = isinstance(w.args[0], Constant) and _type(w.args[0]).dtype.name == "int8"
    narrow = narrow and all(isinstance(point, Constant) and not point.data.any() for point in w.args[2:])
    total: Expr = _int32_product(product, (_centered(x), w.args[0] if narrow else _centered(w)))
    if bias is not None:
        total = add(total, bias, span=product_match["sum"].span)
    factor = constant(np.asarray(x_scale * w_scale / y_scale, np.float32), span=stored.span)
    axis = max(_rank(product) - 1, 0) if product.callee.name == "matmul" else 1
    point = _zero_point(stored)
    result: Expr = requantize(total, factor, point, dtype=stored.attrs.dtype, axis=axis, span=stored.span)
    return _bounded(result, product_match.get("bound"), stored)


def _may_wrap(product: Call, *operands: Call) -> bool:
    """Test whether the sums of a product may exceed 32 bits; false if its depth is symbolic."""
    x, w = map(stored_operand, operands)
    limit = None if x is None or w is None else greatest_sum(product, x, w)
    return limit is not None and limit > SUM_LIMIT


def _by_output_channel(product: Call, x: Call, w: Call) -> bool:
    """Test whether data are quantized per tensor and weights per tensor or per output channel, both in at most 8 bits."""
    if _rank(x.args[1]) or any(_type(item.args[0]).dtype.bits > 8 or not _type(item.args[0]).dtype.is_int for item in (x, w)):
        return False
    assert isinstance(product.callee, Operator)
    if any(len(item.args) == 3 and _rank(item.args[2]) != _rank(item.args[1]) for item in (x, w)):
        return False
    if not _rank(w.args[1]):
        return True
    if product.callee.name == "conv":
        return bool(w.attrs.axis == 0)
    if product.callee.name == "conv_transpose":
        return bool(w.attrs.axis == 1 and product.attrs.groups == 1)
    return _rank(w) == 2 and w.attrs.axis == 1


def _scale(stored: Call) -> Array | None:
    """Return the scale if it is a positive float32 constant, else None."""
    scale = stored.args[1]
    if not isinstance(scale, Constant) or scale.data.dtype != np.float32 or not bool(np.all(scale.data > 0)):
        return None
    return scale.data


def _integer_bias(match: Match, scale: Array) -> Expr | None:
    """Return the quantized bias in the shape of the dequantized bias; None without a bias, or if scales of bias and sum differ."""
    if "bias" not in match:
        return None
    bias = match.call("bias")
    bias_scale = _scale(bias)
    if bias_scale is None or _type(bias.args[0]).dtype.name != "int32" or bias.attrs.block_size:
        return None
    if len(bias.args) == 3 and not (isinstance(bias.args[2], Constant) and not bias.args[2].data.any()):
        return None
    if bias_scale.size not in (1, scale.size) or not bool(
        np.allclose(bias_scale.reshape(-1), scale.reshape(-1), rtol=1e-5, atol=0)
    ):
        return None
    shaped = match.get("shaped")
    return bias.args[0] if shaped is None else reshape(bias.args[0], shape=_type(shaped).shape, span=shaped.span)


def _centered(stored: Call) -> Expr:
    """Subtract the zero point from the quantized values, in int32."""
    x = stored.args[0]
    wide = cast_to(x, "int32")
    if len(stored.args) < 3:
        return wide
    point = cast_to(stored.args[2], "int32")
    if _rank(point):
        point = reshape(point, shape=tuple(_type(point).shape[0] if axis == stored.attrs.axis else 1 for axis in range(_rank(x))))
    return sub(wide, point, span=stored.span)


def _bounded(result: Expr, bound: Expr | None, stored: Call) -> Expr:
    """Apply a relu or clip to the quantized result. Quantization is monotone, so quantizing the bounds gives the same result."""
    if bound is None:
        return result
    assert isinstance(bound, Call) and isinstance(bound.callee, Operator)
    limits = (0.0, None) if bound.callee.name == "relu" else (bound.attrs.minimum, bound.attrs.maximum)
    for limit, apply in zip(limits, (maximum, minimum), strict=True):
        if limit is not None:
            real = constant(np.asarray(limit, np.float32))
            result = apply(result, call(quantize, (real, *stored.args[1:]), stored.attrs), span=bound.span)
    return result


_MEAN = is_op("avg_pool")(_stored("x")).named("mean")


def _integer_mean(stored: Call, uses: UseCounts) -> Expr | None:
    """Rewrite quantize(global average pool(dequantize(x))) to an integer sum and `requantize`; None if it does not match."""
    mean_match = match(_MEAN, stored.args[0])
    if mean_match is None or not uses.single(mean_match["mean"]) or _rank(stored.args[1]) or not _type(stored).dtype.is_int:
        return None
    mean, x = mean_match.call("mean"), mean_match.call("x")
    extents = _type(x).shape[2:]
    if extents != mean.attrs.kernel or any(pad != 0 for pad in mean.attrs.pads) or any(step != 1 for step in mean.attrs.dilations):
        return None
    count = arith.product(extents)
    scales = _scale(x), _scale(stored)
    if scales[0] is None or scales[1] is None or _rank(x.args[1]) or not isinstance(count, int) or not 0 < count < MEAN_LIMIT:
        return None
    if not _type(x.args[0]).dtype.is_int or _type(x.args[0]).dtype.bits > 8:
        return None
    total = reduce_sum(_centered(x), axes=tuple(range(2, _rank(x))), keepdims=True, span=mean.span)
    factor = constant(np.asarray(scales[0] / (scales[1] * np.float32(count)), np.float32), span=stored.span)
    return requantize(total, factor, _zero_point(stored), dtype=stored.attrs.dtype, axis=1, span=stored.span)


# --- narrow operands --------------------------------------------------------------------------------------------------


def narrow_integers(target: Function) -> Function:
    """Narrow the operands of integer products to the narrowest dtypes that hold them.

    Casts to int32 are removed, and constants become int8, uint8 or int16 if they fit. For constant weights w, a constant zero point
    z of the data moves out of the product: (x - z) w = x w - z (sum of w). A convolution then pads with z. Data movement before the
    product, such as that of a transposed convolution's weights, copies the narrow integers.
    """
    narrowed = rewrite_expr(target, _NARROWING)
    assert isinstance(narrowed, Function)
    return narrowed


def _copies_first_operand(traits: Traits) -> bool:
    """Test whether an operator copies elements of its first operand only, selected by position or by indices."""
    moves = traits.moves
    return moves is not None and moves.by is not Choice.ORDER and moves.operands == (0,) and moves.fill is None


def _moved_narrow(rule_match: Match) -> Expr | None:
    """Rewrite move(cast(x) - z) to cast(move(x)) - z; None if the source is not such a difference, or z is not 0-d."""
    moved = rule_match.call("moved")
    source = match(_CENTERED, moved.args[0])
    if source is None or ("z" in source and _rank(source["z"]) > 0):
        return None
    narrow = call(moved.callee, (source["x"], *moved.args[1:]), moved.attrs, moved.span)
    wide = cast_to(narrow, "int32")
    return sub(wide, source["z"], span=moved.span) if "z" in source else wide


def _narrow_operands(match: Match) -> Expr | None:
    """Rewrite a product to narrower operands; None if no operand can be narrowed."""
    product = match.call("product")
    args = tuple(map(_narrow, product.args))
    if all(new is old for new, old in zip(args, product.args, strict=True)):
        return None
    return _int32_product(product, args)


def _narrow(operand: Expr) -> Expr:
    if isinstance(operand, Constant) and _type(operand).dtype.bits > 8 and operand.data.size:
        least, greatest = int(operand.data.min()), int(operand.data.max())
        for name in ("int8", "uint8", "int16"):
            if dtype(name).limits[0] <= least and greatest <= dtype(name).limits[1]:
                return operand if _type(operand).dtype.name == name else constant(operand.data.astype(name), span=operand.span)
    cast_match = match(_WIDENED, operand)
    return operand if cast_match is None else cast_match["x"]


def _int32_product(product: Call, args: Sequence[Expr], **changed: Any) -> Expr:
    """Rebuild a product on other operands with an explicit int32 result."""
    assert isinstance(product.callee, Operator)
    return call(product.callee, args, dataclasses.replace(product.attrs, out_dtype="int32", **changed), product.span)


def _without_zero_point(match: Match) -> Expr | None:
    """Rewrite (x - z) w to x w - z (sum of w)."""
    product, x, weights, points = match.call("product"), match["x"], match.constant("w"), match.constant("z")
    assert isinstance(product.callee, Operator)
    element_dtype = _type(x).dtype
    if points.size == 0 or not bool(np.all(points == points.flat[0])) or _type(match["centered"]).shape != _type(x).shape:
        return None
    point = int(points.flat[0])
    if not element_dtype.limits[0] <= point <= element_dtype.limits[1]:
        return None
    if product.callee.name == "matmul":
        if weights.ndim != 2:
            return None
        sums = weights.sum(axis=0, dtype=np.int64)
        total = _int32_product(product, (x, match["w"]))
    else:
        spatial = weights.ndim - 2
        sums = weights.sum(axis=tuple(range(1, weights.ndim)), dtype=np.int64).reshape((-1, *(1,) * spatial))
        pads = product.attrs.pads
        if any(amount != 0 for amount in pads):
            data_pads = (0, 0, *pads[:spatial], 0, 0, *pads[spatial:])
            x = pad(x, constant(np.asarray(point, element_dtype.numpy)), pads=data_pads, span=product.span)
        total = _int32_product(product, (x, match["w"]), pads=())
    return add(total, constant((-point * sums).astype(np.int32), span=product.span), span=product.span)


def _both_computed(match: Match) -> Expr | None:
    """Rewrite (a - p) (b - q) to a b - q (sum of a) - p (sum of b - q), with b in int8; None if a or b is constant."""
    product, a, b = match.call("product"), match["a"], match["b"]
    if isinstance(a, Constant) or isinstance(b, Constant) or min(_rank(a), _rank(b)) < 2:
        return None
    points = [match.constant(name) if name in match else np.zeros((), np.int32) for name in ("p", "q")]
    if any(point.ndim for point in points) or any(_type(item).dtype.bits != 8 for item in (a, b)):
        return None
    p, q = map(int, points)
    if _type(b).dtype.kind == "uint":
        # Flipping the sign bit subtracts 128.
        b = bitcast(bitwise_xor(b, constant(np.asarray(128, np.uint8))), dtype="int8")
        q -= 128
    total: Expr = _int32_product(product, (a, b))
    if q:
        sums = reduce_sum(cast_to(a, "int32"), axes=(_rank(a) - 1,), keepdims=True)
        total = add(total, mul(sums, scalar(-q, "int32")), span=product.span)
    if p:
        sums = reduce_sum(sub(cast_to(b, "int32"), scalar(q, "int32")), axes=(_rank(b) - 2,), keepdims=True)
        total = add(total, mul(sums, scalar(-p, "int32")), span=product.span)
    return total


def _one_constant(match: Match) -> Expr | None:
    """Rewrite (x + a) + b to x + (a + b) on wrapping integers."""
    a, b = match.constant("a"), match.constant("b")
    with np.errstate(over="ignore"):
        result = add(match["x"], constant(a + b, span=match["b"].span), span=match.root.span)
    return result if result.type == match.root.type else None


def _is_int32(expr: Expr) -> bool:
    return isinstance(expr.type, TensorType) and expr.type.dtype.name == "int32"


def _is_narrow(expr: Expr) -> bool:
    return isinstance(expr.type, TensorType) and expr.type.dtype.is_int and expr.type.dtype.bits < 32


SUM_OF_CONSTANTS = RewriteRule(
    "sum of constants",
    is_op("add")(is_op("add")(wildcard().named("x"), is_const().named("a")), is_const().named("b")).where(_is_int32),
    _one_constant,
)
_WIDENED = is_op("cast")(wildcard().where(_is_narrow).named("x")).where(_is_int32)


def _centered_pattern(name: str, point: str) -> Pattern:
    """Build the pattern of a narrow value cast to int32, optionally minus a constant zero point."""
    wide = is_op("cast")(wildcard().where(_is_narrow).named(name)).where(_is_int32)
    return wide | is_op("sub")(wide, is_const().named(point))


_CENTERED = _WIDENED | is_op("sub")(_WIDENED, wildcard().named("z"))
_NARROWING = (
    RewriteRule("moves of narrow integers", wildcard().named("moved"), _moved_narrow, _copies_first_operand),
    RewriteRule(
        "zero points of both factors",
        is_op("matmul")(_centered_pattern("a", "p"), _centered_pattern("b", "q")).where(_is_int32).named("product"),
        _both_computed,
    ),
    RewriteRule(
        "zero point of the data",
        is_op("conv", "matmul")(is_op("sub")(_WIDENED, is_const().named("z")).named("centered"), is_const().named("w"))
        .where(_is_int32)
        .named("product"),
        _without_zero_point,
    ),
    RewriteRule("narrow operands", is_op("conv", "matmul").where(_is_int32).named("product"), _narrow_operands),
    SUM_OF_CONSTANTS,
)


# --- types ------------------------------------------------------------------------------------------------------------


def _type(expr: Expr) -> TensorType:
    assert isinstance(expr.type, TensorType)
    return expr.type


def _rank(expr: Expr) -> int:
    return _type(expr).rank
