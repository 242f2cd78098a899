"""Convolutions, fully connected layers and matrix products beside LiteRT."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from inlaid_runtime.errors import ModelImportError
from inlaid_tflite import load

from .build import Array, Tensor, check_litert, drawn, single
from .test_elements import STORED, seeds

QUICK = settings(max_examples=8, deadline=None, derandomize=True)
INTEGERS = [("int8", "int8", "int32"), ("int8", "int4", "int32"), ("uint8", "uint8", "int32"), ("int16", "int8", "int64")]
KINDS = [("float32", "float32", "float32"), *INTEGERS, ("int16", "int8", "int32"), ("int16", "int4", "int64")]


def values(dtype: str, shape: tuple[int, ...], generator: np.random.Generator) -> Array:
    return generator.integers(-8, 8, shape).astype(np.int8) if dtype == "int4" else drawn(dtype, shape, generator, 1.0)


def layer(
    generator: np.random.Generator,
    kind: tuple[str, str, str],
    shape: tuple[int, ...],
    weights: tuple[int, ...],
    axis: int,
    depth: int,
) -> tuple[Tensor, Tensor, Tensor, dict[str, Any]]:
    """Data, weights and a bias that fit each other, and the quantization of the result; each output sums `depth` products."""
    dtype, stored, bias = kind
    outputs = weights[axis]
    if dtype == "float32":
        constants = [Tensor(each, "float32", drawn("float32", each, generator)) for each in (weights, (outputs,))]
        return (Tensor(shape), *constants, {})  # type: ignore[return-value]
    coarse = bool(generator.integers(2))
    several = stored != "uint8" and bool(generator.integers(2))
    scales = np.exp2(generator.uniform(-7, -5, outputs if several else 1)).astype(np.float32)
    scale = np.float32(np.exp2(generator.uniform(-7, -5)))
    point = 0 if dtype == "int16" else int(generator.integers(*STORED[dtype], endpoint=True))
    zero = int(generator.integers(0, 255, endpoint=True)) if stored == "uint8" else 0
    data = Tensor(shape, dtype, None, float(scale), point)
    weights_tensor = Tensor(weights, stored, values(stored, weights, generator), list(map(float, scales)), zero, axis)
    bias_tensor = Tensor(
        (outputs,), bias, generator.integers(-2000, 2000, outputs).astype(bias), list(map(float, scales * scale)), 0, 0
    )
    reach = 7 if stored == "int4" else 80
    if coarse:  # few steps between results, so that many lie halfway
        weights_tensor = replace(weights_tensor, data=np.asarray(weights_tensor.data) % 3 + (zero if stored == "uint8" else -1))
        bias_tensor = replace(bias_tensor, data=np.asarray(bias_tensor.data) % 50)
        step = float(scale * scales.max()) * float(generator.choice([2, 4, 8, 2.5]))
        return (
            data,
            weights_tensor,
            bias_tensor,
            {"scale": step, "zero_point": 0 if dtype == "int16" else int(np.mean(STORED[dtype]))},
        )
    greatest = float(scale * scales.max()) * (8000 if dtype == "int16" else 70) * reach * depth**0.5
    result = {
        "scale": greatest / (20000 if dtype == "int16" else 100),
        "zero_point": 0 if dtype == "int16" else int(np.mean(STORED[dtype])),
    }
    return data, weights_tensor, bias_tensor, result


@pytest.mark.parametrize("kind", KINDS)
@QUICK
@given(seed=seeds)
def test_fully_connected(kind: tuple[str, str, str], seed: int) -> None:
    generator = np.random.default_rng(seed)
    rows, depth, outputs = (int(generator.integers(1, each)) for each in (6, 40, 20))
    keep = bool(generator.integers(2))
    shape = (2, rows, depth) if keep else (rows, depth)
    data, weights, bias, result = layer(generator, kind, shape, (outputs, depth), 0, depth)
    options = ("FullyConnectedOptions", {"keepNumDims": keep, "fusedActivationFunction": int(generator.integers(4))})
    inputs = [data, weights, bias if generator.integers(3) else None]
    model = single("FULLY_CONNECTED", inputs, Tensor((*shape[:-1], outputs), kind[0], **result), options)
    check_litert(model, [draw_data(data, generator)], 1e-4)


@pytest.mark.parametrize(("dtype", "bias"), [("int8", "int32"), ("int16", "int32"), ("int16", "int64")])
def test_halves_of_fully_connected_layers(dtype: str, bias: str) -> None:
    """Every sum lies halfway between two steps."""
    x, w = np.arange(-19, 21, 2).reshape(20, 1), np.ones((1, 1), np.int8)
    data = Tensor((20, 1), dtype, scale=1.0)
    weights, bias_tensor = Tensor((1, 1), "int8", w, 1.0), Tensor((1,), bias, np.zeros(1), 1.0)
    model = single(
        "FULLY_CONNECTED", [data, weights, bias_tensor], Tensor((20, 1), dtype, scale=2.0), ("FullyConnectedOptions", {})
    )
    check_litert(model, [x.astype(dtype)])


def draw_data(data: Tensor, generator: np.random.Generator) -> Array:
    """Values for data: near the zero point as often as all over."""
    array = drawn(data.dtype, data.shape, generator)
    if data.scale is None or generator.integers(2):
        return array
    least, greatest = STORED[data.dtype]
    return np.clip(generator.integers(-9, 10, data.shape) + int(data.zero_point), least, greatest).astype(array.dtype)


def window(generator: np.random.Generator, dilated: bool = True) -> tuple[dict[str, int], Any]:
    """Random strides, dilations and padding as options, and the extent of a result by the data's and the window's."""
    stride = int(generator.integers(1, 4))
    dilation = int(generator.integers(1, 3)) if dilated and stride == 1 else 1
    padding = int(generator.integers(2))
    fields = {"strideH": stride, "strideW": stride, "padding": padding}
    if dilated:
        fields |= {"dilationHFactor": dilation, "dilationWFactor": dilation}

    def extent(size: int, taps: int) -> int:
        return -(-size // stride) if padding == 0 else (size - (taps - 1) * dilation - 1) // stride + 1

    return fields, extent


@pytest.mark.parametrize("name", ["CONV_2D", "DEPTHWISE_CONV_2D"])
@pytest.mark.parametrize("kind", KINDS)
@QUICK
@given(seed=seeds)
def test_convolutions(name: str, kind: tuple[str, str, str], seed: int) -> None:
    if kind in (("int16", "int8", "int32"), ("int16", "int4", "int64")):
        return  # LiteRT has none, or one that overflows
    generator = np.random.default_rng(seed)
    high, wide, rows, columns = (int(generator.integers(*each)) for each in ((6, 10), (6, 10), (1, 4), (1, 4)))
    channels, outputs = int(generator.choice([1, 2, 3, 5, 12])), int(generator.integers(1, 10))
    fields, extent = window(generator)
    fields["fusedActivationFunction"] = int(generator.integers(4))
    if name == "CONV_2D":
        size, axis, depth = (outputs, rows, columns, channels), 0, rows * columns * channels
    else:
        multiplier = int(generator.integers(1, 3))
        outputs, fields = channels * multiplier, fields | {"depthMultiplier": multiplier}
        size, axis, depth = (1, rows, columns, outputs), 3, rows * columns
    data, weights, bias, result = layer(generator, kind, (2, high, wide, channels), size, axis, depth)
    options = ("Conv2DOptions" if name == "CONV_2D" else "DepthwiseConv2DOptions", fields)
    shape = (2, extent(high, rows), extent(wide, columns), outputs)
    model = single(name, [data, weights, bias], Tensor(shape, kind[0], **result), options)
    check_litert(model, [draw_data(data, generator)], 1e-4)


@pytest.mark.parametrize(
    "kind", [kind for kind in KINDS if (kind[1] != "int4" and kind[2:] != ("int32",)) or kind[0].endswith("8")][:4]
)
@QUICK
@given(seed=seeds)
def test_transposed_convolutions(kind: tuple[str, str, str], seed: int) -> None:
    if kind[1] == "int4":
        return  # LiteRT has none
    generator = np.random.default_rng(seed)
    high, wide, rows, columns, channels, outputs = (int(each) for each in generator.integers(1, 6, 6))
    outputs = int(generator.choice([outputs, 12, 17]))
    stride, padding = int(generator.integers(1, 4)), int(generator.integers(2))
    rows, columns = max(rows, stride), max(columns, stride)
    shape = (1, *(size * stride if padding == 0 else (size - 1) * stride + taps for size, taps in ((high, rows), (wide, columns))))
    data, weights, bias, result = layer(
        generator, kind, (1, high, wide, channels), (outputs, rows, columns, channels), 0, rows * columns * channels
    )
    output_shape = Tensor((4,), "int32", np.array((*shape, outputs), np.int32))
    fields = {"strideH": stride, "strideW": stride, "padding": padding}
    inputs = [output_shape, weights, data, *([bias] if generator.integers(2) else [])]
    model = single("TRANSPOSE_CONV", inputs, Tensor((*shape, outputs), kind[0], **result), ("TransposeConvOptions", fields))
    check_litert(model, [draw_data(data, generator)], 1e-4)


@QUICK
@given(seed=seeds, transposed=st.booleans())
def test_convolutions_of_three_dimensions(seed: int, transposed: bool) -> None:
    generator = np.random.default_rng(seed)
    sizes, taps = tuple(map(int, generator.integers(3, 6, 3))), tuple(map(int, generator.integers(1, 4, 3)))
    stride, padding, channels, outputs = (int(generator.integers(*each)) for each in ((1, 3), (0, 2), (1, 4), (1, 4)))
    bias = Tensor((outputs,), "float32", drawn("float32", (outputs,), generator))
    fields = {f"stride{axis}": stride for axis in "DHW"} | {f"dilation{axis}Factor": 1 for axis in "DHW"} | {"padding": padding}
    x = drawn("float32", (1, *sizes, channels), generator)
    size = (*taps, outputs, channels) if transposed else (*taps, channels, outputs)
    weights = Tensor(size, "float32", drawn("float32", size, generator))
    if transposed:
        taps = tuple(max(tap, stride) for tap in taps)
        size = (*taps, outputs, channels)
        weights = Tensor(size, "float32", drawn("float32", size, generator))
        shape = tuple(each * stride if padding == 0 else (each - 1) * stride + tap for each, tap in zip(sizes, taps, strict=True))
        output_shape = Tensor((5,), "int32", np.array((1, *shape, outputs), np.int32))
        inputs, name = [output_shape, weights, Tensor(x.shape), bias], "CONV_3D_TRANSPOSE"
    else:
        shape = tuple(
            -(-each // stride) if padding == 0 else (each - tap) // stride + 1 for each, tap in zip(sizes, taps, strict=True)
        )
        inputs, name = [Tensor(x.shape), weights, bias], "CONV_3D"
    model = single(name, inputs, Tensor((1, *shape, outputs)), ("Conv3DOptions", fields))
    check_litert(model, [x], 1e-4)


@pytest.mark.parametrize("kind", [("float32", "float32"), ("int8", "int8"), ("int16", "int16")])
@QUICK
@given(seed=seeds, constant=st.booleans())
def test_matrix_products(kind: tuple[str, str], seed: int, constant: bool) -> None:
    generator = np.random.default_rng(seed)
    dtype, to = kind
    rows, depth, columns = (int(each) for each in generator.integers(1, 9, 3))
    turned = bool(generator.integers(2)), bool(generator.integers(2))
    left = (2, 1, depth, rows) if turned[0] else (2, 1, rows, depth)
    right = (3, columns, depth) if turned[1] else (3, depth, columns)
    x, y = drawn(dtype, left, generator, 1.0), drawn(dtype, right, generator, 1.0)
    a: dict[str, Any] = {}
    b: dict[str, Any] = {}
    if dtype != "float32":
        points = generator.integers(-128, 127, 2) if dtype == "int8" else (0, 0)
        a, b = ({"scale": float(np.exp2(generator.uniform(-7, -5))), "zero_point": int(point)} for point in points)
    result: dict[str, Any] = {}
    if dtype != "float32":
        size = (2e8 if dtype == "int16" else 2e4) * depth**0.5 / (20000 if dtype == "int16" else 100)
        result = {"scale": a["scale"] * b["scale"] * size, "zero_point": 0 if to != "int8" else -7}
    options = ("BatchMatMulOptions", {"adjX": turned[0], "adjY": turned[1]})
    inputs = [Tensor(left, dtype, **a), Tensor(right, dtype, y if constant else None, **b)]
    model = single("BATCH_MATMUL", inputs, Tensor((2, 3, rows, columns), to, **result), options)
    check_litert(model, [x] if constant else [x, y], 1e-4)


def test_weights_in_eight_bits_between_floats() -> None:
    """LiteRT rounds the data to eight bits too: the results are near each other."""
    generator = np.random.default_rng(3)
    stored = generator.integers(-127, 128, (5, 30)).astype(np.int8)
    weights = Tensor((5, 30), "int8", stored, [0.01, 0.02, 0.03, 0.04, 0.05], 0, 0)
    model = single("FULLY_CONNECTED", [Tensor((2, 30)), weights, None], Tensor((2, 5)), ("FullyConnectedOptions", {}))
    check_litert(model, [drawn("float32", (2, 30), generator)], 0.02)


def test_what_is_not_supported_is_named() -> None:
    def refused(message: str, data: bytes) -> None:
        with pytest.raises(ModelImportError, match=message):
            load(data)

    x, w = Tensor((2, 4), "int8", scale=1.0), Tensor((3, 4), "int8", np.ones((3, 4), np.int8), (1.0, 2.0), (0, 0))
    out = Tensor((2, 3), "int8", scale=1.0)
    refused(
        "weights must have one scale or one per output, 3, got 2",
        single("FULLY_CONNECTED", [x, w, None], out, ("FullyConnectedOptions", {})),
    )
    shuffled = ("FullyConnectedOptions", {"weightsFormat": 1})
    refused("shuffled weights are not supported", single("FULLY_CONNECTED", [x, w, None], out, shuffled))
    image, taps = Tensor((1, 4, 4, 2)), Tensor((2, 1, 1, 3), "float32", np.ones((2, 1, 1, 3), np.float32))
    fields = {"strideH": 1, "strideW": 1, "padding": 0}
    refused(
        "the number of data channels must be a multiple of the weights' 3 channels,",
        single("CONV_2D", [image, taps], Tensor((1, 4, 4, 2)), ("Conv2DOptions", fields)),
    )
    refused(
        "strides must be >= 1, got",
        single(
            "MAX_POOL_2D", [image], Tensor((1, 4, 4, 2)), ("Pool2DOptions", {"padding": 0, "filterHeight": 1, "filterWidth": 1})
        ),
    )
