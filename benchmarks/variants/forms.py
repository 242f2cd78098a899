"""Products by their form: the operator, and the shapes of its operands."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any

from zoo.net import Net, Size


@dataclass(frozen=True)
class Form:
    """A product of data and weights. `data` is the shape of one element of the batch, in which `sizes` names what may be symbolic;
    `rows` multiplies the batch. `channels` is the axis of the weights with the output channels, `depth` the number of products in a
    sum. `batched` weights have the batch as a further first axis where they are an input."""

    op: str
    data: tuple[Size, ...]
    weights: tuple[int, ...]
    depth: int
    channels: int
    sizes: Mapping[str, int] = field(default_factory=dict)
    attrs: Mapping[str, Any] = field(default_factory=dict)
    rows: int = 1
    batched: bool = False
    keeps_sizes: bool = True

    @property
    def takes_bias(self) -> bool:
        """Whether the operator has a bias as its third operand."""
        return self.op != "MatMul"

    @property
    def outputs(self) -> int:
        """The number of output channels."""
        return self.weights[self.channels]

    def result(self, data: tuple[Size, ...]) -> tuple[Size, ...]:
        """Return the shape of the result for a shape of the data, of a form that keeps sizes."""
        at = 1 if "Conv" in self.op else len(data) - 1
        return (*data[:at], self.outputs, *data[at + 1 :])

    def node(self, net: Net, data: str, weights: str, bias: str = "") -> str:
        """Add the product."""
        return net.node(self.op, data, weights, *filter(None, [bias]), **self.attrs)


def conv(inputs: int, outputs: int, kernel: int, side: int, rank: int = 2, **attrs: Any) -> Form:
    """A convolution over square images, padded so that stride 1 keeps their sizes."""
    groups, dilation = attrs.get("group", 1), attrs.get("dilations", [1])[0]
    names = {1: ("time",), 2: ("height", "width"), 3: ("depth", "height", "width")}[rank]
    if "auto_pad" not in attrs:
        attrs.setdefault("pads", [kernel // 2 * dilation] * 2 * rank)
    return Form(
        "Conv",
        (inputs, *names),
        (outputs, inputs // groups, *[kernel] * rank),
        inputs // groups * kernel**rank,
        channels=0,
        sizes=dict.fromkeys(names, side),
        attrs=attrs,
        keeps_sizes="strides" not in attrs,
    )


FORMS: Mapping[str, Form] = MappingProxyType(
    {
        "matmul 64x512x512": Form("MatMul", ("rows", 512), (512, 512), 512, 1, {"rows": 64}),
        "matmul of one row 768x2048": Form("MatMul", (768,), (768, 2048), 768, 1),
        "matmul of heads": Form("MatMul", (8, "rows", 64), (8, 64, 64), 64, 2, {"rows": 64}, batched=True),
        "gemm of w transposed": Form("Gemm", (512,), (512, 512), 512, 0, attrs={"transB": 1}, rows=32),
        "conv 1x1 64@28": conv(64, 128, 1, 28),
        "conv 3x3 64@28": conv(64, 64, 3, 28),
        "conv 3x3 stride 2": conv(32, 64, 3, 56, strides=[2, 2]),
        "conv 3x3 dilation 2": conv(32, 32, 3, 28, dilations=[2, 2]),
        "conv depthwise 3x3": conv(96, 96, 3, 28, group=96),
        "conv grouped 3x3": conv(128, 128, 3, 14, group=8),
        "conv 1-D": conv(64, 64, 5, 256, rank=1),
        "conv 3-D": conv(8, 16, 3, 14, rank=3),
        "conv transposed": Form(
            "ConvTranspose",
            (32, "height", "width"),
            (32, 32, 4, 4),
            32 * 4,
            channels=1,
            sizes={"height": 14, "width": 14},
            attrs={"strides": [2, 2], "pads": [1] * 4},
            keeps_sizes=False,
        ),
    }
)


def weights_bound(form: Form) -> float:
    """Bound of uniform weights whose products keep the variance of the data."""
    return math.sqrt(3 / form.depth)
