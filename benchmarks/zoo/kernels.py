"""Models of one kernel each, with symbolic sizes: what whole models spend their time in."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from types import MappingProxyType

import onnx

from zoo.layers import attention, gelu_erf, linear
from zoo.net import Net, Size
from zoo.quantized import quantized
from zoo.sizes import Range, Symbolic, feeds

BATCH, SIDE, LENGTH, ROWS = (2, 8), (20, 40), (32, 160), (40, 400)
"""Ranges of batches, of heights and widths, of sequences, and of rows."""
IMAGES: Mapping[str, Range] = MappingProxyType({"batch": BATCH, "height": SIDE, "width": SIDE})


@dataclass(frozen=True)
class Window:
    """A convolution: float32 [batch, inputs, spatial sizes...] → outputs, padded by half its dilated kernel."""

    inputs: int
    outputs: int
    kernel: int
    stride: int = 1
    dilation: int = 1
    groups: int = 1
    transposed: bool = False

    def build(self, shape: Sequence[Size]) -> onnx.ModelProto:
        """A convolution with bias of an image of some shape."""
        net = Net("conv")
        x = net.input("x", shape)
        rank = len(shape) - 2
        outer, inner = (self.inputs, self.outputs) if self.transposed else (self.outputs, self.inputs)
        bound = math.sqrt(3 * self.groups / (self.inputs * self.kernel**rank))
        y = net.node(
            "ConvTranspose" if self.transposed else "Conv",
            x,
            net.weight("weight", (outer, inner // self.groups, *[self.kernel] * rank), bound),
            net.weight("bias", (self.outputs,), 0.1),
            strides=[self.stride] * rank,
            dilations=[self.dilation] * rank,
            pads=[self.dilation * (self.kernel - 1) // 2] * 2 * rank,
            group=self.groups,
        )
        net.output(y, "y", (shape[0], self.outputs, *(f"out{axis}" for axis in range(rank))))
        return net.build()


def _node(shape: Sequence[Size], add: Callable[[Net, str], str], result: Sequence[Size] | None = None) -> onnx.ModelProto:
    """What `add` makes of an input; `result` is its shape, that of the input by default."""
    net = Net("kernel")
    net.output(add(net, net.input("x", shape)), "y", shape if result is None else result)
    return net.build()


def _instance_norm(channels: int, net: Net, x: str) -> str:
    scale = net.weight("scale", (channels,), 0.1, around=1.0)
    return net.node("InstanceNormalization", x, scale, net.weight("bias", (channels,), 0.1))


def _pool(op: str, net: Net, x: str) -> str:
    return net.node(op, x, kernel_shape=[3, 3], strides=[2, 2], pads=[1, 1, 1, 1])


def _resize(net: Net, x: str) -> str:
    return net.node("Resize", x, "", net.constant([1, 1, 2, 2]), mode="linear")


def _self_attention(net: Net, x: str) -> str:
    return attention(net, x, x, 256, 4)


def _feed_forward(net: Net, x: str) -> str:
    return linear(net, gelu_erf(net, linear(net, x, 256, 1024, "up")), 1024, 256, "down")


def _matmul(inner: int, columns: int, net: Net, x: str) -> str:
    return net.node("MatMul", x, net.weight("weight", (inner, columns), math.sqrt(3 / inner)))


def _lstm(sequence: Size, batch: Size) -> onnx.ModelProto:
    net, inputs, hidden = Net("lstm"), 128, 256
    x = net.input("x", (sequence, batch, inputs))
    w, r = (net.weight(name, (1, 4 * hidden, size), math.sqrt(3 / size)) for name, size in (("W", inputs), ("R", hidden)))
    states, _ = net.nodes("LSTM", x, w, r, net.weight("B", (1, 8 * hidden), 0.1), results=2, hidden_size=hidden)
    net.output(states, "y", (sequence, 1, batch, hidden))
    return net.build()


def _products(shape: Sequence[Size], columns: Size) -> onnx.ModelProto:
    """A product of two inputs."""
    net = Net("products")
    a, b = net.input("a", shape), net.input("b", (*shape[:-2], shape[-1], columns))
    net.output(net.node("MatMul", a, b), "y", (*shape[:-1], columns))
    return net.build()


def _concat(shape: Sequence[Size]) -> onnx.ModelProto:
    net = Net("concat")
    y = net.node("Concat", net.input("a", shape), net.input("b", shape), axis=1)
    net.output(y, "y", (shape[0], 64, *shape[2:]))
    return net.build()


def _in_int8(build: Callable[[], onnx.ModelProto], sizes: Mapping[str, Range]) -> onnx.ModelProto:
    model = build()
    return quantized(model, lambda seed: feeds(model, seed, {name: high for name, (_, high) in sizes.items()}))


def _kernels() -> dict[str, Symbolic]:
    models: dict[str, Symbolic] = {}

    def add(name: str, build: Callable[[], onnx.ModelProto], **sizes: Range) -> None:
        models[name] = Symbolic(build, sizes)

    def images(name: str, build: Callable[[Sequence[Size]], onnx.ModelProto], channels: int, side: int = 28) -> None:
        """With the batch symbolic, and with height and width symbolic."""
        add(f"{name}_batch", partial(build, ("batch", channels, side, side)), batch=BATCH)
        add(f"{name}_size", partial(build, (1, channels, "height", "width")), height=SIDE, width=SIDE)

    images("conv3x3", Window(64, 64, 3).build, 64)
    images("conv1x1", Window(64, 128, 1).build, 64)
    images("conv3x3_stride2", Window(64, 64, 3, stride=2).build, 64)
    images("depthwise3x3", Window(96, 96, 3, groups=96).build, 96)
    images("max_pool", lambda shape: _node(shape, partial(_pool, "MaxPool"), (*shape[:2], "a", "b")), 64)
    images("instance_norm", lambda shape: _node(shape, partial(_instance_norm, 64)), 64)
    add("conv3x3_all", partial(Window(64, 64, 3).build, ("batch", 64, "height", "width")), **IMAGES)
    add("conv3x3_dilated", partial(Window(64, 64, 3, dilation=2).build, (1, 64, "height", "width")), height=SIDE, width=SIDE)
    add("conv3x3_grouped", partial(Window(64, 64, 3, groups=4).build, (1, 64, "height", "width")), height=SIDE, width=SIDE)
    add("conv3x3_of_3", partial(Window(3, 32, 3, stride=2).build, (1, 3, "height", "width")), height=(80, 160), width=(80, 160))
    add("conv1d", partial(Window(128, 128, 3).build, ("batch", 128, "length")), batch=BATCH, length=LENGTH)
    add(
        "conv3d",
        partial(Window(32, 32, 3).build, (1, 32, "depth", "height", "width")),
        depth=(6, 12),
        height=(10, 20),
        width=(10, 20),
    )
    transposed = Window(64, 32, 4, stride=2, transposed=True)
    add("conv_transpose", partial(transposed.build, (1, 64, "height", "width")), height=SIDE, width=SIDE)
    sequences: dict[str, Range] = {"batch": BATCH, "sequence": LENGTH}
    add("attention", partial(_node, ("batch", "sequence", 256), _self_attention), **sequences)
    add("feed_forward", partial(_node, ("batch", "sequence", 256), _feed_forward), **sequences)
    add("lstm", partial(_lstm, "sequence", "batch"), **sequences)
    rows = partial(_node, ("rows", 256), partial(_matmul, 256, 512), ("rows", 512))
    add("matmul_rows", rows, rows=ROWS)
    add("matmul_inner", partial(_products, (256, "inner"), 128), inner=ROWS)
    add("matmul_batch", partial(_products, ("batch", "rows", 64), "columns"), batch=BATCH, rows=LENGTH, columns=LENGTH)
    add("softmax", partial(_node, ("rows", "columns"), lambda net, x: net.node("Softmax", x, axis=-1)), rows=ROWS, columns=ROWS)
    doubled = ("batch", 32, "high", "wide")
    add("resize", partial(_node, ("batch", 32, "height", "width"), _resize, doubled), **IMAGES)
    add("concat", partial(_concat, ("batch", 32, "height", "width")), **IMAGES)
    for name in ("conv3x3_batch", "conv3x3_size", "conv1x1_size", "depthwise3x3_size", "matmul_rows"):
        add(f"{name}_int8", partial(_in_int8, models[name].build, models[name].sizes), **models[name].sizes)
    return models


KERNELS: Mapping[str, Symbolic] = MappingProxyType(_kernels())
"""By name."""
IN_BF16 = ("conv3x3_size", "conv1x1_batch", "depthwise3x3_size", "matmul_rows", "attention")
"""Those that are measured in bfloat16 too."""
