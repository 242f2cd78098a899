"""The numbers of quantized composites recompute their results in numpy, exactly, whatever the model came from."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper
from plugins.quantization.tests.nets import drawn, quantized, real
from plugins.tflite.tests.build import Tensor, single
from plugins.tflite.tests.test_products import layer as drawn_layer
from tests.unit.passes.test_quantized_onnx import model as qdq_model

from inlaid import ops
from inlaid.graph import ir
from inlaid.graph.interp import evaluate
from inlaid.graph.pattern import Match, match
from inlaid.ops.composites import (
    decode_binary,
    decode_layer,
    quantized_binary,
    quantized_conv,
    quantized_matmul,
    quantized_mean,
    window,
)
from inlaid.ops.requantization import Factor
from inlaid.passes.manager import PassManager
from inlaid.passes.pipeline import CANONICAL
from inlaid_onnx import load as load_onnx
from inlaid_quantization.settings import Quantization
from inlaid_runtime.types import TensorType
from inlaid_tflite import load as load_tflite

Array = Any

# --- arithmetic, as the docstrings say it -----------------------------------------------------------------------------


def scaled(x: Array, factor: Factor, shape: tuple[int, ...]) -> Array:
    """Integers times factors, rounded."""
    multipliers, shifts = (each.astype(np.int64).reshape(shape) for each in (factor.multipliers, factor.shifts))
    if factor.rounding == "half_even":
        scale = np.ldexp(multipliers.astype(np.float64), shifts - 31).astype(np.float32)
        return np.rint(x.astype(np.float32) * scale).astype(np.int64)
    if factor.rounding == "once":
        return (x.astype(np.int64) * multipliers + (1 << (30 - shifts))) >> (31 - shifts)
    high = (x.astype(np.int64) * (1 << np.maximum(shifts, 0)) * multipliers + (1 << 30)) >> 31
    right = np.maximum(-shifts, 0)
    half = (np.int64(1) << right) >> 1
    if factor.rounding == "away":
        return np.sign(high) * ((np.abs(high) + half) >> right)
    return (high + half) >> right


def stored(x: Array, output: Any) -> Array:
    return np.clip(x + output.zero_point, output.least, output.greatest).astype(output.dtype.numpy)


def sums(pattern_match: Match, x: Array) -> tuple[Array, int]:
    """Those of a layer in int64, and the axis of output channels."""
    weights = decode_layer(pattern_match.captures).weights
    x = x.astype(np.int64)
    if weights is None:
        attrs = pattern_match.attrs("sum")
        return x.sum(attrs.axes, keepdims=attrs.keepdims), 1
    if "matmul" in pattern_match:
        return x @ weights.astype(np.int64), x.ndim - 1
    attributes, groups = window(pattern_match.captures), x.shape[1] // weights.shape[1]
    pads = ((0, 0), (0, 0), *zip(attributes.before, attributes.after, strict=True))
    x = np.pad(x, pads, constant_values=int(attributes.fill))
    reach = tuple((taps - 1) * step + 1 for taps, step in zip(attributes.kernel, attributes.dilations, strict=True))
    taps = np.lib.stride_tricks.sliding_window_view(x, reach, (2, 3))
    taps = taps[:, :, :: attributes.strides[0], :: attributes.strides[1], :: attributes.dilations[0], :: attributes.dilations[1]]
    split = taps.reshape(x.shape[0], groups, -1, *taps.shape[2:])
    each = weights.astype(np.int64).reshape(groups, -1, *weights.shape[1:])
    total = np.einsum("ngcyxrs,gocrs->ngoyx", split, each)
    return total.reshape(x.shape[0], -1, *total.shape[3:]), 1


def recomputed_layer(pattern_match: Match, x: Array) -> Array:
    layer = decode_layer(pattern_match.captures)
    total, axis = sums(pattern_match, x)
    shape = tuple(-1 if at == axis else 1 for at in range(total.ndim))
    return stored(scaled(total + layer.bias.reshape(shape), layer.factor, shape), layer.output)


def recomputed_binary(pattern_match: Match, a: Array, b: Array) -> Array:
    both = decode_binary(pattern_match.captures)
    operator = {"add": np.add, "sub": np.subtract, "mul": np.multiply}[both.operator]
    if both.step is not None:
        left, right = (
            (x.astype(np.int32) - side.zero_point).astype(np.float32) * side.factor.scale.astype(np.float32)
            for x, side in ((a, both.a), (b, both.b))
        )
        return stored(np.rint(operator(left, right) / both.step).astype(np.int64), both.output)
    left, right = (
        scaled((x.astype(np.int64) - side.zero_point) << side.left, side.factor, ()) for x, side in ((a, both.a), (b, both.b))
    )
    return stored(scaled(operator(left, right) + both.bias, both.factor, ()), both.output)


# --- models of four origins -------------------------------------------------------------------------------------------

LAYERS = (quantized_conv(), quantized_matmul(), quantized_mean())
PAIRS = (quantized_binary("add", "sub", "mul"),)


def check(module: ir.Module, *parts: str, varied: bool = True) -> list[Any]:
    """Recompute every composite of a model on random data, and give its numbers. `parts` are the names of the parts that they are
    of, in order; `varied`: results have several values."""
    main = PassManager(CANONICAL).run(module).main
    rng = np.random.default_rng(3)
    inputs = [_random(rng, param.type) for param in main.params]
    kinds, decoded = [], []
    outer = {id(child) for expr in ir.post_order(main.body) for child in _bounded(expr)}
    for expr in ir.post_order(main.body):
        for pattern in (*LAYERS, *PAIRS):
            pattern_match = match(pattern, expr)
            if pattern_match is None or id(expr) in outer:
                continue
            names = ("x",) if pattern in LAYERS else ("a", "b")
            values = evaluate(ir.function(main.params, ir.tuple_([*(pattern_match[name] for name in names), expr])), inputs)
            recompute = recomputed_layer if pattern in LAYERS else recomputed_binary
            result = recompute(pattern_match, *values[:-1])
            np.testing.assert_array_equal(result, values[-1])
            assert len(np.unique(result)) > 2 or not varied, "the model tells nothing"
            kinds.append(next(name for name in ("conv", "matmul", "sum", "operator") if name in pattern_match))
            decoded.append((decode_layer if pattern in LAYERS else decode_binary)(pattern_match.captures))
    assert kinds == list(parts)
    return decoded


def _bounded(expr: ir.Expr) -> tuple[ir.Expr, ...]:
    """What is part of a composite that ends with a bound on it."""
    names = ("maximum", "minimum", "clip")
    return expr.args if isinstance(expr, ir.Call) and expr.callee.name in names else ()  # type: ignore[union-attr]


def _random(rng: np.random.Generator, type_: Any) -> Array:
    if type_.dtype.is_float:
        return rng.normal(size=type_.shape).astype(type_.dtype.numpy)
    low, high = type_.dtype.limits
    return rng.integers(int(low), int(high) + 1, type_.shape).astype(type_.dtype.numpy)


@pytest.mark.parametrize("points", [(128, 120, 3), (7, 0, 0)])
@pytest.mark.parametrize("relu", [False, True])
@pytest.mark.parametrize("per_channel", [False, True])
def test_qdq_convolutions(relu: bool, per_channel: bool, points: tuple[int, int, int]) -> None:
    weights = np.uint8 if points[1] else np.int8
    (layer,) = check(load_onnx(qdq_model(relu, True, per_channel, np.uint8, weights, points)), "conv")
    assert (layer.factor.rounding, layer.factor.per_channel) == ("half_even", per_channel)
    assert (layer.output.zero_point, layer.output.least, layer.output.greatest) == (points[2], points[2] if relu else 0, 255)


def _onnx(nodes: list[Any], inputs: dict[str, tuple[int, ...]], output: tuple[int, ...], **arrays: Array) -> ir.Module:
    graph = helper.make_graph(
        nodes,
        "g",
        [helper.make_tensor_value_info(name, TensorProto.INT8, shape) for name, shape in inputs.items()],
        [helper.make_tensor_value_info("y", TensorProto.INT8, output)],
        [numpy_helper.from_array(np.asarray(array), name) for name, array in arrays.items()],
    )
    return load_onnx(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 19)], ir_version=9))


def test_qlinear_operators() -> None:
    rng = np.random.default_rng(0)
    f, z = np.float32, np.int8
    common = {"xs": f(0.02), "xz": z(3), "ys": f(0.4), "yz": z(-5)}
    conv = helper.make_node("QLinearConv", ["x", "xs", "xz", "w", "ws", "wz", "ys", "yz", "b"], ["y"], group=2, strides=[2, 1])
    weights = {"w": rng.integers(-100, 100, (6, 2, 3, 3)).astype(z), "b": rng.integers(-900, 900, 6).astype(np.int32)}
    scales = {"ws": rng.uniform(0.01, 0.05, 6).astype(f), "wz": np.zeros(6, z)}
    check(_onnx([conv], {"x": (2, 4, 9, 9)}, (2, 6, 4, 7), **common, **weights, **scales), "conv")
    product = helper.make_node("QLinearMatMul", ["x", "xs", "xz", "w", "ws", "wz", "ys", "yz"], ["y"])
    matrix = {"w": rng.integers(-99, 99, (7, 3)).astype(z), "ws": f(0.1), "wz": z(0)}
    check(_onnx([product], {"x": (5, 7)}, (5, 3), **common, **matrix), "matmul")


@pytest.mark.parametrize("kind", ["Add", "Sub", "Mul"])
@pytest.mark.parametrize("relu", [False, True])
def test_qdq_operators_of_two_tensors(kind: str, relu: bool) -> None:
    f, z = np.float32, np.int8
    nodes = [
        helper.make_node("DequantizeLinear", ["a", "as", "az"], ["af"]),
        helper.make_node("DequantizeLinear", ["b", "bs", "bz"], ["bf"]),
        helper.make_node(kind, ["af", "bf"], ["t"]),
        helper.make_node("Relu", ["t"], ["r"]),
        helper.make_node("QuantizeLinear", ["r" if relu else "t", "ys", "yz"], ["y"]),
    ]
    arrays = {"as": f(0.11), "az": z(3), "bs": f(0.23), "bz": z(-7), "ys": f(0.31), "yz": z(1)}
    (decoded_layers,) = check(_onnx(nodes, {"a": (2, 3, 40), "b": (2, 3, 40)}, (2, 3, 40), **arrays), "operator")
    assert decoded_layers.step == f(0.31) and (decoded_layers.output.least, decoded_layers.output.greatest) == (
        1 if relu else -128,
        127,
    )
    np.testing.assert_allclose(decoded_layers.factor.scale * decoded_layers.step, 1, rtol=2.0**-31)


STORED = [("int8", "int8", "int32"), ("uint8", "uint8", "int32")]


@pytest.mark.parametrize("kind", STORED)
@pytest.mark.parametrize(("depthwise", "channels"), [(False, 6), (True, 8), (True, 3)])
@pytest.mark.parametrize("seed", range(6))
def test_tflite_convolutions(kind: tuple[str, str, str], depthwise: bool, channels: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    options: dict[str, int] = {"strideH": 1 + seed % 2, "strideW": 1, "fusedActivationFunction": int(rng.integers(4))}
    rows = -(-8 // options["strideH"])
    if depthwise:
        data, w, b, result = drawn_layer(rng, kind, (1, 8, 8, channels), (1, 3, 3, channels), 3, 9)
        named = ("DepthwiseConv2DOptions", {**options, "depthMultiplier": 1})
        name = "DEPTHWISE_CONV_2D"
    else:
        data, w, b, result = drawn_layer(rng, kind, (1, 8, 8, 4), (channels, 3, 3, 4), 0, 36)
        name, named = "CONV_2D", ("Conv2DOptions", options)
    model = single(name, [data, w, b], Tensor((1, rows, 8, channels), kind[0], **result), named)
    (layer,) = check(load_tflite(model), "conv", varied=kind[0] == "int8")
    assert layer.factor.rounding == ("up" if not depthwise or (kind[0] == "int8" and channels == 8) else "away")
    assert layer.bias.dtype == np.int32


@pytest.mark.parametrize("kind", STORED)
def test_tflite_fully_connected_layers(kind: tuple[str, str, str]) -> None:
    rng = np.random.default_rng(1)
    data, w, b, result = drawn_layer(rng, kind, (3, 40), (20, 40), 0, 40)
    model = single("FULLY_CONNECTED", [data, w, b], Tensor((3, 20), kind[0], **result), ("FullyConnectedOptions", {}))
    check(load_tflite(model), "matmul")


@pytest.mark.parametrize("name", ["ADD", "SUB", "MUL"])
@pytest.mark.parametrize("activation", [0, 1, 3])
def test_tflite_operators_of_two_tensors(name: str, activation: int) -> None:
    shape = (1, 5, 4, 8)
    a, b = Tensor(shape, "int8", None, 0.1, 3), Tensor(shape, "int8", None, 0.23, -5)
    options = (f"{name.capitalize()}Options", {"fusedActivationFunction": activation})
    (decoded_layers,) = check(
        load_tflite(single(name, [a, b], Tensor(shape, "int8", scale=0.3, zero_point=1), options)), "operator"
    )
    assert decoded_layers.step is None and decoded_layers.factor.rounding == "away"


def network() -> ir.Function:
    rng = np.random.default_rng(5)

    def weights(*shape: int) -> ir.Expr:
        return ir.constant(rng.normal(size=shape).astype(np.float32))

    x = real("x", 1, 4, 6, 6)
    first = ops.relu(ops.add(ops.conv(x, weights(8, 4, 3, 3), pads=(1, 1, 1, 1)), weights(8, 1, 1)))
    second = ops.conv(first, weights(8, 8, 1, 1))
    third = ops.clip(ops.add(ops.relu(ops.add(first, second)), ops.mul(first, second)), minimum=0.0, maximum=60.0)
    narrow = ops.relu(ops.matmul(ops.reshape(ops.avg_pool(third, kernel=(6, 6)), shape=(1, 8)), weights(8, 16)))
    return ir.function([x], ops.matmul(narrow, weights(16, 3)))


ORDER = ("conv", "conv", "operator", "operator", "operator", "conv", "matmul")


@pytest.mark.parametrize("activations", ["asymmetric", "symmetric"])
@pytest.mark.parametrize("weights", ["channel", "tensor"])
@pytest.mark.parametrize(
    ("choice", "rounding"), [({}, "up"), ({"arithmetic": "float"}, "half_even"), ({"scales": "power_of_two"}, "once")]
)
def test_what_inlaid_quantizes(choice: dict[str, str], rounding: str, weights: str, activations: str) -> None:
    function = network()
    settings = Quantization(weights=weights, activations=activations, **choice)  # type: ignore[arg-type]
    # A sum whose scale is finer than its operands' is shifted to the left, within limits: no composite.
    order = (*ORDER[:4], *ORDER[5:]) if rounding == "once" else ORDER
    decoded_layers = check(quantized(function, drawn(function), settings), *order)
    assert decoded_layers[0].factor.rounding == rounding
    assert weights == "channel" or not decoded_layers[0].factor.per_channel


@pytest.mark.parametrize("added", [(5,), (5, -100, 2000), ()])
def test_shifts_to_the_right(added: tuple[int, ...]) -> None:
    """Those that do not round, too: the half that rounding would add is taken from the bias."""
    x = ir.var("x", TensorType((40, 7), "int8"))
    weights = np.random.default_rng(0).integers(-99, 99, (7, 3)).astype(np.int8)
    total = ops.matmul(x, ir.constant(weights), out_dtype="int32")
    if added:
        total = ops.add(total, ir.constant(np.array(added, np.int32)))
    moved = ops.shift_right(total, ir.constant(np.array([7, 9, 8], np.int32)))
    body = ops.cast(ops.clip(moved, minimum=-90.0, maximum=80.0), dtype="int8")
    (layer,) = check(ir.Module({"main": ir.function([x], body)}), "matmul")
    assert layer.factor.rounding == "once" and layer.factor.scale.tolist() == [2**-7, 2**-9, 2**-8]
    assert layer.bias.tolist() == [value - half for value, half in zip(np.resize(added or 0, 3), (64, 256, 128), strict=True)]


@pytest.mark.parametrize(("least", "greatest"), [(-129.0, 127.0), (-128.0, 128.0), (-128.0, float("inf"))])
def test_a_cast_that_wraps_is_no_clamp(least: float, greatest: float) -> None:
    x = ir.var("x", TensorType((4, 7), "int8"))
    total = ops.matmul(x, ir.constant(np.ones((7, 3), np.int8)), out_dtype="int32")
    moved = ops.multiply_fixed(total, ir.constant(np.int32(1 << 30)), ir.constant(np.int32(-2)))
    body = ops.cast(ops.clip(moved, minimum=least, maximum=greatest), dtype="int8")
    assert match(quantized_matmul(), body) is None
