"""Decoding of tensors: the same arrays as onnx's own decoder, and refusal of data that does not fit its description."""

from __future__ import annotations

import contextlib

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper
from tests.fuzz.models import SAMPLES

from inlaid.graph.interp import evaluate
from inlaid_onnx import load, proto
from inlaid_onnx.external import ExternalData
from inlaid_onnx.weights import LARGE, without_weights
from inlaid_runtime.errors import ModelImportError

NOWHERE = ExternalData(None, "test.onnx")
CODES = [code for code in range(1, 27) if code not in (TensorProto.STRING, TensorProto.COMPLEX64, TensorProto.COMPLEX128)]


def sample(code: int, shape: tuple[int, ...]) -> np.ndarray:
    dtype = helper.tensor_dtype_to_np_dtype(code)
    values = np.random.default_rng(code).integers(0, 2, shape) if code == TensorProto.BOOL else None
    if values is None:
        low = 0 if "uint" in dtype.name or dtype.name.startswith("float8_e8m0") else -2
        values = np.random.default_rng(code).integers(low, 2, shape)
    return values.astype(dtype)


@pytest.mark.parametrize("shape", [(), (3,), (2, 5), (0, 4)])
@pytest.mark.parametrize("code", CODES)
def test_raw_data(code, shape):
    array = sample(code, shape)
    tensor = numpy_helper.from_array(array, "t")
    if not tensor.HasField("raw_data"):
        tensor.raw_data = b""
    actual = proto.decode_array(tensor, NOWHERE)
    assert actual.dtype == array.dtype and actual.shape == shape
    assert actual.tobytes() == array.tobytes()


@pytest.mark.parametrize("code", CODES)
def test_typed_fields(code):
    array = sample(code, (2, 3))
    tensor = helper.make_tensor("t", code, [2, 3], array.reshape(-1).tolist())
    assert not tensor.HasField("raw_data")
    actual, expected = proto.decode_array(tensor, NOWHERE), numpy_helper.to_array(tensor)
    assert actual.dtype == expected.dtype
    assert actual.tobytes() == expected.tobytes()


def test_strings():
    tensor = helper.make_tensor("t", TensorProto.STRING, [2], ["a", "ä"])
    assert proto.decode_array(tensor, NOWHERE).tolist() == ["a", "ä"]
    tensor.string_data[0] = b"\xff"
    with pytest.raises(ModelImportError):
        proto.decode_array(tensor, NOWHERE)


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
        proto.decode_array(tensor, NOWHERE)
    graph = helper.make_graph([helper.make_node("Identity", ["t"], ["y"])], "g", [], [onnx.ValueInfoProto(name="y")], [tensor])
    with pytest.raises(ModelImportError):
        load(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)]))


def test_typed_fields_that_do_not_fit_are_refused():
    for code in (TensorProto.FLOAT, TensorProto.INT64, TensorProto.UINT64, TensorProto.BOOL, TensorProto.INT4, TensorProto.FLOAT16):
        with pytest.raises(ModelImportError, match="elements"):
            proto.decode_array(TensorProto(name="t", data_type=code, dims=[3]), NOWHERE)


@pytest.mark.parametrize(
    ("indices", "dims"), [([0, 9], [2, 2]), ([0, -1], [2, 2]), ([0], [2, 2]), ([0, 1], [1 << 40]), ([0, 1], [-1])]
)
def test_sparse_tensors_that_do_not_fit_are_refused(indices, dims):
    values = helper.make_tensor("v", TensorProto.FLOAT, [2], [1.0, 2.0])
    sparse = helper.make_sparse_tensor(values, helper.make_tensor("i", TensorProto.INT64, [len(indices)], indices), dims)
    with pytest.raises(ModelImportError, match="sparse tensor 'v'"):
        proto.decode_sparse_array(sparse, NOWHERE)


def with_weights() -> tuple[onnx.ModelProto, dict[str, np.ndarray]]:
    """Initializers below and above the size from which they are taken out of the message."""
    rng = np.random.default_rng(0)
    arrays = {f"w{size}": rng.random((size, 3), np.float32) for size in (4, LARGE, 5, 3 * LARGE)}
    nodes = [helper.make_node("Identity", [name], [f"y{name}"]) for name in arrays]
    outputs = [helper.make_tensor_value_info(f"y{name}", TensorProto.FLOAT, array.shape) for name, array in arrays.items()]
    graph = helper.make_graph(nodes, "g", [], outputs, [numpy_helper.from_array(array, name) for name, array in arrays.items()])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10), arrays


def test_large_weights_are_taken_out_of_the_message(tmp_path):
    model, arrays = with_weights()
    data = model.SerializeToString()
    (tmp_path / "model.onnx").write_bytes(data)
    content, weights = without_weights(memoryview(data))
    assert sorted(weights) == [1, 3] and len(content) < 2000
    for number, raw in weights.items():
        assert raw == model.graph.initializer[number].raw_data
        model.graph.initializer[number].ClearField("raw_data")
    assert onnx.ModelProto.FromString(content) == model
    for source in (data, tmp_path / "model.onnx"):
        outputs = evaluate(load(source), ())
        assert all(np.array_equal(value, array) for value, array in zip(outputs, arrays.values(), strict=True))
        assert all(value.flags.aligned for value in outputs)


def test_a_message_that_only_protobuf_reads_is_left_to_it():
    model, arrays = with_weights()
    group = b"\xfb\x3e\xfc\x3e"  # an empty group, field 1007, which is unknown
    assert len(evaluate(load(model.SerializeToString() + group), ())) == len(arrays)
    for end in (1, 7, LARGE, 20 * LARGE):
        with pytest.raises(ModelImportError):
            load(model.SerializeToString()[:-end])


def test_weights_given_twice_are_left_to_protobuf():
    model, arrays = with_weights()
    tensor = model.graph.initializer[1].SerializeToString()
    twice = onnx.TensorProto(raw_data=arrays[f"w{LARGE}"].tobytes()[::-1]).SerializeToString() + tensor
    field = b"\x2a" + bytes([len(twice) & 127 | 128, len(twice) >> 7 & 127 | 128, len(twice) >> 14]) + twice
    content, weights = without_weights(
        memoryview(b"\x3a" + bytes([len(field) & 127 | 128, len(field) >> 7 & 127 | 128, len(field) >> 14]) + field)
    )
    assert not weights and onnx.ModelProto.FromString(content).graph.initializer[0] == model.graph.initializer[1]


def test_every_truncation_is_survived():
    data = SAMPLES["branch"].model().SerializeToString()
    for length in range(len(data)):
        with contextlib.suppress(ModelImportError):
            load(data[:length])
