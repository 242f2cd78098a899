"""Models of one product, of floats or of dequantized integers, and what follows it."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np
import onnx

from variants.element_types import converted
from variants.epilogues import ACTIVATIONS
from variants.forms import Form, weights_bound
from variants.quantization import (
    DATA_SCALE,
    RESULT_SCALE,
    Quantized,
    channel_scales,
    dequantize,
    integer_bias,
    integers,
    quantize,
    weights_scale,
)
from variants.row import Array, unknown_sizes
from zoo.net import Net, Size

NONE, BIAS, OTHER_SCALE, FLOAT_BIAS, SKIP = "then nothing", "bias", "bias of another scale", "float bias", "skip"
BOUNDED_SCALE = 1 / 127
"""Scale of the results of sigmoid and tanh."""


def data_shape(form: Form, batch: int = 1, symbolic: bool = False) -> tuple[Size, ...]:
    """Shape of a form's data, with names where sizes are symbolic."""
    if symbolic:
        return ("batch", *form.data)
    return (batch * form.rows, *(form.sizes[size] if isinstance(size, str) else size for size in form.data))


def float_product(
    form: Form, data: tuple[Size, ...], dtype: str = "float32", epilogue: str = NONE, weights: tuple[Size, ...] = ()
) -> onnx.ModelProto:
    """A product of floats or int64. `weights`: their shape where they are an input."""
    net = Net("variant")
    x = net.input("x", data)
    w = net.input("w", weights) if weights else net.weight("w", form.weights, weights_bound(form))
    bias = net.weight("bias", (form.outputs,), 0.5) if epilogue == BIAS else ""
    skip = net.input("skip", form.result(data)) if epilogue == SKIP else ""
    net.output(_product(net, form, x, w, bias, skip, epilogue), "y", unknown_sizes(len(data)))
    model = net.build()
    return model if dtype == "float32" else converted(model, dtype)


def quantized_product(
    form: Form,
    data: tuple[Size, ...],
    types: Quantized,
    bias: str = NONE,
    then: str = NONE,
    quantized_end: bool = True,
    weights: tuple[Size, ...] = (),
) -> onnx.ModelProto:
    """A product of dequantized integers, a bias, an activation or `SKIP`, and QuantizeLinear with `quantized_end`.

    `weights`: their shape where they are an input. Constant weights without zero point have a scale per channel, others one scale.
    """
    net, scale = Net("variant"), weights_scale(form.depth)
    scales: float | Array = scale
    if weights:
        w = net.input("w", weights, types.weights)
    else:
        w = net.initializer("w", integers(net, form.weights, types.weights))
        if not types.weights_zero and not form.batched:  # ONNX Runtime refuses a scale per channel of batched weights
            scales = channel_scales(net, form.outputs, scale)
    biases: Mapping[str, Callable[[], str]] = {
        BIAS: lambda: integer_bias(net, form.outputs, np.multiply(scales, np.float32(DATA_SCALE))),
        OTHER_SCALE: lambda: integer_bias(net, form.outputs, DATA_SCALE**2),
        FLOAT_BIAS: lambda: net.weight("bias", (form.outputs,), 1.0),
        NONE: lambda: "",
    }
    x = dequantize(net, net.input("x", data, types.data), DATA_SCALE, types.data_zero, types.data)
    w = dequantize(net, w, scales, types.weights_zero, types.weights, form.channels)
    skip = ""
    if then == SKIP:
        skip = dequantize(net, net.input("skip", form.result(data), types.data), DATA_SCALE, types.data_zero, types.data)
    y = _product(net, form, x, w, biases[bias](), skip, then)
    if quantized_end:
        result_scale = BOUNDED_SCALE if then in ("sigmoid", "tanh") else RESULT_SCALE
        net.output(quantize(net, y, result_scale, types.data_zero, types.data), "y", unknown_sizes(len(data)), types.data)
    else:
        net.output(y, "y", unknown_sizes(len(data)))
    return net.build()


def _product(net: Net, form: Form, x: str, w: str, bias: str, skip: str, then: str) -> str:
    y = form.node(net, x, w, bias if form.takes_bias else "")
    if bias and not form.takes_bias:
        y = net.node("Add", y, bias)
    if skip:
        y = net.node("Add", y, skip)
    return ACTIVATIONS[then](net, y) if then in ACTIVATIONS else y
