"""Tensor data in other files: what is read, and that nothing outside the model's folder ever is."""

from __future__ import annotations

import os

import numpy as np
import onnx
import pytest
from onnx import helper

from inlaid.graph.interp import evaluate
from inlaid_onnx import load
from inlaid_runtime.errors import ModelImportError

SECRET = np.arange(4, dtype=np.float32)


def write_model(folder, location="weights.bin", **entries):
    """A model that adds an initializer of four floats in another file to its input."""
    weight = onnx.TensorProto(name="w", dims=[4], data_type=onnx.TensorProto.FLOAT, data_location=onnx.TensorProto.EXTERNAL)
    for key, value in {"location": location, **entries}.items():
        if value is not None:
            weight.external_data.add(key=key, value=str(value))
    graph = helper.make_graph(
        [helper.make_node("Add", ["x", "w"], ["y"])],
        "g",
        [helper.make_tensor_value_info("x", onnx.TensorProto.FLOAT, [4])],
        [helper.make_tensor_value_info("y", onnx.TensorProto.FLOAT, [4])],
        [weight],
    )
    path = folder / "model.onnx"
    path.write_bytes(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)]).SerializeToString())
    return path


@pytest.fixture
def folder(tmp_path):
    """A model's folder, beside it a file that no model may read."""
    (tmp_path / "secret.bin").write_bytes(SECRET.tobytes())
    inner = tmp_path / "model"
    (inner / "data").mkdir(parents=True)
    return inner


def read(path):
    return evaluate(load(path), {"x": np.zeros(4, np.float32)}).tolist()


@pytest.mark.parametrize("location", ["weights.bin", "data/weights.bin", "./weights.bin"])
@pytest.mark.parametrize("entries", [{}, {"offset": 8}, {"offset": 8, "length": 16}, {"length": 16, "checksum": "ab"}])
def test_data_is_read_from_the_models_folder(folder, location, entries):
    (folder / location).write_bytes(b"\0" * entries.get("offset", 0) + SECRET.tobytes() + b"more")
    assert read(write_model(folder, location, **entries)) == SECRET.tolist()


@pytest.mark.parametrize(
    "location",
    [
        "../secret.bin",  # CVE-2022-25882
        "data/../../secret.bin",  # CVE-2024-27318
        "data/../weights.bin",  # inside, but not plain
        "./../secret.bin",
        "data//../../secret.bin",
        "..\\secret.bin",
        "C:secret.bin",
        "",
        ".",
        "..",
        "data/",
        "secret.bin\0.bin",
        "file:///etc/passwd",
    ],
)
def test_paths_out_of_the_folder_are_refused(folder, location):
    (folder / "weights.bin").write_bytes(SECRET.tobytes())
    with pytest.raises(ModelImportError, match=r"tensor 'w'.*at model\.onnx:w"):
        load(write_model(folder, location))


def test_absolute_paths_are_refused(folder):
    with pytest.raises(ModelImportError, match="expected a relative path inside the model's folder"):
        load(write_model(folder, str(folder.parent / "secret.bin")))
    (folder / "weights.bin").write_bytes(SECRET.tobytes())
    with pytest.raises(ModelImportError, match="expected a relative path inside the model's folder"):
        load(write_model(folder, str(folder / "weights.bin")))


def test_symbolic_links_are_refused(folder):  # CVE-2026-27489
    (folder / "weights.bin").symlink_to(folder.parent / "secret.bin")
    with pytest.raises(ModelImportError, match="tensor 'w'"):
        load(write_model(folder))
    (folder / "up").symlink_to(folder.parent)
    with pytest.raises(ModelImportError, match="tensor 'w'"):
        load(write_model(folder, "up/secret.bin"))
    (folder / "inside").write_bytes(SECRET.tobytes())
    (folder / "alias").symlink_to("inside")
    with pytest.raises(ModelImportError, match="tensor 'w'"):
        load(write_model(folder, "alias"))


def test_hard_links_are_refused(folder):
    os.link(folder.parent / "secret.bin", folder / "weights.bin")
    with pytest.raises(ModelImportError, match="hard link"):
        load(write_model(folder))


def test_things_that_are_no_files_are_refused(folder):
    os.mkfifo(folder / "pipe")
    for location in ("pipe", "data"):
        with pytest.raises(ModelImportError, match=r"not a regular file|tensor 'w'"):
            load(write_model(folder, location))


@pytest.mark.parametrize(
    ("entries", "message"),
    [
        ({"length": 12}, "expected 16 bytes for its shape and dtype, but the entry has length 12"),
        ({"length": 1 << 40}, "length"),
        ({"offset": 1 << 40}, "exceed the end"),
        ({"offset": 4}, "exceed the end"),
        ({"offset": -1}, "must be a number of bytes"),
        ({"offset": "0x10"}, "must be a number of bytes"),
        ({"offset": "9" * 400}, "must be a number of bytes"),
        ({"length": "1e9"}, "must be a number of bytes"),
        ({"offset": "\u0661"}, "must be a number of bytes"),
        ({"__class__": "x"}, "unknown key"),  # CVE-2026-34445
        ({"basepath": ".."}, "unknown key"),
        ({"location": None}, "expected a key location"),
    ],
)
def test_entries_that_do_not_belong_are_refused(folder, entries, message):
    (folder / "weights.bin").write_bytes(SECRET.tobytes())
    with pytest.raises(ModelImportError, match=message):
        load(write_model(folder, **entries))


def test_a_key_given_twice_is_refused(folder):
    (folder / "weights.bin").write_bytes(SECRET.tobytes())
    path = write_model(folder)
    model = onnx.ModelProto.FromString(path.read_bytes())
    model.graph.initializer[0].external_data.add(key="location", value="../secret.bin")
    path.write_bytes(model.SerializeToString())
    with pytest.raises(ModelImportError, match="duplicate key"):
        load(path)


def test_a_model_that_is_no_file_has_no_folder(folder, monkeypatch):
    (folder / "weights.bin").write_bytes(SECRET.tobytes())
    data = write_model(folder).read_bytes()
    monkeypatch.chdir(folder)
    for model in (data, onnx.ModelProto.FromString(data)):
        with pytest.raises(ModelImportError, match="load it by its path"):
            load(model)


def test_tensors_in_attributes_follow_the_same_rules(folder):
    value = onnx.TensorProto(name="v", dims=[4], data_type=onnx.TensorProto.FLOAT, data_location=onnx.TensorProto.EXTERNAL)
    value.external_data.add(key="location", value="../secret.bin")
    node = helper.make_node("Constant", [], ["y"])
    attribute = node.attribute.add(name="value", type=onnx.AttributeProto.TENSOR)
    attribute.t.CopyFrom(value)
    graph = helper.make_graph([node], "g", [], [onnx.ValueInfoProto(name="y")])
    path = folder / "model.onnx"
    path.write_bytes(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)]).SerializeToString())
    with pytest.raises(ModelImportError, match="expected a relative path inside the model"):
        load(path)
