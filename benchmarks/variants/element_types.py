"""Conversion of float32 models to other element types."""

from __future__ import annotations

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from variants.row import INTEGERS
from zoo.half import half


def converted(model: onnx.ModelProto, dtype: str) -> onnx.ModelProto:
    """Convert the float32 inputs, outputs and initializers of a model, in which no node names a type. Weights below 1 in magnitude
    become integers up to `INTEGERS` where the type is one of integers."""
    if dtype == "float16":
        return half(model)
    changed = onnx.ModelProto()
    changed.CopyFrom(model)
    kind = helper.np_dtype_to_tensor_dtype(np.dtype(dtype))
    for item in (*changed.graph.input, *changed.graph.output):
        if item.type.tensor_type.elem_type == TensorProto.FLOAT:
            item.type.tensor_type.elem_type = kind
    for weight in changed.graph.initializer:
        if weight.data_type == TensorProto.FLOAT:
            array = numpy_helper.to_array(weight).astype(np.float64)
            greatest = np.abs(array).max()
            if np.dtype(dtype).kind == "i" and 0 < greatest < 1:
                array = np.rint(array / greatest * INTEGERS)
            weight.CopyFrom(numpy_helper.from_array(array.astype(dtype), weight.name))
    return changed
