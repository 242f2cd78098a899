"""Models of one operator each: products, the convolutions of ResNet-50 and MobileNetV2, and what is bound by memory."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import onnx
from onnx import helper, shape_inference

from zoo.layers import attend
from zoo.net import Net


@dataclass(frozen=True)
class OperatorCase:
    """One operator. `operations`: multiplications and additions, 0 where time goes with `moved`, the bytes read and written once.
    `times`: how often its model has it."""

    group: str
    name: str
    build: Callable[[], onnx.ModelProto]
    operations: int
    moved: int
    times: int = 1


@dataclass(frozen=True)
class Convolution:
    """Shape of a convolution of one image: float32 [1, inputs, height, width], kernel of the same height and width."""

    inputs: int
    height: int
    width: int
    outputs: int
    kernel: int
    stride: int
    pad: int
    groups: int

    @property
    def name(self) -> str:
        """Sizes, as in 64x56x56_k3s1_64; `dw` is depthwise."""
        depthwise = "dw" if self.groups == self.inputs > 1 else ""
        return f"{self.inputs}x{self.height}x{self.width}_{depthwise}k{self.kernel}s{self.stride}_{self.outputs}"

    @property
    def result(self) -> tuple[int, int, int, int]:
        """Shape of the result."""
        high, wide = ((size + 2 * self.pad - self.kernel) // self.stride + 1 for size in (self.height, self.width))
        return 1, self.outputs, high, wide

    @property
    def operations(self) -> int:
        """Of the direct convolution; a multiplication and an addition are two."""
        return 2 * math.prod(self.result) * self.inputs // self.groups * self.kernel**2

    @property
    def moved(self) -> int:
        """Bytes of the input, the weights and the result."""
        weights = self.outputs * self.inputs // self.groups * self.kernel**2
        return 4 * (self.inputs * self.height * self.width + weights + math.prod(self.result))

    def build(self) -> onnx.ModelProto:
        """The convolution with a bias."""
        net = Net(f"conv_{self.name}")
        x = net.input("x", (1, self.inputs, self.height, self.width))
        fan_in = self.inputs // self.groups * self.kernel**2
        weight = net.weight("weight", (self.outputs, self.inputs // self.groups, self.kernel, self.kernel), math.sqrt(3 / fan_in))
        y = net.node(
            "Conv",
            x,
            weight,
            net.weight("bias", (self.outputs,), 0.1),
            strides=[self.stride] * 2,
            pads=[self.pad] * 4,
            group=self.groups,
        )
        net.output(y, "y", self.result)
        return net.build()


def convolutions(path: Path) -> Counter[Convolution]:
    """The distinct convolutions of a model, in order, and how often each occurs."""
    model = shape_inference.infer_shapes(onnx.load(path))
    shapes = {
        item.name: tuple(dim.dim_value for dim in item.type.tensor_type.shape.dim)
        for item in (*model.graph.value_info, *model.graph.input, *model.graph.output)
    }
    shapes |= {item.name: tuple(item.dims) for item in model.graph.initializer}
    counts: Counter[Convolution] = Counter()
    for node in model.graph.node:
        if node.op_type == "Conv":
            attributes = {item.name: helper.get_attribute_value(item) for item in node.attribute}
            _, inputs, height, width = shapes[node.input[0]]
            outputs, _, kernel, _ = shapes[node.input[1]]
            stride, pad = attributes.get("strides", [1])[0], attributes.get("pads", [0])[0]
            counts[Convolution(inputs, height, width, outputs, kernel, stride, pad, attributes.get("group", 1))] += 1
    return counts


SIZES = (64, 128, 256, 512, 1024, 2048)
"""Of square products."""


def cases(models: dict[str, Path]) -> Iterator[OperatorCase]:
    """All operators; `models` are the files that convolutions are taken from, by name."""
    for size in SIZES:
        for dynamic in (False, True):
            name = f"gemm_{size}{'_dynamic' if dynamic else ''}"
            yield OperatorCase("gemm", name, partial(_gemm, size, dynamic), 2 * size**3, 12 * size**2)
    for model, path in models.items():
        for shape, times in convolutions(path).items():
            yield OperatorCase(f"conv {model}", f"conv_{shape.name}", shape.build, shape.operations, shape.moved, times)
    heads, length, size = 12, 128, 64
    yield OperatorCase(
        "attention",
        f"attention_{heads}x{length}x{size}",
        partial(_attention, heads, length, size),
        4 * heads * length**2 * size,
        16 * heads * length * size,
    )
    yield from _moving()


def _gemm(size: int, dynamic: bool) -> onnx.ModelProto:
    net = Net("gemm")
    a = net.input("a", (size, size))
    b = net.input("b", (size, size)) if dynamic else net.weight("b", (size, size), math.sqrt(3 / size))
    net.output(net.node("MatMul", a, b), "y", (size, size))
    return net.build()


def _attention(heads: int, length: int, size: int) -> onnx.ModelProto:
    net = Net("attention")
    shape = (1, heads, length, size)
    q, k, v = (net.input(name, shape) for name in "qkv")
    net.output(attend(net, q, k, v, size), "y", shape)
    return net.build()


def _moving() -> Iterator[OperatorCase]:
    """Operators that do little with each number."""
    rows, width = 1024, 1024
    yield _unary("softmax", (12 * 128, 128), lambda net, x: net.node("Softmax", x, axis=-1))
    yield _unary("softmax", (rows, width), lambda net, x: net.node("Softmax", x, axis=-1))
    yield _unary("layer_norm", (128, 768), partial(_layer_norm, 768))
    yield _unary("erf", (128, 3072), lambda net, x: net.node("Erf", x))
    yield _unary("relu", (rows, width), lambda net, x: net.node("Relu", x))
    for axes, reduced_shape in (((1,), (rows, 1)), ((0,), (1, width)), ((0, 1), (1, 1))):
        label = "_".join(map(str, axes))
        for op in ("ReduceMean", "ReduceMax"):
            yield _unary(f"{op.lower()}_{label}", (rows, width), partial(_reduce, op, axes), reduced_shape)
    for shape, perm in (((rows, width), (1, 0)), ((1, 64, 56, 56), (0, 2, 3, 1)), ((1, 56, 56, 64), (0, 3, 1, 2))):
        label = f"transpose_{''.join(map(str, perm))}"
        yield _unary(label, shape, partial(_transpose, perm), tuple(shape[axis] for axis in perm))
    yield _unary("transpose_0213", (1, 128, 12, 64), partial(_transpose, (0, 2, 1, 3)), (1, 12, 128, 64))
    yield _unary("max_pool", (1, 64, 112, 112), _max_pool, (1, 64, 56, 56))
    yield _unary("global_average_pool", (1, 2048, 7, 7), lambda net, x: net.node("GlobalAveragePool", x), (1, 2048, 1, 1))


def _unary(
    name: str, shape: tuple[int, ...], node: Callable[[Net, str], str], result: tuple[int, ...] | None = None
) -> OperatorCase:
    result = result or shape

    def build() -> onnx.ModelProto:
        net = Net(name)
        net.output(node(net, net.input("x", shape)), "y", result)
        return net.build()

    return OperatorCase("memory", f"{name}_{'x'.join(map(str, shape))}", build, 0, 4 * (math.prod(shape) + math.prod(result)))


def _layer_norm(width: int, net: Net, x: str) -> str:
    scale = net.weight("scale", (width,), 0.1, around=1.0)
    return net.node("LayerNormalization", x, scale, net.weight("bias", (width,), 0.1), axis=-1)


def _reduce(op: str, axes: tuple[int, ...], net: Net, x: str) -> str:
    return net.node(op, x, axes=list(axes), keepdims=1)


def _transpose(perm: tuple[int, ...], net: Net, x: str) -> str:
    return net.node("Transpose", x, perm=list(perm))


def _max_pool(net: Net, x: str) -> str:
    return net.node("MaxPool", x, kernel_shape=[3, 3], strides=[2, 2], pads=[1, 1, 1, 1])
