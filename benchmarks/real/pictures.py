"""Pictures made from pictures: super-resolution, style, diffusion, and the same in float16."""

from __future__ import annotations

from collections.abc import Callable, Iterable

import numpy as np
import onnx

from real.idioms import cast, conv, cut, gemm, group_norm, reshape, shape, silu, size, unsqueeze
from real.model import SCRIPT, Draw, Feeds, Model
from zoo.net import Net


def super_resolution() -> onnx.ModelProto:
    """Upscaling by DepthToSpace beside a cubic Resize by scales (opset 11)."""
    net = Net("super_resolution", opset=11)
    luma = net.input("luma", ("batch", 1, "height", "width"))
    x = luma
    for level, (inputs, outputs) in enumerate(((1, 16), (16, 16), (16, 4))):
        x = conv(net, x, inputs, outputs, f"conv{level}", (5, 5) if level == 0 else (3, 3))
        x = net.node("Relu", x) if level < 2 else x
    x = net.node("DepthToSpace", x, blocksize=2, mode="CRD")
    smooth = net.node(
        "Resize",
        luma,
        net.constant(np.zeros(0)),
        net.constant([1.0, 1.0, 2.0, 2.0]),
        mode="cubic",
        coordinate_transformation_mode="half_pixel",
        cubic_coeff_a=-0.75,
    )
    x = net.node("Clip", net.node("Add", x, smooth), net.constant(0.0), net.constant(1.0))
    net.output(x, "larger", ("batch", 1, "rows", "columns"))
    return net.build()


def upscaler() -> onnx.ModelProto:
    """Upscaling with residual blocks and a pixel shuffle of Reshape and Transpose (opset 16)."""
    net = Net("upscaler", opset=16)
    image = net.input("image", ("batch", 3, "height", "width"))
    x = conv(net, image, 3, 16, "stem")
    for level in range(2):
        y = net.node("LeakyRelu", conv(net, x, 16, 16, f"block{level}.0"), alpha=0.1)
        x = net.node("Add", x, conv(net, y, 16, 16, f"block{level}.1"))
    x = conv(net, x, 16, 12, "head")
    rows, columns = size(net, x, 2), size(net, x, 3)
    x = reshape(net, x, size(net, x, 0), 3, 2, 2, rows, columns)
    x = net.node("Transpose", x, perm=[0, 1, 4, 2, 5, 3])
    doubled = [net.node("Mul", each, net.constant(2, "int64")) for each in (rows, columns)]
    net.output(reshape(net, x, size(net, x, 0), 3, *doubled), "larger", ("batch", 3, "rows", "columns"))
    return net.build()


def style() -> onnx.ModelProto:
    """Style transfer: reflected padding, InstanceNormalization, nearest upsampling (opset 11)."""
    net = Net("style", opset=11)
    x = net.input("image", ("batch", 3, "height", "width"))

    def layer(x: str, inputs: int, outputs: int, kernel: int, stride: int, name: str) -> str:
        edge = kernel // 2
        x = net.node("Pad", x, net.constant([0, 0, edge, edge] * 2, "int64"), mode="reflect")
        x = conv(net, x, inputs, outputs, name, (kernel, kernel), stride, preserve_size=False)
        scale, bias = net.weight(f"{name}.scale", (outputs,), 0.2, 1.0), net.weight(f"{name}.shift", (outputs,), 0.1)
        return net.node("Relu", net.node("InstanceNormalization", x, scale, bias, epsilon=1e-5))

    x = layer(x, 3, 8, 9, 1, "first")
    x = layer(x, 8, 16, 3, 2, "down")
    x = net.node("Add", x, layer(x, 16, 16, 3, 1, "residual"))
    x = net.node("Resize", x, net.constant(np.zeros(0)), net.constant([1.0, 1.0, 2.0, 2.0]), mode="nearest")
    x = layer(x, 16, 8, 3, 1, "up")
    net.output(net.node("Tanh", conv(net, x, 8, 3, "last")), "styled", ("batch", 3, "rows", "columns"))
    return net.build()


def diffusion() -> onnx.ModelProto:
    """A step of a latent diffusion U-Net: time embedding, group norm by instance norm, cross-attention to text (opset 17)."""
    net = Net("diffusion", opset=17)
    latent = net.input("latent", ("batch", 4, "height", "width"))
    step = net.input("step", ("batch",), "int64")
    text = net.input("text", ("batch", "tokens", 16))
    rates = net.constant(np.exp(-np.log(10000) * np.arange(8) / 8).astype(np.float32))
    angles = net.node("Mul", cast(net, unsqueeze(net, step, 1)), rates)
    time = net.node("Concat", net.node("Cos", angles), net.node("Sin", angles), axis=1)
    time = gemm(net, silu(net, gemm(net, time, 16, 32, "time0")), 32, 32, "time1")

    def residual(x: str, channels: int, name: str) -> str:
        with net.scope(name):
            y = conv(net, silu(net, group_norm(net, x, channels, 4, "norm0")), channels, channels, "conv0")
            y = net.node("Add", y, unsqueeze(net, gemm(net, silu(net, time), 32, channels, "time"), 2, 3))
            y = conv(net, silu(net, group_norm(net, y, channels, 4, "norm1")), channels, channels, "conv1")
            return net.node("Add", x, y)

    def look(x: str, channels: int) -> str:
        rows, columns = size(net, x, 2), size(net, x, 3)
        tokens = net.node("Transpose", net.node("Reshape", x, net.shape(0, channels, -1)), perm=[0, 2, 1])
        q = net.node("MatMul", tokens, net.weight("q", (channels, 16), 0.3))
        k, v = (net.node("MatMul", text, net.weight(name, (16, 16), 0.4)) for name in "kv")
        scores = net.node("MatMul", q, net.node("Transpose", k, perm=[0, 2, 1]))
        y = net.node("MatMul", net.node("Softmax", net.node("Mul", scores, net.constant(0.25)), axis=-1), v)
        y = net.node("MatMul", y, net.weight("o", (16, channels), 0.3))
        y = reshape(net, net.node("Transpose", y, perm=[0, 2, 1]), size(net, x, 0), channels, rows, columns)
        return net.node("Add", x, y)

    first = residual(conv(net, latent, 4, 16, "input"), 16, "block0")
    x = conv(net, first, 16, 32, "down", stride=2)
    x = look(residual(x, 32, "block1"), 32)
    target = net.node("Concat", cut(net, net.node("Shape", x), 0, 2, 0), cut(net, net.node("Shape", first), 2, 4, 0), axis=0)
    x = net.node("Resize", x, "", "", target, mode="nearest", coordinate_transformation_mode="asymmetric", nearest_mode="floor")
    x = net.node("Concat", conv(net, x, 32, 16, "up"), first, axis=1)
    x = residual(x, 32, "block2")
    net.output(conv(net, silu(net, group_norm(net, x, 32, 4, "norm")), 32, 4, "output"), "noise", ("batch", 4, "height", "width"))
    return net.build()


def halved(build: Callable[[], onnx.ModelProto]) -> onnx.ModelProto:
    """The model in float16, as ONNX Runtime's converter writes it: inputs and outputs stay in float32."""
    from onnxruntime.transformers.float16 import convert_float_to_float16

    return convert_float_to_float16(build(), keep_io_types=True)


def autoencoder() -> onnx.ModelProto:
    """Defects in textures: an autoencoder, and the error of its reconstruction as a map and a score (opset 18)."""
    net = Net("autoencoder", opset=18)
    image = net.input("image", ("batch", 3, 32, 32))
    x = net.node("Relu", conv(net, image, 3, 8, "down0", stride=2))
    x = net.node("Relu", conv(net, x, 8, 4, "down1", stride=2))
    for level, (inputs, outputs) in enumerate(((4, 8), (8, 3))):
        weight = net.weight(f"up{level}", (inputs, outputs, 4, 4), 0.2)
        x = net.node(
            "ConvTranspose",
            x,
            weight,
            net.weight(f"up{level}.bias", (outputs,), 0.1),
            kernel_shape=[4, 4],
            strides=[2, 2],
            pads=[1] * 4,
        )
        x = net.node("Relu", x) if level == 0 else net.node("Sigmoid", x)
    error = net.node("ReduceSumSquare", net.node("Sub", image, x), net.constant([1], "int64"), keepdims=0)
    net.output(error, "map", ("batch", 32, 32))
    flat = net.node("Reshape", error, shape(net, size(net, image, 0), -1))
    best = net.nodes("TopK", flat, net.constant([10], "int64"), results=2, axis=1)[0]
    net.output(net.node("ReduceMean", best, net.constant([1], "int64"), keepdims=0), "score", ("batch",))
    return net.build()


def models() -> Iterable[Model]:
    """The entries of this file."""

    def image(draw: Draw, *size: int) -> Feeds:
        return {"image": draw.floats(size[0], 3, *size[1:], low=0)}

    def luma(draw: Draw, *size: int) -> Feeds:
        return {"luma": draw.floats(size[0], 1, *size[1:], low=0)}

    def noise(draw: Draw, n: int, h: int, w: int, t: int) -> Feeds:
        return {"latent": draw.floats(n, 4, h, w), "step": draw.tokens(1000, n), "text": draw.floats(n, t, 16)}

    def small(draw: Draw, n: int) -> Feeds:
        return image(draw, n, 32, 32)

    pictures = ((1, 32, 32), (2, 24, 40), (1, 9, 7))
    latents = ((1, 16, 16, 7), (2, 12, 20, 3), (1, 8, 8, 1))
    rows: tuple[tuple[str, str, Callable[[], onnx.ModelProto], Callable[..., Feeds], tuple[tuple[int, ...], ...]], ...] = (
        ("super_resolution", "super-resolution", super_resolution, luma, pictures),
        ("upscaler", "super-resolution", upscaler, image, pictures),
        ("upscaler_half", "super-resolution", lambda: halved(upscaler), image, pictures),
        ("style", "style transfer", style, image, ((1, 32, 32), (2, 24, 40))),
        ("diffusion", "diffusion", diffusion, noise, latents),
        ("diffusion_half", "diffusion", lambda: halved(diffusion), noise, latents),
        ("autoencoder", "anomalies", autoencoder, small, ((1,), (4,))),
    )
    for name, domain, load, feeds, sizes in rows:
        yield Model(name, domain, SCRIPT, load, feeds, sizes)
