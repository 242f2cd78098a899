"""Listed rows of part 1: products of integers, in the spellings of exporters and quantizers."""

from __future__ import annotations

import math
from collections.abc import Iterator
from functools import partial

import numpy as np
import onnx

from variants.epilogues import ACTIVATIONS, CHEAP
from variants.forms import Form, conv
from variants.generated import EPILOGUE_LIMIT, QUANTIZED
from variants.models import BIAS, FLOAT_BIAS, OTHER_SCALE, SKIP, data_shape, quantized_product
from variants.quantization import (
    DATA_SCALE,
    DEVIATION,
    RESULT_SCALE,
    channel_scales,
    dequantize,
    integers,
    quantize,
    weights_scale,
)
from variants.row import Row, beside, listed
from zoo.layers import attend, gelu_erf, layer_norm, merge_heads, split_heads
from zoo.net import Net, Size

UNSIGNED = "u8*s8"
LISTED_TYPES = (UNSIGNED, "u8*(s8-5)", "u8*(u8-117)", "u8*(u8-128)")
ASYMMETRIC_FORMS = {
    "conv 3x3 256@14": conv(256, 256, 3, 14),
    "conv 1x1 256@14": conv(256, 256, 1, 14),
    "gemm 128x768x768": Form("Gemm", (768,), (768, 768), 768, 0, attrs={"transB": 1}, rows=128),
    "matmul of one row": Form("MatMul", (768,), (768, 768), 768, 1),
    "conv depthwise 3x3 256@14": conv(256, 256, 3, 14, group=256),
}
ONE_BY_ONE = conv(64, 128, 1, 28)
MATMUL = Form("MatMul", ("rows", 768), (768, 768), 768, 1, {"rows": 128})
WIDTH, HEADS, INNER, LENGTH = 768, 12, 3072, 128
"""Of a layer of BERT base."""
MIDDLE_STEP = 2e-2
"""Tolerance where values in the middle of a model are quantized: one step of them changes the sums after it."""


def rows() -> Iterator[Row]:
    """Yield the rows."""
    yield from _zero_points()
    yield from _ends()
    yield from _spellings()
    yield from _dynamic()
    yield from _control()


def _zero_points() -> Iterator[Row]:
    """Weights with zero points."""
    for label, form in ASYMMETRIC_FORMS.items():
        for types in LISTED_TYPES:
            sibling = None if types == UNSIGNED else beside(f"{label} of {UNSIGNED}", "zero point of weights by none")
            build = partial(quantized_product, form, data_shape(form), QUANTIZED[types], bias=BIAS)
            yield listed(1, f"{label} of {types}", build, sibling, levels=1)


def _ends() -> Iterator[Row]:
    """What follows a product, with and without a quantize at the end."""
    forms = {
        "gemm": ASYMMETRIC_FORMS["gemm 128x768x768"],
        "matmul": MATMUL,
        "conv 1x1": ONE_BY_ONE,
        "conv 3x3": conv(64, 64, 3, 28),
    }
    for label, form in forms.items():
        make = partial(quantized_product, form, data_shape(form), QUANTIZED[UNSIGNED])
        yield listed(1, f"{label}, Q", make, levels=1)
        yield listed(1, f"{label}, no Q", partial(make, quantized_end=False), beside(f"{label}, Q", "no Q by Q"))
        for bias in (BIAS, FLOAT_BIAS, OTHER_SCALE):
            sibling = beside(f"{label}, Q", f"{bias} by nothing", EPILOGUE_LIMIT)
            yield listed(1, f"{label}, {bias}, Q", partial(make, bias=bias), sibling, levels=1)
    for then in ("gelu", "relu"):
        sibling = beside("matmul, Q", "activation by nothing", EPILOGUE_LIMIT, then)
        build = partial(quantized_product, MATMUL, data_shape(MATMUL), QUANTIZED[UNSIGNED], FLOAT_BIAS, then)
        yield listed(1, f"matmul, float bias, {then}, Q", build, sibling, levels=1)
    for then in ACTIVATIONS:
        rule = f"{then} by nothing" if then in CHEAP else "activation by nothing"
        sibling = beside("conv 1x1, Q", rule, EPILOGUE_LIMIT, "" if then in CHEAP else then)
        build = partial(quantized_product, ONE_BY_ONE, data_shape(ONE_BY_ONE), QUANTIZED[UNSIGNED], BIAS, then)
        yield listed(1, f"conv 1x1, {then}, Q", build, sibling, levels=1)
    build = partial(quantized_product, ONE_BY_ONE, data_shape(ONE_BY_ONE), QUANTIZED[UNSIGNED], BIAS, SKIP)
    yield listed(1, "conv 1x1, bias, skip, Q", build, beside("conv 1x1, bias, Q", "skip by bias"), levels=1)


def _spellings() -> Iterator[Row]:
    """The same products in other spellings."""
    yield listed(1, "weights in float, then Q and DQ, float bias, float skip", _trained, beside("conv 3x3, bias, Q", "spelling"))
    grouped = conv(8 * 29, 8 * 29, 3, 14, group=8)
    dense = conv(8 * 29, 29, 3, 14)
    for label, form in {"grouped conv, 8 groups of 29": grouped, "dense conv of as many multiply-adds": dense}.items():
        build = partial(quantized_product, form, data_shape(form), QUANTIZED[UNSIGNED], BIAS)
        sibling = beside("dense conv of as many multiply-adds", "grouped by dense") if form is grouped else None
        yield listed(1, label, build, sibling, levels=1)
    for label, form in {
        "conv 1-D": conv(64, 64, 5, 512, rank=1),
        "conv 3-D": conv(16, 32, 3, 14, rank=3),
        "conv transposed": Form(
            "ConvTranspose",
            (64, "height", "width"),
            (64, 64, 4, 4),
            256,
            1,
            {"height": 14, "width": 14},
            {"strides": [2, 2], "pads": [1] * 4},
            keeps_sizes=False,
        ),
    }.items():
        build = partial(quantized_product, form, data_shape(form), QUANTIZED[UNSIGNED], BIAS)
        yield listed(1, f"{label}, Q", build, levels=1)
    yield listed(1, "one Q read by q, k and v", _attention, tolerance=MIDDLE_STEP)
    yield listed(1, "product read by a Q and by a float skip", _skipped, beside("matmul, Q", "two readers by one"), levels=1)
    yield listed(1, "Transpose and Reshape between DQ and MatMul", _moved, beside("matmul, Q", "moved by plain"), levels=1)
    yield listed(1, "Einsum of dequantized integers", _einsum, beside("matmul, Q", "einsum by matmul"), levels=1)
    yield listed(1, "scale per row of the data", _row_scales, beside("matmul, no Q", "scale per row by one"))
    yield listed(1, "sum of 40,000 products of uint8 and uint8", _long_sum, levels=1)


def _trained() -> onnx.ModelProto:
    """Weights as TensorRT's tools for training export them: float, through Q and DQ; bias and skip in float."""
    net, form = Net("variant"), conv(64, 64, 3, 28)
    data = data_shape(form)
    x = dequantize(net, net.input("x", data, "int8"), DATA_SCALE)
    scales = channel_scales(net, 64, weights_scale(form.depth))
    w = net.initializer("w", net.uniform(form.weights, 100.0) * weights_scale(form.depth))
    zeros = net.constant(np.zeros(64, np.int8), "int8")
    quantized = net.node("QuantizeLinear", w, net.constant(scales), zeros, axis=0)
    w = net.node("DequantizeLinear", quantized, net.constant(scales), zeros, axis=0)
    y = net.node("Add", form.node(net, x, w, net.weight("bias", (64,), 0.5)), net.input("skip", data))
    net.output(net.node("Relu", y), "y", data)
    return net.build()


def _weights(net: Net, width: int, columns: int) -> str:
    """Dequantized int8 weights of a matrix, with a scale per column."""
    scales = channel_scales(net, columns, weights_scale(width))
    return dequantize(net, net.initializer("w", integers(net, (width, columns), "int8")), scales, axis=1)


def _attention() -> onnx.ModelProto:
    """Queries, keys and values of one quantized value; the products of heads stay float."""
    net = Net("variant")
    x = dequantize(net, net.input("x", (1, LENGTH, WIDTH), "int8"), DATA_SCALE)
    size = WIDTH // HEADS
    q, k, v = (
        split_heads(
            net, net.node("Add", net.node("MatMul", x, _weights(net, WIDTH, WIDTH)), net.weight("bias", (WIDTH,), 0.1)), HEADS, size
        )
        for _ in range(3)
    )
    net.output(merge_heads(net, attend(net, q, k, v, size), WIDTH), "y", (1, LENGTH, WIDTH))
    return net.build()


def _skipped() -> onnx.ModelProto:
    net = Net("variant")
    x = dequantize(net, net.input("x", (LENGTH, WIDTH), "uint8"), DATA_SCALE, 117, "uint8")
    y = net.node("MatMul", x, _weights(net, WIDTH, WIDTH))
    net.output(quantize(net, y), "y", (LENGTH, WIDTH), "int8")
    net.output(net.node("Add", y, net.input("skip", (LENGTH, WIDTH))), "total", (LENGTH, WIDTH))
    return net.build()


def _moved() -> onnx.ModelProto:
    net = Net("variant")
    x = dequantize(net, net.input("x", (1, HEADS, LENGTH, WIDTH // HEADS), "uint8"), DATA_SCALE, 117, "uint8")
    y = net.node("MatMul", merge_heads(net, x, WIDTH), _weights(net, WIDTH, WIDTH))
    net.output(quantize(net, y), "y", (1, LENGTH, WIDTH), "int8")
    return net.build()


def _einsum() -> onnx.ModelProto:
    net = Net("variant")
    x = dequantize(net, net.input("x", (1, LENGTH, WIDTH), "uint8"), DATA_SCALE, 117, "uint8")
    y = net.node("Einsum", x, _weights(net, WIDTH, WIDTH), equation="btc,cd->btd")
    net.output(quantize(net, y), "y", (1, LENGTH, WIDTH), "int8")
    return net.build()


def _row_scales() -> onnx.ModelProto:
    """Data with a scale per row."""
    net = Net("variant")
    x = dequantize(net, net.input("x", (LENGTH, WIDTH), "int8"), channel_scales(net, LENGTH, DATA_SCALE))
    net.output(net.node("MatMul", x, _weights(net, WIDTH, WIDTH)), "y", (LENGTH, WIDTH))
    return net.build()


def _long_sum() -> onnx.ModelProto:
    """Sums that do not fit in int32: nearly all data and weights are above 0, and neither has a zero point."""
    net, depth = Net("variant"), 40_000
    x = dequantize(net, net.input("x", (8, depth), "uint8"), DATA_SCALE, 0, "uint8")
    w = net.initializer("w", integers(net, (depth, 16), "uint8"))
    y = net.node("MatMul", x, dequantize(net, w, DATA_SCALE, 0, "uint8"))
    net.output(quantize(net, y, DATA_SCALE**2 * depth * 100, 0, "uint8"), "y", (8, 16), "uint8")
    return net.build()


def _dynamic() -> Iterator[Row]:
    """Integers whose scale and zero point are computed at run time."""
    linear = "DynamicQuantizeLinear and MatMulInteger 128x768x768"
    yield listed(1, linear, partial(_dynamic_linear, 0))
    yield listed(
        1, f"{linear}, zero point of weights", partial(_dynamic_linear, 5), beside(linear, "zero point of weights by none")
    )
    yield listed(
        1,
        f"{linear}, symbolic",
        partial(_dynamic_linear, 0, "rows"),
        beside(linear, "symbolic by static", 1.15),
        sizes={"rows": 128},
    )
    yield listed(1, "DynamicQuantizeLinear and ConvInteger 3x3 64@28", _dynamic_conv)
    yield listed(1, "MatMulInteger of computed operands", _both_computed)
    yield listed(1, "MatMulInteger with a scale per row computed at run time", _per_token, beside(linear, "scale per row by one"))
    yield listed(1, "layer of BERT base by quantize_dynamic", _bert_layer, tolerance=MIDDLE_STEP)


def dynamic(net: Net, x: str) -> tuple[str, str, str]:
    """DynamicQuantizeLinear: integers of uint8, their scale and zero point."""
    data, scale, zero = net.nodes("DynamicQuantizeLinear", x, results=3)
    return data, scale, zero


def dynamic_linear(net: Net, quantized: tuple[str, str, str], width: int, columns: int, name: str, zero: int = 0) -> str:
    """A product as `quantize_dynamic` writes it: MatMulInteger of the results of `dynamic`, its scale and a bias."""
    data, scale, data_zero = quantized
    with net.scope(name):
        weights = net.initializer("weight_quantized", integers(net, (width, columns), "int8"))
        total = net.node("MatMulInteger", data, weights, data_zero, net.constant(zero, "int8"))
        product_scale = net.node("Mul", scale, net.constant(math.sqrt(1 / width) / DEVIATION))
        y = net.node("Mul", net.node("Cast", total, to=onnx.TensorProto.FLOAT), product_scale)
        return net.node("Add", y, net.weight("bias", (columns,), 0.1))


def _dynamic_linear(zero: int, length: Size = LENGTH) -> onnx.ModelProto:
    net = Net("variant")
    x = net.input("x", (length, WIDTH))
    net.output(dynamic_linear(net, dynamic(net, x), WIDTH, WIDTH, "linear", zero), "y", (length, WIDTH))
    return net.build()


def _dynamic_conv() -> onnx.ModelProto:
    """As `quantize_dynamic` writes a convolution: what it pads with is known at run time only."""
    net, form = Net("variant"), conv(64, 64, 3, 28)
    data, scale, zero = dynamic(net, net.input("x", (1, 64, 28, 28)))
    w = net.initializer("w", integers(net, form.weights, "int8"))
    total = net.node("ConvInteger", data, w, zero, net.constant(0, "int8"), **form.attrs)
    product_scale = net.node("Mul", scale, net.constant(math.sqrt(1 / form.depth) / DEVIATION))
    y = net.node("Mul", net.node("Cast", total, to=onnx.TensorProto.FLOAT), product_scale)
    net.output(net.node("Add", y, net.weight("bias", (1, 64, 1, 1), 0.1)), "y", (1, 64, 28, 28))
    return net.build()


def _both_computed() -> onnx.ModelProto:
    net = Net("variant")
    a, a_scale, a_zero = dynamic(net, net.input("a", (LENGTH, WIDTH)))
    b, b_scale, b_zero = dynamic(net, net.input("b", (WIDTH, WIDTH)))
    total = net.node("Cast", net.node("MatMulInteger", a, b, a_zero, b_zero), to=onnx.TensorProto.FLOAT)
    net.output(net.node("Mul", total, net.node("Mul", a_scale, b_scale)), "y", (LENGTH, WIDTH))
    return net.build()


def _per_token() -> onnx.ModelProto:
    """Data with a scale per row, from the greatest magnitude of the row."""
    net = Net("variant")
    x = net.input("x", (LENGTH, WIDTH))
    greatest = net.node("ReduceMax", net.node("Abs", x), axes=[1], keepdims=1)
    scale = net.node("Div", greatest, net.constant(127.0))
    steps = net.node("Clip", net.node("Round", net.node("Div", x, scale)), net.constant(-127.0), net.constant(127.0))
    w = net.initializer("w", integers(net, (WIDTH, WIDTH), "int8"))
    total = net.node("MatMulInteger", net.node("Cast", steps, to=onnx.TensorProto.INT8), w)
    scaled = net.node("Mul", net.node("Cast", total, to=onnx.TensorProto.FLOAT), scale)
    net.output(net.node("Mul", scaled, net.constant(channel_scales(net, WIDTH, weights_scale(WIDTH)))), "y", (LENGTH, WIDTH))
    return net.build()


def _bert_layer() -> onnx.ModelProto:
    net, size = Net("variant"), WIDTH // HEADS
    x = net.input("x", (1, LENGTH, WIDTH))
    shared = dynamic(net, x)
    q, k, v = (split_heads(net, dynamic_linear(net, shared, WIDTH, WIDTH, name), HEADS, size) for name in ("query", "key", "value"))
    context = merge_heads(net, attend(net, q, k, v, size), WIDTH)
    y = net.node("Add", dynamic_linear(net, dynamic(net, context), WIDTH, WIDTH, "output"), x)
    y = layer_norm(net, y, WIDTH, "norm1")
    inner = gelu_erf(net, dynamic_linear(net, dynamic(net, y), WIDTH, INNER, "up"))
    y = net.node("Add", dynamic_linear(net, dynamic(net, inner), INNER, WIDTH, "down"), y)
    net.output(layer_norm(net, y, WIDTH, "norm2"), "y", (1, LENGTH, WIDTH))
    return net.build()


def _control() -> Iterator[Row]:
    """Products in branches and loops."""
    yield listed(1, "matmul in If, Q", _branch, beside("matmul, Q", "in If by plain"), levels=1)
    yield listed(1, "four matmuls in Loop, Q", _loop, tolerance=MIDDLE_STEP, levels=1)


def _branch() -> onnx.ModelProto:
    net = Net("variant")
    x = net.input("x", (LENGTH, WIDTH), "uint8")
    condition = net.input("condition", (), "bool")
    branches = {}
    for name in ("then_branch", "else_branch"):
        inner = net.body(name)
        data = dequantize(inner, x, DATA_SCALE, 117, "uint8")
        y = inner.node("MatMul", data, _weights(inner, WIDTH, WIDTH))
        inner.output(quantize(inner, y), f"{name}_y", (LENGTH, WIDTH), "int8")
        branches[name] = inner.graph()
    net.output(net.node("If", condition, **branches), "y", (LENGTH, WIDTH), "int8")
    return net.build()


def _loop() -> onnx.ModelProto:
    net = Net("variant")
    x = net.input("x", (LENGTH, WIDTH), "int8")
    body = net.body("body")
    body.input("step", (), "int64")
    condition, state = body.input("condition_in", (), "bool"), body.input("state_in", (LENGTH, WIDTH), "int8")
    y = body.node("MatMul", dequantize(body, state, RESULT_SCALE), _weights(body, WIDTH, WIDTH))
    body.output(body.node("Identity", condition), "condition_out", (), "bool")
    body.output(quantize(body, y, RESULT_SCALE * 2), "state_out", (LENGTH, WIDTH), "int8")
    steps, always = net.constant(4, "int64"), net.constant(True, "bool")
    net.output(net.node("Loop", steps, always, x, body=body.graph()), "y", (LENGTH, WIDTH), "int8")
    return net.build()
