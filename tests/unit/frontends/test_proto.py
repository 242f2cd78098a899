"""Decoding of tensors: the same arrays as onnx's own decoder, and refusal of data that does not fit its description."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from inlaid.errors import ModelImportError
from inlaid.frontends.onnx import load, proto
from inlaid.frontends.onnx.external import ExternalData

NOWHERE = ExternalData(None, "test.onnx")
CODES = [code for code in range(1, 27) if code not in (TensorProto.STRING, TensorProto.COMPLEX64, TensorProto.COMPLEX128)]


def sample(code: int, shape: tuple[int, ...]) -> np.ndarray:
    of = helper.tensor_dtype_to_np_dtype(code)
    values = np.random.default_rng(code).integers(0, 2, shape) if code == TensorProto.BOOL else None
    if values is None:
        low = 0 if "uint" in of.name or of.name.startswith("float8_e8m0") else -2
        values = np.random.default_rng(code).integers(low, 2, shape)
    return values.astype(of)


@pytest.mark.parametrize("shape", [(), (3,), (2, 5), (0, 4)])
@pytest.mark.parametrize("code", CODES)
def test_raw_data(code, shape):
    array = sample(code, shape)
    tensor = numpy_helper.from_array(array, "t")
    if not tensor.HasField("raw_data"):
        tensor.raw_data = b""
    found = proto.array_of(tensor, NOWHERE)
    assert found.dtype == array.dtype and found.shape == shape
    assert found.tobytes() == array.tobytes()


@pytest.mark.parametrize("code", CODES)
def test_typed_fields(code):
    array = sample(code, (2, 3))
    tensor = helper.make_tensor("t", code, [2, 3], array.reshape(-1).tolist())
    assert not tensor.HasField("raw_data")
    found, wanted = proto.array_of(tensor, NOWHERE), numpy_helper.to_array(tensor)
    assert found.dtype == wanted.dtype
    assert found.tobytes() == wanted.tobytes()


def test_strings():
    tensor = helper.make_tensor("t", TensorProto.STRING, [2], ["a", "ä"])
    assert proto.array_of(tensor, NOWHERE).tolist() == ["a", "ä"]
    tensor.string_data[0] = b"\xff"
    with pytest.raises(ModelImportError):
        proto.array_of(tensor, NOWHERE)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"dims": [5]}, "expected 20 bytes for shape .5. of float32, got 16"),
        ({"dims": [3]}, "got 16"),
        ({"dims": [-4]}, "dimensions must be >= 0"),
        ({"dims": [1 << 62, 1 << 62]}, "got 16"),
        ({"dims": [0, 1 << 62]}, "got 16"),
        ({"data_type": TensorProto.DOUBLE}, "got 16"),
        ({"data_type": TensorProto.STRING}, "strings"),
        ({"data_type": TensorProto.COMPLEX64}, "expected a supported element type"),
        ({"data_type": 99}, "expected a supported element type"),
        ({"data_type": 0}, "expected a supported element type"),
    ],
)
def test_data_that_does_not_fit_is_refused(change, message):
    tensor = numpy_helper.from_array(np.zeros(4, np.float32), "t")
    for name, value in change.items():
        if name == "dims":
            del tensor.dims[:]
            tensor.dims.extend(value)
        else:
            setattr(tensor, name, value)
    with pytest.raises(ModelImportError, match=f"tensor 't'.*{message}.*test.onnx:t"):
        proto.array_of(tensor, NOWHERE)
    graph = helper.make_graph([helper.make_node("Identity", ["t"], ["y"])], "g", [], [onnx.ValueInfoProto(name="y")], [tensor])
    with pytest.raises(ModelImportError):
        load(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)]))


def test_typed_fields_that_do_not_fit_are_refused():
    for code in (TensorProto.FLOAT, TensorProto.INT64, TensorProto.UINT64, TensorProto.BOOL, TensorProto.INT4, TensorProto.FLOAT16):
        with pytest.raises(ModelImportError, match="elements"):
            proto.array_of(TensorProto(name="t", data_type=code, dims=[3]), NOWHERE)


@pytest.mark.parametrize(
    ("indices", "dims"), [([0, 9], [2, 2]), ([0, -1], [2, 2]), ([0], [2, 2]), ([0, 1], [1 << 40]), ([0, 1], [-1])]
)
def test_sparse_tensors_that_do_not_fit_are_refused(indices, dims):
    values = helper.make_tensor("v", TensorProto.FLOAT, [2], [1.0, 2.0])
    sparse = helper.make_sparse_tensor(values, helper.make_tensor("i", TensorProto.INT64, [len(indices)], indices), dims)
    with pytest.raises(ModelImportError, match="sparse tensor 'v'"):
        proto.dense_of(sparse, NOWHERE)
