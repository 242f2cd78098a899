"""Conversion of float32 models to float16."""

from __future__ import annotations

import numpy as np
import onnx
from onnx import TensorProto, numpy_helper

_GREATEST = float(np.finfo(np.float16).max)


def half(model: onnx.ModelProto) -> onnx.ModelProto:
    """Convert float32 weights, inputs, outputs, constants and casts of a model to float16. Values saturate at the range of float16,
    such as the large negative numbers of masks."""
    changed = onnx.ModelProto()
    changed.CopyFrom(model)
    graph = changed.graph
    del graph.value_info[:]
    for item in (*graph.input, *graph.output):
        if item.type.tensor_type.elem_type == TensorProto.FLOAT:
            item.type.tensor_type.elem_type = TensorProto.FLOAT16
    for weight in graph.initializer:
        _narrow(weight)
    for node in graph.node:
        for attribute in node.attribute:
            if attribute.type == onnx.AttributeProto.TENSOR:
                _narrow(attribute.t)
            elif node.op_type == "Cast" and attribute.name == "to" and attribute.i == TensorProto.FLOAT:
                attribute.i = TensorProto.FLOAT16
    return changed


def _narrow(tensor: TensorProto) -> None:
    if tensor.data_type == TensorProto.FLOAT:
        array = np.clip(numpy_helper.to_array(tensor), -_GREATEST, _GREATEST).astype(np.float16)
        tensor.CopyFrom(numpy_helper.from_array(array, tensor.name))
