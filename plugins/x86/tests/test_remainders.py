"""Remainders of floats, to the bit those of the C library, whatever the quotient."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import inlaid
import inlaid_x86.linking
from inlaid import ops
from inlaid.graph import ir
from inlaid_runtime.arith import SizeVar
from inlaid_runtime.types import TensorType
from inlaid_x86_runtime.cpu import LEVELS, vector_bits
from inlaid_x86_runtime.options import X86Options

Array = np.ndarray[Any, Any]
COUNT = 20_011
"""No multiple of any number of lanes."""
CPUS = ("native", *LEVELS)


def compiled(dtype: str, shape: tuple[Any, ...], cpu: str) -> Any:
    x, y = (ir.var(name, TensorType(shape, dtype)) for name in "xy")
    return inlaid.compile(ir.Module({"main": ir.function([x, y], ops.fmod(x, y))}), [f"x86:threads=1,cpu={cpu}"], cache=False)


def random_bits(dtype: str, rng: np.random.Generator) -> Array:
    integer = np.dtype(dtype).str.replace("f", "u")
    return rng.integers(0, np.iinfo(integer).max, COUNT, dtype=integer, endpoint=True).view(dtype)


def special(dtype: str, rng: np.random.Generator) -> Array:
    facts = np.finfo(dtype)
    values = [0.0, np.inf, np.nan, facts.max, facts.tiny, facts.smallest_subnormal, facts.tiny / 3, 1.0, 3.0]
    return (rng.choice(np.array(values, dtype), COUNT) * rng.choice([-1, 1], COUNT)).astype(dtype)


def moderate(dtype: str, rng: np.random.Generator, size: float) -> Array:
    return rng.uniform(-size, size, COUNT).astype(dtype)


def near_multiples(dtype: str, rng: np.random.Generator, bits: int) -> tuple[Array, Array]:
    """Dividends one step beside a multiple, where a rounded quotient is the next integer, of quotients of up to `bits` bits."""
    divisors = np.abs(random_bits(dtype, rng))
    divisors[~np.isfinite(divisors)] = 1
    multiples = divisors * np.floor(2.0 ** rng.uniform(0, bits, COUNT)).astype(dtype)
    beside = np.nextafter(multiples, rng.choice([-np.inf, np.inf], COUNT).astype(dtype))
    return (beside * rng.choice([-1, 1], COUNT)).astype(dtype), divisors


def operands(dtype: str, case: str) -> tuple[Array, Array]:
    rng = np.random.default_rng(7)
    precision = np.finfo(dtype).nmant + 1
    match case:
        case "any bits":
            return random_bits(dtype, rng), random_bits(dtype, rng)
        case "subnormal":
            least = np.finfo(dtype).smallest_subnormal
            return moderate(dtype, rng, 9000.0) * least, moderate(dtype, rng, 99.0) * least
        case "special":
            return special(dtype, rng), special(dtype, rng)
        case "special and ordinary":
            return np.where(rng.random(COUNT) < 0.05, special(dtype, rng), moderate(dtype, rng, 99.0)), moderate(dtype, rng, 9.0)
        case "short":
            return near_multiples(dtype, rng, precision + 1)
        case "double":
            return near_multiples(dtype, rng, 2 * precision)
        case _:
            return near_multiples(dtype, rng, 3 * precision)


@pytest.mark.parametrize("cpu", CPUS)
@pytest.mark.parametrize("dtype", ["float32", "float64"])
@np.errstate(all="ignore")
def test_bits_of_the_c_library(dtype: str, cpu: str) -> None:
    executable = compiled(dtype, (COUNT,), cpu)
    for case in ("any bits", "subnormal", "special", "special and ordinary", "short", "double", "long"):
        x, y = operands(dtype, case)
        (actual,) = executable.run({"x": x, "y": y}).values()
        expected = np.fmod(x, y)
        np.testing.assert_array_equal(np.signbit(actual[~np.isnan(expected)]), np.signbit(expected[~np.isnan(expected)]), case)
        np.testing.assert_array_equal(actual, expected, case)


@pytest.mark.parametrize("cpu", ["native", "x86-64-v3"])
@pytest.mark.parametrize("shape", [(COUNT,), (SizeVar("n"),)], ids=["static", "symbolic"])
@pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
def test_loops_are_vectorized(dtype: str, shape: tuple[Any, ...], cpu: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Their code calls a variant for vectors as long as the target's."""
    symbols = []
    original = inlaid_x86.linking.helper_object

    def recorded(symbol: str, *rest: Any) -> bytes | None:
        symbols.append(symbol)
        return original(symbol, *rest)

    monkeypatch.setattr(inlaid_x86.linking, "helper_object", recorded)
    executable = compiled(dtype, shape, cpu)
    longest = (512 if cpu == "native" and vector_bits(X86Options()) == 512 else 256) // (64 if dtype == "float64" else 32)
    assert f"inlaid_fmod{'' if dtype == 'float64' else 'f'}_{longest}" in symbols
    rng = np.random.default_rng(3)
    x, y = (rng.uniform(1, 90, COUNT).astype(dtype) for _ in range(2))
    (actual,) = executable.run({"x": x, "y": y}).values()
    np.testing.assert_array_equal(actual, np.fmod(x, y))
