"""A detector of objects of one stage, with what follows the network: boxes, the best of them, and no two of one object."""

from __future__ import annotations

from dataclasses import dataclass

import onnx

from zoo.layers import axis_size, conv
from zoo.net import Net, Size


@dataclass(frozen=True)
class Detector:
    """A backbone of inverted residuals, and one level of boxes without anchors (after Tian et al., 2019). `stages`: channels,
    blocks; each halves height and width, the stem besides. `best` boxes go to non-maximum suppression, which keeps
    `boxes_per_class`."""

    stem: int = 16
    stages: tuple[tuple[int, int], ...] = ((24, 2), (40, 2), (96, 3))
    head: int = 96
    classes: int = 20
    best: int = 100
    boxes_per_class: int = 10
    image: int = 256


TINY_DETECTOR = Detector(stem=8, stages=((8, 1), (12, 1)), head=8, classes=3, best=20, boxes_per_class=4, image=64)


def detector(config: Detector = Detector(), height: Size = 0, width: Size = 0) -> onnx.ModelProto:
    """float32 [1, 3, height, width] → boxes [n, 4] as y and x of two corners in pixels, their scores [n] and int64 classes [n];
    0 is the configuration's size."""
    net = Net("detector")
    x = conv(
        net,
        net.input("image", (1, 3, height or config.image, width or config.image)),
        3,
        config.stem,
        "stem",
        3,
        2,
        activation="Relu",
    )
    channels = config.stem
    for stage, (outputs, blocks) in enumerate(config.stages):
        for block in range(blocks):
            with net.scope(f"stage{stage}.block{block}"):
                inner, stride = 4 * channels, 2 if block == 0 else 1
                y = conv(net, x, channels, inner, "expand", activation="Relu")
                y = conv(net, y, inner, inner, "depthwise", 3, stride, inner, activation="Relu")
                y = conv(net, y, inner, outputs, "project")
                x = net.node("Add", x, y) if stride == 1 and channels == outputs else y
            channels = outputs
    x = conv(net, x, channels, config.head, "head", 3, activation="Relu")
    scores = _rows(net, net.node("Sigmoid", conv(net, x, config.head, config.classes, "scores")), config.classes)
    sides = _rows(net, net.node("Exp", conv(net, x, config.head, 4, "sides")), 4)
    boxes = _boxes(net, x, sides, 2 << len(config.stages))
    best = net.node("ReduceMax", scores, axes=[2], keepdims=0)
    _, chosen = net.nodes("TopK", best, net.constant([config.best], "int64"), results=2, axis=1)
    chosen = net.node("Squeeze", chosen, net.constant([0], "int64"))
    boxes, scores = (net.node("Gather", item, chosen, axis=1) for item in (boxes, scores))
    by_class = net.node("Transpose", scores, perm=[0, 2, 1])
    limits = (net.constant([config.boxes_per_class], "int64"), net.constant([0.5]), net.constant([0.5]))
    selection = net.node("NonMaxSuppression", boxes, by_class, *limits)
    _, classes, places = (net.node("Gather", selection, net.constant(column, "int64"), axis=1) for column in range(3))
    net.output(net.node("Gather", net.node("Squeeze", boxes, net.constant([0], "int64")), places), "boxes", ("n", 4))
    net.output(net.node("GatherND", by_class, selection), "scores", ("n",))
    net.output(net.node("Identity", classes), "classes", ("n",), "int64")
    return net.build()


def _rows(net: Net, x: str, channels: int) -> str:
    """[1, channels, height, width] → [1, height · width, channels]."""
    return net.node("Transpose", net.node("Reshape", x, net.shape(0, channels, -1)), perm=[0, 2, 1])


def _boxes(net: Net, x: str, sides: str, stride: int) -> str:
    """Boxes [1, height · width, 4] around the middles of the cells of an image `x`, from the distances of their sides in cells."""
    zero, one = net.constant(0, "int64"), net.constant(1, "int64")
    axes = []
    for axis, new_axis in ((2, 1), (3, 0)):
        length = net.node("Squeeze", axis_size(net, x, axis), net.constant([0], "int64"))
        cells = net.node("Cast", net.node("Range", zero, length, one), to=onnx.TensorProto.FLOAT)
        axes.append(net.node("Unsqueeze", cells, net.constant([new_axis], "int64")))
    both = net.node("Concat", axis_size(net, x, 2), axis_size(net, x, 3), axis=0)
    planes = [net.node("Reshape", net.node("Expand", item, both), net.shape(1, -1, 1)) for item in axes]
    middles = net.node("Add", net.node("Concat", *planes, axis=2), net.constant(0.5))
    first, second = net.nodes("Split", sides, net.constant([2, 2], "int64"), results=2, axis=2)
    corners = (net.node("Sub", middles, first), net.node("Add", middles, second))
    return net.node("Mul", net.node("Concat", *corners, axis=2), net.constant(float(stride)))
