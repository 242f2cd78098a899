"""Element-wise operators."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from inlaid import ops
from inlaid.tensor import interp, te
from inlaid.tensor.lower import lower
from inlaid_runtime import arith
from inlaid_runtime.arith import SizeVar
from inlaid_runtime.errors import KernelFault, TypeInferenceError
from inlaid_runtime.types import TensorType, dtype

from .generate import FLOATS, INTEGERS, NUMBERS, agree, arrays, broadcasting, random_array, shapes

FLOAT_UNARY = [
    *("sqrt", "floor", "ceil", "round", "exp", "expm1", "log", "log1p", "sin", "cos", "tan", "asin", "acos", "atan"),
    *("sinh", "cosh", "tanh"),
    *("asinh", "acosh", "atanh", "erf", "isnan", "isinf", "sigmoid", "gelu"),
]


@settings(deadline=None, max_examples=200)
@given(st.sampled_from(FLOAT_UNARY), arrays(shapes(), FLOATS))
def test_functions_of_floats(name, inputs):
    agree(ops.TABLE[name], *inputs)


@settings(deadline=None, max_examples=60)
@given(st.sampled_from(["abs", "neg", "sign", "relu"]), arrays(shapes(), NUMBERS))
def test_functions_of_numbers(name, inputs):
    agree(ops.TABLE[name], *inputs)


@settings(deadline=None, max_examples=20)
@given(arrays(shapes(), INTEGERS), arrays(shapes(), "bool"))
def test_complements(integers, booleans):
    agree(ops.bitwise_not, *integers)
    agree(ops.logical_not, *booleans)


ARITHMETIC = ["add", "sub", "mul", "div", "mod", "fmod", "maximum", "minimum", "equal", "less", "less_equal"]


@settings(deadline=None, max_examples=200)
@given(st.sampled_from(ARITHMETIC), arrays(broadcasting(2), NUMBERS))
def test_arithmetic_broadcasts(name, inputs):
    agree(ops.TABLE[name], *inputs)


@settings(deadline=None, max_examples=50)
@given(arrays(broadcasting(2), FLOATS))
def test_power_of_floats(inputs):
    agree(ops.pow, *inputs)


@pytest.mark.parametrize("dtype_name", ["float32", "float64", "float16", "bfloat16"])
@pytest.mark.parametrize("shape", [(), (1,), (6,)])
def test_power_of_one_half_is_no_square_root(dtype_name, shape):
    half = np.full(shape, 0.5, dtype(dtype_name).numpy)
    base = np.array([-np.inf, -0.0, np.inf, 0.0, -1.0, 0.25]).astype(half.dtype)
    expected = np.array([np.inf, 0.0, np.inf, 0.0, np.nan, 0.5])  # as C's pow
    for at in (slice(None), *map(slice, range(6), range(1, 7)), *range(6)):
        if shape != (6,) or at == slice(None):
            actual = np.asarray(agree(ops.pow, base[at], half)).astype(np.float64)
            np.testing.assert_array_equal(actual, np.broadcast_to(expected[at], actual.shape))
            assert not np.signbit(actual[actual == 0]).any()


@settings(deadline=None, max_examples=50)
@given(arrays(broadcasting(2), INTEGERS))
def test_power_of_integers_wraps(inputs):
    agree(ops.pow, *inputs)


@pytest.mark.parametrize(
    ("base", "exponent", "power"),
    [(3, 41, 3**41 - 2 * 2**64), (-1, -3, -1), (-1, -2, 1), (1, -5, 1), (2, -1, 0), (0, -1, 0), (0, 0, 1)],
)
def test_power_of_integers(base, exponent, power):
    actual = agree(ops.pow, np.array(base, np.int64), np.array(exponent, np.int64))
    assert actual == power


@pytest.mark.parametrize(("a", "b", "quotient", "floor", "truncated"), [(-7, 2, -3, 1, -1), (7, -2, -3, -1, 1), (5, 0, 0, 0, 0)])
def test_division_of_integers_truncates(a, b, quotient, floor, truncated):
    operands = np.array(a, np.int32), np.array(b, np.int32)
    assert agree(ops.div, *operands) == quotient
    assert agree(ops.mod, *operands) == floor
    assert agree(ops.fmod, *operands) == truncated


def test_power_of_great_unsigned_integers_wraps():
    exponent = 2955199577970004961
    assert agree(ops.pow, np.array(3, np.uint64), np.array(exponent, np.uint64)) == pow(3, exponent, 2**64)


def test_division_of_the_least_integer_wraps():
    assert agree(ops.div, np.array(-128, np.int8), np.array(-1, np.int8)) == -128


@settings(deadline=None, max_examples=50)
@given(
    st.sampled_from(["bitwise_and", "bitwise_or", "bitwise_xor", "shift_left", "shift_right"]), arrays(broadcasting(2), INTEGERS)
)
def test_bits(name, inputs):
    agree(ops.TABLE[name], *inputs)


@pytest.mark.parametrize("count", [7, 8, 9, 200])
def test_shifts_beyond_the_width_leave_nothing(count):
    operands = np.array(0xFF, np.uint8), np.array(count, np.uint8)
    assert agree(ops.shift_left, *operands) == (0x80 if count == 7 else 0)
    assert agree(ops.shift_right, *operands) == (1 if count == 7 else 0)


@settings(deadline=None, max_examples=30)
@given(st.sampled_from(["logical_and", "logical_or", "logical_xor", "equal"]), arrays(broadcasting(2), "bool"))
def test_logic(name, inputs):
    agree(ops.TABLE[name], *inputs)


@settings(deadline=None, max_examples=50)
@given(broadcasting(3), st.sampled_from(["bool", *NUMBERS]), st.integers(0, 2**32))
def test_where(shapes, dtype_name, seed):
    agree(ops.where, *(random_array(seed + i, shape, "bool" if i == 0 else dtype_name) for i, shape in enumerate(shapes)))


@settings(deadline=None, max_examples=50)
@given(arrays(shapes(), NUMBERS), st.sampled_from([(-1, 2), (0, math.inf), (-math.inf, 1), (2, -1)]))
def test_clip(inputs, bounds):
    if inputs[0].dtype.name.startswith("uint"):
        bounds = tuple(bound if math.isinf(bound) else abs(bound) for bound in bounds)
    agree(ops.clip, *inputs, minimum=bounds[0], maximum=bounds[1])


def test_clip_keeps_nan():
    assert np.isnan(agree(ops.clip, np.array(np.nan, np.float32), minimum=0.0, maximum=1.0))


@pytest.mark.parametrize(("negative", "positive"), [(True, True), (True, False), (False, True), (False, False)])
def test_isinf_of_one_sign(negative, positive):
    actual = agree(ops.isinf, np.array([np.inf, -np.inf, 1, np.nan], np.float32), negative=negative, positive=positive)
    assert actual.tolist() == [positive, negative, False, False]


def test_rounding_is_to_even():
    assert agree(ops.round, np.array([0.5, 1.5, 2.5, -0.5], np.float32)).tolist() == [0, 2, 2, 0]


def test_gelu_by_tanh():
    agree(ops.gelu, random_array(1, (3, 5), "float32", -3, 3), approximate=True)


@pytest.mark.parametrize("sizes", [(3, 3), (1, 3), (3, 1), (1, 1), (0, 1), (0, 0)])
def test_dimensions_unknown_to_agree_are_checked(sizes):
    result = _add_unknown(*sizes)
    assert result.shape == np.broadcast_shapes(*((size,) for size in sizes))


@pytest.mark.parametrize("sizes", [(3, 2), (2, 3), (3, 0)])
def test_dimensions_that_disagree_are_an_error(sizes):
    with pytest.raises(KernelFault):
        _add_unknown(*sizes)


def _add_unknown(m, n):
    """The sum of vectors whose lengths are two unrelated symbolic dimensions."""
    a, b = te.placeholder((SizeVar("m"),), "float32", "a"), te.placeholder((SizeVar("n"),), "float32", "b")
    program = lower([ops.add.compute(ops.add.attrs(), a, b)], [a, b], "add")
    operands = np.arange(m, dtype=np.float32), np.ones(n, np.float32)
    (result,) = interp.run(program, operands)
    np.testing.assert_array_equal(result, operands[0] + operands[1])
    return result


F, G, INT = TensorType((2, 3), "float32"), TensorType((2, 4), "float32"), TensorType((2, 3), "int32")


@pytest.mark.parametrize(
    ("operator", "types", "message"),
    [
        (ops.add, (F, G), "an operand's dimension must be 1 or 3 to broadcast, got 4"),
        (ops.add, (F, INT), "the operands must have one dtype, got float32, int32"),
        (ops.sqrt, (INT,), "kind float"),
        (ops.logical_and, (INT, INT), "kind bool"),
        (ops.where, (F, F, F), "the condition"),
        (ops.add, (F,), "expected 2 operands, got 1"),
    ],
)
def test_types_that_do_not_fit(operator, types, message):
    with pytest.raises(TypeInferenceError, match=message):
        operator.infer_type(operator.attrs(), types)


def test_broadcasting_of_symbolic_dimensions():
    n, m = SizeVar("n"), SizeVar("m")
    assert ops.add.infer_type(ops.add.attrs(), (TensorType((n, 1), "int8"), TensorType((m,), "int8"))).shape == (n, m)
    assert ops.add.infer_type(ops.add.attrs(), (TensorType((n,), "int8"), TensorType((4,), "int8"))).shape == (4,)


@pytest.mark.parametrize(
    ("one", "other", "result"),
    [
        (SizeVar("n"), SizeVar("m") * 2, SizeVar("m") * 2),
        (SizeVar("n"), SizeVar("m") + 2, SizeVar("m") + 2),
        (SizeVar("n"), SizeVar("m", 2), SizeVar("m", 2)),
        (arith.minimum(SizeVar("n"), 512), SizeVar("n"), SizeVar("n")),
        (SizeVar("n", 2) * 3, SizeVar("n", 2), SizeVar("n", 2)),
    ],
)
def test_of_dimensions_that_broadcast_one_is_the_result(one, other, result):
    """One that is never 1, or that is 1 only where the other is; of two such the shorter expression."""
    for pair in ((one, other), (other, one)):
        assert ops.add.infer_type(ops.add.attrs(), tuple(TensorType((dim,), "int8") for dim in pair)).shape == (result,)
