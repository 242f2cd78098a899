"""Names in a model are data: what is saved goes to the path given, and nowhere else (compare CVE-2025-51480)."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import inlaid
from inlaid_runtime.errors import ModelImportError

NAME = "../../escaped"


def model(location: str | None = None) -> onnx.ModelProto:
    """y = x + w, every name of which leads out of the folder; `location` says where w's bytes are said to lie."""
    weight = numpy_helper.from_array(np.ones(4, np.float32), f"{NAME}_w")
    if location is not None:
        weight.ClearField("raw_data")
        weight.data_location = TensorProto.EXTERNAL
        entry = weight.external_data.add()
        entry.key, entry.value = "location", location
    x, y = (helper.make_tensor_value_info(f"{NAME}_{end}", TensorProto.FLOAT, [4]) for end in "xy")
    node = helper.make_node("Add", [x.name, weight.name], [y.name], name=f"{NAME}_node")
    return helper.make_model(helper.make_graph([node], NAME, [x], [y], [weight]), opset_imports=[helper.make_opsetid("", 17)])


def files(folder: Path) -> set[str]:
    """Every file below a folder."""
    return {str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file()}


def test_saving_writes_the_path_given_and_no_other(tmp_path):
    folder = tmp_path / "a" / "b"
    folder.mkdir(parents=True)
    inlaid.compile(model(), ["reference"]).save(folder / "model.inlaid")
    assert files(tmp_path) == {"a/b/model.inlaid"}
    outputs = inlaid.runtime.load(folder / "model.inlaid").run({f"{NAME}_x": np.ones(4, np.float32)})
    assert outputs[f"{NAME}_y"].tolist() == [2.0] * 4
    assert files(tmp_path) == {"a/b/model.inlaid"}


def test_compiling_leaves_alone_what_external_data_points_at(tmp_path):
    folder = tmp_path / "models"
    folder.mkdir()
    victim = tmp_path / "victim.bin"
    victim.write_bytes(b"precious" * 2)
    (folder / "model.onnx").write_bytes(model("../victim.bin").SerializeToString())
    with pytest.raises(ModelImportError, match=r"victim|folder"):
        inlaid.compile(folder / "model.onnx", ["reference"])
    assert victim.read_bytes() == b"precious" * 2
    assert files(tmp_path) == {"models/model.onnx", "victim.bin"}
