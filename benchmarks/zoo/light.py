"""The light models of the onnx package with weights.

Their files carry only the shapes of the weights, and nodes that fill them with one number. With all weights equal every channel of
a layer is the same: mistakes between channels do not show, and equal weights can be stored once, which no real model allows. Here
the same networks get seeded weights, of a size that keeps activations alike through the layers.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
import onnx
from onnx import helper, numpy_helper

from zoo.net import Array, Net, Size

FOLDER = Path(onnx.__file__).parent / "backend" / "test" / "data" / "light"
IMAGE = ("batch", 3, "height", "width")
"""Symbolic input of networks that end in a pooling window over the whole image."""


def light(name: str, shape: Sequence[Size] = ()) -> onnx.ModelProto:
    """A light model whose weights are initializers of seeded numbers. `shape`: of its input, with symbolic sizes, in place of the
    file's."""
    model = onnx.load(FOLDER / f"light_{name}.onnx")
    graph = model.graph
    stored = {item.name: item for item in graph.initializer}
    read: dict[str, tuple[onnx.NodeProto, int]] = {}
    for node in graph.node:
        for position, name_read in enumerate(node.input):
            read.setdefault(name_read, (node, position))
    net = Net(name)
    weights, nodes, shape_names = [], [], set()
    for node in graph.node:
        if node.op_type == "ConstantOfShape" and node.input[0] in stored and node.output[0] in read:
            sizes = tuple(int(size) for size in numpy_helper.to_array(stored[node.input[0]]))
            weights.append(numpy_helper.from_array(_draw(net, sizes, *_reader(read, node.output[0])), node.output[0]))
            shape_names.add(node.input[0])
        else:
            nodes.append(node)
    input_names = {name_read for node in nodes for name_read in node.input}
    constants = [item for item in graph.initializer if item.name in input_names - shape_names]
    inputs = [item for item in graph.input if item.name in input_names and item.name not in stored]
    del graph.node[:], graph.initializer[:], graph.input[:]
    graph.node.extend(nodes)
    graph.initializer.extend([*constants, *weights])
    graph.input.extend([*inputs, *(helper.make_tensor_value_info(w.name, w.data_type, w.dims) for w in (*constants, *weights))])
    if shape:
        _free(graph, shape)
    onnx.checker.check_model(model)
    return model


def _free(graph: onnx.GraphProto, shape: Sequence[Size]) -> None:
    """Give the image symbolic sizes. The file has its sizes in shapes that Reshape reads, and in pooling windows over the whole
    image; exporters write those as sizes of values and as global pooling."""
    read = {item.name: item for item in graph.initializer}
    is_symbolic = not isinstance(shape[2], int)
    producers: dict[str, onnx.NodeProto] = {}
    nodes: list[onnx.NodeProto] = []
    for node in graph.node:
        if is_symbolic and node.op_type == "AveragePool" and helper.get_node_attr_value(node, "kernel_shape") == [7, 7]:
            node = helper.make_node("GlobalAveragePool", node.input, node.output)
        elif node.op_type == "Reshape" and (numbers := numpy_helper.to_array(read[node.input[1]]))[0] == 1:
            if is_symbolic and len(numbers) == 5:  # channels in groups, before their shuffle
                numbers = np.array([0, *numbers[1:3], -1])
            if is_symbolic and len(numbers) == 4:  # and after it: the sizes before
                before = producers[producers[node.input[0]].input[0]].input[0]
                nodes.append(helper.make_node("Shape", [before], [f"{node.output[0]}_sizes"]))
                node.input[1] = nodes[-1].output[0]
            else:
                read[node.input[1]].CopyFrom(numpy_helper.from_array(np.array([0, *numbers[1:]]), node.input[1]))
        elif is_symbolic and node.op_type == "Transpose":  # height and width are one axis
            node = helper.make_node("Transpose", node.input, node.output, perm=[0, 2, 1, 3])
        nodes.append(node)
        producers[node.output[0]] = node
    input_names = {name for node in nodes for name in node.input}
    initializers = [item for item in graph.initializer if item.name in input_names]
    inputs = [item for item in graph.input if item.name in input_names]
    del graph.node[:], graph.initializer[:], graph.input[:], graph.value_info[:]
    graph.node.extend(nodes)
    graph.initializer.extend(initializers)
    graph.input.extend(inputs)
    image = next(item for item in graph.input if item.name not in read)
    image.CopyFrom(helper.make_tensor_value_info(image.name, onnx.TensorProto.FLOAT, list(shape)))
    for item in graph.output:
        item.type.tensor_type.shape.dim[0].dim_param = str(shape[0])


def _reader(read: Mapping[str, tuple[onnx.NodeProto, int]], name: str) -> tuple[onnx.NodeProto, int, str]:
    """The node that computes with a weight, which of its inputs that is, and the operator that reads its result. Unsqueeze only
    brings a weight into shape."""
    node, position = read[name]
    while node.op_type == "Unsqueeze":
        node, position = read[node.output[0]]
    after = read[node.output[0]][0].op_type if node.output[0] in read else ""
    return node, position, after


def _draw(net: Net, shape: tuple[int, ...], node: onnx.NodeProto, position: int, after: str) -> Array:
    """Numbers for a weight, by what reads it; what has no rule is an offset."""
    match node.op_type, position:
        case "Conv", 1:
            return net.uniform(shape, math.sqrt(6 / math.prod(shape[1:])))
        case "Gemm", 1:
            transposed = any(item.name == "transB" and item.i for item in node.attribute)
            return net.uniform(shape, math.sqrt(3 / shape[1 if transposed else 0]))
        case ("BatchNormalization", 1 | 4) | ("Mul", _):
            # A branch that is added to its input must be small beside it, or the sum grows from layer to layer.
            small = position == 1 and after in ("Sum", "Add") and node.op_type == "BatchNormalization"
            return net.uniform(shape, 0.1) + np.float32(0.3 if small else 1)
    return net.uniform(shape, 0.1)
