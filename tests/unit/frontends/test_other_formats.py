"""Files in formats that Inlaid does not import are identified, and the error says how to convert them."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import inlaid
from inlaid_runtime.errors import ModelImportError

PICKLE = b"\x80\x02}q\x00."
SAFETENSORS = (64).to_bytes(8, "little") + b'{"w":{"dtype":"F32"'
SAVED = b"\x08\x01\x12\x10\n\x00"
IR = b'<?xml version="1.0"?>\n<net name="m" version="11">'
CASES = {
    "model.pt": (PICKLE, "a PyTorch file", "torch.onnx.export"),
    "model.pth": (b"PK\x03\x04rest", "a PyTorch file", "torch.onnx.export"),
    "model.pt2": (b"PK\x03\x04rest", "a PyTorch exported program", "torch.export.load"),
    "weights.bin": (PICKLE, "a PyTorch file", "torch.onnx.export"),
    "model.safetensors": (SAFETENSORS, "a safetensors file, which holds weights and no graph", "optimum-cli export onnx"),
    "model.gguf": (b"GGUF\x03\0\0\0", "a GGUF file, which holds weights and no graph", "optimum-cli"),
    "unnamed": (b"GGUF\x03\0\0\0", "a GGUF file", "optimum-cli"),
    "saved_model.pb": (SAVED, "a TensorFlow SavedModel", "tf2onnx.convert --saved-model"),
    "frozen.pb": (b"\n\x10\n\x01x", "a TensorFlow graph", "tf2onnx.convert --graphdef"),
    "model.h5": (b"\x89HDF\r\n\x1a\n", "a Keras model", 'format="onnx"'),
    "model.keras": (b"PK\x03\x04rest", "a Keras model", 'format="onnx"'),
    "model.xml": (IR, "OpenVINO IR", "use the model that it was converted from"),
    "pointer.bin": (b"version https://git-lfs.github.com/spec/v1\noid", "a Git LFS pointer", "git lfs pull"),
    "page.dat": (b"<!DOCTYPE html>\n<html>", "a web page", "raw file"),
}


def refusal(model: object) -> str:
    with pytest.raises(ModelImportError) as caught:
        inlaid.compile(model, ["reference"])
    return str(caught.value)


@pytest.mark.parametrize("name", CASES)
def test_files_are_named(tmp_path: Path, name: str) -> None:
    content, what, way = CASES[name]
    (tmp_path / name).write_bytes(content)
    message = refusal(tmp_path / name)
    assert "expected a model that Inlaid imports (ONNX (.onnx), TensorFlow Lite (.tflite)), but" in message
    assert f"{name} is {what}" in message and way in message


def test_bytes_are_named() -> None:
    assert "the model is a GGUF file" in refusal(b"GGUF\x03\0\0\0")


def test_folders_are_named(tmp_path: Path) -> None:
    assert f"{tmp_path} is a folder; give the model file in it" in refusal(tmp_path)
    (tmp_path / "config.json").write_text("{}")
    assert "a folder of a Hugging Face model; pip install optimum-onnx" in refusal(tmp_path)
    (tmp_path / "net.onnx").write_bytes(b"")
    assert f"is a folder; give a file in it: {tmp_path / 'net.onnx'}" in refusal(tmp_path)
    (tmp_path / "saved_model.pb").write_bytes(SAVED)
    assert "a TensorFlow SavedModel; pip install tf2onnx" in refusal(tmp_path)


def test_an_onnx_model_may_have_any_name(tmp_path: Path) -> None:
    x, y = (helper.make_tensor_value_info(name, TensorProto.FLOAT, [3]) for name in "xy")
    graph = helper.make_graph([helper.make_node("Relu", ["x"], ["y"])], "g", [x], [y])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=9)
    for name in ("model.pb", "model.bin", "model"):
        (tmp_path / name).write_bytes(model.SerializeToString())
        assert inlaid.load(tmp_path / name).main.params[0].name == "x"


def test_missing_external_data(tmp_path: Path) -> None:
    x, y = (helper.make_tensor_value_info(name, TensorProto.FLOAT, [3]) for name in "xy")
    weights = numpy_helper.from_array(np.ones(3, np.float32), "w")
    graph = helper.make_graph([helper.make_node("Add", ["x", "w"], ["y"])], "g", [x], [y], [weights])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=9)
    path = tmp_path / "model.onnx"
    onnx.save(model, path, save_as_external_data=True, location="weights.bin", size_threshold=0)
    (tmp_path / "weights.bin").unlink()
    message = refusal(path)
    assert f"the external data of tensor 'w' is missing: expected the file 'weights.bin' in {tmp_path}" in message
    assert "copy it there from the source of the model: it has the weights" in message
