"""Models from images to images: DCGAN's generator, U-Net, and super-resolution."""

from __future__ import annotations

import math
from dataclasses import dataclass
from itertools import pairwise

import onnx

from zoo.layers import conv
from zoo.net import Net, Size


def upsample(
    net: Net, x: str, inputs: int, outputs: int, name: str, kernel: int, stride: int, pad: int, activation: str = ""
) -> str:
    """A transposed convolution with bias, then an activation by its operator."""
    fan_in = inputs * kernel * kernel / stride**2
    with net.scope(name):
        weight = net.weight("weight", (inputs, outputs, kernel, kernel), math.sqrt((6 if activation else 3) / fan_in))
        bias = net.weight("bias", (outputs,), 0.1)
        x = net.node("ConvTranspose", x, weight, bias, kernel_shape=[kernel] * 2, strides=[stride] * 2, pads=[pad] * 4)
        return net.node(activation, x) if activation else x


@dataclass(frozen=True)
class Dcgan:
    """The generator of DCGAN (Radford et al., 2016), in the widths of PyTorch's example: images of 64 by 64."""

    latent: int = 100
    width: int = 64


TINY_DCGAN = Dcgan(latent=6, width=4)


def dcgan(config: Dcgan = Dcgan(), batch: Size = 1) -> onnx.ModelProto:
    """float32 [batch, latent, 1, 1] → [batch, 3, 64, 64]; batch normalization is folded."""
    net = Net("dcgan")
    x = net.input("noise", (batch, config.latent, 1, 1))
    widths = [config.latent, *(config.width * factor for factor in (8, 4, 2, 1))]
    for stage, (inputs, outputs) in enumerate(pairwise(widths)):
        stride = 1 if stage == 0 else 2
        x = upsample(net, x, inputs, outputs, f"stage{stage}", 4, stride, stride - 1, "Relu")
    net.output(upsample(net, x, config.width, 3, "image", 4, 2, 1, "Tanh"), "image", (batch, 3, 64, 64))
    return net.build()


@dataclass(frozen=True)
class Unet:
    """U-Net (Ronneberger et al., 2015), padded as implementations do, with half the original's widths."""

    width: int = 32
    depth: int = 4
    image: int = 192
    classes: int = 2


TINY_UNET = Unet(width=4, depth=2, image=32)


def unet(config: Unet = Unet(), batch: Size = 1, height: Size = 0, width: Size = 0) -> onnx.ModelProto:
    """float32 [batch, 3, height, width] → [batch, classes, height, width]; 0 is the configuration's size. Sizes are multiples of
    2 ** depth."""
    net = Net("unet")
    sizes = (height or config.image, width or config.image)
    x, channels = net.input("image", (batch, 3, *sizes)), 3
    skips = []
    for level in range(config.depth + 1):
        outputs = config.width << level
        x = _twice(net, x, channels, outputs, f"down{level}")
        channels = outputs
        if level < config.depth:
            skips.append(x)
            x = net.node("MaxPool", x, kernel_shape=[2, 2], strides=[2, 2])
    for level in reversed(range(config.depth)):
        outputs = config.width << level
        y = upsample(net, x, channels, outputs, f"up{level}.upsample", 2, 2, 0)
        x = _twice(net, net.node("Concat", skips[level], y, axis=1), 2 * outputs, outputs, f"up{level}")
        channels = outputs
    net.output(conv(net, x, channels, config.classes, "classes"), "classes", (batch, config.classes, *sizes))
    return net.build()


def _twice(net: Net, x: str, inputs: int, outputs: int, name: str) -> str:
    """Two convolutions."""
    with net.scope(name):
        return conv(
            net, conv(net, x, inputs, outputs, "first", 3, activation="Relu"), outputs, outputs, "second", 3, activation="Relu"
        )


@dataclass(frozen=True)
class SuperResolution:
    """A sub-pixel network (Shi et al., 2016), in the widths of PyTorch's example."""

    widths: tuple[int, ...] = (64, 64, 32)
    factor: int = 3
    image: int = 224


TINY_SUPER = SuperResolution(widths=(8, 8), factor=2, image=12)


def super_resolution(
    config: SuperResolution = SuperResolution(), batch: Size = 1, height: Size = 0, width: Size = 0
) -> onnx.ModelProto:
    """float32 [batch, 1, height, width] → [batch, 1, factor · height, factor · width]; 0 is the configuration's size."""
    net = Net("super_resolution")
    sizes = (height or config.image, width or config.image)
    x, channels = net.input("luma", (batch, 1, *sizes)), 1
    for layer, outputs in enumerate(config.widths):
        x = conv(net, x, channels, outputs, f"conv{layer}", 5 if layer == 0 else 3, activation="Relu")
        channels = outputs
    x = conv(net, x, channels, config.factor**2, "subpixels", 3)
    output_sizes = tuple(config.factor * size if isinstance(size, int) else f"{config.factor}*{size}" for size in sizes)
    net.output(net.node("DepthToSpace", x, blocksize=config.factor, mode="CRD"), "large", (batch, 1, *output_sizes))
    return net.build()
