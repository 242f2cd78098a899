"""`--json`: every command has it, numbers are numbers, errors are objects."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click
import numpy as np
import pytest

from inlaid.plugins.registry import default_registry
from inlaid_cli.app import app
from inlaid_cli.exit_codes import ExitCode
from inlaid_cli.json_output import strict

from .conftest import Run


def commands(group: click.Group, path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], click.Command]]:
    for name, command in group.commands.items():
        if isinstance(command, click.Group):
            yield from commands(command, (*path, name))
        else:
            yield (*path, name), command


@pytest.mark.parametrize(("path", "command"), [pytest.param(*entry, id=" ".join(entry[0])) for entry in commands(app)])
def test_every_command_has_it(path: tuple[str, ...], command: click.Command) -> None:
    assert any("--json" in parameter.opts for parameter in command.params)


def loaded(result: tuple[int, str, str], code: int = 0) -> Any:
    def refuse(name: str) -> None:
        raise AssertionError(f"{name} is no JSON")

    assert result[0] == code, result
    return json.loads(result[1], parse_constant=refuse)


def test_outputs_are_numbers(run: Run, cli_folder: Path) -> None:
    y = loaded(run("run", "relu.onnx", "--target", "reference", "--input", "x=x.npy", "--json"))["outputs"]["y"]
    assert y == {"dtype": "float32", "shape": [1, 3], "first": [0.0, 0.0, "Infinity"]}


def test_numbers_that_json_lacks() -> None:
    value = {"a": [float("nan"), (float("-inf"), 1.5)], "b": 2, "c": None, "d": True}
    assert strict(value) == {"a": ["NaN", ["-Infinity", 1.5]], "b": 2, "c": None, "d": True}


def test_errors_are_objects(run: Run) -> None:
    error = loaded(run("show", "cut.onnx", "--json"), ExitCode.INPUT)["error"]
    assert (error["kind"], error["code"], error["type"]) == ("input", 3, "ModelImportError")
    assert "cut.onnx" in error["message"] and error["operator"] is None
    error = loaded(run("compile", "relu.onnx", "--fast", "--json"), ExitCode.USAGE)["error"]
    assert error["kind"] == "usage" and "--fast" in error["message"]
    error = loaded(run("run", "relu.onnx", "--target", "reference", "--input", "z=x.npy", "--json"), ExitCode.INPUT)["error"]
    assert error["remedy"] == "the inputs are x: float32[batch, 3]"


def test_commands_print_it(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert "relu(" in loaded(run("show", "relu.onnx", "--json"))["ir"]
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.delenv("INLAID_CACHE", raising=False)
    assert loaded(run("cache", "clear", "--json")) == {"removed": {"objects": 0, "models": 0, "packages": 0, "hashes": 0}}
    payload = loaded(run("new-plugin", "acme", "-o", str(tmp_path / "acme"), "--json"))
    assert "src/inlaid_acme/plugin.py" in payload["files"]
    assert {row["target"] for row in loaded(run("targets", "--json"))} >= {"reference"}


def test_results_of_a_suite_are_its_report(run: Run) -> None:
    report = loaded(run("conformance", "--target", "reference", "--only", "plugin", "--jobs", "1", "--json"))
    assert report["conforms"] is True and report["results"] and report["target"] == "reference"


@pytest.mark.skipif("x86" not in default_registry().kinds(), reason='the x86 plugin is not installed: pip install "inlaid[x86]"')
def test_a_library_is_described(run: Run, cli_folder: Path) -> None:
    payload = loaded(run("export", "relu.onnx", "--dim", "batch=1", "--target", "x86:threads=1", "-o", "librelu.so", "--json"))
    assert (payload["library"], payload["header"]) == ("librelu.so", "librelu.h") and isinstance(payload["workspace_bytes"], int)
    assert (cli_folder / "librelu.so").exists()


def test_numpy_scalars_of_all_kinds_are_numbers(run: Run, cli_folder: Path) -> None:
    import ml_dtypes

    from inlaid_cli.run import _summary

    assert _summary(np.array([1, 0], ml_dtypes.bfloat16))["first"] == [1.0, 0.0]
    assert _summary(np.array([3, -1], ml_dtypes.int4))["first"] == [3, -1]
    assert _summary(np.array([True]))["first"] == [True]
    assert _summary(np.array(["a"], object))["first"] == ["a"]
