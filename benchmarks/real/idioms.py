"""How exporters write what they write: shapes computed by nodes, decomposed layers, and operators in the form of an opset."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from onnx import TensorProto, numpy_helper

from zoo.net import Net

INT64 = TensorProto.INT64
FLOAT = TensorProto.FLOAT


def const(net: Net, value: Any, dtype: str = "int64") -> str:
    """A `Constant` node, as torch writes one for each use."""
    return net.node("Constant", name="const", value=numpy_helper.from_array(np.asarray(value, dtype)))


def unsqueeze(net: Net, x: str, *axes: int) -> str:
    """Unsqueeze, with axes as an attribute before opset 13."""
    if net.opset < 13:
        return net.node("Unsqueeze", x, axes=list(axes))
    return net.node("Unsqueeze", x, net.constant(list(axes), "int64"))


def squeeze(net: Net, x: str, *axes: int) -> str:
    """Squeeze, with axes as an attribute before opset 13; without axes, of every dimension that is 1."""
    if not axes:
        return net.node("Squeeze", x)
    if net.opset < 13:
        return net.node("Squeeze", x, axes=list(axes))
    return net.node("Squeeze", x, net.constant(list(axes), "int64"))


def reduce(net: Net, op: str, x: str, *axes: int, keep: int = 1) -> str:
    """A reduction, with axes as an attribute where the opset has it so."""
    if net.opset < (13 if op == "ReduceSum" else 18):
        return net.node(op, x, axes=list(axes), keepdims=keep)
    return net.node(op, x, net.constant(list(axes), "int64"), keepdims=keep)


def split(net: Net, x: str, sizes: list[int], axis: int) -> tuple[str, ...]:
    """Split into given sizes, which are an attribute before opset 13."""
    if net.opset < 13:
        return net.nodes("Split", x, results=len(sizes), axis=axis, split=sizes)
    return net.nodes("Split", x, net.constant(sizes, "int64"), results=len(sizes), axis=axis)


def size(net: Net, x: str, axis: int) -> str:
    """`x.shape[axis]` as torch traces it: a scalar by Shape and Gather."""
    return net.node("Gather", net.node("Shape", x), const(net, axis), axis=0)


def shape(net: Net, *sizes: str | int) -> str:
    """A shape of numbers and scalars, by Unsqueeze and Concat."""
    return net.node("Concat", *(const(net, [each]) if isinstance(each, int) else unsqueeze(net, each, 0) for each in sizes), axis=0)


def reshape(net: Net, x: str, *sizes: str | int) -> str:
    """`x.view(...)` with sizes that were read from tensors."""
    return net.node("Reshape", x, shape(net, *sizes))


def arange(net: Net, limit: str, start: int = 0) -> str:
    """`torch.arange(start, limit)` of a scalar."""
    return net.node("Range", const(net, start), limit, const(net, 1))


def cut(net: Net, x: str, start: int | str, end: int | str, axis: int, step: int = 1) -> str:
    """`x[start:end:step]` along an axis."""
    ends = [const(net, [each]) if isinstance(each, int) else each for each in (start, end)]
    return net.node("Slice", x, *ends, const(net, [axis]), const(net, [step]))


def cast(net: Net, x: str, to: int = FLOAT) -> str:
    """Cast."""
    return net.node("Cast", x, to=to)


def conv(
    net: Net,
    x: str,
    inputs: int,
    outputs: int,
    name: str,
    kernel: tuple[int, ...] = (3, 3),
    stride: int = 1,
    groups: int = 1,
    dilation: int = 1,
    preserve_size: bool = True,
) -> str:
    """A convolution with bias in any number of dimensions, padded to keep the size where `preserve_size`."""
    fan_in = inputs // groups * math.prod(kernel)
    pads = [(each - 1) * dilation // 2 for each in kernel] if preserve_size else [0] * len(kernel)
    with net.scope(name):
        return net.node(
            "Conv",
            x,
            net.weight("weight", (outputs, inputs // groups, *kernel), math.sqrt(6 / fan_in)),
            net.weight("bias", (outputs,), 0.1),
            kernel_shape=list(kernel),
            strides=[stride] * len(kernel),
            dilations=[dilation] * len(kernel),
            pads=pads * 2,
            group=groups,
        )


def batch_norm(net: Net, x: str, channels: int, name: str) -> str:
    """Batch normalization by running statistics."""
    with net.scope(name):
        parts = [net.weight(part, (channels,), 0.3, around=1.0) for part in ("scale", "variance")]
        shifts = [net.weight(part, (channels,), 0.3) for part in ("bias", "mean")]
        return net.node("BatchNormalization", x, parts[0], shifts[0], shifts[1], parts[1], epsilon=1e-5, momentum=0.9)


def conv_bn_relu(net: Net, x: str, inputs: int, outputs: int, name: str, kernel: int = 3, stride: int = 1, groups: int = 1) -> str:
    """The block of most image networks."""
    with net.scope(name):
        y = conv(net, x, inputs, outputs, "conv", (kernel, kernel), stride, groups)
        return net.node("Relu", batch_norm(net, y, outputs, "bn"))


def silu(net: Net, x: str) -> str:
    """x · σ(x), in two nodes."""
    return net.node("Mul", x, net.node("Sigmoid", x))


def hard_swish(net: Net, x: str) -> str:
    """x · clip(x + 3, 0, 6) / 6, in four nodes."""
    clipped = net.node("Clip", net.node("Add", x, net.constant(3.0)), net.constant(0.0), net.constant(6.0))
    return net.node("Div", net.node("Mul", x, clipped), net.constant(6.0))


def norm(net: Net, x: str, width: int, name: str, epsilon: float = 1e-5) -> str:
    """Layer normalization over the last axis, decomposed as torch does before opset 17."""
    with net.scope(name):
        centered = net.node("Sub", x, reduce(net, "ReduceMean", x, -1))
        variance = reduce(net, "ReduceMean", net.node("Pow", centered, net.constant(2.0)), -1)
        unit = net.node("Div", centered, net.node("Sqrt", net.node("Add", variance, net.constant(epsilon))))
        scaled = net.node("Mul", unit, net.weight("scale", (width,), 0.1, around=1.0))
        return net.node("Add", scaled, net.weight("bias", (width,), 0.1))


def group_norm(net: Net, x: str, channels: int, groups: int, name: str) -> str:
    """Group normalization as torch exports it: InstanceNormalization over reshaped groups, then scale and shift."""
    with net.scope(name):
        flat = net.node("Reshape", x, net.shape(0, groups, -1))
        ones, zeros = np.ones(groups, np.float32), np.zeros(groups, np.float32)
        unit = net.node("InstanceNormalization", flat, net.constant(ones), net.constant(zeros), epsilon=1e-5)
        unit = net.node("Reshape", unit, net.node("Shape", x))
        scaled = net.node("Mul", unit, net.weight("scale", (channels, 1, 1), 0.2, around=1.0))
        return net.node("Add", scaled, net.weight("bias", (channels, 1, 1), 0.1))


def gemm(net: Net, x: str, inputs: int, outputs: int, name: str) -> str:
    """A linear layer of a matrix, as torch writes it."""
    with net.scope(name):
        weight = net.weight("weight", (outputs, inputs), math.sqrt(3 / inputs))
        return net.node("Gemm", x, weight, net.weight("bias", (outputs,), 0.1), alpha=1.0, beta=1.0, transB=1)


def recurrent(net: Net, op: str, x: str, inputs: int, hidden: int, name: str, *rest: str, **attrs: Any) -> tuple[str, ...]:
    """RNN, GRU or LSTM with biases. `rest`: sequence_lens and initial states; returns Y, Y_h and, of an LSTM, Y_c."""
    gates = {"RNN": 1, "GRU": 3, "LSTM": 4}[op]
    directions = 2 if attrs.get("direction") == "bidirectional" else 1
    bound = 1 / math.sqrt(hidden)
    with net.scope(name):
        weights = [
            net.weight("w", (directions, gates * hidden, inputs), bound),
            net.weight("r", (directions, gates * hidden, hidden), bound),
            net.weight("b", (directions, 2 * gates * hidden), bound),
        ]
        return net.nodes(op, x, *weights, *rest, results=3 if op == "LSTM" else 2, hidden_size=hidden, **attrs)
