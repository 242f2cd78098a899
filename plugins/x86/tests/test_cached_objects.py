"""Object code in the user's cache."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from inlaid import ops
from inlaid.driver.compile import compile_module
from inlaid.graph.ir import Expr, Module, constant, function, var
from inlaid_runtime.cache import caches
from inlaid_runtime.types import TensorType


def test_objects_that_are_exchanged_are_compiled_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    x = var("x", TensorType((64,), "float32"))
    value = np.linspace(-1, 1, 64, dtype=np.float32)

    def run(body: Expr) -> np.ndarray:
        (result,) = compile_module(Module({"main": function([x], body)}), ["x86:threads=1"]).run({"x": value}).values()
        return result

    bodies = {name: operator(x, constant(np.float32(3))) for name, operator in (("add", ops.add), ("mul", ops.mul))}
    expected = {name: run(body) for name, body in bodies.items()}
    folder = caches().objects.folder
    assert folder is not None
    files = sorted(path for path in folder.rglob("*") if path.is_file())
    contents = [path.read_bytes() for path in files]
    assert len(set(contents)) > 1
    for path, content in zip(files, [*contents[1:], contents[0]], strict=True):
        path.write_bytes(content)
    for name, body in bodies.items():
        np.testing.assert_array_equal(run(body), expected[name])
    assert {path: path.read_bytes() for path in files} == dict(zip(files, contents, strict=True))
