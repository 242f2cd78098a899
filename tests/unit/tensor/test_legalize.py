"""Narrow element types as arithmetic on bits, against ml_dtypes and numpy."""

from __future__ import annotations

import numpy as np
import pytest

from inlaid.tensor import interp, ir, te
from inlaid.tensor.lower import lower
from inlaid.tensor.transform.legalize import (
    EXPONENT_ONLY,
    FORMATS,
    NARROW_INTEGERS,
    carrier,
    decode,
    encode,
    integer_to_odd,
    legalize,
    round_to_odd,
)
from inlaid_runtime.types import DTYPES, dtype

NATIVE = frozenset({"float32", "float64", "bool", *(f"{s}int{b}" for s in ("", "u") for b in (8, 16, 32, 64))})
SPECIAL = [0.0, -0.0, np.inf, -np.inf, np.nan, 6.0, 7.0, 448.0, 464.0, 480.0, 57344.0, 61440.0, 65504.0, 65519.0, 65520.0]


def samples(kind: str) -> np.ndarray:
    """Numbers of every exponent, bit patterns at random, and the borders of the formats."""
    generator = np.random.default_rng(7)
    with np.errstate(all="ignore"):
        spread = generator.standard_normal(4000) * 10.0 ** generator.uniform(-46, 39, 4000)
        patterns = generator.integers(0, 2**32, 4000, dtype=np.uint64).astype(np.uint32).view(np.float32)
        return np.concatenate([spread, patterns.astype(np.float64), SPECIAL]).astype(kind)


def apply(function, array):
    buffer = ir.Buffer("x", (), dtype(array.dtype.name))
    return interp.evaluate_vector(function(buffer[()]), {buffer: array})


def is_same_float(a, b):
    a, b = a.astype(np.float32), b.astype(np.float32)
    return ((a == b) & (np.signbit(a) == np.signbit(b))) | (np.isnan(a) & np.isnan(b))


@pytest.mark.parametrize("name", [*FORMATS, EXPONENT_ONLY])
def test_every_code_decodes(name):
    element_type = dtype(name)
    codes = np.arange(2 ** max(element_type.bits, 4) if element_type.bits != 4 else 16, dtype=carrier(element_type).numpy)
    expected = codes.view(element_type.numpy).astype(np.float32)
    assert is_same_float(apply(lambda code: decode(code, element_type), codes), expected).all()


@pytest.mark.parametrize("name", [*FORMATS, EXPONENT_ONLY])
def test_float32_encodes_as_ml_dtypes_does(name):
    element_type = dtype(name)
    values = samples("float32")
    if name == EXPONENT_ONLY:
        powers = 2.0 ** np.arange(-149, 128)
        values = np.concatenate([values, *(np.float32(powers * factor) for factor in (1, 1.25, 1.5, 1.75))])
    elif FORMATS[name].nan is None:
        values = values[~np.isnan(values)]  # the type has no NaN; what becomes of one is ours to say
    with np.errstate(all="ignore"):
        expected = values.astype(element_type.numpy)
    actual = apply(lambda value: encode(value, element_type), values).astype(carrier(element_type).numpy).view(element_type.numpy)
    assert is_same_float(actual, expected).all()


@pytest.mark.parametrize("source", ["int32", "uint32", "int64", "uint64"])
@pytest.mark.parametrize("name", ["float16", "bfloat16", "float8e5m2", "float8e4m3fn"])
def test_integers_round_once_without_float64(name, source):
    element_type, rng = dtype(name), np.random.default_rng(4)
    info = np.iinfo(source)
    edges = [2**power + add for power in range(64) for add in (-1, 0, 1)]
    # Ties of the narrow type, and their neighbors.
    digits = FORMATS[name].digits
    ties = [
        ((2 * int(odd) + 1) << shift) + add
        for shift in range(1, 63 - digits)
        for odd in (1 << digits, 1 << digits | 1)
        for add in (-1, 0, 1)
    ]
    values = [item for value in edges + ties for item in (value, -value) if info.min <= item <= info.max]
    values += [info.min, info.max, *rng.integers(info.min, info.max, 3000, source, endpoint=True)]
    array = np.array(values, source)
    exact = [(abs(int(value)), value < 0) for value in array]

    def odd(magnitude: int) -> float:  # the exact value to 53 bits with a sticky bit
        shift = max(magnitude.bit_length() - 50, 0)
        cut = magnitude >> shift
        return float((cut | (magnitude != cut << shift)) << shift)

    with np.errstate(all="ignore"):
        expected = np.array([-odd(size) if negative else odd(size) for size, negative in exact])
        expected = (
            apply(lambda value: encode(round_to_odd(value), element_type), expected)
            .astype(carrier(element_type).numpy)
            .view(element_type.numpy)
        )
    actual = (
        apply(lambda value: encode(integer_to_odd(value), element_type), array)
        .astype(carrier(element_type).numpy)
        .view(element_type.numpy)
    )
    assert is_same_float(actual, expected).all()


def test_conversions_that_flush_are_kept_where_asked_for():
    x = te.placeholder((4,), "float32", "x")
    exact = lower([te.compute((4,), lambda i: te.cast(x[i], "bfloat16"), "y")], [x], "exact")
    flushed = lower([te.compute((4,), lambda i: te.cast(te.math("flush", x[i]), "bfloat16"), "y")], [x], "flushed")
    flushing_program, *converted_programs = (
        legalize(program, NATIVE, flushed=frozenset(names))
        for program, names in ((flushed, ("bfloat16",)), (flushed, ()), (exact, ("bfloat16",)))
    )
    casts = [node for node in ir.values_in(flushing_program.body) if isinstance(node, ir.Cast)]
    assert [node.dtype.name for node in casts] == ["bfloat16"]
    for program in (flushing_program, *converted_programs):
        assert not any(isinstance(node, ir.CallMath) for node in ir.values_in(program.body))
    assert all(node.dtype.name in NATIVE for program in converted_programs for node in ir.values_in(program.body))


@pytest.mark.parametrize("name", FORMATS)
def test_finite_codes_survive_a_round_trip(name):
    element_type = dtype(name)
    codes = np.arange(2 ** max(element_type.bits, 4) if element_type.bits != 4 else 16, dtype=carrier(element_type).numpy)
    codes = codes[np.isfinite(codes.view(element_type.numpy).astype(np.float32))]
    assert (apply(lambda code: encode(decode(code, element_type), element_type), codes) == codes).all()


def test_float64_rounds_once_to_float16():
    values = samples("float64")
    # Just above a tie between two float16 numbers, by less than float32 can tell.
    ties = (np.arange(1024, 2047) + 0.5) / 1024 * (1 + 2.0**-40)
    values = np.concatenate([values, ties, -ties])
    half = dtype("float16")
    with np.errstate(all="ignore"):
        expected = values.astype(np.float16)
    actual = apply(lambda value: encode(round_to_odd(value), half), values).astype(np.uint16).view(np.float16)
    assert is_same_float(actual, expected).all()


@pytest.mark.parametrize("name", [name for name in DTYPES if name not in NATIVE and name != "string"])
def test_a_legalized_program_moves_and_converts_alike(name):
    """Load, select, convert to float32 and back, store: over all codes."""
    element_type = dtype(name)
    codes = (
        np.arange(16 if element_type.bits <= 4 else 256, dtype=np.uint8)
        if element_type.bytes == 1
        else np.arange(0, 65536, 17, dtype=np.uint16)
    )
    if name in NARROW_INTEGERS:
        codes = codes[: 2**element_type.bits]
    x = te.placeholder((len(codes),), element_type, "x")
    wide = te.compute(x.shape, lambda i: te.cast(x[i], "float32"), "wide")
    back = te.compute(x.shape, lambda i: te.select(wide[i] < 1.0, x[i], te.cast(wide[i], element_type)), "back")
    program = lower([wide, back], [x], name)
    plain = interp.run(program, [codes.view(element_type.numpy)])
    narrow = legalize(program, NATIVE)
    assert all(buffer.dtype.name in NATIVE for buffer in narrow.params)
    legal = interp.run(narrow, [codes.view(carrier(element_type).numpy)])
    assert is_same_float(legal[0], plain[0]).all()
    assert is_same_float(legal[1].astype(carrier(element_type).numpy).view(element_type.numpy), plain[1]).all()


def test_programs_of_native_types_stay_as_they_are():
    x = te.placeholder((4,), "float32", "x")
    program = lower([te.compute((4,), lambda i: x[i] + 1.0, "y")], [x], "add")
    assert legalize(program, NATIVE) is program
