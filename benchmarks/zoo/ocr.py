"""Reading text: finding it in images (after DBNet), and recognizing a line of it (CRNN)."""

from __future__ import annotations

import math
from dataclasses import dataclass

import onnx

from zoo.images import upsample
from zoo.layers import conv, linear
from zoo.net import Net, Size


@dataclass(frozen=True)
class TextFinder:
    """A detector after DBNet (Liao et al., 2020) on the kind of backbone that mobile OCR uses: inverted residuals with
    squeeze-and-excitation and hard swish. `stages`: channels, blocks; each halves height and width, the stem besides."""

    stem: int = 16
    stages: tuple[tuple[int, int], ...] = ((24, 2), (40, 3), (80, 3), (160, 2))
    expansion: int = 4
    neck: int = 96
    image: int = 320


TINY_FINDER = TextFinder(stem=8, stages=((8, 1), (12, 1)), expansion=2, neck=8, image=32)


def text_finder(config: TextFinder = TextFinder(), batch: Size = 1, height: Size = 0, width: Size = 0) -> onnx.ModelProto:
    """float32 [batch, 3, height, width] → [batch, 1, height, width], where there is text; 0 is the configuration's size. Sizes are
    multiples of 2 ** (stages + 1)."""
    net = Net("text_finder")
    sizes = (height or config.image, width or config.image)
    x = conv(net, net.input("image", (batch, 3, *sizes)), 3, config.stem, "stem", 3, 2, activation="HardSwish")
    channels, levels = config.stem, []
    for stage, (outputs, blocks) in enumerate(config.stages):
        for block in range(blocks):
            with net.scope(f"stage{stage}.block{block}"):
                x = _block(net, x, channels, outputs, 2 if block == 0 else 1, config.expansion)
            channels = outputs
        levels.append((x, channels))
    merged, parts = "", []
    for level, (x, channels) in reversed(list(enumerate(levels))):
        y = conv(net, x, channels, config.neck, f"lateral{level}")
        merged = net.node("Add", y, _larger(net, merged, 2)) if merged else y
        quarter = config.neck // 4
        parts.append(_larger(net, conv(net, merged, config.neck, quarter, f"smooth{level}", 3), 1 << level))
    joined = net.node("Concat", *parts, axis=1)
    x = conv(net, joined, config.neck // 4 * len(parts), config.neck // 4, "head", 3, activation="Relu")
    x = upsample(net, x, config.neck // 4, config.neck // 4, "head.upsample0", 2, 2, 0, "Relu")
    net.output(upsample(net, x, config.neck // 4, 1, "head.upsample1", 2, 2, 0, "Sigmoid"), "text", (batch, 1, *sizes))
    return net.build()


def _block(net: Net, x: str, inputs: int, outputs: int, stride: int, expansion: int) -> str:
    """An inverted residual with squeeze-and-excitation."""
    inner = inputs * expansion
    y = conv(net, x, inputs, inner, "expand", activation="HardSwish")
    y = conv(net, y, inner, inner, "depthwise", 3, stride, inner, activation="HardSwish")
    gate = conv(net, net.node("GlobalAveragePool", y), inner, inner // 4, "squeeze", activation="Relu")
    y = net.node("Mul", y, conv(net, gate, inner // 4, inner, "excite", activation="HardSigmoid"))
    y = conv(net, y, inner, outputs, "project")
    return net.node("Add", x, y) if stride == 1 and inputs == outputs else y


def _larger(net: Net, x: str, factor: int) -> str:
    """Repeat pixels."""
    if factor == 1:
        return x
    return net.node(
        "Resize",
        x,
        "",
        net.constant([1, 1, factor, factor]),
        mode="nearest",
        coordinate_transformation_mode="asymmetric",
        nearest_mode="floor",
    )


@dataclass(frozen=True)
class Crnn:
    """A recognizer of lines (Shi et al., 2015, table 1). `widths` are of its convolutions."""

    widths: tuple[int, ...] = (64, 128, 256, 256, 512, 512, 512)
    hidden: int = 256
    classes: int = 97
    line: int = 100


TINY_CRNN = Crnn(widths=(4, 4, 8, 8, 8, 8, 8), hidden=6, classes=11, line=20)
_POOLS = {0: (2, 2), 1: (2, 2), 3: (2, 1), 5: (2, 1)}
"""Height and width by which the image shrinks after a convolution."""


def crnn(config: Crnn = Crnn(), batch: Size = 1, width: Size = 0) -> onnx.ModelProto:
    """float32 [batch, 1, 32, width] → log-probabilities [steps, batch, classes], a step for every four columns; 0 is the
    configuration's width. Batch normalization is folded."""
    net = Net("crnn")
    x, channels = net.input("line", (batch, 1, 32, width or config.line)), 1
    for layer, outputs in enumerate(config.widths):
        last = layer == len(config.widths) - 1
        with net.scope(f"conv{layer}"):
            kernel, pad = (2, 0) if last else (3, 1)
            weight = net.weight("weight", (outputs, channels, kernel, kernel), math.sqrt(6 / (channels * kernel**2)))
            x = net.node("Relu", net.node("Conv", x, weight, net.weight("bias", (outputs,), 0.1), pads=[pad] * 4))
        channels = outputs
        if layer in _POOLS:
            strides = _POOLS[layer]
            wide = strides[1] == 1
            x = net.node("MaxPool", x, kernel_shape=[2, 2], strides=list(strides), pads=[0, 1, 0, 1] if wide else [0, 0, 0, 0])
    x = net.node("Transpose", net.node("Squeeze", x, net.constant([2], "int64")), perm=[2, 0, 1])
    for layer in range(2):
        with net.scope(f"lstm{layer}"):
            x = _both_ways(net, x, channels, config.hidden)
            channels = config.hidden if layer == 0 else config.classes
            x = linear(net, x, 2 * config.hidden, channels, "embedding")
    net.output(net.node("LogSoftmax", x, axis=2), "logits", ("steps" if isinstance(width, str) else None, batch, config.classes))
    return net.build()


def _both_ways(net: Net, x: str, inputs: int, hidden: int) -> str:
    """A bidirectional LSTM: [steps, batch, inputs] → [steps, batch, 2 · hidden]."""
    w, r = (net.weight(name, (2, 4 * hidden, size), math.sqrt(3 / size)) for name, size in (("W", inputs), ("R", hidden)))
    states, _ = net.nodes(
        "LSTM", x, w, r, net.weight("B", (2, 8 * hidden), 0.1), results=2, hidden_size=hidden, direction="bidirectional"
    )
    return net.node("Reshape", net.node("Transpose", states, perm=[0, 2, 1, 3]), net.shape(0, 0, 2 * hidden))
