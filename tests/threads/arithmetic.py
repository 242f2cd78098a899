"""Check a kernel printer on every operator and conversion for every element type, scalar and vectorized."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np
from tests.unit.codegen.test_c_region import OPERATIONS, elements
from tests.unit.tensor.strategies import NARROW

from inlaid.lowering.kernels.finish import finish
from inlaid.tensor import interp, ir, te
from inlaid.tensor.lower import lower
from inlaid.tensor.region import RegionProgram
from inlaid.tensor.schedule import Schedule
from inlaid.tensor.transform.float64_operands import INTERMEDIATE_FLOAT64
from inlaid_runtime.types import dtype

from .printed import Check, Compiled, make_region

NATIVE = ("bool", "float32", "float64", *(f"{sign}int{bits}" for sign in ("", "u") for bits in (8, 16, 32, 64)))
COUNT = 64
LANES = [1, 8]
"""Lanes of loops."""


def kernel(name: str, bodies: dict[str, Callable[..., ir.Expr]], dtype_name: str, inputs: int, lanes: int) -> ir.LoopProgram:
    """Build an element-wise kernel with one output per body."""
    placeholders = [te.placeholder((COUNT,), dtype_name, f"x{number}") for number in range(inputs)]
    outputs = [
        te.compute((COUNT,), lambda i, body=body: body(*(x[i] for x in placeholders)), f"y{number}")
        for number, body in enumerate(bodies.values())
    ]
    schedule = Schedule(lower(outputs, placeholders, name))
    for block in schedule.blocks if lanes > 1 else ():
        _, inner = schedule.split(schedule.loops(block)[-1], (None, lanes))
        schedule.vectorize(inner)
    return finish(schedule.program)


def operations(dtype_name: str, types: Sequence[str] = NATIVE) -> dict[str, Callable[..., ir.Expr]]:
    """Operations on three values of a type, and its conversions to `types`."""
    kind = dtype(dtype_name).kind.replace("uint", "int")
    one, two = OPERATIONS[kind]
    bodies: dict[str, Callable[..., ir.Expr]] = {op: lambda x, y, z, op=op: ir.unary(op, x) for op in one}
    for op in (*two, *ir.COMPARISONS):
        bodies[op] = lambda x, y, z, op=op: ir.binary(op, x, y)
    if kind == "float":
        bodies |= {op: lambda x, y, z, op=op: te.cast(ir.unary(op, x), "uint8") for op in ("isnan", "isinf")}
    if kind != "bool":
        bodies["fma"] = ir.fma
    bodies |= {f"to {to}": lambda x, y, z, to=to: te.cast(x, to) for to in types if to != dtype_name}
    equal_width_types = [to for to in types if dtype(to).bytes == dtype(dtype_name).bytes and to != dtype_name]
    bodies |= {f"as {to}": lambda x, y, z, to=to: ir.bitcast(x, to) for to in equal_width_types if "bool" not in (to, dtype_name)}
    bodies["select"] = lambda x, y, z: ir.select(ir.binary("lt", x, y), y, z)
    return bodies


def without_float64(program: ir.LoopProgram) -> ir.LoopProgram:
    """Return the program as one whose float64 values are intermediate results, which its kernels compute in integers."""
    return replace(program, annotations=(INTERMEDIATE_FLOAT64,))


def check_arithmetic(check: Check, lanes: int, types: Sequence[str] = NATIVE, float64: bool = True) -> None:
    """Operators on `types` are bit-exact, and so are conversions, to these types or, if kernels compute no `float64`, to all."""
    programs, arrays = [], []
    for dtype_name in types:
        program = kernel(dtype_name, operations(dtype_name, types if float64 else NATIVE), dtype_name, 3, lanes)
        programs.append(program if float64 else without_float64(program))
        # The order of -0 and 0 is undefined.
        first = elements(dtype_name, 1)
        first = np.where(first == 0, first.dtype.type(1), first) if dtype(dtype_name).is_float else first
        arrays.append([first, elements(dtype_name, 2), elements(dtype_name, 3)])
    check(programs, arrays)


def check_narrow_types(check: Check, lanes: int) -> None:
    """Narrow types: conversions from and to float32 and int8, and sums."""
    programs, arrays = [], []
    for dtype_name in (*NARROW, "float8e4m3fnuz", "float8e5m2fnuz", "float8e8m0"):
        wide = "float32" if dtype(dtype_name).is_float else "int32"
        to = {"to": lambda x, dtype_name=dtype_name: te.cast(x, dtype_name)}
        back = {
            "back": lambda x, wide=wide: te.cast(x, wide),
            "twice": lambda x: x + x,
            "select": lambda x: ir.select(x < x + x, x, x),
        }
        with np.errstate(all="ignore"):
            # The 4-bit encoding of NaN is undefined.
            wide_values = (
                np.nan_to_num(elements(wide, 5))
                if dtype_name == "float4e2m1"
                else elements(wide, 5)
                if wide == "float32"
                else np.random.default_rng(5).integers(-300, 300, COUNT, np.int32)
            )
            narrow = interp.run(kernel("n", to, wide, 1, 1), [wide_values])[0]
        programs += [kernel(f"to {dtype_name}", to, wide, 1, lanes), kernel(f"from {dtype_name}", back, dtype_name, 1, lanes)]
        arrays += [[wide_values], [narrow]]
    check(programs, arrays)


def check_integers_to_narrow_types(check: Check, lanes: int) -> None:
    """Conversions of integers to narrow floats round once, without float64."""
    to = {
        dtype_name: lambda x, dtype_name=dtype_name: te.cast(x, dtype_name) for dtype_name in ("float16", "bfloat16", "float8e5m2")
    }
    sources = ("int32", "uint32", "int64", "uint64")
    check(
        [without_float64(kernel(dtype_name, to, dtype_name, 1, lanes)) for dtype_name in sources],
        [[elements(dtype_name, 8)] for dtype_name in sources],
    )


def check_functions(compiled: Callable[[RegionProgram], Compiled], dtype_name: str, lanes: int, float64: bool = True) -> None:
    """Mathematical functions have the accuracy of the core's expansions, special values included, also without `float64`."""
    names = [name for name in ir.MATH if name not in ("scalb", "atan2", "pow")]
    bodies = {name: lambda x, y, name=name: ir.math(name, x) for name in names}
    bodies |= {name: lambda x, y, name=name: ir.math(name, x, y) for name in ("atan2", "pow")}
    program = kernel("functions", bodies, dtype_name, 2, lanes)
    arrays = [elements(dtype_name, 6), elements(dtype_name, 7)]
    expected = interp.run(program, arrays)
    program = program if float64 else without_float64(program)
    results = [np.zeros_like(array) for array in expected]
    assert not compiled(make_region([program])).run(arrays, results)
    for name, result, expected_output in zip(bodies, results, expected, strict=True):
        finite = np.isfinite(expected_output)
        np.testing.assert_array_equal(np.where(finite, 0, result), np.where(finite, 0, expected_output), err_msg=name)
        tiny = np.finfo(result.dtype).smallest_subnormal
        np.testing.assert_allclose(
            result[finite], expected_output[finite], rtol=3 * np.finfo(result.dtype).eps, atol=2 * tiny, err_msg=name
        )
