"""Layers that several models have, written out as exporters write them."""

from __future__ import annotations

import math

import numpy as np
import onnx

from zoo.net import Net


def linear(net: Net, x: str, width_in: int, width_out: int, name: str) -> str:
    """x · W + b over the last axis."""
    bound = math.sqrt(3 / width_in)  # keeps the variance
    with net.scope(name):
        product = net.node("MatMul", x, net.weight("weight", (width_in, width_out), bound))
        return net.node("Add", product, net.weight("bias", (width_out,), 0.1))


def conv(
    net: Net, x: str, inputs: int, outputs: int, name: str, kernel: int = 1, stride: int = 1, groups: int = 1, activation: str = ""
) -> str:
    """A convolution with bias of an image, padded by half its kernel, and an activation by its operator: Clip is ReLU6."""
    fan_in = inputs // groups * kernel * kernel
    with net.scope(name):
        weight = net.weight("weight", (outputs, inputs // groups, kernel, kernel), math.sqrt((6 if activation else 3) / fan_in))
        x = net.node(
            "Conv",
            x,
            weight,
            net.weight("bias", (outputs,), 0.1),
            kernel_shape=[kernel, kernel],
            strides=[stride, stride],
            pads=[kernel // 2] * 4,
            group=groups,
        )
        if not activation:
            return x
        bounds = (net.constant(0.0), net.constant(6.0)) if activation == "Clip" else ()
        return net.node(activation, x, *bounds)


def layer_norm(net: Net, x: str, width: int, name: str, epsilon: float = 1e-5) -> str:
    """Layer normalization over the last axis."""
    with net.scope(name):
        scale = net.weight("scale", (width,), 0.1, around=1.0)
        return net.node("LayerNormalization", x, scale, net.weight("bias", (width,), 0.1), axis=-1, epsilon=epsilon)


def gelu_erf(net: Net, x: str) -> str:
    """x · (1 + erf(x / √2)) / 2, in five nodes."""
    erf = net.node("Erf", net.node("Div", x, net.constant(math.sqrt(2))))
    return net.node("Mul", net.node("Mul", x, net.node("Add", erf, net.constant(1.0))), net.constant(0.5))


def gelu_tanh(net: Net, x: str) -> str:
    """The approximation x · (1 + tanh(√(2/π) · (x + 0.044715 x³))) / 2 of GPT-2, in eight nodes."""
    cube = net.node("Mul", net.node("Pow", x, net.constant(3.0)), net.constant(0.044715))
    inner = net.node("Mul", net.node("Add", x, cube), net.constant(math.sqrt(2 / math.pi)))
    outer = net.node("Add", net.node("Tanh", inner), net.constant(1.0))
    return net.node("Mul", net.node("Mul", x, net.constant(0.5)), outer)


def split_heads(net: Net, x: str, heads: int, size: int) -> str:
    """[batch, length, heads · size] → [batch, heads, length, size]."""
    return net.node("Transpose", net.node("Reshape", x, net.shape(0, 0, heads, size)), perm=[0, 2, 1, 3])


def merge_heads(net: Net, x: str, width: int) -> str:
    """[batch, heads, length, size] → [batch, length, width]."""
    return net.node("Reshape", net.node("Transpose", x, perm=[0, 2, 1, 3]), net.shape(0, 0, width))


def attend(net: Net, q: str, k: str, v: str, size: int, bias: str = "") -> str:
    """softmax(q · kᵀ / √size + bias) · v over heads."""
    scores = net.node("MatMul", q, net.node("Transpose", k, perm=[0, 1, 3, 2]), name="scores")
    scores = net.node("Div", scores, net.constant(math.sqrt(size)))
    if bias:
        scores = net.node("Add", scores, bias)
    return net.node("MatMul", net.node("Softmax", scores, axis=-1), v, name="context")


def attention(net: Net, x: str, memory: str, width: int, heads: int, bias: str = "", name: str = "attention") -> str:
    """Multi-head attention of `x` to `memory`, with its four projections."""
    size = width // heads
    with net.scope(name):
        q, k, v = (
            split_heads(net, linear(net, source, width, width, label), heads, size)
            for source, label in ((x, "query"), (memory, "key"), (memory, "value"))
        )
        return linear(net, merge_heads(net, attend(net, q, k, v, size, bias), width), width, width, "output")


def mask_bias(net: Net, mask: str) -> str:
    """A [batch, length] mask of ones and zeros as [batch, 1, 1, length]: 0 where to look, -10000 where not."""
    wide = net.node("Unsqueeze", mask, net.constant([1, 2], "int64"))
    return net.node(
        "Mul",
        net.node("Sub", net.constant(1.0), net.node("Cast", wide, to=onnx.TensorProto.FLOAT)),
        net.constant(-1e4),
        name="mask_bias",
    )


def axis_size(net: Net, x: str, axis: int) -> str:
    """One size of a value, as an int64 tensor of one element."""
    return net.node("Gather", net.node("Shape", x), net.constant([axis], "int64"))


def first_rows(net: Net, table: str, count: str) -> str:
    """The first rows of a table; `count` is a tensor of one element."""
    return net.node("Slice", table, net.constant([0], "int64"), count, net.constant([0], "int64"))


def sinusoids(length: int, width: int) -> np.ndarray[tuple[int, ...], np.dtype[np.float32]]:
    """Positions as sines and cosines, [length, width] (Vaswani et al., 2017, section 3.5)."""
    angles = np.arange(length)[:, None] / 10000 ** (np.arange(0, width, 2)[None, :] / width)
    return np.stack([np.sin(angles), np.cos(angles)], -1).reshape(length, width).astype(np.float32)
