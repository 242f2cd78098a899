"""A fault of Inlaid reaches the user as an error that names operator and node; the caller's own exceptions keep their type."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx.parser
import pytest

import inlaid
from inlaid import onnx_backend
from inlaid.driver import compile_module
from inlaid.passes import integer_ranges
from inlaid.support.faults import reports_faults
from inlaid.tensor import te
from inlaid_cli import main
from inlaid_cli.exit_codes import ExitCode
from inlaid_onnx import load
from inlaid_runtime.errors import InputError, InternalError, ModelImportError, ScheduleError, TargetError
from inlaid_runtime.execution.executor import Executor

QUANTIZED = """<ir_version: 8, opset_import: ["" : 17]>
g (uint8[2, 3] x) => (int32[4, 2] y) {
  w = Constant<value = int8[3, 4] {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12}>()
  [product] p = MatMulInteger(x, w)  [moved] t = Transpose<perm = [1, 0]>(p)  [last] y = Neg(t)
}"""
STATEMENT = "a fault of Inlaid, not of the model: "


def parsed(text: str = QUANTIZED) -> onnx.ModelProto:
    return onnx.parser.parse_model(text)


@pytest.fixture
def fault(monkeypatch: pytest.MonkeyPatch) -> None:
    """Break the pass that follows the ranges of integers through moved axes."""
    monkeypatch.delattr(integer_ranges, "_shape")


@pytest.mark.usefixtures("fault")
@pytest.mark.parametrize(
    "entry",
    [
        lambda path: inlaid.compile(path, ["reference"], cache=False),
        lambda path: inlaid.compile(parsed(), ["reference"]),
        lambda path: inlaid.partition(parsed(), ["reference"]),
        lambda path: inlaid.estimate(path, ["reference"]),
        lambda path: compile_module(load(parsed()), ["reference"]),
        lambda path: onnx_backend.prepare(parsed(), "reference").run([np.zeros((2, 3), np.uint8)]),
    ],
)
def test_entry_points_name_operator_and_node(entry: Any, tmp_path: Path) -> None:
    path = tmp_path / "model.onnx"
    onnx.save(parsed(), path)
    with pytest.raises(InternalError) as caught:
        entry(str(path))
    error = caught.value
    assert isinstance(error.__cause__, NameError)
    assert error.message.startswith(f"{STATEMENT}NameError: name '_shape' is not defined (in inlaid.passes.integer_ranges, line ")
    assert (error.operator, str(error.node).rpartition(":")[2]) == ("matmul", "product")
    assert "please report it" in str(error)


@pytest.mark.usefixtures("fault")
def test_the_command_reports_a_fault(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "model.onnx"
    onnx.save(parsed(), path)
    with pytest.raises(SystemExit) as status:
        main(["compile", str(path), "--target", "reference", "-o", str(tmp_path / "model.inlaid"), "--no-cache"])
    assert status.value.code == ExitCode.INTERNAL
    shown = capsys.readouterr().err
    assert STATEMENT in shown
    assert "operator matmul, at " in shown
    assert shown.rstrip().endswith("please report it with the traceback that --debug prints")


@pytest.mark.parametrize(("plugin", "whose"), [(None, "a fault of Inlaid,"), ("acme", "a fault of Inlaid or of a plugin,")])
def test_a_schedule_that_cannot_be_applied_is_a_fault(plugin: str | None, whose: str) -> None:
    @reports_faults
    def entry() -> None:
        x = te.placeholder((4,), "float32")
        schedule = inlaid.Schedule(te.program([x], [te.compute((4,), lambda i: x[i], "copied")]))
        try:
            schedule.split(schedule.loops("copied")[0], (None, 0))
        except ScheduleError as error:
            error.plugin = plugin
            raise

    with pytest.raises(InternalError) as caught:
        entry()
    assert caught.value.plugin == plugin
    assert caught.value.message.startswith(f"{whose} not of the model: ScheduleError: ")
    assert "\n" not in caught.value.message  # where the error prints the program


def test_a_fault_during_a_run(monkeypatch: pytest.MonkeyPatch) -> None:
    def run_plan(*_: object) -> None:
        raise OverflowError("too large")

    executable = inlaid.compile(parsed(), ["reference"])
    monkeypatch.setattr(Executor, "_run_plan", run_plan)
    with pytest.raises(InternalError, match=f"^{STATEMENT}OverflowError: too large; please report it"):
        executable.run({"x": np.zeros((2, 3), np.uint8)})


@pytest.mark.parametrize("fault", [KeyError("a"), AssertionError("b"), ScheduleError("c")])
def test_exceptions_of_the_caller_keep_their_type(fault: Exception) -> None:
    def progress(stage: str, count: int, total: int) -> None:
        raise fault

    with pytest.raises(type(fault)) as caught:
        inlaid.compile(parsed(), ["reference"], progress=progress)
    assert caught.value is fault


@pytest.mark.parametrize("file", ["<stdin>", "<string>", "<ipython-input-1>"])
def test_exceptions_of_interactive_code_keep_their_type(file: str) -> None:
    names: dict[str, Any] = {"__name__": "__main__"}
    exec(compile("def progress(stage, completed, total):\n    raise KeyError(stage)", file, "exec"), names)
    with pytest.raises(KeyError):
        inlaid.compile(parsed(), ["reference"], progress=names["progress"])


def test_arguments_of_a_wrong_type_and_damaged_models_are_no_faults() -> None:
    wrong: Any = 42
    with pytest.raises(InputError):
        inlaid.compile(wrong)
    with pytest.raises(TargetError):
        inlaid.compile(parsed(), wrong)
    with pytest.raises(TypeError):
        inlaid.compile(parsed(), ["reference"], unknown=wrong)
    with pytest.raises(ModelImportError):
        inlaid.compile(b"", ["reference"])
