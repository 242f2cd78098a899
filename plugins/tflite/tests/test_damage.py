"""Damaged and hostile TensorFlow Lite files: one clear error or a model, and neither crashes nor long work."""

from __future__ import annotations

import contextlib
import struct
import time

import numpy as np
import pytest
from plugins.tflite.tests.build import Graph, Op, Tensor, file, single
from plugins.tflite.tests.samples import SAMPLES

from inlaid_runtime.errors import ModelImportError
from inlaid_tflite import first_states, load

EXTREMES = (0, 1, 4, 255, 65535, 0x7FFFFFFF, 0x80000000, 0xFFFFFFFC, 0xFFFFFFFF)


IMAGE_MODEL = SAMPLES["image"]


def loads(data: bytes) -> bool:
    """Whether it is a model still: all else is one error."""
    begun = time.process_time()
    with contextlib.suppress(ModelImportError):
        load(data)
        return True
    assert time.process_time() - begun < 5
    return False


def test_the_model_itself_loads() -> None:
    assert loads(IMAGE_MODEL)


@pytest.mark.parametrize("value", EXTREMES)
def test_words_of_extreme_values(value: int) -> None:
    """Words of the file in turn: lengths, offsets, numbers of tensors, options and weights."""
    for offset in range(8 + value % 3 * 4, len(IMAGE_MODEL) - 4, 12):
        loads(IMAGE_MODEL[:offset] + struct.pack("<I", value) + IMAGE_MODEL[offset + 4 :])


def test_truncated_files() -> None:
    assert not any(loads(IMAGE_MODEL[:end]) for end in range(8, len(IMAGE_MODEL) - 400, 24))


def test_lists_that_overlap_are_not_walked_over_and_over() -> None:
    """A thousand tensors, whose shapes are one long list in the file."""
    flatbuffers = pytest.importorskip("flatbuffers", reason='needs flatbuffers: pip install "inlaid[tflite]"')
    builder = flatbuffers.Builder(1 << 16)
    shape = builder.CreateNumpyVector(np.ones(20000, np.int32))
    builder.StartObject(1)
    builder.PrependUOffsetTRelativeSlot(0, shape, 0)
    tensor = builder.EndObject()
    builder.StartVector(4, 2000, 4)
    for _ in range(2000):
        builder.PrependUOffsetTRelative(tensor)
    tensors = builder.EndVector()
    builder.StartObject(1)
    builder.PrependUOffsetTRelativeSlot(0, tensors, 0)
    graph = builder.EndObject()
    builder.StartVector(4, 1, 4)
    builder.PrependUOffsetTRelative(graph)
    graphs = builder.EndVector()
    builder.StartObject(3)
    builder.PrependUOffsetTRelativeSlot(2, graphs, 0)
    builder.Finish(builder.EndObject(), b"TFL3")
    with pytest.raises(ModelImportError, match="tensor  must have at most 32 axes, got 20000"):
        load(bytes(builder.Output()))


def test_data_that_does_not_fill_its_shape_is_named() -> None:
    short = Tensor((2,), "float32", np.zeros(2, np.float32), name="table")
    data = file(Graph((Tensor((2,)), short, Tensor((2,))), (0,), (2,), (Op("ADD", (0, 1), (2,), ("AddOptions", {})),)))
    size = data.index(struct.pack("<I", 8) + bytes(8))
    with pytest.raises(ModelImportError, match="the data of tensor table must fit float32 of shape"):
        load(data[:size] + struct.pack("<I", 4) + data[size + 4 :])


def test_windows_that_no_memory_holds_are_refused() -> None:
    huge = {"strideW": 1, "strideH": 1, "filterWidth": 1 << 30, "filterHeight": 1 << 30, "padding": 0}
    image = Tensor((1, 4, 4, 2), "int8", scale=0.5)
    with pytest.raises(ModelImportError, match="the window must be >= 1 x 1 with at most 67108864 elements in all"):
        load(file(Graph((image, image), (0,), (1,), (Op("AVERAGE_POOL_2D", (0,), (1,), ("Pool2DOptions", huge)),))))


def test_images_and_states_that_fill_the_memory_do_not_do_so_on_import() -> None:
    window = ("Pool2DOptions", {"strideW": 1, "strideH": 1, "filterWidth": 2, "filterHeight": 2, "padding": 0})
    tall = Tensor((1, 1 << 30, 1, 1), "int8", scale=0.5)
    with pytest.raises(ModelImportError, match="a padded image must have at most 67108864 pixels, got 1073741824 by 1"):
        load(single("AVERAGE_POOL_2D", [tall], tall, window))
    valid = (window[0], window[1] | {"filterWidth": 1, "filterHeight": 1})
    assert loads(single("AVERAGE_POOL_2D", [tall], tall, valid))
    weights = [Tensor((4, 3), "float32", np.ones((4, 3), np.float32)) for _ in range(2)]
    state = Tensor((1, 1 << 29), variable=True)
    data = single("SVDF", [Tensor((1, 3)), *weights, None, state], Tensor((1, 4)), ("SVDFOptions", {"rank": 1}))
    assert not loads(data)
    with pytest.raises(ModelImportError, match="elements of the new shape must be 536870912, got 12"):
        first_states(data)


@pytest.mark.parametrize("point", [128, -129, 1 << 40])
def test_zero_points_beyond_their_type_are_refused(point: int) -> None:
    x = Tensor((2,), "int8", scale=1.0, zero_point=point, name="odd")
    with pytest.raises(ModelImportError, match="<model> is damaged: the zero point of tensor odd must be in the range"):
        load(single("ADD", [x, x], x, ("AddOptions", {})))


def test_axes_that_are_not_there_are_one_error() -> None:
    x = Tensor((2, 3), "int8", scale=1.0)
    with pytest.raises(ModelImportError, match="operator MATRIX_SET_DIAG") as caught:
        load(single("MATRIX_SET_DIAG", [x, Tensor((), "int8", scale=1.0)], x))
    assert "the inputs are Tensor[(2, 3), int8], Tensor[(), int8]" in str(caught.value)


def test_options_that_are_not_there_are_named() -> None:
    with pytest.raises(ModelImportError, match=r"it has no options .*operator MAX_POOL_2D"):
        load(single("MAX_POOL_2D", [Tensor((1, 4, 4, 1))], Tensor((1, 4, 4, 1))))
