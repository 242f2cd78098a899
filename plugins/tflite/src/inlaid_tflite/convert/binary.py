"""Element-wise operators of two operands: arithmetic, comparison, logic, bits."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from functools import reduce

import numpy as np

from inlaid import ops
from inlaid.graph.conditions import require_broadcast_to, require_shape
from inlaid.graph.ir import Expr, constant
from inlaid.ops.fixed_point import fixed_points, scaled
from inlaid_runtime import arith
from inlaid_runtime.arith import Dim
from inlaid_tflite.fixed import half_up, number, reciprocal, round_down_to_vectors
from inlaid_tflite.node import Converter, Node, tensor_type, typed
from inlaid_tflite.table import byte_values, look_up

SUM_BITS = {8: 20, 16: 15}
"""Fraction bits of sums of quantized integers, by the width of these integers."""
DIFFERENCE_BITS = 7
"""Fraction bits of a difference before it is squared."""
COMPARED_BITS = 8
"""Fraction bits of quantized integers in comparisons."""
VECTOR = 8
"""Elements per iteration of LiteRT's vector code for additions."""
Binary = Callable[..., Expr]
Scaling = Callable[[Expr, list[float]], Expr]


def _plain(operator: Binary) -> Converter:
    return lambda node: operator(node.input(0), node.input(1))


# --- sums and products ------------------------------------------------------------------------------------------------


def _common(node: Node, bits: int, scale: Scaling = scaled) -> tuple[list[Expr], float]:
    """Rescale both inputs to one scale, twice the larger scale, with `bits` fraction bits. Returns the inputs and the scale."""
    scales = [float(node.pair(node.tensor(index))[0]) for index in range(2)]
    common_scale = 2.0 * max(scales)
    shifted = [ops.shift_left(node.wide(index), number(bits)) for index in range(2)]
    return [scale(wide, [each / common_scale]) for wide, each in zip(shifted, scales, strict=True)], common_scale


def _floored(wide: Expr, factors: list[float]) -> Expr:
    """Multiply int32 by a factor below 1, as LiteRT's vector code does: the upper half of the product is rounded, but the right
    shift truncates."""
    (multiplier,), (shift,) = fixed_points(factors)
    high = ops.multiply_fixed(wide, number(int(multiplier)), number(0))
    return ops.shift_right(high, number(-int(shift))) if shift else high


def _inner_loop(node: Node) -> tuple[Dim, bool]:
    """Return the number of elements in LiteRT's inner loop, and whether one operand is constant in that loop. The loop runs over
    the last axes of equal sizes or, if there are none, over the last axes in which one side has size 1."""
    shapes = [node.shape(index) for index in range(2)]
    rank = max(map(len, shapes))
    first, second = ((1,) * (rank - len(shape)) + shape for shape in shapes)
    pairs = list(zip(first, second, strict=True))

    def pop_matching(fits: Callable[[Dim, Dim], bool]) -> Dim:
        sizes = []
        while pairs and fits(*pairs[-1]):
            sizes.append(pairs.pop()[1])
        return arith.product(tuple(sizes))

    equal_run = pop_matching(lambda a, b: a == b)
    if not pairs:
        return equal_run, False
    if pairs[-1][1] == 1:
        pairs = [(b, a) for a, b in pairs]
    broadcast_run = pop_matching(lambda a, b: a == 1)
    for fits in (lambda a, b: a == b, lambda a, b: b == 1, lambda a, b: a == b):
        pop_matching(fits)
    if pairs:  # element by element
        return 1, False
    return (equal_run, False) if equal_run != 1 else (broadcast_run, True)


def _added_in_vectors(node: Node, total: Expr) -> Expr:
    """Adjust the 8-bit sum `total` to LiteRT's vector code: in the whole vectors of its inner loop, the terms are rounded down."""
    run, has_constant_side = _inner_loop(node)
    vectorized_count = round_down_to_vectors(run, VECTOR) if has_constant_side or node.result.dtype.name == "uint8" else 0
    if vectorized_count == 0:
        return total
    floored = ops.add(*_common(node, SUM_BITS[8], _floored)[0])
    if vectorized_count == run:
        return floored
    shape = tensor_type(total).shape
    position = ops.iota(shape=(arith.product(shape),), axis=0, dtype="int32")
    sizes = (ops.cast(ops.reshape(ops.sizes(dims=(size,)), shape=()), dtype="int32") for size in (run, vectorized_count))
    is_vectorized = ops.less(ops.mod(position, next(sizes)), next(sizes))
    return ops.where(ops.reshape(is_vectorized, shape=shape), floored, total)


def _sum(operator: Binary) -> Converter:
    def convert(node: Node) -> Expr:
        if not node.is_stored():
            return node.bounded(operator(node.input(0), node.input(1)))
        if node.result.dtype.bits == 16 and node.options is not None and node.options.PotScaleInt16():
            shifts = _scale_shifts(node)
            if shifts is not None:
                return _shifted_sum(node, operator, shifts)
        bits = SUM_BITS[node.result.dtype.bits]
        sides, common_scale = _common(node, bits)
        result_scale, _ = node.pair(node.result)
        total = operator(*sides)
        if operator is ops.add and node.result.dtype.bits == 8:
            total = _added_in_vectors(node, total)
        return node.stored(total, [common_scale / ((1 << bits) * float(result_scale))])

    return convert


def _scale_shifts(node: Node) -> list[int] | None:
    """Return the right shift, in bits, from the scale of each input to the scale of the result, if all scales are powers of two;
    else None."""
    exponents = []
    for tensor in (node.tensor(0), node.tensor(1), node.result):
        fraction, exponent = math.frexp(float(node.pair(tensor)[0]))
        if fraction != 0.5:
            return None
        exponents.append(exponent)
    return [exponents[2] - exponents[0], exponents[2] - exponents[1]]


def _shifted_sum(node: Node, operator: Binary, shifts: list[int]) -> Expr:
    """Compute an int16 sum whose scales are powers of two. shifts: right shift of each input, one of them 0."""
    if min(shifts) < 0 or 0 not in shifts:
        raise node.error("the power-of-two scales must equal the scale of the result, or one of them be smaller")
    sides = [_halved(node.wide(index), places) if places else node.wide(index) for index, places in enumerate(shifts)]
    return node.placed(operator(*sides))


def _halved(value: Expr, places: int) -> Expr:
    """Divide int32 by 2^places, rounding half away from 0."""
    negative = ops.cast(ops.less(value, number(0)), dtype="int32")
    return ops.shift_right(ops.sub(ops.add(value, number(1 << (places - 1))), negative), number(places))


def _mul(node: Node) -> Expr:
    if not node.is_stored():
        return node.bounded(ops.mul(node.input(0), node.input(1)))
    (a_scale, _), (b_scale, _), (result_scale, _) = (node.pair(each) for each in (node.tensor(0), node.tensor(1), node.result))
    return node.stored(ops.mul(node.wide(0), node.wide(1)), [a_scale * b_scale / result_scale])


def _squared_difference(node: Node) -> Expr:
    if not node.is_stored():
        difference = ops.sub(node.input(0), node.input(1))
        return ops.mul(difference, difference)
    sides, common_scale = _common(node, DIFFERENCE_BITS)
    result_scale, _ = node.pair(node.result)
    difference = ops.sub(*sides)
    return node.stored(
        ops.mul(difference, difference), [common_scale * common_scale / ((1 << 2 * DIFFERENCE_BITS) * float(result_scale))]
    )


def _prelu(node: Node) -> Expr:
    with node.relations():
        require_broadcast_to(node.shape(1), node.shape(0), "the slope")
    if node.is_float():
        x = node.input(0)
        return ops.where(ops.less(x, constant(np.float32(0))), ops.mul(x, node.input(1)), x)
    (scale, _), (slope_scale, _), (result_scale, _) = (node.pair(each) for each in (node.tensor(0), node.tensor(1), node.result))
    wide = node.wide(0)
    unscaled, shrunk = (
        scaled(wide, [scale / result_scale]),
        scaled(ops.mul(wide, node.wide(1)), [scale * slope_scale / result_scale]),
    )
    return node.placed(ops.where(ops.less(wide, number(0)), shrunk, unscaled))


def _add_n(node: Node) -> Expr:
    with node.relations():
        for index in range(1, len(node.values)):
            require_shape(node.shape(index), node.shape(0), f"input {index}")
    return reduce(ops.add, (node.input(index) for index in range(len(node.values))))


# --- quotients --------------------------------------------------------------------------------------------------------


def _div(node: Node) -> Expr:
    if not node.is_stored():
        return node.bounded(ops.div(node.input(0), node.input(1)))
    (a_scale, zero_a), (b_scale, zero_b), (result_scale, _) = (
        node.pair(each) for each in (node.tensor(0), node.tensor(1), node.result)
    )
    (multiplier,), (shift,) = fixed_points([float(a_scale / (b_scale * result_scale))])
    # Functions of one operand are tables. A negative divisor negates both operands.
    dividends = byte_values(node.tensor(0).dtype.name).astype(np.int64) - zero_a
    divisors = byte_values(node.tensor(1).dtype.name).astype(np.int64) - zero_b
    inverses, inverse_shifts = zip(*(reciprocal(max(abs(int(each)), 1)) for each in divisors), strict=True)
    negated = look_up(divisors < 0, node.input(1))

    def look_up_dividend(values: list[int]) -> Expr:
        return look_up(np.array(values, np.int32), node.input(0))

    headrooms = [[_headroom(int(each) * sign) for each in dividends] for sign in (1, -1)]
    shifted_dividends = [
        [int(each) * sign << headroom for each, headroom in zip(dividends, headrooms[sign < 0], strict=True)] for sign in (1, -1)
    ]
    numerator = ops.where(negated, look_up_dividend(shifted_dividends[1]), look_up_dividend(shifted_dividends[0]))
    headroom = ops.where(negated, look_up_dividend(headrooms[1]), look_up_dividend(headrooms[0]))
    quotient = half_up(numerator, look_up(np.array(inverses, np.int32), node.input(1)))
    right_shift = ops.add(headroom, look_up(np.array(inverse_shifts, np.int32) - shift, node.input(1)))
    return node.placed(_shift_right_rounded(half_up(quotient, number(int(multiplier))), right_shift))


def _headroom(value: int) -> int:
    """Return the number of bits by which an int32 can be shifted left without overflow."""
    return 31 - (value if value >= 0 else ~value).bit_length()


def _shift_right_rounded(value: Expr, places: Expr) -> Expr:
    """Divide int32 by powers of two, rounding half away from 0. Above 2^31, LiteRT's result is processor-dependent."""
    wide, places = ops.cast(value, dtype="int64"), ops.cast(places, dtype="int64")
    one = constant(np.int64(1))
    half = ops.shift_right(ops.shift_left(one, places), one)
    negative = ops.cast(ops.less(wide, constant(np.int64(0))), dtype="int64")
    rounded = ops.sub(ops.add(wide, half), ops.minimum(negative, half))
    return ops.cast(ops.shift_right(rounded, places), dtype="int32")


def _floor_div(node: Node) -> Expr:
    a, b = node.input(0), node.input(1)
    if node.is_float():
        return ops.floor(ops.div(a, b))
    remainder = ops.fmod(a, b)
    zero = constant(np.zeros((), node.result.dtype.numpy))
    signs_differ = ops.logical_xor(ops.less(remainder, zero), ops.less(b, zero))
    rounds_down = ops.logical_and(signs_differ, ops.logical_not(ops.equal(remainder, zero)))
    return ops.sub(ops.div(a, b), ops.cast(rounds_down, dtype=node.result.dtype.name))


# --- angles -----------------------------------------------------------------------------------------------------------


def _atan2(node: Node) -> Expr:
    """Convert ATAN2, by the quotient of the smaller and the larger coordinate. The sign of a zero determines the quadrant."""
    y, x = node.input(0), node.input(1)
    with node.relations():
        require_shape(node.shape(1), node.shape(0), "input 1")
    dtype = node.result.dtype

    def real(value: float) -> Expr:
        return constant(np.asarray(value).astype(dtype.numpy))

    def is_negative(value: Expr) -> Expr:
        bits = f"int{dtype.bits}"
        return ops.less(ops.bitcast(value, dtype=bits), constant(np.zeros((), bits)))

    abs_y, abs_x = ops.abs(y), ops.abs(x)
    small, large = ops.minimum(abs_y, abs_x), ops.maximum(abs_y, abs_x)
    ratio = ops.where(ops.equal(small, large), real(1), ops.div(small, large))
    angle = ops.atan(ops.where(ops.equal(large, real(0)), real(0), ratio))
    angle = ops.where(ops.less(abs_x, abs_y), ops.sub(real(math.pi / 2), angle), angle)
    angle = ops.where(is_negative(x), ops.sub(real(math.pi), angle), angle)
    return ops.where(is_negative(y), ops.neg(angle), angle)


# --- comparison and bits ----------------------------------------------------------------------------------------------


def _comparison(operator: Binary, scaled_16: bool = False) -> Converter:
    """Make a converter of a comparison. 8-bit integers are rescaled first; 16-bit integers only if `scaled_16`."""

    def convert(node: Node) -> Expr:
        bits = node.tensor(0).dtype.bits
        if not node.is_stored() or (bits == 16 and not scaled_16):
            return operator(node.input(0), node.input(1))
        sides = []
        for index in range(2):
            scale, _ = node.pair(node.tensor(index))
            if scale >= 1:
                raise node.error(f"the scale of input {index} must be < 1 for a comparison in LiteRT, got {scale}")
            sides.append(scaled(ops.shift_left(node.wide(index), number(COMPARED_BITS)), [scale]))
        return operator(*sides)

    return convert


def _not_equal(a: Expr, b: Expr) -> Expr:
    return ops.logical_not(ops.equal(a, b))


def _greater(a: Expr, b: Expr) -> Expr:
    return ops.less(b, a)


def _greater_equal(a: Expr, b: Expr) -> Expr:
    return ops.less_equal(b, a)


def _right_shift(node: Node) -> Expr:
    a, b = node.input(0), node.input(1)
    width = tensor_type(a).dtype.bits
    return ops.shift_right(a, ops.clip(b, minimum=0.0, maximum=float(width - 1)))


STORED = "int8 uint8 int16"
SIGNED = "float32 float16 bfloat16 int8 uint8 int16 int32 int64"

CONVERTERS: Mapping[str, Converter] = {
    "ADD": typed(_sum(ops.add), f"float32 float16 {STORED} int32 int64"),
    "ADD_N": typed(_add_n, "float32 int32"),
    "ATAN2": typed(_atan2, "float32 float16 bfloat16 float64"),
    "BITWISE_XOR": typed(_plain(ops.bitwise_xor), f"{STORED} int32 uint32"),
    "DIV": typed(_div, "float32 int8 uint8 int32"),
    "EQUAL": typed(_comparison(ops.equal, True), f"float32 float16 {STORED} int32 int64 bool"),
    "FLOOR_DIV": typed(_floor_div, "float32 int8 int16 int32"),
    "FLOOR_MOD": typed(_plain(ops.mod), "float32 int8 int16 int32 int64"),
    "GREATER": typed(_comparison(_greater), SIGNED),
    "GREATER_EQUAL": typed(_comparison(_greater_equal), f"float32 float16 {STORED} int32 int64"),
    "LESS": typed(_comparison(ops.less), SIGNED),
    "LESS_EQUAL": typed(_comparison(ops.less_equal), f"float32 float16 {STORED} int32 int64"),
    "LOGICAL_AND": typed(_plain(ops.logical_and), "bool"),
    "LOGICAL_OR": typed(_plain(ops.logical_or), "bool"),
    "MAXIMUM": typed(_plain(ops.maximum), SIGNED),
    "MINIMUM": typed(_plain(ops.minimum), SIGNED),
    "MUL": typed(_mul, f"float32 float16 {STORED} int32 uint32 int64"),
    "NOT_EQUAL": typed(_comparison(_not_equal, True), f"float32 float16 {STORED} int32 int64 bool"),
    "POW": typed(_plain(ops.pow), "float32 int32"),
    "PRELU": typed(_prelu, "float32 int8 uint8"),
    "RIGHT_SHIFT": typed(_right_shift, f"{STORED} int32 uint32"),
    "SQUARED_DIFFERENCE": typed(_squared_difference, "float32 int8 int32"),
    "SUB": typed(_sum(ops.sub), f"float32 {STORED} int32 int64"),
}
