"""float64 arithmetic in integers, compiled as C, against the processor's: bit-exact, except for the bits of NaN."""

from __future__ import annotations

import ctypes
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from inlaid.codegen.threads.float64_functions import FUNCTIONS
from inlaid.tensor.interp import values
from inlaid_runtime.execution.c_source import find_compiler
from inlaid_runtime.types import dtype

pytestmark = pytest.mark.skipif(find_compiler() is None, reason="there is no C compiler: apt-get install gcc")

Array = np.ndarray[Any, Any]
COUNT = 40_000
ROUNDING: dict[str, Callable[[Array], Array]] = {"round": np.rint, "floor": np.floor, "ceil": np.ceil, "trunc": np.trunc}
BINARY: dict[str, Callable[[Array, Array], Array]] = {
    "add": np.add, "mul": np.multiply, "div": np.divide, "lt": np.less, "le": np.less_equal, "eq": np.equal, "ne": np.not_equal,
}  # fmt: skip


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> ctypes.CDLL:
    folder = tmp_path_factory.mktemp("float64")
    loops = [
        _loop(name, "uint64_t", ("uint64_t", "uint64_t"), f"inlaid_float64_{name}(a[i], b[i])")
        for name in ("add", "mul", "div", "mod", "lt", "le", "eq", "ne")
    ]
    loops += [_loop(name, "uint64_t", ("uint64_t",), f"inlaid_float64_integral(a[i], {how})") for how, name in enumerate(ROUNDING)]
    loops += [
        _loop("fma", "uint64_t", ("uint64_t", "uint64_t", "uint64_t"), "inlaid_float64_fma(a[i], b[i], c[i])"),
        _loop("libc_fma", "double", ("double", "double", "double"), "fma(a[i], b[i], c[i])"),
        _loop("sqrt", "uint64_t", ("uint64_t",), "inlaid_float64_sqrt(a[i])"),
        _loop("nan", "uint64_t", ("uint64_t",), "(uint64_t)inlaid_float64_nan(a[i])"),
        _loop("from_int64", "uint64_t", ("int64_t",), "inlaid_float64_from_int64(a[i])"),
        _loop("from_uint64", "uint64_t", ("uint64_t",), "inlaid_float64_from_uint64(a[i])"),
        _loop("from_bits", "uint64_t", ("uint32_t",), "inlaid_float64_from_bits(a[i])"),
        _loop("to_bits", "uint32_t", ("uint64_t",), "inlaid_float64_to_bits(a[i])"),
        _loop("to_int64", "int64_t", ("uint64_t",), "inlaid_float64_to_int64(a[i])"),
        _loop("to_uint64", "uint64_t", ("uint64_t",), "inlaid_float64_to_uint64(a[i])"),
    ]
    source: Path = folder / "float64.c"
    source.write_text("\n".join(["#include <math.h>", "#include <stdint.h>", *FUNCTIONS.values(), *loops]))
    flags = ("-std=c99", "-O1", "-Wall", "-Werror", "-shared", "-fPIC", "-fsanitize=shift", "-fsanitize-undefined-trap-on-error")
    subprocess.run([str(find_compiler()), *flags, str(source), "-o", str(folder / "float64.so"), "-lm"], check=True)
    return ctypes.CDLL(str(folder / "float64.so"))


def _loop(name: str, result: str, types: tuple[str, ...], value: str) -> str:
    params = ", ".join(f"const {parameter_type} *{letter}" for parameter_type, letter in zip(types, "abc", strict=False))
    return f"void loop_{name}({params}, {result} *to, int n) {{ for (int i = 0; i < n; i++) to[i] = {value}; }}"


def call(library: ctypes.CDLL, name: str, *args: Array, result: str = "uint64") -> Array:
    to = np.zeros(args[0].size, result)
    pointers = [np.ascontiguousarray(arg).ctypes.data_as(ctypes.c_void_p) for arg in (*args, to)]
    pointers[-1] = to.ctypes.data_as(ctypes.c_void_p)
    library[f"loop_{name}"](*pointers, ctypes.c_int(to.size))
    return to


def numbers(seed: int) -> Array:
    """float64 numbers: special ones, of every exponent, of near exponents, small integers and halves, and near 2^63."""
    rng = np.random.default_rng(seed)
    info = np.finfo(np.float64)
    special = [0, info.smallest_subnormal, info.tiny, np.nextafter(info.tiny, 0), 0.5, np.nextafter(0.5, 0), 1, 1.5, 2, 3, 2.0**52]
    special += [2.0**53, 2.0**63, np.nextafter(2.0**63, 0), 2.0**64, np.nextafter(2.0**64, 0), info.max, np.inf, np.nan]
    kinds = [
        rng.choice(special, COUNT),
        rng.integers(0, 1 << 64, COUNT, np.uint64).view(np.float64),
        rng.uniform(1, 2, COUNT) * np.exp2(rng.integers(-3, 4, COUNT)),
        np.ldexp(np.round(rng.uniform(1, 2, COUNT) * 2.0**20) / 2.0**20, rng.integers(-60, 60, COUNT)),
        rng.integers(-1000, 1000, COUNT) / 2,
        rng.integers(0, 1 << 60, COUNT).view(np.float64) * 2.0**-900,
    ]
    chosen = np.choose(rng.integers(0, len(kinds), COUNT), kinds)
    return np.where(rng.integers(0, 2, COUNT) == 0, chosen, -chosen)


def assert_bits(bits: Array, expected: Array) -> None:
    """The bits of float64 numbers, and any NaN where NaN is expected."""
    nan = np.isnan(expected)
    np.testing.assert_array_equal(np.isnan(bits.view(np.float64)), nan)
    np.testing.assert_array_equal(bits[~nan], expected.view(np.uint64)[~nan])


@pytest.mark.parametrize("name", BINARY)
def test_binary(library: ctypes.CDLL, name: str) -> None:
    a, b = numbers(1), numbers(2)
    b[::16] = -np.nextafter(a[::16], 0)
    with np.errstate(all="ignore"):
        expected = BINARY[name](a, b)
    actual = call(library, name, a, b)
    if expected.dtype == bool:
        np.testing.assert_array_equal(actual, expected)
    else:
        assert_bits(actual, expected)


def test_mod(library: ctypes.CDLL) -> None:
    a, b = numbers(3), numbers(4)
    with np.errstate(all="ignore"):
        assert_bits(call(library, "mod", a, b), np.fmod(a, b))


def test_fma(library: ctypes.CDLL) -> None:
    a, b, c = numbers(5), numbers(6), numbers(7)
    with np.errstate(all="ignore"):
        c[::3] = -a[::3] * b[::3]
    assert_bits(call(library, "fma", a, b, c), call(library, "libc_fma", a, b, c, result="float64"))


def test_sqrt_and_nan(library: ctypes.CDLL) -> None:
    a = numbers(8)
    with np.errstate(all="ignore"):
        assert_bits(call(library, "sqrt", a), np.sqrt(a))
    np.testing.assert_array_equal(call(library, "nan", a), np.isnan(a))


@pytest.mark.parametrize("name", ROUNDING)
def test_rounding(library: ctypes.CDLL, name: str) -> None:
    a = numbers(9)
    with np.errstate(all="ignore"):
        expected = ROUNDING[name](a)
    assert_bits(call(library, name, a), expected)


def test_conversions(library: ctypes.CDLL) -> None:
    rng = np.random.default_rng(10)
    integers = rng.integers(0, 1 << 64, COUNT, np.uint64) >> rng.integers(0, 64, COUNT).astype(np.uint64)
    assert_bits(call(library, "from_uint64", integers), integers.astype(np.float64))
    assert_bits(call(library, "from_int64", integers.view(np.int64)), integers.view(np.int64).astype(np.float64))
    single = rng.integers(0, 1 << 32, COUNT, np.uint32)
    single[::4] &= 0x807FFFFF
    with np.errstate(all="ignore"):
        subnormals = np.ldexp(np.frexp(numbers(12))[0], rng.integers(-155, -120, COUNT))
        a = np.concatenate([numbers(11), subnormals, single.view(np.float32).astype(np.float64) * (1 + 2.0**-24)])
        assert_bits(call(library, "from_bits", single), single.view(np.float32).astype(np.float64))
        float32_values = a.astype(np.float32)
        bits = call(library, "to_bits", a, result="uint32")
    np.testing.assert_array_equal(np.isnan(bits.view(np.float32)), np.isnan(float32_values))
    np.testing.assert_array_equal(bits[~np.isnan(float32_values)], float32_values.view(np.uint32)[~np.isnan(float32_values)])
    for dtype_name in ("int64", "uint64"):
        with np.errstate(all="ignore"):
            expected = values.cast(a, dtype("float64"), dtype(dtype_name))
        np.testing.assert_array_equal(call(library, f"to_{dtype_name}", a, result=dtype_name), expected)
