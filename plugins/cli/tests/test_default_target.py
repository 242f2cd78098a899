"""The command works where the core alone is installed, and as a module."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

from inlaid.plugins.registry import default_registry


def module(folder: Path, *arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "inlaid", *arguments]
    return subprocess.run(
        command, cwd=folder, env={**os.environ, **environment}, capture_output=True, text=True, check=False, timeout=300
    )


def test_it_runs_as_a_module(cli_folder: Path) -> None:
    process = module(cli_folder, "--version")
    assert process.returncode == 0 and process.stdout.startswith("inlaid, version ")
    failed = module(cli_folder, "frobnicate")
    assert failed.returncode == 2 and failed.stderr.startswith("inlaid: ")


def test_the_core_alone_has_a_default_target(cli_folder: Path) -> None:
    other_kinds = ",".join(kind for kind in default_registry().kinds() if kind != "reference")
    process = module(cli_folder, "compile", "relu.onnx", "-o", "core.inlaid", "--json", INLAID_DISABLED_PLUGINS=other_kinds)
    assert process.returncode == 0, process.stderr
    assert json.loads(process.stdout)["regions"] == [{"target": "reference", "nodes": 1}]
    assert "no target given: using reference, which runs on numpy and is slow, because" in process.stderr
    assert process.stderr.count("\n") == 1 and "x86" in process.stderr
    for arguments in (("run", "relu.onnx"), ("partition", "relu.onnx"), ("show", "relu.onnx", "--after", "partition")):
        assert module(cli_folder, *arguments, INLAID_DISABLED_PLUGINS=other_kinds).returncode == 0, arguments
    quiet = module(cli_folder, "run", "core.inlaid", INLAID_DISABLED_PLUGINS=other_kinds)
    assert quiet.stderr == ""


def test_a_warning_names_the_plugin_that_is_missing(cli_folder: Path) -> None:
    program = "import inlaid, warnings; warnings.simplefilter('error'); inlaid.compile('relu.onnx')"
    process = subprocess.run(
        [sys.executable, "-c", program],
        cwd=cli_folder, env={**os.environ, "INLAID_DISABLED_PLUGINS": "x86"}, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert "DefaultTargetWarning" in process.stderr and "unset INLAID_DISABLED_PLUGINS" in process.stderr
