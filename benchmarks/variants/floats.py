"""Listed rows of part 2: models in element types other than float32."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial

import onnx

from variants.axes import HALF_LIMIT
from variants.element_types import converted
from variants.forms import FORMS, Form, conv
from variants.models import BIAS, data_shape, float_product
from variants.row import Row, beside, listed
from zoo.half import half
from zoo.layers import attention, gelu_erf, layer_norm, linear
from zoo.net import Net

LAYER_TOLERANCE = 2e-2
"""Of a layer in float16, whose roundings add up."""
FORMS_OF_HALF = {
    "conv 1x1 256@14": conv(256, 256, 1, 14),
    "conv 3x3 64@28": conv(64, 64, 3, 28),
    "conv 3x3 stride 2": FORMS["conv 3x3 stride 2"],
    "conv depthwise 3x3": FORMS["conv depthwise 3x3"],
    "conv grouped 3x3": FORMS["conv grouped 3x3"],
    "conv transposed": FORMS["conv transposed"],
    "matmul 128x768x768": Form("MatMul", (768,), (768, 768), 768, 1, rows=128),
    "gemm 128x768x768": Form("Gemm", (768,), (768, 768), 768, 0, attrs={"transB": 1}, rows=128),
}
WIDTH, HEADS, LENGTH = 768, 12, 128


def rows() -> Iterator[Row]:
    """Yield the rows."""
    for label, form in FORMS_OF_HALF.items():
        yield from _in_half(label, partial(float_product, form, data_shape(form), epilogue=BIAS))
    yield from _in_half("attention", _attention)
    yield from _in_half("layer of BERT base", _bert_layer, LAYER_TOLERANCE)
    matmul = FORMS_OF_HALF["matmul 128x768x768"]
    for dtype in ("float64", "int64"):
        build = partial(float_product, matmul, data_shape(matmul), dtype)
        yield listed(2, f"matmul 128x768x768 in {dtype}", build, beside("matmul 128x768x768 in float32", f"{dtype} by float32"))
    yield listed(2, "add in int64", partial(_sum, "int64"), beside("add in float32", "int64 by float32"))
    yield listed(2, "add in float32", partial(_sum, "float32"))
    yield listed(2, "transpose in bool", partial(_transpose, "bool"), beside("transpose in uint8", "bool by uint8"))
    yield listed(2, "transpose in uint8", partial(_transpose, "uint8"))


def _in_half(name: str, build: Callable[[], onnx.ModelProto], tolerance: float | None = None) -> Iterator[Row]:
    yield listed(2, f"{name} in float32", build)
    sibling = beside(f"{name} in float32", "float16 by float32", HALF_LIMIT)
    yield listed(2, f"{name} in float16", lambda: half(build()), sibling, tolerance=tolerance)


def _attention() -> onnx.ModelProto:
    net = Net("variant")
    x = net.input("x", (1, LENGTH, WIDTH))
    net.output(attention(net, x, x, WIDTH, HEADS), "y", (1, LENGTH, WIDTH))
    return net.build()


def _bert_layer() -> onnx.ModelProto:
    net = Net("variant")
    x = net.input("x", (1, LENGTH, WIDTH))
    y = layer_norm(net, net.node("Add", x, attention(net, x, x, WIDTH, HEADS)), WIDTH, "norm1")
    inner = gelu_erf(net, linear(net, y, WIDTH, 4 * WIDTH, "up"))
    y = layer_norm(net, net.node("Add", y, linear(net, inner, 4 * WIDTH, WIDTH, "down")), WIDTH, "norm2")
    net.output(y, "y", (1, LENGTH, WIDTH))
    return net.build()


def _sum(dtype: str) -> onnx.ModelProto:
    net = Net("variant")
    net.output(net.node("Add", net.input("x", (128, 768)), net.input("z", (128, 768))), "y", (128, 768))
    return converted(net.build(), dtype)


def _transpose(dtype: str) -> onnx.ModelProto:
    net = Net("variant")
    net.output(net.node("Transpose", net.input("x", (1, 64, 56, 56), dtype), perm=[0, 2, 3, 1]), "y", (1, 56, 56, 64), dtype)
    return net.build()
