"""Detection, segmentation, OCR, pose, tracking and classification of images."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
import onnx
from onnx import TensorProto

from real.idioms import (
    INT64,
    arange,
    batch_norm,
    cast,
    const,
    conv,
    conv_bn_relu,
    cut,
    gemm,
    hard_swish,
    recurrent,
    reduce,
    reshape,
    silu,
    size,
    split,
    squeeze,
    unsqueeze,
)
from real.model import SCRIPT, Draw, Feeds, Model
from zoo.net import Net


def _image(draw: Draw, *shape: int) -> Feeds:
    return {"image": draw.floats(shape[0], 3, *shape[1:])}


def ssd_nms() -> onnx.ModelProto:
    """A single-shot detector of opset 11 with NonMaxSuppression, whose chosen boxes are gathered as torchvision does."""
    net = Net("ssd_nms", opset=11)
    image = net.input("image", ("batch", 3, "height", "width"))
    x = conv_bn_relu(net, image, 3, 16, "stem", stride=2)
    x = conv_bn_relu(net, x, 16, 32, "down", stride=2)
    x = conv_bn_relu(net, x, 32, 32, "features", stride=2)
    anchors, classes = 3, 4
    boxes = conv(net, x, 32, anchors * 4, "boxes")
    scores = conv(net, x, 32, anchors * classes, "scores")

    def rows(value: str, count: int) -> str:
        value = reshape(net, value, size(net, image, 0), anchors, count, size(net, x, 2), size(net, x, 3))
        value = net.node("Transpose", value, perm=[0, 3, 4, 1, 2])
        return reshape(net, value, size(net, image, 0), -1, count)

    boxes, scores = rows(boxes, 4), net.node("Softmax", rows(scores, classes), axis=2)
    # The grid of centers, by Range and Expand.
    down, across = cast(net, arange(net, size(net, x, 2))), cast(net, arange(net, size(net, x, 3)))
    grid = net.node("Concat", unsqueeze(net, size(net, x, 2), 0), unsqueeze(net, size(net, x, 3), 0), axis=0)
    ys = net.node("Expand", unsqueeze(net, down, 1), grid)
    xs = net.node("Expand", unsqueeze(net, across, 0), grid)
    centers = net.node("Concat", unsqueeze(net, ys, 2), unsqueeze(net, xs, 2), axis=2)
    centers = net.node("Mul", net.node("Add", centers, net.constant(0.5)), net.constant(8.0))
    centers = net.node("Reshape", net.node("Concat", centers, centers, centers, axis=2), net.shape(1, -1, 2))
    offset, extent = (cut(net, boxes, start, start + 2, 2) for start in (0, 2))
    middle = net.node("Add", centers, net.node("Mul", offset, net.constant(4.0)))
    half = net.node("Mul", net.node("Exp", net.node("Mul", extent, net.constant(0.2))), net.constant(6.0))
    corners = net.node("Concat", net.node("Sub", middle, half), net.node("Add", middle, half), axis=2)
    ranked = net.node("Transpose", cut(net, scores, 1, classes, 2), perm=[0, 2, 1])
    chosen = net.node("NonMaxSuppression", corners, ranked, net.constant([8], "int64"), net.constant([0.45]), net.constant([0.3]))
    batch_index = cut(net, chosen, 0, 1, 1)
    box_index = net.node("Squeeze", cut(net, chosen, 2, 3, 1), axes=[1])
    places = net.node("Concat", batch_index, unsqueeze(net, box_index, 1), axis=1)
    net.output(net.node("GatherND", corners, places), "boxes", ("found", 4))
    net.output(net.node("GatherND", ranked, chosen), "scores", ("found",))
    net.output(net.node("Squeeze", cut(net, chosen, 1, 2, 1), axes=[1]), "labels", ("found",), "int64")
    return net.build()


def yolo() -> onnx.ModelProto:
    """A YOLO: SPPF, two levels with nearest Resize by scales, decoding by Split, Pow and a grid of Range and Expand (opset 12)."""
    net = Net("yolo", opset=12)
    image = net.input("image", ("batch", 3, "height", "width"))

    def block(x: str, inputs: int, outputs: int, name: str, kernel: int = 3, stride: int = 1) -> str:
        return silu(net, conv(net, x, inputs, outputs, name, (kernel, kernel), stride))

    x = block(image, 3, 16, "p1", stride=2)
    x = block(x, 16, 32, "p2", stride=2)
    fine = block(x, 32, 32, "p3", stride=2)
    x = block(fine, 32, 32, "p4", stride=2)
    pools = [x]
    for _ in range(3):
        pools.append(net.node("MaxPool", pools[-1], kernel_shape=[5, 5], pads=[2] * 4, strides=[1, 1]))
    coarse = block(net.node("Concat", *pools, axis=1), 128, 32, "sppf", 1)
    larger = net.node(
        "Resize",
        coarse,
        const(net, [], "float32"),
        net.constant([1.0, 1.0, 2.0, 2.0]),
        mode="nearest",
        nearest_mode="floor",
        coordinate_transformation_mode="asymmetric",
    )
    fine = block(net.node("Concat", larger, fine, axis=1), 64, 32, "head3", 1)
    classes, anchors = 3, 2
    detections = []
    for level, (x, stride) in enumerate(((fine, 8.0), (coarse, 16.0))):
        y = conv(net, x, 32, anchors * (5 + classes), f"detect{level}", (1, 1))
        rows, columns = size(net, y, 2), size(net, y, 3)
        y = reshape(net, y, size(net, y, 0), anchors, 5 + classes, rows, columns)
        y = net.node("Sigmoid", net.node("Transpose", y, perm=[0, 1, 3, 4, 2]))
        center, extent, rest = split(net, y, [2, 2, 1 + classes], 4)
        grid = net.node("Concat", unsqueeze(net, rows, 0), unsqueeze(net, columns, 0), axis=0)
        ys = net.node("Expand", unsqueeze(net, cast(net, arange(net, rows)), 1), grid)
        xs = net.node("Expand", unsqueeze(net, cast(net, arange(net, columns)), 0), grid)
        offsets = net.node("Concat", unsqueeze(net, xs, 2), unsqueeze(net, ys, 2), axis=2)
        doubled = net.node("Sub", net.node("Mul", center, net.constant(2.0)), net.constant(0.5))
        center = net.node("Mul", net.node("Add", doubled, offsets), net.constant(stride))
        sizes = net.constant(np.array([[10, 14], [23, 27]], np.float32).reshape(1, 2, 1, 1, 2) * stride / 8)
        extent = net.node("Mul", net.node("Pow", net.node("Mul", extent, net.constant(2.0)), net.constant(2.0)), sizes)
        y = net.node("Concat", center, extent, rest, axis=4)
        detections.append(reshape(net, y, size(net, y, 0), -1, 5 + classes))
    net.output(net.node("Concat", *detections, axis=1), "detections", ("batch", "boxes", 5 + classes))
    return net.build()


def two_stage() -> onnx.ModelProto:
    """A region-based detector: TopK proposals, clipped boxes, RoiAlign and a second head (opset 16)."""
    net = Net("two_stage", opset=16)
    image = net.input("image", (1, 3, "height", "width"))
    x = conv_bn_relu(net, image, 3, 16, "stem", stride=2)
    x = conv_bn_relu(net, x, 16, 24, "features", stride=2)
    objectness = net.node("Flatten", conv(net, x, 24, 1, "objectness", (1, 1)), axis=1)
    deltas = net.node("Transpose", conv(net, x, 24, 4, "deltas", (1, 1)), perm=[0, 2, 3, 1])
    deltas = net.node("Reshape", deltas, net.shape(-1, 4))
    # As torchvision: min(limit, number of anchors), computed on shapes.
    box_count = unsqueeze(net, size(net, objectness, 1), 0)
    limit = net.node("Concat", net.constant([12], "int64"), box_count, axis=0)
    k = net.node("ReduceMin", limit, axes=[0], keepdims=1)
    _, order = net.nodes("TopK", objectness, k, results=2, axis=1, largest=1, sorted=1)
    order = squeeze(net, order, 0)
    chosen = net.node("Gather", deltas, order, axis=0)
    columns = size(net, x, 3)
    middle_y = cast(net, net.node("Div", order, columns))
    middle_x = cast(net, net.node("Mod", order, columns))
    centers = net.node("Concat", unsqueeze(net, middle_x, 1), unsqueeze(net, middle_y, 1), axis=1)
    offset, extent = split(net, chosen, [2, 2], 1)
    centers = net.node("Add", net.node("Mul", centers, net.constant(4.0)), offset)
    extent = net.node("Mul", net.node("Exp", net.node("Clip", extent, "", net.constant(4.0))), net.constant(8.0))
    low = net.node("Max", net.node("Sub", centers, extent), net.constant(0.0))
    boxes = net.node("Concat", low, net.node("Add", centers, extent), axis=1)
    count = size(net, boxes, 0)
    which = net.node("ConstantOfShape", unsqueeze(net, count, 0), value=onnx.helper.make_tensor("value", INT64, [1], [0]))
    regions = net.node(
        "RoiAlign", x, boxes, which, mode="avg", output_height=4, output_width=4, sampling_ratio=2, spatial_scale=0.25
    )
    y = net.node("Relu", gemm(net, net.node("Flatten", regions, axis=1), 24 * 16, 32, "fc"))
    net.output(net.node("Softmax", gemm(net, y, 32, 5, "classes"), axis=-1), "scores", ("regions", 5))
    net.output(boxes, "boxes", ("regions", 4))
    return net.build()


def unet() -> onnx.ModelProto:
    """Segmentation with skips, ConvTranspose, and Resize to a skip's size, as `F.interpolate(x, skip.shape[2:])` writes it."""
    net = Net("unet", opset=13)
    image = net.input("image", ("batch", 3, "height", "width"))
    skips, x, width = [], image, 3
    for level, channels in enumerate((8, 16, 24)):
        x = conv_bn_relu(net, x, width, channels, f"down{level}")
        skips.append((x, channels))
        x, width = net.node("MaxPool", x, kernel_shape=[2, 2], strides=[2, 2], ceil_mode=level % 2), channels
    x = conv_bn_relu(net, x, width, 32, "middle")
    width = 32
    for level, (skip, channels) in enumerate(reversed(skips)):
        if level == 0:
            weight = net.weight("up.weight", (width, channels, 2, 2), 0.2)
            x, width = net.node("ConvTranspose", x, weight, kernel_shape=[2, 2], strides=[2, 2]), channels
        target = cut(net, net.node("Shape", skip), 2, 4, 0)
        sizes = net.node("Concat", cut(net, net.node("Shape", x), 0, 2, 0), target, axis=0)
        x = net.node("Resize", x, "", "", sizes, mode="linear", coordinate_transformation_mode="pytorch_half_pixel")
        x = conv_bn_relu(net, net.node("Concat", x, skip, axis=1), width + channels, channels, f"up{level}")
        width = channels
    net.output(conv(net, x, 8, 4, "classes", (1, 1)), "logits", ("batch", 4, "height", "width"))
    return net.build()


def aspp() -> onnx.ModelProto:
    """Segmentation with dilated convolutions, an image pool that is resized from 1x1, and ArgMax (opset 11)."""
    net = Net("aspp", opset=11)
    image = net.input("image", ("batch", 3, "height", "width"))
    x = conv_bn_relu(net, image, 3, 16, "stem", stride=2)
    x = conv_bn_relu(net, x, 16, 24, "features", stride=2)
    parts = [net.node("Relu", conv(net, x, 24, 8, f"rate{rate}", (3, 3), dilation=rate)) for rate in (1, 2, 4)]
    pooled = net.node("Relu", conv(net, net.node("GlobalAveragePool", x), 24, 8, "pool", (1, 1)))

    def resized(value: str, reference: str, mode: str) -> str:
        sizes = net.node(
            "Concat", cut(net, net.node("Shape", value), 0, 2, 0), cut(net, net.node("Shape", reference), 2, 4, 0), axis=0
        )
        nothing = const(net, [], "float32")
        return net.node("Resize", value, nothing, nothing, sizes, mode=mode, coordinate_transformation_mode="align_corners")

    parts.append(resized(pooled, x, "linear"))
    x = net.node("Relu", conv(net, net.node("Concat", *parts, axis=1), 32, 16, "fuse", (1, 1)))
    logits = resized(conv(net, x, 16, 5, "classes", (1, 1)), image, "linear")
    net.output(logits, "logits", ("batch", 5, "height", "width"))
    net.output(net.node("ArgMax", logits, axis=1, keepdims=0), "labels", ("batch", "height", "width"), "int64")
    return net.build()


def crnn() -> onnx.ModelProto:
    """Text recognition: convolutions, a squeezed height, a bidirectional LSTM and greedy CTC decoding by Compress (opset 12)."""
    net = Net("crnn", opset=12)
    image = net.input("image", (1, 1, 16, "width"))
    x = conv_bn_relu(net, image, 1, 16, "conv0")
    x = net.node("MaxPool", x, kernel_shape=[2, 2], strides=[2, 2])
    x = conv_bn_relu(net, x, 16, 24, "conv1")
    x = net.node("MaxPool", x, kernel_shape=[8, 1], strides=[8, 1])
    x = net.node("Transpose", squeeze(net, x, 2), perm=[2, 0, 1])
    states = recurrent(net, "LSTM", x, 24, 16, "lstm", direction="bidirectional")[0]
    states = net.node("Transpose", states, perm=[0, 2, 1, 3])
    states = reshape(net, states, size(net, states, 0), size(net, states, 1), -1)
    logits = net.node("Add", net.node("MatMul", states, net.weight("head", (32, 12), 0.3)), net.weight("head.bias", (12,), 0.1))
    net.output(net.node("LogSoftmax", logits, axis=2), "log_probabilities", ("time", 1, 12))
    best = squeeze(net, net.node("ArgMax", logits, axis=2, keepdims=0), 1)
    before = net.node("Concat", const(net, [-1]), cut(net, best, 0, -1, 0), axis=0)
    changed = net.node("Not", net.node("Equal", best, before))
    letter_mask = net.node("And", changed, net.node("Greater", best, const(net, 0)))
    net.output(net.node("Compress", best, letter_mask, axis=0), "text", ("letters",), "int64")
    return net.build()


def pose() -> onnx.ModelProto:
    """Heat maps of joints and their decoding: ArgMax, Div and Mod, and a quarter step towards the larger neighbor (opset 13)."""
    net = Net("pose", opset=13)
    image = net.input("image", ("batch", 3, "height", "width"))
    x = conv_bn_relu(net, image, 3, 16, "stem", stride=2)
    x = conv_bn_relu(net, x, 16, 16, "features")
    joints = 5
    heat = conv(net, x, 16, joints, "heat")
    net.output(net.node("Identity", heat), "heatmaps", ("batch", joints, "rows", "columns"))
    columns = size(net, heat, 3)
    flat = reshape(net, heat, size(net, heat, 0), joints, -1)
    peak_index = net.node("ArgMax", flat, axis=2, keepdims=1)
    peak = reduce(net, "ReduceMax", flat, 2)
    right = net.node("Min", net.node("Add", peak_index, const(net, 1)), net.node("Sub", size(net, flat, 2), const(net, 1)))
    left = net.node("Max", net.node("Sub", peak_index, const(net, 1)), const(net, 0))
    slope = net.node("Sub", *(net.node("GatherElements", flat, each, axis=2) for each in (right, left)))
    x_position = net.node(
        "Add", cast(net, net.node("Mod", peak_index, columns)), net.node("Mul", net.node("Sign", slope), net.constant(0.25))
    )
    y_position = cast(net, net.node("Div", peak_index, columns))
    net.output(net.node("Concat", x_position, y_position, peak, axis=2), "joints", ("batch", joints, 3))
    return net.build()


def siamese() -> onnx.ModelProto:
    """Tracking: the features of a template are the kernel of a grouped convolution over those of the search region (opset 13)."""
    net = Net("siamese", opset=13)
    template = net.input("template", (1, 3, 32, 32))
    search = net.input("search", (1, 3, "height", "width"))
    weights = [net.weight(name, shape, 0.3) for name, shape in (("w0", (16, 3, 3, 3)), ("w1", (24, 16, 3, 3)))]

    def features(x: str) -> str:
        for weight in weights:
            x = net.node("Relu", net.node("Conv", x, weight, kernel_shape=[3, 3], strides=[2, 2]))
        return x

    kernel = net.node("Transpose", features(template), perm=[1, 0, 2, 3])
    response = net.node("Conv", features(search), kernel, group=24)
    response = conv(net, net.node("Mul", response, net.constant(0.05)), 24, 2, "head", (1, 1))
    net.output(net.node("Softmax", response, axis=1), "response", (1, 2, "rows", "columns"))
    score = net.node("Reshape", cut(net, response, 1, 2, 1), net.shape(-1))
    net.output(net.node("ArgMax", score, axis=0, keepdims=0), "place", (), "int64")
    return net.build()


def face_embedding() -> onnx.ModelProto:
    """A face descriptor: PRelu, depthwise convolutions, a global depthwise one, and L2 normalization by Clip and Expand."""
    net = Net("face_embedding", opset=14)
    x = net.input("image", ("batch", 3, 48, 48))

    def prelu(x: str, channels: int, name: str) -> str:
        return net.node(
            "PRelu", batch_norm(net, x, channels, f"{name}.bn"), net.weight(f"{name}.slope", (channels, 1, 1), 0.1, 0.25)
        )

    x = prelu(conv(net, x, 3, 16, "stem", stride=2), 16, "stem")
    for level in range(2):
        y = prelu(conv(net, x, 16, 32, f"expand{level}", (1, 1)), 32, f"expand{level}")
        y = prelu(conv(net, y, 32, 32, f"depth{level}", groups=32), 32, f"depth{level}")
        x = net.node("Add", x, batch_norm(net, conv(net, y, 32, 16, f"project{level}", (1, 1)), 16, f"project{level}.bn"))
    x = conv(net, x, 16, 16, "global", (24, 24), groups=16, preserve_size=False)
    x = gemm(net, net.node("Flatten", x, axis=1), 16, 32, "embedding")
    length = net.node("Clip", reduce(net, "ReduceL2", x, 1), net.constant(1e-12))
    net.output(net.node("Div", x, net.node("Expand", length, net.node("Shape", x))), "embedding_out", ("batch", 32))
    return net.build()


def mobilenet_v3() -> onnx.ModelProto:
    """A classifier with squeeze-and-excitation, hard swish and a Reshape by a shape chain, batch first (opset 11)."""
    net = Net("mobilenet_v3", opset=11)
    image = net.input("image", ("batch", 3, "height", "width"))
    x = hard_swish(net, conv(net, image, 3, 16, "stem", stride=2))
    for level, stride in enumerate((1, 2)):
        y = hard_swish(net, conv(net, x, 16, 48, f"expand{level}", (1, 1)))
        y = hard_swish(net, conv(net, y, 48, 48, f"depth{level}", (5, 5), stride, groups=48))
        gate = net.node("Relu", conv(net, net.node("GlobalAveragePool", y), 48, 12, f"squeeze{level}", (1, 1)))
        gate = net.node("HardSigmoid", conv(net, gate, 12, 48, f"excite{level}", (1, 1)), alpha=1 / 6, beta=0.5)
        y = conv(net, net.node("Mul", y, gate), 48, 16, f"project{level}", (1, 1))
        x = net.node("Add", x, y) if stride == 1 else y
    x = net.node("GlobalAveragePool", x)
    x = reshape(net, x, size(net, x, 0), -1)
    net.output(gemm(net, x, 16, 10, "classifier"), "logits", ("batch", 10))
    return net.build()


def optical_flow() -> onnx.ModelProto:
    """One frame warped to another by a predicted flow: GridSample over a grid of Range, Tile and a normalization (opset 16)."""
    net = Net("optical_flow", opset=16)
    pair = [net.input(name, (1, 3, "height", "width")) for name in ("first", "second")]
    x = net.node("Relu", conv(net, net.node("Concat", *pair, axis=1), 6, 16, "conv0"))
    flow = conv(net, x, 16, 2, "flow")
    rows, columns = size(net, flow, 2), size(net, flow, 3)
    one = const(net, [1])
    ys = net.node(
        "Tile", unsqueeze(net, cast(net, arange(net, rows)), 1), net.node("Concat", one, unsqueeze(net, columns, 0), axis=0)
    )
    xs = net.node(
        "Tile", unsqueeze(net, cast(net, arange(net, columns)), 0), net.node("Concat", unsqueeze(net, rows, 0), one, axis=0)
    )
    places = []
    for index, (base, count) in enumerate(((xs, columns), (ys, rows))):
        moved = net.node("Add", base, net.node("Gather", flow, const(net, index), axis=1))
        last = net.node("Sub", cast(net, count), net.constant(1.0))
        places.append(net.node("Sub", net.node("Div", net.node("Mul", moved, net.constant(2.0)), last), net.constant(1.0)))
    grid = net.node("Concat", *(unsqueeze(net, coordinate, 3) for coordinate in places), axis=3)
    warped = net.node("GridSample", pair[1], grid, mode="bilinear", padding_mode="border", align_corners=1)
    net.output(warped, "warped", (1, 3, "height", "width"))
    return net.build()


def point_cloud() -> onnx.ModelProto:
    """Points with their k nearest neighbors: a distance matrix, TopK, gathered edges, and maxima (opset 13)."""
    net = Net("point_cloud", opset=13)
    points = net.input("points", ("batch", "points", 3))
    square = reduce(net, "ReduceSum", net.node("Mul", points, points), 2)
    products = net.node("MatMul", points, net.node("Transpose", points, perm=[0, 2, 1]))
    distance = net.node("Sub", net.node("Mul", products, net.constant(2.0)), square)
    distance = net.node("Sub", distance, net.node("Transpose", square, perm=[0, 2, 1]))
    _, nearest = net.nodes("TopK", distance, net.constant([4], "int64"), results=2, axis=-1)
    batch, count = size(net, points, 0), size(net, points, 1)
    first = net.node("Mul", arange(net, batch), count)
    flat = net.node("Reshape", net.node("Add", nearest, unsqueeze(net, first, 1, 2)), net.shape(-1))
    gathered = net.node("Gather", net.node("Reshape", points, net.shape(-1, 3)), flat, axis=0)
    edges = reshape(net, gathered, batch, count, 4, 3)
    center = unsqueeze(net, points, 2)
    x = net.node("Concat", net.node("Sub", edges, center), net.node("Expand", center, net.node("Shape", edges)), axis=3)
    x = net.node("LeakyRelu", net.node("MatMul", x, net.weight("edge", (6, 16), 0.7)), alpha=0.2)
    x = reduce(net, "ReduceMax", x, 2, keep=0)
    x = net.node("Relu", net.node("MatMul", x, net.weight("point", (16, 32), 0.4)))
    net.output(gemm(net, reduce(net, "ReduceMax", x, 1, keep=0), 32, 4, "classes"), "logits", ("batch", 4))
    return net.build()


def document_orientation() -> onnx.ModelProto:
    """A classifier written by Paddle's exporter: a flattened pool, MatMul and Add, Cast of sizes to int32 and back (opset 11)."""
    net = Net("document_orientation", opset=11)
    image = net.input("image", ("batch", 3, "height", "width"))
    x = conv_bn_relu(net, image, 3, 16, "stem", stride=2)
    x = net.node("AveragePool", x, kernel_shape=[3, 3], pads=[1] * 4, strides=[2, 2], count_include_pad=0, ceil_mode=0)
    x = conv_bn_relu(net, x, 16, 24, "features", groups=8)
    x = net.node("GlobalAveragePool", x)
    sizes = cast(net, net.node("Shape", x), TensorProto.INT32)
    batch = net.node("Slice", sizes, const(net, [0]), const(net, [1]), const(net, [0]))
    target = cast(net, net.node("Concat", batch, const(net, [24], "int32"), axis=0), INT64)
    x = net.node("Reshape", x, target)
    x = net.node("Add", net.node("MatMul", x, net.weight("fc", (24, 4), 0.4)), net.weight("fc.bias", (4,), 0.1))
    net.output(net.node("Softmax", x, axis=1), "probabilities", ("batch", 4))
    return net.build()


def models() -> Iterable[Model]:
    """The entries of this file."""
    images = ((1, 64, 64), (1, 48, 80), (2, 96, 64))
    for name, domain, load, sizes in (
        ("ssd_nms", "detection", ssd_nms, images),
        ("yolo", "detection", yolo, images),
        ("two_stage", "detection", two_stage, ((1, 32, 32), (1, 64, 48), (1, 8, 8))),
        ("unet", "segmentation", unet, ((1, 64, 64), (2, 40, 56), (1, 35, 29))),
        ("aspp", "segmentation", aspp, ((1, 64, 64), (2, 33, 50), (1, 17, 96))),
        ("pose", "pose", pose, images),
        ("mobilenet_v3", "classification", mobilenet_v3, ((1, 64, 64), (3, 32, 48), (1, 5, 7))),
        ("document_orientation", "OCR", document_orientation, ((1, 64, 64), (4, 24, 96))),
    ):
        yield Model(name, domain, SCRIPT, load, _image, sizes)
    yield Model(
        "face_embedding", "face recognition", SCRIPT, face_embedding, lambda draw, n: _image(draw, n, 48, 48), ((1,), (2,), (5,))
    )
    yield Model("crnn", "OCR", SCRIPT, crnn, lambda draw, w: {"image": draw.floats(1, 1, 16, w)}, ((64,), (100,), (6,)))
    yield Model(
        "siamese",
        "tracking",
        SCRIPT,
        siamese,
        lambda draw, h, w: {"template": draw.floats(1, 3, 32, 32), "search": draw.floats(1, 3, h, w)},
        ((64, 64), (72, 48), (32, 32)),
    )
    yield Model(
        "optical_flow",
        "video",
        SCRIPT,
        optical_flow,
        lambda draw, h, w: {name: draw.floats(1, 3, h, w) for name in ("first", "second")},
        ((32, 32), (24, 40), (2, 3)),
    )
    yield Model(
        "point_cloud",
        "point clouds",
        SCRIPT,
        point_cloud,
        lambda draw, n, p: {"points": draw.floats(n, p, 3)},
        ((1, 64), (2, 30), (3, 4)),
    )
