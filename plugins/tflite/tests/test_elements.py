"""Functions of one and of two elements beside LiteRT: random scales and zero points, all values of 8 bits."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from inlaid_runtime.errors import ModelImportError
from inlaid_tflite import load
from inlaid_tflite.convert.binary import CONVERTERS as BINARY
from inlaid_tflite.convert.unary import CONVERTERS as UNARY
from inlaid_tflite.node import Typed

from .build import Options, Tensor, check_litert, drawn, single

STORED = {"int8": (-128, 127), "uint8": (0, 255), "int16": (-32768, 32767)}
UNIT = {"int8": (1 / 256, -128), "uint8": (1 / 256, 0), "int16": (1 / 32768, 0)}
"""The scale and the zero point that LiteRT wants of a result in [0, 1)."""
TOLERANCE = {"float16": 2e-3, "bfloat16": 1e-2}
PLAIN = ("NEG", "BITWISE_XOR", "RIGHT_SHIFT", "FLOOR_DIV", "FLOOR_MOD")
"""They take stored integers for what they are."""
COMPARISONS = ("EQUAL", "NOT_EQUAL", "LESS", "LESS_EQUAL", "GREATER", "GREATER_EQUAL")
FUSED = {"ADD": "AddOptions", "SUB": "SubOptions", "MUL": "MulOptions", "DIV": "DivOptions"}
seeds = st.integers(0, 2**31)


def cases(converters: Any) -> list[tuple[str, str]]:
    return [(name, dtype) for name, convert in converters.items() if isinstance(convert, Typed) for dtype in convert.dtypes]


def stands_for(dtype: str, generator: np.random.Generator, greatest: float = 0.0) -> dict[str, Any]:
    """A random quantization with scales of 2^`greatest` at most; none for types that have none."""
    if dtype not in STORED:
        return {}
    if dtype == "int16":
        return {"scale": float(np.exp2(generator.uniform(-15, -3))), "zero_point": 0}
    points = [*STORED[dtype], int(generator.integers(*STORED[dtype]))]
    return {"scale": float(np.exp2(generator.uniform(-8, greatest))), "zero_point": int(generator.choice(points))}


@pytest.mark.parametrize(("name", "dtype"), cases(UNARY))
@settings(max_examples=6, deadline=None, derandomize=True)
@given(seeds)
def test_functions_of_one_element(name: str, dtype: str, seed: int) -> None:
    generator = np.random.default_rng(seed)
    shape = (4, 65)
    input_quantization, result = ({} if name in PLAIN else stands_for(dtype, generator) for _ in range(2))
    x = drawn(dtype, shape, generator)
    if dtype in ("int8", "uint8"):
        x = np.resize(np.arange(STORED[dtype][0], STORED[dtype][1] + 1).astype(dtype), shape)
    if name in ("SQRT", "RSQRT", "LOG"):
        x = np.abs(x) if x.dtype.kind == "f" else np.maximum(x, input_quantization["zero_point"]).astype(dtype)
    if dtype in STORED and (name == "LOGISTIC" or (name, dtype) == ("TANH", "int16")):
        result = dict(zip(("scale", "zero_point"), UNIT[dtype], strict=True))
        if dtype == "int16" and generator.integers(2):
            input_quantization["scale"] = float(generator.choice([2.0**-11, 2.0**-12]))
    if name == "HARD_SWISH" and dtype in STORED:
        result["scale"] = max(result["scale"], input_quantization["scale"] / 100)
    options: Options | None = None
    if name == "LEAKY_RELU":
        options = ("LeakyReluOptions", {"alpha": float(generator.uniform(-0.5, 1.5))})
    if name == "GELU":
        options = ("GeluOptions", {"approximate": bool(generator.integers(2))})
    data = single(name, [Tensor(shape, dtype, **input_quantization)], Tensor(shape, dtype, **result), options)
    check_litert(data, [x], TOLERANCE.get(dtype))


@pytest.mark.parametrize(("name", "dtype"), cases(BINARY))
@settings(max_examples=6, deadline=None, derandomize=True)
@given(seeds)
def test_functions_of_two_elements(name: str, dtype: str, seed: int) -> None:
    generator = np.random.default_rng(seed)
    shapes = [((3, 40), (3, 40)), ((3, 5, 7), (7,)), ((5, 1), (2, 5, 7)), ((6,), (1,))]
    shapes = shapes[:1] if name in ("ADD_N", "ATAN2") else shapes
    first, second = shapes[generator.integers(2 if name == "PRELU" else len(shapes))]
    unscaled = name in PLAIN or dtype not in STORED
    a, b, result = ({} if unscaled else stands_for(dtype, generator, -1) for _ in range(3))
    if name in COMPARISONS:
        result = {}
    elif not unscaled:
        _ample(name, dtype, a, b, result, generator, first == second)
    x, y = drawn(dtype, first, generator), drawn(dtype, second, generator)
    if name in ("DIV", "FLOOR_DIV", "FLOOR_MOD"):
        nothing = b.get("zero_point", 0)
        y = np.where(y == nothing, nothing - 1 if nothing > 0 else nothing + 1, y).astype(y.dtype)
    if name == "POW":
        x, y = (np.abs(x), y) if dtype == "float32" else ((x % 7 - 3).astype(dtype), (np.abs(y) % 6).astype(dtype))
    if name == "RIGHT_SHIFT":
        y = (y % 40 - (5 if y.dtype.kind == "i" else 0)).astype(dtype)
    if name == "ATAN2":
        x, y = (np.where(generator.integers(0, 4, each.shape) == 0, each.dtype.type(-0.0), each) for each in (x, y))
    if name in COMPARISONS and first == second:
        y = np.where(generator.integers(0, 2, y.shape) == 1, x, y)
    options: Options | None = None
    if name in FUSED:
        options = (FUSED[name], {"fusedActivationFunction": int(generator.integers(2 if dtype == "uint32" else 4))})
    tensor = Tensor(np.broadcast_shapes(first, second), "bool" if name in COMPARISONS else dtype, **result)
    check_litert(
        single(name, [Tensor(first, dtype, **a), Tensor(second, dtype, **b)], tensor, options), [x, y], TOLERANCE.get(dtype)
    )


def _ample(
    name: str, dtype: str, a: dict[str, Any], b: dict[str, Any], result: dict[str, Any], generator: np.random.Generator, alike: bool
) -> None:
    """Scales of results with which LiteRT's own steps do not overflow: beyond int16 its vector code wraps, C leaves quotients open
    that are less than an eighth of a step, and int16 whose scales are powers of two are of one shape."""
    if name in ("ADD", "SUB") and dtype == "int16" and alike:
        for each, places in ((a, 0), (b, int(generator.integers(0, 4))), (result, 0)):
            each["scale"] = 2.0 ** -(9 + places)
    if dtype == "int16":
        return
    if name == "DIV":
        a["scale"] = b["scale"] * result["scale"] * 400
    if name in ("ADD", "SUB"):
        result["scale"] = max(result["scale"], (a["scale"] + b["scale"]) / 100)
    if name == "MUL":
        result["scale"] = max(result["scale"], a["scale"] * b["scale"] * 2.5)


def test_gelu_is_rounded_step_by_step() -> None:
    x, y = Tensor((256,), "uint8", scale=0.066, zero_point=100), Tensor((256,), "uint8", scale=0.0528, zero_point=20)
    check_litert(single("GELU", [x], y, ("GeluOptions", {"approximate": False})), [np.arange(256).astype(np.uint8)])


@pytest.mark.parametrize("dtype", ["int8", "uint8"])
@pytest.mark.parametrize(
    "shapes",
    [
        *[((71,), (71,)), ((71,), (1,)), ((1,), (71,)), ((3, 71), (71,)), ((3, 1), (3, 71)), ((2, 3, 21), (2, 1, 21))],
        *[((3, 71), ()), ((4, 1), (1, 71)), ((2, 1, 3, 1), (1, 5, 1, 9)), ((2, 5), (2, 5)), ((2, 16), (2, 16))],
    ],
)
@pytest.mark.parametrize("name", ["ADD", "SUB"])
def test_parts_of_sums_are_rounded_as_in_vectors(name: str, shapes: tuple[tuple[int, ...], tuple[int, ...]], dtype: str) -> None:
    """Parts of a sum have 20 bits behind the point of the greater scale: one that is 10^5 times the other shows their roundings."""
    middle = 128 if dtype == "uint8" else 0
    generator = np.random.default_rng(1)
    for scales in ((15.0, 1.2e-4), (1.2e-4, 15.0)):
        tensors, values = [], []
        for shape, scale in zip(shapes, scales, strict=True):
            tensors.append(Tensor(shape, dtype, scale=scale, zero_point=middle))
            values.append(generator.integers(-100, 101, shape) if scale < 1 else np.zeros(shape))
        result = Tensor(np.broadcast_shapes(*shapes), dtype, scale=1e-4, zero_point=middle)
        data = single(name, tensors, result, (FUSED[name], {}))
        check_litert(data, [(value + middle).astype(dtype) for value in values])


@pytest.mark.parametrize("rank", [0, 1])
def test_a_scalar_and_nothing(rank: int) -> None:
    shape = () if rank == 0 else (0,)
    data = single("ADD", [Tensor(shape), Tensor(shape)], Tensor(shape), ("AddOptions", {}))
    if rank == 0:
        check_litert(data, [np.array(1.5, np.float32), np.array(-2.0, np.float32)])
    else:
        assert load(data).main.type


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (
            lambda: single("SIN", [Tensor((2,), "int8", scale=1.0)], Tensor((2,), "int8", scale=1.0)),
            "input 0 must be float32 or float16, got int8: convert the model",
        ),
        (lambda: single("RELU", [Tensor((2,), "int8")], Tensor((2,), "int8")), "tensor t1 of int8 must have a scale, found none"),
        (lambda: single("DILATE", [Tensor((2,))], Tensor((2,))), "DILATE is not supported: docs/tflite.md"),
        (
            lambda: single("ADD", [Tensor((2,)), Tensor((2,))], Tensor((2,)), ("AddOptions", {"fusedActivationFunction": 4})),
            "the fused activation must be one of NONE, RELU, RELU_N1_TO_1, RELU6; got TANH",
        ),
    ],
)
def test_what_is_not_supported_is_named(data: Any, message: str) -> None:
    with pytest.raises(ModelImportError, match=message) as caught:
        load(data())
    assert caught.value.operator and "<model>" in str(caught.value)
