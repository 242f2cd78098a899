"""Mathematical functions expanded into arithmetic, against wider arithmetic, over all exponents and special values."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from inlaid.tensor import ir, te
from inlaid.tensor.interp import evaluate_vector, run, values
from inlaid.tensor.lower import lower
from inlaid.tensor.math import expand, expand_program
from inlaid_runtime.types import dtype

Array = np.ndarray[Any, Any]
WIDE = np.finfo(np.longdouble).nmant > 60

BOUNDS = {
    "exp": (1.0, 1.1), "exp2": (1.0, 1.1), "expm1": (1.5, 2.0), "log": (1.0, 1.0), "log1p": (1.0, 1.0), "log2": (0.6, 1.5),
    "sin": (0.6, 1.0), "cos": (0.6, 1.0), "tan": (0.6, 2.0), "asin": (0.7, 2.0), "acos": (0.7, 1.0), "atan": (0.6, 2.0),
    "sinh": (0.6, 2.5), "cosh": (0.6, 2.0), "tanh": (2.5, 2.5), "asinh": (0.6, 1.5), "acosh": (0.6, 2.0), "atanh": (0.6, 2.0),
    "erf": (1.5, 3.0), "sigmoid": (2.5, 2.5), "rsqrt": (1.5, 1.5), "pow": (0.6, 1.0), "atan2": (0.6, 2.0),
    "scalb": (0.5, 0.5), "flush": (0, 0),
}  # fmt: skip
"""Errors in units in the last place, for float32 and float64; that of erf in float64 holds the reference's own."""
PAIR_BOUNDS = {
    "log2": 1.0, "sin": 1.0, "cos": 1.0, "tan": 1.25, "atan": 1.25, "atan2": 1.25, "pow": 1.25, "sinh": 1.0, "cosh": 1.0,
    "asinh": 1.5, "acosh": 1.5, "atanh": 1.25,
}  # fmt: skip
"""Errors of float32 functions in pairs of float32s, where they differ from those that compute in float64."""


def sigmoid(x: Array) -> Array:
    small = np.exp(-np.abs(x))
    return np.asarray(np.where(x < 0, small, 1) / (1 + small))


def erf(x: Array) -> Array:
    return np.array([math.erf(item) for item in x], x.dtype)


REFERENCE: dict[str, Callable[..., Array]] = {
    "exp": np.exp, "exp2": np.exp2, "expm1": np.expm1, "log": np.log, "log1p": np.log1p, "log2": np.log2, "sin": np.sin,
    "cos": np.cos, "tan": np.tan, "asin": np.arcsin, "acos": np.arccos, "atan": np.arctan, "sinh": np.sinh, "cosh": np.cosh,
    "tanh": np.tanh, "asinh": np.arcsinh, "acosh": np.arccosh, "atanh": np.arctanh, "erf": erf, "sigmoid": sigmoid,
    "rsqrt": lambda x: 1 / np.sqrt(x), "pow": np.power, "atan2": np.arctan2,
    "scalb": lambda x, n: np.ldexp(x, n.astype(np.int32)), "flush": lambda x: x,
}  # fmt: skip


def special(dtype_name: str) -> Array:
    info = np.finfo(dtype_name)
    positive = [0, info.smallest_subnormal, info.tiny / 3, info.tiny, 1e-20, 0.25, 0.5, 1, 1.5, 2, 3, np.pi / 2, np.pi, 10, 88.7]
    positive += [88.8, 103.9, 104.1, 708.5, 709.9, 745.1, 746, 1e10, 1e22, info.max, np.inf, np.nan]
    array = np.array(positive, dtype_name)
    return np.concatenate([array, -array])


def samples(dtype_name: str, seed: int) -> Array:
    rng = np.random.default_rng(seed)
    info = np.finfo(dtype_name)
    exponents = np.arange(info.minexp - info.nmant, info.maxexp)
    every = np.ldexp(rng.uniform(1, 2, (4 if dtype_name == "float32" else 1, len(exponents))), exponents).ravel()
    ordinary = [rng.standard_normal(1500), rng.uniform(-2, 2, 1500), rng.uniform(-110, 110, 1000), 1 + rng.normal(0, 1e-3, 500)]
    with np.errstate(all="ignore"):
        numbers = np.concatenate([every, -every, *ordinary]).astype(dtype_name)
    return np.concatenate([numbers, special(dtype_name)])


def pairs(name: str, dtype_name: str) -> tuple[Array, Array]:
    """Arguments of a function of two: random ones, and every special value with every other."""
    rng = np.random.default_rng(3)
    x = samples(dtype_name, 5)
    y = x[rng.permutation(len(x))]
    if name == "pow":
        y[::2] = rng.uniform(-30, 30, len(y[::2])).astype(dtype_name)
        y[::4] = np.rint(y[::4])
    more = np.array(
        np.meshgrid(special(dtype_name), np.concatenate([special(dtype_name), np.array([4, -3, 5e15, 0.3], dtype_name)]))
    ).reshape(2, -1)
    return np.concatenate([x, more[0]]), np.concatenate([y, more[1]])


def scales(dtype_name: str) -> tuple[Array, Array]:
    """Numbers near 1 and exponents that make them denormal, infinite and all between."""
    rng = np.random.default_rng(4)
    x = (rng.uniform(1, 2, 4000) * np.ldexp(1.0, rng.integers(-2, 2, 4000)) * rng.choice([-1, 1], 4000)).astype(dtype_name)
    max_exponent = 2 * np.finfo(dtype_name).maxexp - 4
    return x, rng.integers(-max_exponent, max_exponent, 4000).astype(dtype_name)


def assert_close(actual: Array, exact: Array, bound: float) -> None:
    """Within a number of units in the last place; infinite where the exact result rounds to infinity, NaN where it is NaN, zeros of
    the same sign."""
    info = np.finfo(actual.dtype)
    wide = np.asarray(exact)
    rounded = wide.astype(actual.dtype)
    np.testing.assert_array_equal(np.isnan(actual), np.isnan(wide))
    finite = np.isfinite(rounded)
    # At the edge of overflow, either neighbor will do.
    edge = np.abs(wide) >= wide.dtype.type(info.max)
    np.testing.assert_array_equal(actual[~finite & ~edge & ~np.isnan(wide)], rounded[~finite & ~edge & ~np.isnan(wide)])
    assert np.all(np.abs(actual[edge]) >= info.max)
    zero = wide == 0
    np.testing.assert_array_equal(np.signbit(actual[zero]), np.signbit(wide[zero]))
    inside = finite & ~edge & np.isfinite(wide)
    exponent = np.maximum(np.frexp(wide[inside])[1], info.minexp + 1)
    error = np.abs(actual[inside].astype(wide.dtype) - wide[inside]) / np.ldexp(wide.dtype.type(1), exponent - info.nmant - 1)
    assert error.max(initial=0) <= bound, f"{error.max()} units in the last place, at number {int(np.argmax(error))}"


def hard(name: str) -> tuple[Array, ...]:
    """float32 arguments at which pairs of float32s matter: near multiples of pi / 4, of every exponent, near 1; for powers, bases
    near 1, and results from underflow to overflow."""
    rng = np.random.default_rng(8)
    multiples = np.concatenate([np.arange(1, 1500), rng.integers(1, 1 << 22, 4000)]) * (np.pi / 4)
    rounded_multiples = multiples.astype(np.float32)
    # 16367173 * 2^72 is the float32 from 1 on that is nearest to a multiple of pi / 2.
    edges = np.array([2.0**17, 131071.992, 131072.008, 16367173 * 2.0**72], np.float32)
    every = rng.integers(0, 0x7F800000, 12000).astype(np.uint32).view(np.float32)
    ordinary = [rng.uniform(0, 8, 6000), rng.uniform(0, 92, 6000), 1 + rng.normal(0, 1e-2, 4000)]
    x = np.concatenate([rounded_multiples, np.nextafter(rounded_multiples, np.float32(np.inf)), edges, every, *ordinary]).astype(
        np.float32
    )
    x = np.concatenate([x, -x])
    if name not in ("pow", "atan2"):
        return (x,)
    if name == "atan2":
        y = np.concatenate([x, rng.standard_normal(9000)]).astype(np.float32)
        return y, rng.permutation(y)
    bases = [rng.uniform(0.5, 2, 9000), 1 + rng.normal(0, 1e-4, 9000), np.exp2(rng.uniform(-149, 128, 9000))]
    base = np.concatenate(bases).astype(np.float32)
    with np.errstate(all="ignore"):
        power = rng.uniform(-150, 130, base.size) / np.log2(base.astype(np.float64))
    return np.concatenate([base, np.abs(x)]), np.concatenate([power, rng.permutation(x)]).astype(np.float32)


@pytest.mark.skipif(not WIDE, reason="numpy has nothing wider than float64 here")
@pytest.mark.parametrize("name", sorted(PAIR_BOUNDS))
def test_expansion_in_pairs(name: str) -> None:
    ordinary = pairs(name, "float32") if name in ("pow", "atan2") else (samples("float32", 5),)
    args = tuple(np.concatenate(both) for both in zip(ordinary, hard(name), strict=True))
    with np.errstate(all="ignore"):
        exact = REFERENCE[name](*(arg.astype(np.longdouble) for arg in args))
        assert_close(evaluated(name, *args, wide=False), exact, PAIR_BOUNDS[name])


@pytest.mark.parametrize("dtype_name", ["float32", "float16", "bfloat16"])
@pytest.mark.parametrize("name", sorted(BOUNDS))
def test_no_float64_in_narrower_floats(name: str, dtype_name: str) -> None:
    buffers = [ir.Buffer("x", (), dtype(dtype_name)) for _ in range(2 if name in ("pow", "atan2", "scalb") else 1)]
    expr = expand(ir.math(name, *(buffer[()] for buffer in buffers)), wide=False)
    assert all(node.dtype.name != "float64" for node in ir.walk_exprs(expr))


def evaluated(name: str, *args: Array, wide: bool = True) -> Array:
    element_type = dtype(args[0].dtype.name)
    buffers = [ir.Buffer("x", (), element_type) for _ in args]
    expr = expand(ir.math(name, *(buffer[()] for buffer in buffers)), wide=wide)
    assert not any(isinstance(node, ir.CallMath) for node in ir.walk_exprs(expr))
    return evaluate_vector(expr, dict(zip(buffers, args, strict=True)))


@pytest.mark.parametrize("dtype_name", ["float32", "float64"])
@pytest.mark.parametrize("name", sorted(BOUNDS))
def test_expansion(name: str, dtype_name: str) -> None:
    if dtype_name == "float64" and not WIDE:
        pytest.skip("numpy has nothing wider than float64 here")
    args = (
        pairs(name, dtype_name)
        if name in ("pow", "atan2")
        else scales(dtype_name)
        if name == "scalb"
        else (samples(dtype_name, 5),)
    )
    with np.errstate(all="ignore"):
        exact = REFERENCE[name](*(arg.astype(np.float64 if dtype_name == "float32" else np.longdouble) for arg in args))
        assert_close(evaluated(name, *args), exact, BOUNDS[name][dtype_name == "float64"])


def test_every_function_has_an_expansion() -> None:
    assert set(BOUNDS) == set(ir.MATH)


@pytest.mark.parametrize("dtype_name", ["float16", "bfloat16"])
@pytest.mark.parametrize("name", ["exp", "tanh", "sin"])
def test_narrow_floats_round_once_from_float32(name: str, dtype_name: str) -> None:
    x = np.arange(1 << 16, dtype=np.uint16).view(dtype(dtype_name).numpy)
    buffer = ir.Buffer("x", (), dtype("float32"))
    with np.errstate(all="ignore"):
        wide = evaluate_vector(expand(ir.math(name, buffer[()])), {buffer: x.astype(np.float32)})
        np.testing.assert_array_equal(
            evaluated(name, x).astype(np.float32), wide.astype(dtype(dtype_name).numpy).astype(np.float32)
        )


def test_functions_to_keep_stay() -> None:
    a = te.placeholder((8,), "float32", "a")
    program = lower([te.compute((8,), lambda i: te.math("exp", a[i]) + te.math("log", a[i]), "b")], [a], "f")
    functions = {node.name for node in _values(expand_program(program, frozenset(("log",)))) if isinstance(node, ir.CallMath)}
    assert functions == {"log"}
    x = np.linspace(0.5, 4, 8, dtype=np.float32)
    np.testing.assert_allclose(run(expand_program(program), [x])[0], np.exp(x) + np.log(x), rtol=1e-6)


def _values(program: ir.LoopProgram) -> list[ir.Expr]:
    return [node for stmt in ir.walk_stmts(program.body) if isinstance(stmt, ir.Store) for node in ir.walk_exprs(stmt.value)]


def test_fma_rounds_once() -> None:
    rng = np.random.default_rng(11)
    scales = np.ldexp(1.0, rng.integers(-7, 7, 500))
    a, b = rng.standard_normal((2, 500)) * scales
    c = np.where(np.arange(500) % 3 == 0, -a * b, rng.standard_normal(500))
    for dtype_name in ("float64", "float32", "float16", "bfloat16"):
        args = [item.astype(dtype(dtype_name).numpy) for item in (a, b, c)]
        with np.errstate(all="ignore"):
            actual = values.stored(
                values.fma(dtype(dtype_name), *(values.load(arg, dtype(dtype_name)) for arg in args)), dtype(dtype_name)
            )
            single = [
                values.fma(dtype(dtype_name), *(values.load(arg[i], dtype(dtype_name)) for arg in args)) for i in range(0, 500, 50)
            ]
        np.testing.assert_array_equal(actual[::50].astype(np.float64), np.array(single, np.float64))
        exact = [values._fma_exact(*map(float, item)) for item in zip(*args, strict=True)]
        if dtype_name == "float64":
            np.testing.assert_array_equal(actual, exact)
        else:
            # The exact result in float64 is one rounding too many at most: half a unit of float64.
            is_close = np.abs(np.array(exact) - actual.astype(np.float64)) <= np.spacing(np.abs(actual)).astype(np.float64) * 0.5001
            assert np.all(is_close | ~np.isfinite(actual.astype(np.float64)))
