from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest

from inlaid import ops
from inlaid.graph.interp import evaluate
from inlaid.graph.ir import Module, constant, function, var
from inlaid.graph.text import show
from inlaid.graph.verify import verify
from inlaid.passes.manager import Diff, Dump, FunctionPass, ModulePass, PassManager, Timing, UnitPass, Verify, bisect
from inlaid.tensor import te
from inlaid.tensor.ir import LoopProgram
from inlaid.tensor.lower import lower
from inlaid.tensor.text import show as show_program
from inlaid.tensor.transform.lower_blocks import flatten_blocks, simplify_program
from inlaid_runtime.errors import CompileError, VerifyError
from inlaid_runtime.types import TensorType

X = var("x", TensorType((), "float32"))
MODULE = Module({"main": function([X], ops.neg(X))})


@dataclass(frozen=True)
class Append:
    """A pass over strings."""

    text: str
    requires: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        return f"append_{self.text}" if self.text else "nothing"

    def run(self, unit: str) -> str:
        return unit + self.text if self.text else unit


def test_passes_run_in_order_over_any_unit() -> None:
    assert PassManager([Append("a"), Append("b", ("append_a",))]).run("x") == "xab"
    with pytest.raises(CompileError, match="append_b must run after append_a"):
        PassManager([Append("b", ("append_a",)), Append("a")])


def test_the_same_manager_runs_passes_over_loop_programs() -> None:
    x = te.placeholder((4,), "float32", "x")
    y = te.compute((4,), lambda i: x[i] * 2.0, "y")
    program = lower((y,), [x], "double")
    timing, texts = Timing[LoopProgram](), list[str]()
    passes = [UnitPass("flatten", flatten_blocks), UnitPass("simplify", simplify_program, ("flatten",))]
    result = PassManager(passes, [timing, Diff(show_program, texts.append)]).run(program)
    assert [name for name, _ in timing.seconds] == ["flatten", "simplify"]
    assert texts and texts[0].startswith("--- before flatten")
    assert isinstance(result, LoopProgram)


def test_module_and_function_passes() -> None:
    twice = FunctionPass("twice", lambda target: function(target.params, ops.neg(target.body)))
    drop = ModulePass("drop", lambda module: Module({"main": module.main}))
    unit = Module({"main": MODULE.main, "other": MODULE.main})
    result = PassManager([twice, drop]).run(unit)
    assert list(result.functions) == ["main"]
    assert evaluate(result, [np.asarray(3, np.float32)]) == 3


def test_timing_dump_and_diff(tmp_path: Path) -> None:
    timing, diffs = Timing[str](), list[str]()
    dump = Dump(tmp_path / "dump", lambda unit: f"{unit}\n")
    manager = PassManager([Append("a"), Append(""), Append("b")], [timing, dump, Diff(lambda unit: f"{unit}\n", diffs.append)])
    assert manager.run("x") == "xab"
    assert [name for name, _ in timing.seconds] == ["append_a", "nothing", "append_b"]
    assert "append_a" in str(timing) and " ms" in str(timing)
    written = sorted((path.name, path.read_text()) for path in (tmp_path / "dump").iterdir())
    assert written == [("00-input.txt", "x\n"), ("01-append_a.txt", "xa\n"), ("03-append_b.txt", "xab\n")]
    assert diffs[0] == "--- before append_a\n+++ after append_a\n@@ -1 +1 @@\n-x\n+xa\n"
    assert len(diffs) == 2


def test_verification_and_errors_name_the_pass() -> None:
    y = var("y", X.type)
    broken = FunctionPass("broken", lambda target: function(target.params, ops.add(target.body, y)))
    with pytest.raises(VerifyError) as caught:
        PassManager([broken], [Verify(verify)]).run(MODULE)
    assert caught.value.__notes__ == ["after pass broken"]

    def fail(target: object) -> object:
        raise CompileError("no")

    with pytest.raises(CompileError) as failed:
        PassManager([ModulePass("fails", fail)]).run(MODULE)  # type: ignore[arg-type]
    assert failed.value.__notes__ == ["in pass fails"]


@pytest.mark.parametrize("guilty", [0, 3, 6, None])
def test_bisect_names_the_first_pass_whose_output_differs(guilty: int | None) -> None:
    good = FunctionPass("good", lambda target: function(target.params, ops.neg(ops.neg(target.body))))
    bad = FunctionPass("bad", lambda target: function(target.params, ops.add(target.body, constant(np.float32(1)))))
    passes = [good] * 7
    if guilty is not None:
        passes[guilty] = bad
    inputs = [np.asarray(3, np.float32)]
    expected = evaluate(MODULE, inputs)
    pass_name = bisect(passes, MODULE, lambda unit: bool(np.array_equal(evaluate(unit, inputs), expected)))
    assert pass_name == (None if guilty is None else "bad")
    assert "neg" in show(MODULE)
