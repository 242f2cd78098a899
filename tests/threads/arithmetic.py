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

from .printed import Check, Compiled, region_of

NATIVE = ("bool", "float32", "float64", *(f"{sign}int{bits}" for sign in ("", "u") for bits in (8, 16, 32, 64)))
COUNT = 64
LANES = [1, 8]
"""Lanes of loops."""


def kernel(name: str, bodies: dict[str, Callable[..., ir.Expr]], of: str, inputs: int, lanes: int) -> ir.LoopProgram:
    """Build an element-wise kernel with one output per body."""
    given = [te.placeholder((COUNT,), of, f"x{number}") for number in range(inputs)]
    made = [
        te.compute((COUNT,), lambda i, body=body: body(*(x[i] for x in given)), f"y{number}")
        for number, body in enumerate(bodies.values())
    ]
    schedule = Schedule(lower(made, given, name))
    for block in schedule.blocks if lanes > 1 else ():
        _, inner = schedule.split(schedule.loops(block)[-1], (None, lanes))
        schedule.vectorize(inner)
    return finish(schedule.program)


def operations(of: str, types: Sequence[str] = NATIVE) -> dict[str, Callable[..., ir.Expr]]:
    """Operations on three values of a type, and its conversions to `types`."""
    kind = dtype(of).kind.replace("uint", "int")
    one, two = OPERATIONS[kind]
    found: dict[str, Callable[..., ir.Expr]] = {op: lambda x, y, z, op=op: ir.unary(op, x) for op in one}
    for op in (*two, *ir.COMPARISONS):
        found[op] = lambda x, y, z, op=op: ir.binary(op, x, y)
    if kind == "float":
        found |= {op: lambda x, y, z, op=op: te.cast(ir.unary(op, x), "uint8") for op in ("isnan", "isinf")}
    if kind != "bool":
        found["fma"] = ir.fma
    found |= {f"to {to}": lambda x, y, z, to=to: te.cast(x, to) for to in types if to != of}
    same = [to for to in types if dtype(to).bytes == dtype(of).bytes and to != of]
    found |= {f"as {to}": lambda x, y, z, to=to: ir.bitcast(x, to) for to in same if "bool" not in (to, of)}
    found["select"] = lambda x, y, z: ir.select(ir.binary("lt", x, y), y, z)
    return found


def without_float64(program: ir.LoopProgram) -> ir.LoopProgram:
    """Return the program as one whose float64 values are intermediate results, which its kernels compute in integers."""
    return replace(program, annotations=(INTERMEDIATE_FLOAT64,))


def check_arithmetic(check: Check, lanes: int, types: Sequence[str] = NATIVE, float64: bool = True) -> None:
    """Operators on `types` are bit-exact, and so are conversions, to these types or, if kernels compute no `float64`, to all."""
    programs, arrays = [], []
    for of in types:
        program = kernel(of, operations(of, types if float64 else NATIVE), of, 3, lanes)
        programs.append(program if float64 else without_float64(program))
        # The order of -0 and 0 is undefined.
        first = elements(of, 1)
        first = np.where(first == 0, first.dtype.type(1), first) if dtype(of).is_float else first
        arrays.append([first, elements(of, 2), elements(of, 3)])
    check(programs, arrays)


def check_narrow_types(check: Check, lanes: int) -> None:
    """Narrow types: conversions from and to float32 and int8, and sums."""
    programs, arrays = [], []
    for of in (*NARROW, "float8e4m3fnuz", "float8e5m2fnuz", "float8e8m0"):
        wide = "float32" if dtype(of).is_float else "int32"
        to = {"to": lambda x, of=of: te.cast(x, of)}
        back = {
            "back": lambda x, wide=wide: te.cast(x, wide),
            "twice": lambda x: x + x,
            "select": lambda x: ir.select(x < x + x, x, x),
        }
        with np.errstate(all="ignore"):
            # The 4-bit encoding of NaN is undefined.
            given = (
                np.nan_to_num(elements(wide, 5))
                if of == "float4e2m1"
                else elements(wide, 5)
                if wide == "float32"
                else np.random.default_rng(5).integers(-300, 300, COUNT, np.int32)
            )
            narrow = interp.run(kernel("n", to, wide, 1, 1), [given])[0]
        programs += [kernel(f"to {of}", to, wide, 1, lanes), kernel(f"from {of}", back, of, 1, lanes)]
        arrays += [[given], [narrow]]
    check(programs, arrays)


def check_integers_to_narrow_types(check: Check, lanes: int) -> None:
    """Conversions of integers to narrow floats round once, without float64."""
    to = {of: lambda x, of=of: te.cast(x, of) for of in ("float16", "bfloat16", "float8e5m2")}
    sources = ("int32", "uint32", "int64", "uint64")
    check([without_float64(kernel(of, to, of, 1, lanes)) for of in sources], [[elements(of, 8)] for of in sources])


def check_functions(compiled: Callable[[RegionProgram], Compiled], of: str, lanes: int, float64: bool = True) -> None:
    """Mathematical functions have the accuracy of the core's expansions, special values included, also without `float64`."""
    found = [name for name in ir.MATH if name not in ("scalb", "atan2", "pow")]
    bodies = {name: lambda x, y, name=name: ir.math(name, x) for name in found}
    bodies |= {name: lambda x, y, name=name: ir.math(name, x, y) for name in ("atan2", "pow")}
    program = kernel("functions", bodies, of, 2, lanes)
    given = [elements(of, 6), elements(of, 7)]
    expected = interp.run(program, given)
    program = program if float64 else without_float64(program)
    results = [np.zeros_like(array) for array in expected]
    assert not compiled(region_of([program])).run(given, results)
    for name, result, wanted in zip(bodies, results, expected, strict=True):
        finite = np.isfinite(wanted)
        np.testing.assert_array_equal(np.where(finite, 0, result), np.where(finite, 0, wanted), err_msg=name)
        tiny = np.finfo(result.dtype).smallest_subnormal
        np.testing.assert_allclose(result[finite], wanted[finite], rtol=3 * np.finfo(result.dtype).eps, atol=2 * tiny, err_msg=name)
