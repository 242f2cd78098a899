"""Small models for the suite: float32, narrow floats, quantized, symbolic sizes, control flow, and one for the host fallback."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from inlaid import ops
from inlaid.graph import ir
from inlaid_conformance.integer_nets import INTEGER_NETS
from inlaid_runtime.arith import SizeVar
from inlaid_runtime.types import TensorType

Array = np.ndarray[Any, Any]


@dataclass(frozen=True)
class Net:
    """A named model. `build` makes its function; `shapes` are the run-time shapes of its inputs, by name."""

    name: str
    build: Callable[[], ir.Function]
    shapes: Mapping[str, tuple[int, ...]]
    dtype: str = "float32"

    def module(self) -> ir.Module:
        """Return the model as a module."""
        return ir.Module({"main": self.build()})

    def inputs(self, seed: int = 0) -> dict[str, Array]:
        """Draw random inputs, by name."""
        rng = np.random.default_rng(seed)
        element = TensorType((), self.dtype).dtype
        if element.is_float:
            return {name: rng.uniform(-1, 1, shape).astype(np.float32).astype(element.numpy) for name, shape in self.shapes.items()}
        least, greatest = (-128, 127) if self.dtype == "int8" else (0, 7)
        return {
            name: rng.integers(least, greatest, shape, endpoint=True).astype(element.numpy) for name, shape in self.shapes.items()
        }


class _Weights:
    """Deterministic random constants of a model."""

    def __init__(self, dtype: str = "float32") -> None:
        self._rng = np.random.default_rng(1)
        self._dtype = TensorType((), dtype).dtype.numpy

    def __call__(self, *shape: int) -> ir.Constant:
        fan_in = int(np.prod(shape[1:])) if len(shape) > 2 else shape[0]
        return ir.constant((self._rng.standard_normal(shape) / np.sqrt(fan_in)).astype(np.float32).astype(self._dtype))

    def stored(self, *shape: int) -> ir.Constant:
        """Make a random int8 constant."""
        return ir.constant(self._rng.integers(-90, 91, shape).astype(np.int8))


def _function(body: ir.Expr, *params: ir.Var) -> ir.Function:
    return ir.function(params, body)


def _input(*shape: int | SizeVar, dtype: str = "float32", name: str = "x") -> ir.Var:
    return ir.var(name, TensorType(shape, dtype))


def _dense(x: ir.Expr, weights: _Weights, inner: int, outer: int) -> ir.Expr:
    return ops.add(ops.matmul(x, weights(inner, outer)), weights(outer))


def _perceptron(dtype: str = "float32", batch: int | SizeVar = 4) -> ir.Function:
    weights, x = _Weights(dtype), _input(batch, 19, dtype=dtype)
    hidden = ops.relu(_dense(x, weights, 19, 32))
    return _function(ops.softmax(_dense(hidden, weights, 32, 10), axis=1), x)


def _layer(x: ir.Expr, weights: _Weights, inner: int, outer: int, size: int, **attrs: Any) -> ir.Expr:
    pads = (size // 2,) * 4
    return ops.add(
        ops.conv(x, weights(outer, inner // attrs.get("groups", 1), size, size), pads=pads, **attrs), weights(outer, 1, 1)
    )


def _pooled(x: ir.Expr) -> ir.Expr:
    """Apply global average pooling."""
    assert isinstance(x.type, TensorType)
    height, width = x.type.shape[2:]
    return ops.avg_pool(x, kernel=(height, width))


def _convolution() -> ir.Function:
    weights, x = _Weights(), _input(1, 3, 17, 17)
    first = ops.max_pool(ops.relu(_layer(x, weights, 3, 16, 3)), kernel=(3, 3), strides=(2, 2))
    second = ops.relu(_layer(first, weights, 16, 24, 3, strides=(2, 2)))
    return _function(_dense(ops.reshape(_pooled(second), shape=(1, 24)), weights, 24, 10), x)


def _residual() -> ir.Function:
    weights, x = _Weights(), _input(2, 8, 9, 9)
    wide = ops.clip(_layer(x, weights, 8, 16, 1), minimum=0.0, maximum=6.0)
    deep = ops.clip(_layer(wide, weights, 16, 16, 3, groups=16), minimum=0.0, maximum=6.0)
    block = ops.add(x, _layer(deep, weights, 16, 8, 1))
    return _function(ops.concat(ops.relu(block), ops.sigmoid(x), axis=1), x)


def _transformer() -> ir.Function:
    weights, x = _Weights(), _input(1, 6, 16)
    rows = ops.layer_norm(x, weights(16), weights(16), axis=2)

    def heads() -> ir.Expr:
        return ops.transpose(ops.reshape(_dense(rows, weights, 16, 16), shape=(1, 6, 2, 8)), perm=(0, 2, 1, 3))

    queries, keys, values = heads(), heads(), heads()
    scores = ops.matmul(queries, ops.transpose(keys, perm=(0, 1, 3, 2)))
    mixed = ops.matmul(ops.softmax(ops.mul(scores, ir.constant(np.float32(8**-0.5))), axis=3), values)
    merged = ops.add(x, _dense(ops.reshape(ops.transpose(mixed, perm=(0, 2, 1, 3)), shape=(1, 6, 16)), weights, 16, 16))
    wide = ops.gelu(_dense(ops.layer_norm(merged, weights(16), axis=2), weights, 16, 32))
    return _function(ops.add(merged, _dense(wide, weights, 32, 16)), x)


def _recurrent() -> ir.Function:
    weights, x = _Weights(), _input(5, 2, 6)
    state = ir.constant(np.zeros((1, 2, 8), np.float32))
    layer = ops.lstm(
        x, weights(1, 32, 6), weights(1, 32, 8), weights(1, 64), state, state, activations=("Sigmoid", "Tanh", "Tanh"),
        alphas=(0.0,) * 3, betas=(0.0,) * 3,
    )  # fmt: skip
    return _function(ir.tuple_item(layer, 0), x)


def _scale(value: float) -> ir.Constant:
    return ir.constant(np.float32(value))


def _quantized(x: ir.Expr, scale: float, zero_point: int = 0) -> ir.Expr:
    """Quantize a value to int8 and dequantize it, as exporters write quantized models. All scales are powers of two, so that
    integer and float arithmetic agree exactly."""
    point = ir.constant(np.int8(zero_point))
    return ops.dequantize(ops.quantize(x, _scale(scale), point, dtype="int8"), _scale(scale), point, dtype="float32")


def _dequantized_weights(weights: ir.Constant, scale: float | Array, axis: int) -> ir.Expr:
    """Dequantize constant weights, by one scale or one per index of an axis."""
    scales = np.asarray(scale, np.float32)
    zero_points = ir.constant(np.zeros(scales.shape, np.int8))
    return ops.dequantize(weights, ir.constant(scales), zero_points, dtype="float32", axis=axis)


def _quantized_convolution() -> ir.Function:
    weights, x = _Weights(), _input(1, 4, 11, 11)
    by_channel = np.where(np.arange(16) % 2, 2.0**-7, 2.0**-8)
    first = ops.conv(_quantized(x, 2.0**-6, 3), _dequantized_weights(weights.stored(16, 4, 3, 3), by_channel, 0), pads=(1,) * 4)
    bias = _dequantized_weights(ir.constant(np.arange(-8, 8, dtype=np.int8).reshape(16, 1, 1)), 2.0**-5, 0)
    shrunk = ops.max_pool(_quantized(ops.relu(ops.add(first, bias)), 2.0**-4), kernel=(2, 2), strides=(2, 2))
    second = _quantized(ops.conv(shrunk, _dequantized_weights(weights.stored(16, 16, 1, 1), 2.0**-7, 0)), 2.0**-2)
    return _function(_quantized(ops.relu(ops.add(second, shrunk)), 2.0**-1), x)


def _quantized_perceptron() -> ir.Function:
    weights, x = _Weights(), _input(3, 24)
    hidden = _quantized(
        ops.relu(ops.matmul(_quantized(x, 2.0**-6), _dequantized_weights(weights.stored(24, 32), 2.0**-7, 1))), 2.0**-4
    )
    return _function(_quantized(ops.matmul(hidden, _dequantized_weights(weights.stored(32, 8), 2.0**-6, 1)), 2.0**-1), x)


def _embedding() -> ir.Function:
    weights, x = _Weights(), _input(2, 5, dtype="int64")
    rows = ops.take(weights(8, 12), x, axis=0)
    return _function(ir.tuple_([ops.argmax(rows, axis=2), ops.reduce_sum(rows, axes=(1,))]), x)


def _branches() -> ir.Function:
    weights, x = _Weights(), _input(4, 8)
    total = ops.reduce_sum(x, axes=(0, 1))
    positive = ops.less(ir.constant(np.float32(0)), total)
    chosen = ir.if_(positive, ops.relu(_dense(x, weights, 8, 8)), ops.tanh(_dense(x, weights, 8, 8)))
    return _function(ops.mul(chosen, ir.constant(np.float32(0.5))), x)


def _with_fallback() -> ir.Function:
    """Build layers around a sequence, which only the host supports, and an operator that few targets support."""
    weights, x = _Weights(), _input(1, 3, 8, 8)
    first = ops.relu(_layer(x, weights, 3, 8, 3))
    sequence = ops.sequence_construct(first, ops.sigmoid(first))
    item = ops.sequence_at(sequence, ir.constant(np.array(1)))
    second = ops.relu(_layer(item, weights, 8, 8, 3))
    return _function(ops.cumsum(second, axis=3), x)


NETS = (
    Net("perceptron", _perceptron, {"x": (4, 19)}),
    Net("perceptron-float16", lambda: _perceptron("float16"), {"x": (4, 19)}, "float16"),
    Net("perceptron-bfloat16", lambda: _perceptron("bfloat16"), {"x": (4, 19)}, "bfloat16"),
    Net("perceptron-symbolic", lambda: _perceptron(batch=SizeVar("batch")), {"x": (5, 19)}),
    Net("convolution", _convolution, {"x": (1, 3, 17, 17)}),
    Net("residual", _residual, {"x": (2, 8, 9, 9)}),
    Net("transformer", _transformer, {"x": (1, 6, 16)}),
    Net("recurrent", _recurrent, {"x": (5, 2, 6)}),
    Net("quantized-convolution", _quantized_convolution, {"x": (1, 4, 11, 11)}),
    Net("quantized-perceptron", _quantized_perceptron, {"x": (3, 24)}),
    Net("embedding", _embedding, {"x": (2, 5)}, "int64"),
    Net("branches", _branches, {"x": (4, 8)}),
    Net("with-fallback", _with_fallback, {"x": (1, 3, 8, 8)}),
    *(Net(name, build, {"x": shape}, "int8") for name, build, shape in INTEGER_NETS),
)
