"""Listed rows of part 5: windows, layouts and element-wise operators."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import partial

import onnx

from variants.axes import SHAPES, STATIC, SYMBOLIC, SYMBOLIC_LIMIT
from variants.operators import row_of
from variants.row import LISTED, Row, Sibling, beside, listed
from zoo.net import Net, Size

OPERATORS = {
    "3-D max pool": "3-D max pool",
    "3-D average pool": "3-D average pool",
    "softmax of channels between Transposes": "softmax between transposes",
    "NCHW to NHWC of 3 channels": "3 channels last",
    "Mish": "mish",
    "‖a − b‖ of rows": "distance",
    "linear Resize": "linear doubled",
    "TopK of 300": "largest 300",
    "fmod, quotients to 99": "fmod",
    "fmod, quotients to 2^31": "fmod",
}
"""Names of the generated operators, by listed row."""
RANGES = {"fmod, quotients to 2^31": {"x": (-2e9, 2e9), "z": (1.0, 9.0)}}


def rows() -> Iterator[Row]:
    """Yield the rows, static and symbolic."""
    for name, operator in OPERATORS.items():
        for shape in SHAPES:
            row = row_of({"type": "float32", "operator": operator, "shape": shape, "batch": "batch 1"})
            row = replace(row, name=LISTED + _name(name, shape), part=5, listed=True, sibling=_sibling(name, shape))
            yield replace(row, ranges=RANGES.get(name, row.ranges))
    for shape in SHAPES:
        sizes = {"rows": 64} if shape == SYMBOLIC else {}
        build = partial(_topk, "rows" if sizes else 64)
        yield listed(5, _name("TopK of 1,000 of 4,096", shape), build, _sibling("TopK of 1,000 of 4,096", shape), sizes=sizes)


def _name(name: str, shape: str) -> str:
    return name if shape == STATIC else f"{name}, symbolic"


def _sibling(name: str, shape: str) -> Sibling | None:
    return None if shape == STATIC else beside(name, "symbolic by static", SYMBOLIC_LIMIT)


def _topk(length: Size) -> onnx.ModelProto:
    net = Net("variant")
    values, _ = net.nodes("TopK", net.input("x", (length, 4096)), net.shape(1000), results=2)
    net.output(values, "y", (length, 1000))
    return net.build()
