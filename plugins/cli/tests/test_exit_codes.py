"""Exit codes tell usage, input, unsupported and internal errors apart, as docs/command-line.md says."""

from __future__ import annotations

import re
from pathlib import Path

import click
import pytest

from inlaid_cli.exit_codes import ExitCode, exit_code
from inlaid_runtime import errors

from .conftest import Run

PAGE = Path(__file__).parents[3] / "docs" / "command-line.md"


def test_the_page_lists_every_code() -> None:
    rows = re.findall(r"^\| (\d+) \| ([\w ]+) \|", PAGE.read_text(encoding="utf-8"), re.MULTILINE)
    assert rows == [(str(int(code)), code.label) for code in ExitCode]


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (errors.CheckFailed("x"), ExitCode.CHECK_FAILED),
        (click.UsageError("x"), ExitCode.USAGE),
        (errors.TargetError("x"), ExitCode.USAGE),
        (errors.ModelImportError("x"), ExitCode.INPUT),
        (errors.PackageError("x"), ExitCode.INPUT),
        (errors.InputError("x"), ExitCode.INPUT),
        (errors.OutputError("x"), ExitCode.INPUT),
        (errors.KernelFault("x"), ExitCode.INPUT),
        (FileNotFoundError("x"), ExitCode.INPUT),
        (errors.Unsupported("x"), ExitCode.UNSUPPORTED),
        (errors.CompileError("x"), ExitCode.UNSUPPORTED),
        (errors.OutOfMemory("x"), ExitCode.UNSUPPORTED),
        (MemoryError("x"), ExitCode.UNSUPPORTED),
        (errors.PluginError("x"), ExitCode.INTERNAL),
        (errors.VerifyError("x"), ExitCode.INTERNAL),
        (KeyError("x"), ExitCode.INTERNAL),
    ],
)
def test_errors_have_codes(error: BaseException, code: ExitCode) -> None:
    assert exit_code(error) is code


def test_commands_end_with_them(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    assert run("targets")[0] == ExitCode.SUCCESS
    for usage in (("frobnicate",), ("compile",), ("run", "relu.onnx", "--seed", "-1"), ("run", "relu.onnx", "--target", "z80")):
        assert run(*usage)[0] == ExitCode.USAGE, usage
    assert run("compile", "relu.onnx", "--target", "reference", "-o", "relu.inlaid")[0] == ExitCode.SUCCESS
    for arguments in (
        ("show", "cut.onnx"),
        ("compile", "nowhere.onnx"),
        ("run", "relu.inlaid", "--input", "x=nowhere.npy"),
        ("compile", "relu.onnx", "--dim", "n=4"),
        ("run", "relu.onnx", "--dim", "n=4"),
        ("run", "relu.inlaid", "--dim", "n=4"),
    ):
        assert run(*arguments)[0] == ExitCode.INPUT, arguments
    for usage in ("batch=0", "batch=8:1"):
        assert run("compile", "relu.onnx", "--dim", usage)[0] == ExitCode.USAGE, usage
    assert run("export", "relu.onnx", "--target", "reference", "-o", "librelu.so")[0] == ExitCode.UNSUPPORTED

    def broken(*_: object, **__: object) -> None:
        raise KeyError("lost")

    monkeypatch.setattr("inlaid.load", broken, raising=False)
    code, _, err = run("show", "relu.onnx")
    assert code == ExitCode.INTERNAL and "please report it" in err
