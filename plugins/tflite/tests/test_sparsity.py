"""Sparse constants, and scales whose axis belongs to another tensor."""

from __future__ import annotations

import tracemalloc
from typing import Any

import numpy as np
import pytest
from plugins.tflite.tests.build import Graph, Op, Tensor, check_litert, file, single

from inlaid.graph.interp import evaluate
from inlaid_runtime.errors import ModelImportError
from inlaid_tflite import load
from inlaid_tflite.model import DENSE
from inlaid_tflite.sparsity import Level, dense

schema: Any = pytest.importorskip("ai_edge_litert.schema_py_generated", reason="needs LiteRT: pip install ai-edge-litert")
GENERATOR = np.random.default_rng(3)


def compressed(segments: list[int], indices: list[int], vector: str = "Int32Vector") -> Any:
    """A compressed level."""
    level = schema.DimensionMetadataT(format=schema.DimensionType.SPARSE_CSR)
    kind = getattr(schema.SparseIndexVector, vector)
    level.arraySegmentsType = level.arrayIndicesType = kind
    level.arraySegments = getattr(schema, f"{vector}T")(values=segments)
    level.arrayIndices = getattr(schema, f"{vector}T")(values=indices)
    return level


def full(size: int) -> Any:
    return schema.DimensionMetadataT(format=schema.DimensionType.DENSE, denseSize=size)


def sparse(array: np.ndarray[Any, Any], block: tuple[int, int], vector: str = "Int32Vector", **facts: Any) -> Tensor:
    """A matrix with dense rows and compressed columns, in blocks."""
    height, width = block
    tiles = array.reshape(array.shape[0] // height, height, array.shape[1] // width, width).transpose(0, 2, 1, 3)
    segments, indices, values = [0], [], []
    for row in tiles:
        for column, tile in enumerate(row):
            if tile.any():
                indices.append(column)
                values.append(tile.reshape(-1))
        segments.append(len(indices))
    axes = [axis for axis in range(2) if block[axis] > 1]
    levels = [full(len(tiles)), compressed(segments, indices, vector), *(full(block[axis]) for axis in axes)]
    order = [0, 1, *range(2, 2 + len(axes))]
    parameters = schema.SparsityParametersT(traversalOrder=order, blockMap=axes, dimMetadata=levels)
    return Tensor(array.shape, data=np.concatenate(values), sparsity=parameters, **facts)


def matrix(dtype: str) -> np.ndarray[Any, Any]:
    array = GENERATOR.integers(-9, 10, (8, 16)).astype(dtype)
    array[GENERATOR.random((8, 16)) < 0.7] = 0
    array[4:] = 0
    array[5, 3] = 1
    return array


@pytest.mark.parametrize("vector", ["Int32Vector", "Uint16Vector", "Uint8Vector"])
@pytest.mark.parametrize("block", [(1, 1), (1, 4), (4, 1), (2, 8)])
@pytest.mark.parametrize("dtype", ["float32", "int8"])
def test_sparse_weights(dtype: str, block: tuple[int, int], vector: str) -> None:
    weights = matrix(dtype)
    facts: dict[str, Any] = {"dtype": dtype, "scale": 0.1} if dtype == "int8" else {}
    tensors = [sparse(weights, block, vector, **facts), Tensor((8, 16), **facts)]
    if dtype == "int8":
        tensors += [Tensor((8, 16), scale=None), Tensor((3, 16)), Tensor((3, 8))]
        ops = [Op("DENSIFY", (0,), (1,)), Op("DEQUANTIZE", (1,), (2,))]
    else:
        tensors += [Tensor((3, 16)), Tensor((3, 8))]
        ops = [Op("DENSIFY", (0,), (1,))]
    last = len(tensors)
    ops.append(Op("FULLY_CONNECTED", (last - 2, last - 3, -1), (last - 1,), ("FullyConnectedOptions", {})))
    data = file(Graph(tuple(tensors), (last - 2,), (last - 1,), tuple(ops)))
    x = GENERATOR.normal(size=(3, 16)).astype(np.float32)
    (actual,) = check_litert(data, [x])
    np.testing.assert_allclose(actual, x @ (weights.astype(np.float32) * np.float32(facts.get("scale", 1))).T, rtol=1e-4, atol=1e-4)


def test_sparse_first_axes_and_other_orders() -> None:
    """Columns are traversed before rows, which are compressed."""
    levels = [Level(3), Level(0, np.array([0, 2, 2, 3]), np.array([1, 3, 0]))]
    actual = dense(np.array([5, 6, 7]), (4, 3), [1, 0], [], levels)
    assert actual.tolist() == [[0, 0, 7], [5, 0, 0], [0, 0, 0], [6, 0, 0]]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"traversalOrder": [0, 0]}, "must traverse each of its 2 dimensions and 0 blocks once"),
        ({"blockMap": [2], "traversalOrder": [0, 1, 2]}, "must traverse each of its 2 dimensions and 1 blocks"),
        ({"dimMetadata": [full(7), compressed([0, 1], [0])]}, "a dense level of a sparse tensor must have size 8, got 7"),
        ({"dimMetadata": [full(8), compressed([0, 1], [0])]}, "must have 9 ascending segments up to 1"),
        ({"dimMetadata": [full(8), compressed([0, 1, 0, *[1] * 6], [0])]}, "must have 9 ascending segments"),
        ({"dimMetadata": [full(8), compressed([*range(9)], [*range(10, 18)])]}, "the indices .* must be >= 0 and < 16"),
        ({"dimMetadata": [full(8), compressed([0] * 9, [])]}, "must have a value for each of its 0 places, got"),
    ],
)
def test_damaged_sparse_constants(change: dict[str, Any], message: str) -> None:
    tensor = sparse(matrix("float32"), (1, 1))
    for name, value in change.items():
        setattr(tensor.sparsity, name, value)
    with pytest.raises(ModelImportError, match=message):
        load(single("DENSIFY", [tensor], Tensor((8, 16))))


def test_a_small_file_cannot_ask_for_much_memory() -> None:
    parameters = schema.SparsityParametersT(traversalOrder=[0, 1], blockMap=[], dimMetadata=[full(16384), compressed([0], [])])
    tensor = Tensor((16384, 16384), data=np.zeros(1, np.float32), sparsity=parameters)
    with pytest.raises(ModelImportError, match=r"must have at most \d+ elements for this size of its file, got 268435456"):
        load(single("DENSIFY", [tensor], Tensor((16384, 16384))))


def test_many_dense_levels_of_few_values_take_little_memory() -> None:
    shape = (*(1,) * 30, 2**20)
    parameters = schema.SparsityParametersT(traversalOrder=list(range(31)), blockMap=[], dimMetadata=[*map(full, shape)])
    data = single("DENSIFY", [Tensor(shape, data=np.zeros(1, np.float32), sparsity=parameters)], Tensor(shape))
    assert DENSE * len(data) > 2**20
    tracemalloc.start()
    try:
        with pytest.raises(ModelImportError, match="must have a value for each of its 1048576 places, got 1"):
            load(data)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 2**22  # a single array of coordinates has 2^23 bytes


def test_blocks_of_several_axes() -> None:
    """A tensor of rank 3 with blocks of its first and last axis, the last block before the first."""
    shape, blocks = (4, 3, 6), {2: 3, 0: 2}
    array = GENERATOR.integers(1, 99, shape)
    tiles = array.reshape(2, 2, 3, 2, 3).transpose(2, 0, 3, 4, 1)
    levels = [Level(3), Level(2), Level(2), Level(3), Level(2)]
    assert np.array_equal(dense(tiles.reshape(-1), shape, [1, 0, 2, 3, 4], list(blocks), levels), array)


@pytest.mark.parametrize("per_channel", [True, False])
def test_a_bias_with_the_axis_of_its_weights(per_channel: bool) -> None:
    """Some converters copy the quantized dimension of depthwise weights, 3, to the bias, which has one dimension. LiteRT refuses it
    if there are several scales, and so did not make the file; TensorFlow Lite Micro ignores it."""
    scales = [0.01, 0.02, 0.03, 0.04] if per_channel else [0.01]
    weights, bias = GENERATOR.integers(-127, 128, (1, 3, 3, 4)), GENERATOR.integers(-900, 900, 4)
    options = ("DepthwiseConv2DOptions", {"strideH": 1, "strideW": 1, "depthMultiplier": 1})

    def model(axis: int) -> bytes:
        inputs = [
            Tensor((1, 6, 6, 4), "int8", scale=0.05, zero_point=4),
            Tensor((1, 3, 3, 4), "int8", weights, scales, (0,) * len(scales), 3),
            Tensor((4,), "int32", bias, [0.05 * scale for scale in scales], (0,) * len(scales), axis),
        ]
        return single("DEPTHWISE_CONV_2D", inputs, Tensor((1, 6, 6, 4), "int8", scale=0.1, zero_point=-3), options)

    x = GENERATOR.integers(-128, 128, (1, 6, 6, 4)).astype(np.int8)
    (expected,) = check_litert(model(0), [x])
    assert np.array_equal(evaluate(load(model(3)), [x]), expected)


def test_weights_with_an_axis_that_they_lack_are_refused() -> None:
    tensor = Tensor((8, 16), "int8", np.ones((8, 16)), [0.1] * 8, (0,) * 8, 2)
    with pytest.raises(ModelImportError, match="must have finite scales >= 0, as many zero points, and a valid axis"):
        load(single("DEQUANTIZE", [tensor], Tensor((8, 16))))
