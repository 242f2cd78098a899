"""Installations without the compiler, without the compile half of x86, and of the core alone, in fresh virtual environments."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from tests.conftest import Environment, shared_packages

from inlaid import ops
from inlaid.driver.compile import compile_module
from inlaid.graph import ir
from inlaid_runtime.execution.c_source import find_compiler
from inlaid_runtime.types import TensorType

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[2]
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


@pytest.fixture(scope="session")
def runtime_dependencies(common_folder):
    """A folder of packages, fetched once in a test run: what the runtime depends on, and what builds it."""

    def fetch(folder):
        environment = Environment(folder)
        environment.fetch("numpy", "ml_dtypes", "pluggy", "hatchling")
        return environment

    return shared_packages(common_folder / "runtime_dependencies", fetch)


@pytest.fixture
def environment(tmp_path, runtime_dependencies):
    """A fresh virtual environment that has what the runtime depends on, and pip."""
    return Environment(tmp_path / "runtime" / "venv", runtime_dependencies)


@pytest.fixture
def package(tmp_path):
    """A package for x86, on two threads."""
    x = ir.var("x", TensorType((1, 3), "float32"))
    path = tmp_path / "relu.inlaid"
    compile_module(ir.Module({"main": ir.function([x], ops.relu(x))}), ["x86:threads=2"]).save(path)
    return path


def test_the_runtime_alone(checkout, environment, package):
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
    with pytest.raises(AssertionError, match=r"the model is a TensorFlow Lite model; pip install inlaid-tflite"):
        furnished.run(furnished.python, "-c", tflite, folder=furnished.folder)
    print_target = "print(inlaid.compile(f).regions[0].target)"
    assert (
        furnished.run(furnished.python, "-W", "ignore", "-c", make + print_target, folder=furnished.folder).strip() == "reference"
    )


def test_a_vendors_run_half_with_the_runtime_alone(checkout, furnished, environment):
    if find_compiler() is None:
        pytest.skip("there is no C compiler: apt-get install gcc")
    vendor = ROOT / "examples" / "acme"
    furnished.pip("install", "--no-build-isolation", "./runtime", "./core", "--no-deps", vendor, folder=checkout)
    save = "inlaid.compile(inlaid.function([x], inlaid.ops.relu(x)), targets=['acme_vector']).save('relu.inlaid')"
    make = f"import inlaid; x = inlaid.var('x', (1, 3)); {save}"
    furnished.run(furnished.python, "-c", make, folder=furnished.folder)
    environment.pip("install", "--no-build-isolation", "./runtime", "--no-deps", vendor, folder=checkout)
    environment.run(environment.python, "-c", RUN, furnished.folder / "relu.inlaid", folder=environment.folder)


LACKING = """
import importlib.util
import inlaid
from inlaid.attributes import DISTRIBUTIONS
from inlaid.errors import InlaidError, NotInstalled

assert [name for name in ("click", "jinja2", "onnx", "rich", "tflite") if importlib.util.find_spec(name)] == []
assert set(dir(inlaid)) == set(inlaid.__all__)
for name, distribution in DISTRIBUTIONS.items():
    for code in (f"inlaid.{name}", f"from inlaid import {name}"):
        try:
            exec(code)
        except NotInstalled as error:
            assert str(error) == f"inlaid.{name} is provided by {distribution}, not installed here; pip install {distribution}"
        else:
            raise AssertionError(code)
for file, words in (("a.onnx", "an ONNX model; pip install inlaid-onnx"), ("b.tflite", "pip install inlaid-tflite")):
    open(file, "wb").close()
    try:
        inlaid.load(file)
    except InlaidError as error:
        assert str(error).endswith(words), error
    else:
        raise AssertionError(file)
x = inlaid.var("x", (2, 2))
print(inlaid.compile(inlaid.function([x], inlaid.ops.relu(x))).regions[0].target)
"""


def test_the_core_and_x86_alone(checkout, environment):
    """Without the distribution `inlaid`, which brings what most users need besides. What is missing is named, and can be added."""
    install = "install", "--no-build-isolation"
    environment.pip(*install, "./runtime", "./core", "./plugins/x86", folder=checkout)
    environment.run(environment.python, "-m", "pip", "check", folder=environment.folder)
    assert environment.run(environment.python, "-c", LACKING, folder=environment.folder).strip() == "x86"
    with pytest.raises(AssertionError, match=r"the command is provided by inlaid-cli, not installed here; pip install inlaid-cli"):
        environment.run(environment.python, "-m", "inlaid", "targets", folder=environment.folder)
    environment.pip(*install, "./plugins/quantization", folder=checkout)
    environment.run(environment.python, "-c", "from inlaid import Quantization, quantize", folder=environment.folder)
    environment.pip(*install, "./plugins/cli", folder=checkout)
    environment.run(environment.python, "-m", "inlaid", "targets", folder=environment.folder)
    for name in ("bench", "conformance"):
        with pytest.raises(AssertionError, match=f"is provided by inlaid-{name}, not installed here; pip install inlaid-{name}"):
            environment.run(environment.inlaid, name, folder=environment.folder)
    environment.pip("uninstall", "--yes", "inlaid-quantization")
    assert "--calibration TEXT" in environment.run(environment.inlaid, "compile", "--help", folder=environment.folder)
