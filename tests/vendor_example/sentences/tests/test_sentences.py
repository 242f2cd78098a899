"""A format of a third party: found by suffix and by first bytes, in every call and command that takes a model, and kept apart where
it fails."""

from __future__ import annotations

import json
from importlib.metadata import EntryPoint

import numpy as np
import onnx
import pytest

import inlaid
from inlaid.api import compile_file
from inlaid.plugins.hookspecs import GROUP
from inlaid.plugins.registry import PluginRegistry
from inlaid_cli import main
from inlaid_runtime.errors import InputError, ModelImportError, PluginError
from zoo.net import Net

TEXT = "#!sentences\ninput x float32 batch 3\nconstant w from w.npy\ny = matmul x w\nz = relu y\noutput z y\n"
RELU = "#!sentences\ninput x float32 4\ny = relu x\noutput y\n"
X = np.arange(6, dtype=np.float32).reshape(2, 3) - 3


@pytest.fixture
def use(monkeypatch):
    """Makes a registry the one of the API and of commands."""

    def use(registry):
        for module in ("inlaid.api", "inlaid_cli.targets"):
            monkeypatch.setattr(f"{module}.default_registry", lambda: registry)

    return use


@pytest.fixture
def folder(tmp_path, monkeypatch, vendors, use):
    """A folder with a model, an empty cache, and the vendors' plugins in use."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    use(vendors)
    np.save(tmp_path / "w.npy", np.ones((3, 2), np.float32))
    (tmp_path / "model.sentences").write_text(TEXT)
    return tmp_path


def test_models_compile_and_run_by_every_call(folder):
    path = folder / "model.sentences"
    assert repr(inlaid.load(path).main.params[0].type.shape[0]) == "batch"
    for source in (path, str(path), inlaid.load(path)):
        outputs = inlaid.compile(source, ["reference"]).run({"x": X})
        np.testing.assert_array_equal(outputs["z"], np.maximum(X @ np.ones((3, 2)), 0))
        np.testing.assert_array_equal(outputs["y"], X @ np.ones((3, 2)))
    assert inlaid.load(path, {"batch": 8}).main.params[0].type.shape == (8, 3)
    assert inlaid.estimate(path, ["reference"], dims={"batch": 2}).seconds > 0
    assert inlaid.load(RELU.encode()).main.params[0].type.shape == (4,)


def test_first_bytes_decide_where_no_suffix_does(folder):
    (folder / "plain").write_text(RELU)
    assert inlaid.load(folder / "plain").main.params[0].type.shape == (4,)
    (folder / "model.txt").write_text("input x float32 4\n")
    listed = r"model\.txt; installed formats: .*ONNX \(\.onnx\), .*Sentences \(\.sentences\)"
    with pytest.raises(ModelImportError, match=f"no installed frontend imports .*{listed}"):
        inlaid.load(folder / "model.txt")
    with pytest.raises(ModelImportError, match=r"a model that begins with b'input x '; installed formats"):
        inlaid.load(b"input x float32 4\n")
    net = Net("net")
    net.output(net.node("Relu", net.input("x", (4,))), "y", (4,))
    onnx.save(net.build(), folder / "plain")
    assert inlaid.load(folder / "plain").main.params[0].type.shape == (4,)


def test_errors_name_the_line(folder):
    (folder / "model.sentences").write_text("input x float32 4\ny = frobnicate x\n")
    with pytest.raises(ModelImportError, match=r"unknown name 'frobnicate' \(at .*model\.sentences.*line 2"):
        inlaid.load(folder / "model.sentences")
    (folder / "model.sentences").write_text("constant w from ../w.npy\n")
    with pytest.raises(ModelImportError, match="expected an array file in the model's folder"):
        inlaid.load(folder / "model.sentences")


def test_a_compiled_model_is_found_again_until_a_file_beside_it_changes(folder):
    def stages():
        stage_names = []
        compiled = compile_file(
            folder / "model.sentences", ["reference"], progress=lambda stage, count, total: stage_names.append(stage)
        )
        return compiled.file is not None, "import" in stage_names

    assert stages() == (True, True)
    assert stages() == (True, False)
    np.save(folder / "w.npy", np.zeros((3, 2), np.float32))
    assert stages() == (True, True)


def test_commands(folder, capsys):
    def run(*arguments):
        with pytest.raises(SystemExit, match="0"):
            main(arguments)
        return capsys.readouterr().out

    rows = {row["format"]: row for row in json.loads(run("formats", "--json"))}
    assert rows["Sentences"] == {
        "format": "Sentences", "files": ".sentences", "plugin": "sentences", "available": True, "detail": ""
    }  # fmt: skip
    assert "sentences" not in {row["plugin"] for row in json.loads(run("targets", "--json"))}
    assert "Sentences" in run("formats") and "relu" in run("show", str(folder / "model.sentences"))


FAILING = {
    "raising": "(Frontend('raising', 'Raising', lambda source: 1 / 0, ('.raising',)),)",
    "empty": "[Frontend('empty', 'Empty', lambda source: None, ('.empty',))]",
    "lacking": (
        "[Frontend('lacking', 'Lacking', lambda source: None, ('.lacking',), requires=('no-such',), install='acme[no-such]')]"
    ),
    "nosy": "[Frontend('nosy', 'Nosy', lambda source: None, recognizes=lambda model: 1 / 0)]",
    "claims": "[Frontend('claims', 'Claims', lambda source: None, ('.onnx', '.sentences'), lambda model: False)]",
}
BROKEN = {
    "broken": "1 / 0",
    "thief": "[Frontend('onnx', 'ONNX', lambda source: None, ('.onnx',))]",
    "loud": "[Frontend('loud', 'Loud', lambda source: None, ('.LOUD',))]",
    "text": "'onnx'",
    "odd": "[Frontend('a b', '', lambda source: None)]",
    "twin": "[Frontend('twin', '', lambda source: None)] * 2",
    "flat": "[Frontend('flat', '', None)]",
}


def plugin(folder, name, answer):
    source = f"from inlaid.plugins import *\nPLUGIN_API_VERSION = 3\n@hookimpl\ndef inlaid_frontends(): return {answer}\n"
    (folder / f"frontend_{name}.py").write_text(source)
    return EntryPoint(name, f"frontend_{name}", GROUP)


@pytest.fixture
def registry_with_failure(folder, monkeypatch, vendors, use):
    """A registry in use that has the vendors' plugins and frontends that fail, each in its way."""
    monkeypatch.syspath_prepend(str(folder))
    points = [plugin(folder, name, answer) for name, answer in (FAILING | BROKEN).items()]
    registry = PluginRegistry.discover([*vendors.entry_points, *points])
    use(registry)
    return registry


def test_a_frontend_that_fails_is_in_no_other_ones_way(folder, registry_with_failure):
    problems = {problem.plugin: problem for problem in registry_with_failure.problems()}
    assert {name: problem.stage for name, problem in problems.items()} == dict.fromkeys(BROKEN, "frontends")
    assert problems["thief"].message == "frontend onnx is already provided by plugin onnx"
    assert inlaid.load(folder / "model.sentences").main.params[0].name == "x"


def test_errors_say_what_is_installed_and_what_to_install(folder, registry_with_failure):
    for name, match in (("raising", "frontend raising failed: ZeroDivisionError"), ("empty", "returned NoneType, expected Module")):
        with pytest.raises(PluginError, match=f"{match}.*plugin {name}"):
            inlaid.load(f"model.{name}")
    install = r'pip install "acme\[no-such\]"'
    with pytest.raises(ModelImportError, match=f"importing Lacking models needs no-such, not installed here .*; {install}"):
        inlaid.load("model.lacking")
    (folder / "model.other").write_text("?")
    with pytest.raises(ModelImportError, match=rf"for Lacking, {install}; unusable plugin broken \(frontends: .*ZeroDiv"):
        inlaid.load(folder / "model.other")
    with pytest.raises(InputError, match=r"got an object of type int; give the path of a model file, .*ONNX \(\.onnx\) or "):
        inlaid.load(5)
