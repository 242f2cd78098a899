"""Installations without the compiler, without the compile half of x86, and of the core alone, in fresh virtual environments."""

from __future__ import annotations

import json

import numpy as np
import pytest

from inlaid import ops
from inlaid.driver.compile import compile_module
from inlaid.graph import ir
from inlaid_runtime.types import TensorType

pytestmark = pytest.mark.slow

LIMIT = 5_000_000
"""Bytes that the runtime may take besides numpy, compiled Python files included."""
COMPILER = ("click", "inlaid", "jinja2", "llvmlite", "onnx", "rich", "tflite")
RUN = f"""
import importlib.util, sys
import numpy as np
import inlaid_runtime

executable = inlaid_runtime.load(sys.argv[1])
(result,) = executable.run({{"x": np.array([[-1, 0.5, 2]], np.float32)}}).values()
assert result.tolist() == [[0, 0.5, 2]], result
assert [name for name in {COMPILER} if importlib.util.find_spec(name)] == []
"""
SIZE = """
import importlib.metadata, json
names = ("inlaid-runtime", "ml-dtypes", "pluggy")
files = [file.locate() for name in names for file in importlib.metadata.files(name)]
print(sum(file.stat().st_size for file in files if file.exists()))
"""


@pytest.fixture
def package(tmp_path):
    """A package for x86, on two threads."""
    x = ir.var("x", TensorType((1, 3), "float32"))
    path = tmp_path / "relu.inlaid"
    compile_module(ir.Module({"main": ir.function([x], ops.relu(x))}), ["x86:threads=2"]).save(path)
    return path


def test_the_runtime_alone(checkout, environment, package):
    environment.fetch("numpy", "ml_dtypes", "pluggy", "hatchling")
    environment.pip("install", "--no-build-isolation", "./runtime", folder=checkout)
    environment.run(environment.python, "-c", RUN, package, folder=environment.folder)
    assert int(environment.run(environment.python, "-c", SIZE, folder=environment.folder)) <= LIMIT


def test_the_core_without_x86_compiles_for_the_reference(checkout, furnished, package):
    """x86 packages run; compiling for x86 names what to install."""
    furnished.pip("install", "--no-build-isolation", ".", folder=checkout)
    furnished.run(furnished.python, "-m", "pip", "check", folder=furnished.folder)
    np.savez(furnished.folder / "x.npz", x=np.ones((1, 3), np.float32))
    shown = furnished.run(furnished.inlaid, "run", package, "--input", "x.npz", "--json", folder=furnished.folder)
    assert next(iter(json.loads(shown)["outputs"].values()))["first"] == [1, 1, 1]
    rows = {row["target"]: row for row in json.loads(furnished.run(furnished.inlaid, "targets", "--json", folder=furnished.folder))}
    assert set(rows) == {"reference", "x86"} and rows["reference"]["compiles"]
    assert rows["x86"]["available"] and not rows["x86"]["compiles"]
    assert 'runs packages only, to compile: pip install "inlaid[x86]"' in rows["x86"]["detail"]
    make = "import inlaid; x = inlaid.var('x', (2, 2)); f = inlaid.function([x], inlaid.ops.relu(x)); "
    words = r'x86 runs packages here but cannot compile: the compile half .* not installed; pip install "inlaid\[x86\]"'
    with pytest.raises(AssertionError, match=words):
        furnished.run(furnished.python, "-c", make + "inlaid.compile(f, targets=['x86'])", folder=furnished.folder)
    tflite = "import inlaid; inlaid.load(bytes(4) + b'TFL3' + bytes(60))"
    with pytest.raises(AssertionError, match=r'needs tflite, not installed here.*; pip install "inlaid\[tflite\]"'):
        furnished.run(furnished.python, "-c", tflite, folder=furnished.folder)
    done = "print(inlaid.compile(f).regions[0].target)"
    assert furnished.run(furnished.python, "-W", "ignore", "-c", make + done, folder=furnished.folder).strip() == "reference"


def test_the_core_and_x86_alone(checkout, furnished):
    """Without the distribution `inlaid`, which brings what most users need besides."""
    furnished.pip("install", "--no-build-isolation", "./runtime", "./core", "./plugins/x86", folder=checkout)
    make = "import inlaid; x = inlaid.var('x', (2, 2)); f = inlaid.function([x], inlaid.ops.relu(x)); "
    done = "print(inlaid.compile(f).regions[0].target)"
    assert furnished.run(furnished.python, "-c", make + done, folder=furnished.folder).strip() == "x86"
