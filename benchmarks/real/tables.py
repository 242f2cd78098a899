"""Recommenders, tree ensembles, graphs of nodes and edges, and classifiers in 8 bits."""

from __future__ import annotations

import logging
import tempfile
from collections.abc import Callable, Iterable
from functools import partial
from pathlib import Path

import numpy as np
import onnx
from onnx import TensorProto

from real.idioms import cast, const, conv, gemm, reduce, shape, size, unsqueeze
from real.model import SCRIPT, Draw, Feeds, Model
from real.speech import dscnn
from zoo.net import Net


def dlrm() -> onnx.ModelProto:
    """A recommender: embeddings of categories, products of all pairs picked by GatherND, a network on top (opset 12)."""
    net = Net("dlrm", opset=12)
    numbers, categories = net.input("numbers", ("batch", 6)), net.input("categories", ("batch", 4), "int64")
    dense = net.node("Relu", gemm(net, net.node("Relu", gemm(net, numbers, 6, 16, "bottom0")), 16, 8, "bottom1"))
    rows = [unsqueeze(net, dense, 1)]
    for index, count in enumerate((50, 20, 10, 30)):
        ids = net.node("Gather", categories, const(net, index), axis=1)
        rows.append(unsqueeze(net, net.node("Gather", net.weight(f"table{index}", (count, 8), 0.7), ids, axis=0), 1))
    x = net.node("Concat", *rows, axis=1)
    products = net.node("MatMul", x, net.node("Transpose", x, perm=[0, 2, 1]))
    pairs = np.stack(np.tril_indices(5, -1), 1).astype(np.int64)
    chosen = net.node("GatherND", net.node("Transpose", products, perm=[1, 2, 0]), net.constant(pairs, "int64"))
    x = net.node("Concat", dense, net.node("Transpose", chosen, perm=[1, 0]), axis=1)
    x = net.node("Relu", gemm(net, x, 8 + len(pairs), 16, "top0"))
    net.output(net.node("Sigmoid", gemm(net, x, 16, 1, "top1")), "probability", ("batch", 1))
    return net.build()


def two_tower() -> onnx.ModelProto:
    """A retriever: a history averaged under a mask, cosines to all items, and as many of the best as asked for (opset 13)."""
    net = Net("two_tower", opset=13)
    history = net.input("history", ("batch", "length"), "int64")
    k = net.input("k", (1,), "int64")
    items = net.weight("items", (60, 12), 1.0)
    history_mask = cast(net, net.node("Greater", history, const(net, 0)))
    total = net.node("MatMul", unsqueeze(net, history_mask, 1), net.node("Gather", items, history, axis=0))
    count = net.node("Max", unsqueeze(net, reduce(net, "ReduceSum", history_mask, 1), 2), net.constant(1.0))
    user = net.node("Squeeze", net.node("Div", total, count), net.constant([1], "int64"))
    user = net.node("Tanh", gemm(net, user, 12, 12, "user"))
    user, table = (net.node("LpNormalization", part, axis=1, p=2) for part in (user, items))
    scores = net.node("MatMul", user, net.node("Transpose", table, perm=[1, 0]))
    best, chosen = net.nodes("TopK", scores, k, results=2, axis=1)
    net.output(best, "scores", ("batch", "k"))
    net.output(chosen, "items_out", ("batch", "k"), "int64")
    return net.build()


def messages() -> onnx.ModelProto:
    """Two layers of message passing over edges: Gather, ScatterElements that adds, degrees, and a mean (opset 18)."""
    net = Net("messages", opset=18)
    nodes = net.input("nodes", ("nodes", 8))
    edges = net.input("edges", (2, "edges"), "int64")
    source, target = (net.node("Gather", edges, const(net, index), axis=0) for index in (0, 1))
    ones = net.node(
        "ConstantOfShape", net.node("Shape", target), value=onnx.helper.make_tensor("value", TensorProto.FLOAT, [1], [1.0])
    )
    zeros = net.node(
        "ConstantOfShape", shape(net, size(net, nodes, 0)), value=onnx.helper.make_tensor("value", TensorProto.FLOAT, [1], [0.0])
    )
    degree = net.node("ScatterElements", zeros, target, ones, axis=0, reduction="add")
    scale = unsqueeze(net, net.node("Reciprocal", net.node("Max", degree, net.constant(1.0))), 1)
    x = nodes
    for level in range(2):
        sent = net.node("Gather", net.node("MatMul", x, net.weight(f"send{level}", (8, 8), 0.5)), source, axis=0)
        empty = net.node("Mul", x, net.constant(0.0))
        places = net.node("Expand", unsqueeze(net, target, 1), net.node("Shape", sent))
        received = net.node("ScatterElements", empty, places, sent, axis=0, reduction="add")
        self_message = net.node("MatMul", x, net.weight(f"own{level}", (8, 8), 0.5))
        x = net.node("Relu", net.node("Add", self_message, net.node("Mul", received, scale)))
    net.output(gemm(net, reduce(net, "ReduceMean", x, 0), 8, 3, "classes"), "logits", (1, 3))
    return net.build()


def forest(learning: int) -> onnx.ModelProto:
    """Scaled features and a tree ensemble: a regressor of ai.onnx.ml 3, with a missing value's branch (opset 15)."""
    net = Net("forest", opset=15, learning=learning)
    x = net.input("x", ("rows", 5))
    x = net.node("Scaler", x, domain="ai.onnx.ml", offset=[0.1] * 5, scale=[2.0, 1.0, 0.5, 1.0, 3.0])
    random = np.random.Generator(np.random.PCG64(7))
    trees, depth = 6, 4
    attrs: dict[str, list[float]] = {key: [] for key in ("tree", "node", "feature", "value", "yes", "no", "mode", "missing")}
    leaves: list[tuple[int, int, float]] = []
    for tree in range(trees):
        for node in range(2 ** (depth + 1) - 1):
            inner = node < 2**depth - 1
            threshold = float(np.float32(random.random() * 2 - 1))
            row = (
                tree,
                node,
                int(random.random() * 5),
                threshold,
                2 * node + 1,
                2 * node + 2,
                "BRANCH_LEQ",
                int(random.random() * 2),
            )
            rest = row if inner else (tree, node, 0, 0.0, 0, 0, "LEAF", 0)
            for key, value in zip(attrs, rest, strict=True):
                attrs[key].append(value)
            if not inner:
                leaves.append((tree, node, float(np.float32(random.random() - 0.5))))
    y = net.node(
        "TreeEnsembleRegressor",
        x,
        domain="ai.onnx.ml",
        n_targets=1,
        aggregate_function="SUM",
        base_values=[0.25],
        nodes_treeids=attrs["tree"],
        nodes_nodeids=attrs["node"],
        nodes_featureids=attrs["feature"],
        nodes_values=attrs["value"],
        nodes_truenodeids=attrs["yes"],
        nodes_falsenodeids=attrs["no"],
        nodes_modes=attrs["mode"],
        nodes_missing_value_tracks_true=attrs["missing"],
        target_treeids=[leaf[0] for leaf in leaves],
        target_nodeids=[leaf[1] for leaf in leaves],
        target_ids=[0] * len(leaves),
        target_weights=[leaf[2] for leaf in leaves],
    )
    net.output(y, "y", ("rows", 1))
    return net.build()


def image_classifier() -> onnx.ModelProto:
    """A small residual network, to be quantized."""
    net = Net("image_classifier", opset=13)
    image = net.input("image", ("batch", 3, "height", "width"))
    x = net.node("Relu", conv(net, image, 3, 16, "stem", stride=2))
    y = net.node("Relu", conv(net, x, 16, 16, "block.0"))
    x = net.node("Relu", net.node("Add", x, conv(net, y, 16, 16, "block.1")))
    x = net.node("MaxPool", x, kernel_shape=[2, 2], strides=[2, 2])
    x = net.node("Flatten", net.node("GlobalAveragePool", conv(net, x, 16, 24, "head")), axis=1)
    net.output(gemm(net, x, 24, 10, "classifier"), "logits", ("batch", 10))
    return net.build()


def quantized(build: Callable[[], onnx.ModelProto], feeds: Callable[[Draw], Feeds], operators: bool) -> onnx.ModelProto:
    """The model in 8 bits by ONNX Runtime's quantizer: QDQ, or where `operators`, the QOperator form."""
    from onnxruntime.quantization import CalibrationDataReader, QuantFormat, QuantType, quantize_static

    class Reader(CalibrationDataReader):  # type: ignore[misc]
        def __init__(self) -> None:
            self._rest = iter([feeds(Draw(seed)) for seed in range(4)])

        def get_next(self) -> Feeds | None:
            return next(self._rest, None)

    logging.disable(logging.WARNING)  # its advice to fold constants first, at every call
    with tempfile.TemporaryDirectory() as folder:
        source, target = Path(folder) / "float.onnx", Path(folder) / "int8.onnx"
        onnx.save(build(), source)
        quantize_static(
            source,
            target,
            Reader(),
            quant_format=QuantFormat.QOperator if operators else QuantFormat.QDQ,
            op_types_to_quantize=["Conv"] if operators else None,  # the others become operators of com.microsoft
            reduce_range=operators,  # products of 7-bit weights saturate on no host
            per_channel=not operators,
            weight_type=QuantType.QInt8,
            activation_type=QuantType.QUInt8,
        )
        return onnx.load(target)


def models() -> Iterable[Model]:
    """The entries of this file."""

    def picture(draw: Draw, n: int, h: int, w: int) -> Feeds:
        return {"image": draw.floats(n, 3, h, w)}

    def sound(draw: Draw, n: int) -> Feeds:
        return {"mfcc": draw.floats(n, 1, 49, 10)}

    def mixed(draw: Draw, n: int) -> Feeds:
        return {"numbers": draw.floats(n, 6), "categories": draw.tokens(10, n, 4)}

    def visits(draw: Draw, n: int, t: int, k: int) -> Feeds:
        return {"history": draw.tokens(60, n, t), "k": np.array([k])}

    def graph(draw: Draw, n: int, e: int) -> Feeds:
        return {"nodes": draw.floats(n, 8), "edges": draw.tokens(n, 2, e)}

    def missing(draw: Draw, n: int) -> Feeds:
        x = draw.floats(n, 5)
        x[draw.floats(n, 5) > 0.8] = np.nan
        return {"x": x}

    calibration = partial(picture, n=2, h=32, w=32)
    pictures = ((1, 32, 32), (2, 40, 24), (1, 7, 5))
    rows: tuple[tuple[str, str, Callable[[], onnx.ModelProto], Callable[..., Feeds], tuple[tuple[int, ...], ...]], ...] = (
        ("dlrm", "recommender", dlrm, mixed, ((1,), (8,), (100,))),
        ("two_tower", "recommender", two_tower, visits, ((1, 10, 5), (3, 20, 1), (2, 1, 60))),
        ("messages", "graphs", messages, graph, ((10, 30), (4, 1), (50, 200))),
        ("forest", "tree ensembles", lambda: forest(3), missing, ((1,), (20,), (300,))),
        ("image_qdq", "classification", partial(quantized, image_classifier, calibration, False), picture, pictures),
        ("image_qoperator", "classification", partial(quantized, image_classifier, calibration, True), picture, pictures),
        ("dscnn_qdq", "keyword spotting", partial(quantized, dscnn, partial(sound, n=4), False), sound, ((1,), (3,))),
    )
    for name, domain, load, feeds, sizes in rows:
        yield Model(name, domain, SCRIPT, load, feeds, sizes)
