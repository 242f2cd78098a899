"""Where `inlaid compile` writes to."""

from __future__ import annotations

from pathlib import Path

import pytest

from inlaid.plugins.registry import default_registry
from inlaid_cli.exit_codes import ExitCode

from .conftest import Run


@pytest.mark.skipif("microcontroller" not in default_registry().kinds(), reason="the microcontroller plugin is not installed")
def test_a_target_that_writes_files_takes_a_folder_with_or_without_a_slash(run: Run, cli_folder: Path) -> None:
    common = ("compile", "relu.onnx", "--dim", "batch=1", "--target", "microcontroller")
    written = {}
    for output in ("with/", "without"):
        code, _, err = run(*common, "-o", output)
        assert code == 0, err
        written[output] = {path.name: path.read_bytes() for path in (cli_folder / output).iterdir()}
    assert "relu.c" in written["with/"] and written["with/"] == written["without"]
    assert run(*common, "-o", "without")[0] == 0  # into the folder that is there already
    assert run(*common, "-o", "relu.inlaid")[0] == 0 and (cli_folder / "relu.inlaid").is_file()


def test_a_target_that_writes_packages_takes_no_folder(run: Run, cli_folder: Path) -> None:
    code, out, err = run("compile", "relu.onnx", "--target", "reference", "-o", "folder/")
    assert (code, out) == (ExitCode.INPUT, "")
    assert "expected a file for the package, got the folder folder/; give a file, such as -o relu.inlaid" in err
    assert not (cli_folder / "folder").exists()
