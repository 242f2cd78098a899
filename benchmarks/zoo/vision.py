"""MobileNetV2 and ViT."""

from __future__ import annotations

import math
from dataclasses import dataclass

import onnx

from zoo.layers import attention, conv, gelu_erf, layer_norm, linear
from zoo.net import Net, Size


@dataclass(frozen=True)
class MobileNet:
    """MobileNetV2 (Sandler et al., 2018, table 2). `stages`: expansion, channels, blocks, stride of the first block."""

    stages: tuple[tuple[int, int, int, int], ...] = (
        (1, 16, 1, 1),
        (6, 24, 2, 2),
        (6, 32, 3, 2),
        (6, 64, 4, 2),
        (6, 96, 3, 1),
        (6, 160, 3, 2),
        (6, 320, 1, 1),
    )
    first: int = 32
    last: int = 1280
    image: int = 224
    classes: int = 1000


TINY_MOBILENET = MobileNet(((1, 8, 1, 1), (6, 12, 2, 2)), first=8, last=24, image=32, classes=10)


def mobilenet(config: MobileNet = MobileNet(), batch: Size = 1, height: Size = 0, width: Size = 0) -> onnx.ModelProto:
    """float32 [batch, 3, height, width] → [batch, classes]; 0 is the configuration's size. Batch normalization is folded, as
    exporters fold it."""
    net = Net("mobilenet_v2")
    x = net.input("image", (batch, 3, height or config.image, width or config.image))
    x = conv(net, x, 3, config.first, "stem", kernel=3, stride=2, activation="Clip")
    channels = config.first
    for stage, (expansion, outputs, blocks, first_stride) in enumerate(config.stages):
        for block in range(blocks):
            stride = first_stride if block == 0 else 1
            with net.scope(f"stage{stage}.block{block}"):
                inner, y = channels * expansion, x
                if expansion > 1:
                    y = conv(net, y, channels, inner, "expand", activation="Clip")
                y = conv(net, y, inner, inner, "depthwise", kernel=3, stride=stride, groups=inner, activation="Clip")
                y = conv(net, y, inner, outputs, "project")
                x = net.node("Add", x, y) if stride == 1 and channels == outputs else y
            channels = outputs
    x = conv(net, x, channels, config.last, "head", activation="Clip")
    x = net.node("Flatten", net.node("GlobalAveragePool", x), axis=1)
    weight = net.weight("classifier.weight", (config.classes, config.last), math.sqrt(3 / config.last))
    logits = net.node("Gemm", x, weight, net.weight("classifier.bias", (config.classes,), 0.1), name="classifier", transB=1)
    net.output(logits, "logits", (batch, config.classes))
    return net.build()


@dataclass(frozen=True)
class Vit:
    """A vision transformer (Dosovitskiy et al., 2021, table 1): by default ViT-B/16."""

    layers: int = 12
    width: int = 768
    heads: int = 12
    inner: int = 3072
    image: int = 224
    patch: int = 16
    classes: int = 1000


TINY_VIT = Vit(layers=2, width=32, heads=4, inner=64, image=32, patch=8, classes=10)


def vit(config: Vit = Vit(), batch: Size = 1) -> onnx.ModelProto:
    """float32 [batch, 3, image, image] → [batch, classes]."""
    net = Net("vit")
    image = net.input("image", (batch, 3, config.image, config.image))
    side, width = config.image // config.patch, config.width
    patch = config.patch
    kernel = net.weight("patches.weight", (width, 3, patch, patch), math.sqrt(1 / patch**2))
    x = net.node("Conv", image, kernel, net.weight("patches.bias", (width,), 0.1), name="patches", strides=[patch, patch])
    x = net.node("Transpose", net.node("Reshape", x, net.shape(0, width, side * side)), perm=[0, 2, 1])
    count = net.node("Gather", net.node("Shape", image), net.constant([0], "int64"))
    shape = net.node("Concat", count, net.shape(1, width), axis=0)
    token = net.node("Expand", net.weight("class_token", (1, 1, width), 1.0), shape)
    x = net.node("Add", net.node("Concat", token, x, axis=1), net.weight("positions", (1, side * side + 1, width), 0.2))
    for layer in range(config.layers):
        with net.scope(f"layer{layer}"):
            y = layer_norm(net, x, width, "norm1")
            x = net.node("Add", x, attention(net, y, y, width, config.heads))
            y = linear(net, layer_norm(net, x, width, "norm2"), width, config.inner, "up")
            x = net.node("Add", x, linear(net, gelu_erf(net, y), config.inner, width, "down"))
    x = net.node("Gather", layer_norm(net, x, width, "norm"), net.constant(0, "int64"), axis=1)
    net.output(linear(net, x, width, config.classes, "classifier"), "logits", (batch, config.classes))
    return net.build()
