"""The generated rows of operators that are no products: type × operator × shape × batch."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from types import MappingProxyType

import onnx

from variants.axes import BATCHES, SHAPES, SYMBOLIC, Axes, Point, batch_of, chosen_sibling, generated, name_of, siblings, stays
from variants.element_types import converted
from variants.epilogues import ACTIVATIONS
from variants.generated import TYPES_WITHOUT
from variants.row import Row, unknown_sizes
from zoo.net import Net, Size

Shape = tuple[Size, ...]
HALVES = ("float32", "float16")
FLOATS = (*HALVES, "float64")
NUMBERS = (*FLOATS, "int64")
BYTES = ("int8", "uint8")
WIDTH = 768


@dataclass(frozen=True)
class Operator:
    """A few nodes on `x`, of `shape` behind the batch, in which `sizes` names what may be symbolic. `types` are what ONNX Runtime
    has them for, `result` the element type of the result where it is not that of `x`."""

    build: Callable[[Net, str, Shape], str]
    types: tuple[str, ...]
    shape: Shape = ("rows", WIDTH)
    sizes: Mapping[str, int] = field(default_factory=lambda: {"rows": 128})
    result: str = ""
    ranges: Mapping[str, tuple[float, float]] = field(default_factory=dict)


def _node(op: str, **attrs: object) -> Callable[[Net, str, Shape], str]:
    return lambda net, x, shape: net.node(op, x, **attrs)


def _binary(op: str, **attrs: object) -> Callable[[Net, str, Shape], str]:
    return lambda net, x, shape: net.node(op, x, net.input("z", shape), **attrs)


def _with_shape(op: str, *values: int, **attrs: object) -> Callable[[Net, str, Shape], str]:
    """A node whose second operand is a constant of int64."""
    return lambda net, x, shape: net.node(op, x, net.shape(*values), **attrs)


def _largest(net: Net, x: str, shape: Shape) -> str:
    return net.nodes("TopK", x, net.shape(300), results=2)[0]


def _larger(net: Net, x: str, shape: Shape) -> str:
    z = net.input("z", shape)
    return net.node("Where", net.node("Greater", x, z), x, z)


def distance(net: Net, x: str, shape: Shape) -> str:
    """Lengths of the differences of rows."""
    difference = net.node("Sub", x, net.input("z", shape))
    return net.node("Sqrt", net.node("ReduceSum", net.node("Mul", difference, difference), net.shape(-1)))


def softmax_between_transposes(net: Net, x: str, shape: Shape) -> str:
    """Softmax over channels as exporters write it that lack the axis."""
    return net.node("Transpose", net.node("Softmax", net.node("Transpose", x, perm=[0, 2, 3, 1]), axis=-1), perm=[0, 3, 1, 2])


def _doubled(mode: str, coordinates: str) -> Callable[[Net, str, Shape], str]:
    def build(net: Net, x: str, shape: Shape) -> str:
        scales = net.node("Constant", value_floats=[1.0, 1.0, 2.0, 2.0])  # stays float32 where the model is converted
        return net.node("Resize", x, "", scales, mode=mode, coordinate_transformation_mode=coordinates, nearest_mode="floor")

    return build


def _operators() -> Iterator[tuple[str, Operator]]:
    for name, activation in ACTIVATIONS.items():
        types = HALVES if name in TYPES_WITHOUT["float64"] else FLOATS
        yield name, Operator(lambda net, x, shape, add=activation: add(net, x), types)
    for op in ("Add", "Mul", "Max"):
        yield op.lower(), Operator(_binary(op), (*NUMBERS, *BYTES))
    yield "add of a row", Operator(lambda net, x, shape: net.node("Add", x, net.weight("row", (WIDTH,), 0.5)), (*NUMBERS, *BYTES))
    yield "fmod", Operator(_binary("Mod", fmod=1), FLOATS, ranges={"x": (-99, 99), "z": (1, 9)})
    yield "mod", Operator(_binary("Mod"), ("int64",), ranges={"x": (-99, 99), "z": (1, 9)})
    yield "larger", Operator(_larger, NUMBERS)
    yield "softmax of rows", Operator(_node("Softmax", axis=-1), FLOATS)
    yield "sum of rows", Operator(_with_shape("ReduceSum", -1), NUMBERS)
    yield "sum of columns", Operator(_with_shape("ReduceSum", 1), NUMBERS)
    yield "greatest of columns", Operator(_node("ReduceMax", axes=[1]), (*NUMBERS, *BYTES))
    yield "index of the greatest", Operator(_node("ArgMax", axis=-1), (*FLOATS, *BYTES), result="int64")
    yield "distance", Operator(distance, FLOATS)
    yield "running sum", Operator(lambda net, x, shape: net.node("CumSum", x, net.constant(1, "int64")), NUMBERS)
    yield "largest 300", Operator(_largest, ("float32", "float64", "int64"))
    yield "transpose of rows", Operator(_node("Transpose", perm=[0, 2, 1]), (*NUMBERS, *BYTES, "bool"))
    yield "some rows", Operator(lambda net, x, shape: net.node("Gather", x, net.shape(5, 2, 9), axis=1), (*NUMBERS, *BYTES, "bool"))
    layer = partial(Operator, shape=(64, "height", "width"), sizes={"height": 56, "width": 56})
    picture = partial(Operator, shape=(3, "height", "width"), sizes={"height": 224, "width": 224})
    solid = partial(Operator, shape=(16, "depth", "height", "width"), sizes={"depth": 16, "height": 16, "width": 16})
    yield "softmax of channels", layer(_node("Softmax", axis=1), FLOATS)
    yield "softmax between transposes", layer(softmax_between_transposes, FLOATS)
    yield "64 channels last", layer(_node("Transpose", perm=[0, 2, 3, 1]), (*NUMBERS, *BYTES, "bool"))
    yield "3 channels last", picture(_node("Transpose", perm=[0, 2, 3, 1]), (*NUMBERS, *BYTES, "bool"))
    pooled = {"kernel_shape": [3, 3], "strides": [2, 2], "pads": [1] * 4}
    yield "max pool", layer(_node("MaxPool", **pooled), (*FLOATS, *BYTES))
    yield "average pool", layer(_node("AveragePool", **pooled), HALVES)
    yield "mean of images", layer(_node("GlobalAveragePool"), HALVES)
    yield "nearest doubled", layer(_doubled("nearest", "asymmetric"), (*HALVES, *BYTES))
    yield "linear doubled", layer(_doubled("linear", "half_pixel"), (*HALVES, "uint8"))
    cubes = {"kernel_shape": [2] * 3, "strides": [2] * 3}
    yield "3-D max pool", solid(_node("MaxPool", **cubes), FLOATS)
    yield "3-D average pool", solid(_node("AveragePool", **cubes), HALVES)


OPERATORS: Mapping[str, Operator] = MappingProxyType(dict(_operators()))
AXES: Axes = MappingProxyType(
    {
        "type": tuple(dict.fromkeys(kind for operator in OPERATORS.values() for kind in operator.types)),
        "operator": tuple(OPERATORS),
        "shape": SHAPES,
        "batch": BATCHES,
    }
)
ONE_OF = 5
"""Number of rows of which the hash of the name keeps one."""


def impossible(point: Point) -> str:
    """Return why a point is no row, or ""."""
    return "" if point["type"] in OPERATORS[point["operator"]].types else f"ONNX Runtime has no such operator of {point['type']}"


def _possible(point: Point) -> bool:
    return not impossible(point)


def operator_points() -> Iterator[Row]:
    """Yield every possible row, before thinning."""
    return generated(AXES, _possible, row_of)


def thinned() -> Iterator[Row]:
    """Yield the rows that stay."""
    return (row for row in operator_points() if stays(row.name, ONE_OF))


def row_of(point: Point) -> Row:
    """Describe the row of a point."""
    operator = OPERATORS[point["operator"]]
    name, is_byte = name_of(point), point["type"] in BYTES
    return Row(
        name,
        5 if point["type"] == "float32" else 2,
        partial(model_of, point),
        sizes={"batch": batch_of(point), **operator.sizes} if point["shape"] == SYMBOLIC else {},
        ranges=operator.ranges,
        sibling=chosen_sibling(name, siblings(point, _possible)),
        levels=1 if is_byte and "linear" in point["operator"] else 0,
    )


def model_of(point: Point) -> onnx.ModelProto:
    """Build the model of a point."""
    operator, is_symbolic = OPERATORS[point["operator"]], point["shape"] == SYMBOLIC
    batch: Size = "batch" if is_symbolic else batch_of(point)
    sizes: Mapping[str, Size] = {} if is_symbolic else operator.sizes
    shape = (batch, *(sizes.get(size, size) if isinstance(size, str) else size for size in operator.shape))
    net = Net("variant")
    y = operator.build(net, net.input("x", shape), shape)
    net.output(y, "y", unknown_sizes(len(shape)), operator.result or "float32")
    model = net.build()
    return model if point["type"] == "float32" else converted(model, point["type"])
