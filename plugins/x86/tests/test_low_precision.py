"""Products of bfloat16 and of eight bits: odd sizes, special values, unaligned and strided inputs, for each instruction set."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import inlaid
from inlaid import ops
from inlaid.driver.compile import build_package
from inlaid.graph import ir
from inlaid.graph.interp import evaluate
from inlaid_runtime.types import TensorType
from inlaid_x86.compilers import Compilers
from inlaid_x86_runtime.cpu import LEVELS

Array = np.ndarray[Any, Any]

CPUS = ("native", *LEVELS)
SIZES = st.sampled_from([1, 2, 3, 4, 5, 7, 13, 16, 17, 31, 33, 64, 65])
RNG = np.random.default_rng(0)


def numbers(shape: tuple[int, ...], dtype: str) -> Array:
    if dtype == "bfloat16":
        return RNG.uniform(-1, 1, shape).astype(ml_dtypes.bfloat16)
    limits = np.iinfo(dtype)
    return RNG.integers(limits.min, limits.max, shape, dtype, endpoint=True)


def check(result: ir.Expr, arrays: dict[str, Array], cpu: str) -> None:
    """x86 against the numpy references: integers exactly, sums of floats but for their order."""
    params = sorted((item for item in ir.post_order(result) if isinstance(item, ir.Var)), key=lambda item: item.name)
    module = ir.Module({"main": ir.function(params, result)})
    executable = inlaid.compile(module, [f"x86:threads=1,cpu={cpu}"])
    assert all(region.target.startswith("x86") for region in executable.regions)
    (actual,) = executable.run(arrays).values()
    expected = evaluate(module, arrays)
    assert (actual.dtype, actual.shape) == (expected.dtype, expected.shape)
    if expected.dtype.kind in "iu":
        np.testing.assert_array_equal(actual, expected)
    else:
        tolerance = 1e-5 + 1e-4 * np.abs(expected).max(initial=0)
        np.testing.assert_allclose(actual, expected, rtol=0, atol=tolerance)


def var(name: str, shape: tuple[int, ...], dtype: str) -> ir.Var:
    return ir.var(name, TensorType(shape, dtype))


def stored(total: ir.Expr, channels: int, axis: int) -> ir.Expr:
    """An int32 sum with a bias, requantized by channel."""
    bias = RNG.integers(-1000, 1000, channels).astype(np.int32).reshape(-1, *(1,) * (len(total.type.shape) - 1 - axis))  # type: ignore[attr-defined]
    scale = RNG.uniform(1e-4, 1e-2, channels).astype(np.float32)
    return ops.requantize(ops.add(total, ir.constant(bias)), ir.constant(scale), ir.constant(np.uint8(7)), dtype="uint8", axis=axis)


TYPES = [("uint8", "int8"), ("int8", "int8"), ("bfloat16", "bfloat16")]


@pytest.mark.parametrize("cpu", CPUS)
@pytest.mark.parametrize("types", TYPES, ids="-".join)
@given(rows=SIZES, depth=SIZES, columns=SIZES, constant=st.booleans(), batch=st.sampled_from([(), (3,)]))
@settings(max_examples=6, deadline=None)
def test_matrix_products(
    cpu: str, types: tuple[str, str], rows: int, depth: int, columns: int, constant: bool, batch: tuple[int, ...]
) -> None:
    a = numbers((*batch, rows, depth), types[0])
    b = numbers((depth, columns) if constant else (*batch, depth, columns), types[1])
    arrays = {"a": a} if constant else {"a": a, "b": b}
    right = ir.constant(b) if constant else var("b", b.shape, types[1])
    product: ir.Expr = ops.matmul(var("a", a.shape, types[0]), right, out_dtype="float32" if types[0] == "bfloat16" else "int32")
    check(ops.relu(product) if types[0] == "bfloat16" else stored(product, columns, a.ndim - 1), arrays, cpu)


@pytest.mark.parametrize("cpu", CPUS)
@pytest.mark.parametrize("types", TYPES, ids="-".join)
@given(
    inputs=st.sampled_from([1, 3, 4, 13, 16, 33]),
    outputs=st.sampled_from([1, 5, 16, 33]),
    size=st.sampled_from([1, 3, 7, 10]),
    kernel=st.sampled_from([1, 3]),
    stride=st.sampled_from([1, 2]),
    depthwise=st.booleans(),
)
@settings(max_examples=6, deadline=None)
def test_convolutions(
    cpu: str, types: tuple[str, str], inputs: int, outputs: int, size: int, kernel: int, stride: int, depthwise: bool
) -> None:
    groups, outputs = (inputs, inputs) if depthwise else (1, outputs)
    x, w = numbers((2, inputs, size, size + 2), types[0]), numbers((outputs, inputs // groups, kernel, kernel), types[1])
    product = ops.conv(
        var("x", x.shape, types[0]),
        ir.constant(w),
        strides=(stride, stride),
        pads=(kernel // 2,) * 4,
        groups=groups,
        out_dtype="float32" if types[0] == "bfloat16" else "int32",
    )
    check(ops.relu(product) if types[0] == "bfloat16" else stored(product, outputs, 1), {"x": x}, cpu)


@pytest.mark.parametrize("cpu", CPUS)
@pytest.mark.parametrize("extreme", [(255, 127), (255, -128), (0, -128)])
def test_sums_of_the_greatest_products_do_not_saturate(cpu: str, extreme: tuple[int, int]) -> None:
    a = np.full((3, 70), extreme[0], np.uint8)
    b = np.full((70, 17), extreme[1], np.int8)
    check(ops.matmul(var("a", a.shape, "uint8"), ir.constant(b), out_dtype="int32"), {"a": a}, cpu)


@pytest.mark.parametrize("cpu", CPUS)
@pytest.mark.parametrize("dtype", ["uint8", "int8"])
def test_quantization_of_special_values(cpu: str, dtype: str) -> None:
    """Infinities and what is out of range saturate, halves go to even, denormals to the zero point."""
    x = np.array([np.inf, -np.inf, 3e38, -3e38, 1e-45, -1e-39, 0.0, -0.0, 0.25, 0.75, 1.25, -0.25, -0.75, 63.4, -63.6], np.float32)
    point = np.asarray(3, dtype)
    stored = ops.quantize(var("x", x.shape, "float32"), ir.constant(np.float32(0.5)), ir.constant(point), dtype=dtype)
    check(stored, {"x": x}, cpu)
    check(ops.dequantize(stored, ir.constant(np.float32(0.5)), ir.constant(point), dtype="float32"), {"x": x}, cpu)


@pytest.mark.parametrize("cpu", CPUS)
def test_special_values_in_bfloat16_products_stay_in_their_rows(cpu: str) -> None:
    a = numbers((9, 33), "bfloat16")
    a[2, 5], a[4, 32], a[7, 0] = np.nan, np.inf, -np.inf
    b = np.abs(numbers((33, 18), "bfloat16")) + ml_dtypes.bfloat16(0.5)
    product = ops.matmul(var("a", a.shape, "bfloat16"), ir.constant(b), out_dtype="float32")
    module = ir.Module({"main": ir.function([item for item in ir.post_order(product) if isinstance(item, ir.Var)], product)})
    (actual,) = inlaid.compile(module, [f"x86:threads=1,cpu={cpu}"]).run({"a": a}).values()
    assert np.isnan(actual[2]).all()
    assert (actual[4] == np.inf).all()
    assert (actual[7] == -np.inf).all()
    assert np.isfinite(np.delete(actual, (2, 4, 7), 0)).all()


@pytest.mark.parametrize("size", [1, 5, 16, 4099])
@pytest.mark.parametrize("cpu", CPUS)
def test_conversion_to_bfloat16(cpu: str, size: int) -> None:
    """Rounded half to even; denormals are exact, or zeros of their sign where that is allowed."""
    bits = np.random.default_rng(size).integers(0, 1 << 32, size, np.uint64).astype(np.uint32)
    bits[::3] = bits[::3] & 0xFFFF0000 | 0x8000  # ties
    bits[1::7] &= 0x807FFFFF  # denormals and zeros
    bits[2::11] |= 0x7F800000  # NaN and infinities
    x = bits.view(np.float32)
    with np.errstate(invalid="ignore"):  # of signalling NaNs
        expected = x.astype(ml_dtypes.bfloat16)
    for denormals in (True, False):
        module = ir.Module(
            {"main": ir.function([a := var("x", x.shape, "float32")], ops.cast(a, dtype="bfloat16", denormals=denormals))}
        )
        (actual,) = inlaid.compile(module, [f"x86:threads=1,cpu={cpu}"]).run({"x": x}).values()
        nan = np.isnan(expected)
        assert np.isnan(actual[nan]).all()
        equal = actual.view(np.uint16) == expected.view(np.uint16)
        zero = (np.abs(x) < np.finfo(np.float32).tiny) & (actual.view(np.uint16) == expected.view(np.uint16) & 0x8000)
        assert (equal | nan | (zero & (not denormals))).all()


@pytest.mark.parametrize(
    ("compiled_for", "denormals", "converts"),
    [("sapphirerapids", False, True), ("sapphirerapids", True, False), ("x86-64-v4", False, False)],
)
def test_an_instruction_converts_where_denormals_may_be_flushed(
    monkeypatch: pytest.MonkeyPatch, compiled_for: str, denormals: bool, converts: bool
) -> None:
    texts: list[str] = []
    add = Compilers._add
    monkeypatch.setattr(Compilers, "_add", lambda self, job, key: texts.append(job.text) or add(self, job, key))
    x = var("x", (64,), "float32")
    build_package(
        ir.Module({"main": ir.function([x], ops.cast(x, dtype="bfloat16", denormals=denormals))}),
        [f"x86:threads=1,cpu={compiled_for}"],
    )
    assert any("bfloat" in text for text in texts) == converts


@pytest.mark.parametrize("types", TYPES, ids="-".join)
def test_inputs_need_not_be_contiguous_or_aligned(types: tuple[str, str]) -> None:
    matrix = numbers((2 * 13 + 1, 37), types[0])
    b = ir.constant(numbers((33, 18), types[1]))
    out_dtype = "float32" if types[0] == "bfloat16" else "int32"
    product = ops.matmul(var("a", (13, 33), types[0]), b, out_dtype=out_dtype)
    packed = numbers((13 * 33 + 1,), types[0])[1:].reshape(13, 33)
    for array in (matrix[1:14, 3:36], matrix[:26:2, 36:3:-1], packed, np.asfortranarray(packed)):
        check(product, {"a": array}, "native")


@pytest.mark.parametrize("cpu", CPUS)
@pytest.mark.parametrize(("source", "to"), [("float32", "float16"), ("float16", "float32"), ("float64", "float16")])
def test_conversions_of_float16_are_exact(source: str, to: str, cpu: str) -> None:
    """Every float16, and numbers half-way between two of them, a little more and a little less."""
    every = np.arange(1 << 16, dtype=np.uint16).view(np.float16)
    with np.errstate(all="ignore"):
        x = every.astype(source)
        if source != "float16":
            half = (x[1:] + x[:-1]) / 2
            x = np.concatenate([x, half, np.nextafter(half, half.dtype.type(np.inf)), np.nextafter(half, half.dtype.type(0))])
        expected = x.astype(to)
    unit = ir.function([v := var("x", x.shape, source)], ops.cast(v, dtype=to))
    (actual,) = inlaid.compile(unit, [f"x86:threads=1,cpu={cpu}"]).run({"x": x}).values()
    np.testing.assert_array_equal(np.isnan(actual), np.isnan(expected))
    real = ~np.isnan(expected)
    assert actual[real].tobytes() == expected[real].tobytes()
