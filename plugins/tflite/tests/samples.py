"""Small TensorFlow Lite models, with operators of many families."""

from __future__ import annotations

from typing import Any

import numpy as np
from plugins.tflite.tests.build import Graph, Op, Tensor, file


def constant(values: Any, dtype: str = "int32") -> Tensor:
    """A constant tensor."""
    data = np.asarray(values, dtype)
    return Tensor(data.shape, dtype, data)


def _image() -> bytes:
    """An int8 model of several graphs."""
    image, half = Tensor((1, 4, 4, 2), "int8", scale=0.5), Tensor((1, 2, 2, 2), "int8", scale=0.5)
    weights = Tensor((2, 1, 1, 2), "int8", np.ones((2, 1, 1, 2), np.int8), [0.5, 0.25], [0, 0], 0)
    window = {"strideW": 2, "strideH": 2, "filterWidth": 2, "filterHeight": 2, "padding": 1}
    tensors = (
        *(image, weights, Tensor((2,), "int32", np.ones(2, np.int32)), image, half, half, constant([4, 4])),
        *(image, constant([1, -1]), Tensor((1, 32), "int8", scale=0.5), Tensor((1, 32), "int8", scale=0.5)),
        *(constant([0, 1]), constant([1, 2]), constant([1, 2])),
        *(Tensor((1, 1), "int8", scale=0.5), Tensor((1, 2), "int8", scale=0.5)),
    )
    ops = (
        Op("CONV_2D", (0, 1, 2), (3,), ("Conv2DOptions", {"strideW": 1, "strideH": 1, "dilationWFactor": 1, "dilationHFactor": 1})),
        Op("AVERAGE_POOL_2D", (3,), (4,), ("Pool2DOptions", window)),
        Op("MAX_POOL_2D", (3,), (5,), ("Pool2DOptions", window)),
        Op("RESIZE_BILINEAR", (4, 6), (7,), ("ResizeBilinearOptions", {})),
        Op("RESHAPE", (7, 8), (9,)),
        Op("CALL", (9,), (10,), ("CallOptions", {"subgraph": 1})),
        Op("STRIDED_SLICE", (10, 11, 12, 13), (14,), ("StridedSliceOptions", {"beginMask": 1})),
        Op("CONCATENATION", (14, 14), (15,), ("ConcatenationOptions", {"axis": 1})),
    )
    row = Tensor((1, 32), "int8", scale=0.5)
    called = Graph((row, row), (0,), (1,), (Op("SOFTMAX", (0,), (1,), ("SoftmaxOptions", {"beta": 1.0})),))
    return file(Graph(tensors, (0,), (5, 15), ops), called)


def _vectors() -> bytes:
    """A float model of products, gathers, sorting and transposition."""
    x, square = Tensor((2, 3)), Tensor((2, 4))
    tensors = (
        *(x, constant(np.ones((4, 3)), "float32"), constant(np.ones(4), "float32"), square, constant([1, 0]), Tensor((4, 2))),
        *(constant([0, 3, 1]), Tensor((3, 2)), constant(2), Tensor((3, 2)), Tensor((3, 2), "int32"), constant([1]), Tensor((3,))),
        *(constant([[1, 1], [0, 0]]), Tensor((5, 2)), Tensor((5, 2))),
    )
    ops = (
        Op("FULLY_CONNECTED", (0, 1, 2), (3,), ("FullyConnectedOptions", {})),
        Op("TRANSPOSE", (3, 4), (5,), ("TransposeOptions", {})),
        Op("GATHER", (5, 6), (7,), ("GatherOptions", {"axis": 0})),
        Op("TOPK_V2", (7, 8), (9, 10), ("TopKV2Options", {})),
        Op("SUM", (9, 11), (12,), ("ReducerOptions", {"keepDims": False})),
        Op("PAD", (7, 13), (14,), ("PadOptions", {})),
        Op("LOGISTIC", (14,), (15,)),
    )
    return file(Graph(tensors, (0,), (12, 15, 10), ops))


SAMPLES = {"image": _image(), "vectors": _vectors()}
"""Files by name."""
