"""Random models of `make random-models`: a hundred of a fixed seed; and that what the command looks for is found."""

from __future__ import annotations

import dataclasses
import os
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np
import pytest

import random_models
from inlaid import ops
from inlaid.graph import ir
from inlaid.plugins.registry import default_registry
from inlaid_runtime.errors import InputError, VerifyError
from inlaid_runtime.execution.executable import Executable
from inlaid_runtime.types import TensorType
from random_graphs import processes, random_numbers
from random_graphs.check import Outcome, Variant, check
from random_graphs.extents import Extent, extent_dim
from random_graphs.models import focus, further_targets, model, variants
from random_graphs.modules import OPERATORS, ModuleCase
from random_graphs.numerics import Expected, compare, expected
from random_graphs.onnx_host import MAKERS, names_at
from random_graphs.onnx_models import OPSETS, OnnxCase
from random_graphs.save import save
from random_graphs.shrink import shrunk

SEED, COUNT, EACH = 38, 100, 5
TARGET = [Variant("x86:threads=1")]

needs_x86 = pytest.mark.skipif(
    "x86" not in default_registry().kinds(), reason='the x86 plugin is not installed: pip install "inlaid[x86]"'
)


@needs_x86
@pytest.mark.parametrize("first", range(0, COUNT, EACH))
def test_random_models(first: int) -> None:
    for number in range(first, first + EACH):
        case = model(SEED, number)
        outcome = check(case, variants(case, number, further_targets()))
        assert not outcome.failed, f"{outcome}\npython benchmarks/random_models.py --seed {SEED} --only {number}\n{outcome.trace}"


@needs_x86
def test_random_numbers() -> None:
    assert not random_numbers.problems()


def test_each_operator_is_drawn_often() -> None:
    draws = Counter(name for turn in range(random_models.COUNT // 2) for name in focus(OPERATORS, 1, turn))
    assert set(draws) == set(ops.TABLE)
    assert min(draws.values()) >= random_models.DRAWS
    names = {name.split(",")[0] for name in MAKERS}
    assert len(names) >= 140
    assert {name.split(",")[0] for opset in OPSETS for name in names_at(opset)} == names


def test_models_are_repeatable() -> None:
    for number in (2, 3):
        first, second = model(5, number), model(5, number)
        assert str(first) == str(second)
        for one, other in zip(first.inputs, second.inputs, strict=True):
            assert one.keys() == other.keys()
            assert all(np.array_equal(one[name], other[name], equal_nan=one[name].dtype.kind == "f") for name in one)


# --- what the command looks for is found ------------------------------------------------------------------------------


def squares() -> ModuleCase:
    """A module of two outputs, at three sizes."""
    sizes = (2, 4, 0)
    x = ir.var("x", TensorType(("n", 3), "float32"))
    body = ir.tuple_([ops.mul(x, x), ops.argmax(ops.tanh(x), axis=1)])
    inputs = [{"x": np.random.default_rng(size).normal(size=(size, 3)).astype(np.float32)} for size in sizes]
    return ModuleCase(ir.Module({"main": ir.function([x], body)}), tuple(inputs), {"n": sizes})


@dataclasses.dataclass(frozen=True)
class Broken(ModuleCase):
    """A module that fails: `raised` is raised when it compiles, or the outputs are another module's."""

    raised: type[Exception] | None = None

    def compiled(self, target: str, run: int | None = None) -> Executable:
        if self.raised is not None:
            raise self.raised("of the test")
        shifted = [ops.add(item, ir.constant(np.float32(1))) if item.type.dtype.is_float else item for item in self._results()]
        body = ir.tuple_(shifted)
        return ModuleCase(ir.Module({"main": ir.function(self.module.main.params, body)}), self.inputs, self.sizes).compiled(target)

    def _results(self) -> Sequence[Any]:
        body = self.module.main.body
        return body.fields if isinstance(body, ir.Tuple) else (body,)


def broken(**changes: Any) -> Broken:
    case = squares()
    return Broken(case.module, case.inputs, case.sizes, **changes)


REFERENCE = [Variant("reference")]


def test_failures_are_told_apart() -> None:
    assert check(squares(), [*REFERENCE, Variant("reference", 1), Variant("reference", saved=True)]).state == "right"
    wrong = check(broken(), REFERENCE)
    assert (wrong.state, wrong.reason.split(";")[0]) == ("wrong", "run 0: output 0 differs at 6 of 6 elements of float32[2, 3]")
    assert check(broken(raised=InputError), REFERENCE).state == "refused"
    for internal in (KeyError, AssertionError, RecursionError, VerifyError):
        outcome = check(broken(raised=internal), REFERENCE)
        assert outcome.kind == ("internal", internal.__name__)
        assert internal.__name__ in outcome.trace


def test_a_process_that_dies_or_hangs_is_found() -> None:
    def work(key: str) -> str:
        if key == "dead":
            os._exit(9)
        while key == "endless":
            pass
        if key == "asleep":
            time.sleep(600)
        return key

    results = dict(processes.each(["dead", "fine", "endless"], work, 2, 1.0))
    assert {key: (ended.problem, ended.result) for key, ended in results.items()} == {
        "dead": ("crash", None),
        "fine": ("", "fine"),
        "endless": ("slow", None),
    }
    assert processes.alone(partial(work, "asleep"), 0.05).problem == "slow"


def test_failing_models_become_smaller(tmp_path: Any) -> None:
    case = broken()
    small = shrunk(case, check(case, REFERENCE), REFERENCE, 60.0)
    assert isinstance(small, ModuleCase) and small.operators() == {"mul": 1}
    save(small, tmp_path / "module")
    assert "mul(%x, %x)" in (tmp_path / "module" / "module.txt").read_text()
    with np.load(tmp_path / "module" / "inputs0.npz") as arrays:
        np.testing.assert_array_equal(arrays["x"], case.inputs[0]["x"])


def test_failing_onnx_models_become_smaller(tmp_path: Any) -> None:
    """An output of one node is changed: the model that is left has this node alone."""
    case = model(8, 5)
    assert isinstance(case, OnnxCase)
    name = next(name for name, value in reversed(case.values.items()) if value.dtype == "float32" and value.arrays[0].size)
    producers = [node for node in case.model.graph.node if name in node.output]
    case = changed(case, name)
    outcome = check(case, REFERENCE)
    assert outcome.state == "wrong"
    small = shrunk(case, outcome, REFERENCE, 60.0)
    assert isinstance(small, OnnxCase) and small.operators() == {producers[0].op_type: 1}
    save(small, tmp_path)
    assert (tmp_path / "model.onnx").stat().st_size


def changed(case: OnnxCase, name: str) -> OnnxCase:
    """A model that expects other values of an output; it becomes one if it is none."""
    values = dict(case.values)
    values[name] = dataclasses.replace(values[name], arrays=tuple(array + np.float32(50) for array in values[name].arrays))
    return dataclasses.replace(case, values=values).part(case.model.graph.node, [name])


def test_elements_that_rounding_decides_are_not_compared() -> None:
    x = ir.var("x", TensorType((4,), "float32"))
    total = ops.exp(x)
    body = ir.tuple_([ops.floor(total), ops.floor(ops.add(x, ir.constant(np.float32(1))))])
    module = ir.Module({"main": ir.function([x], body)})
    values = np.array([0.0, 1.5, np.log(3), -2.0], np.float32)
    expectation = expected(module, {"x": values}, 0)
    floor, exact = (np.asarray(value) for value in expectation.values)
    for index, decided in enumerate((False, True, False, True)):  # exp(0) and exp(log(3)) are close to an integer
        off_by_one = floor.copy()
        off_by_one[index] += 1
        assert bool(compare(expectation, [off_by_one, exact]).error) == decided, index
    moved = exact + np.float32(0.5)
    assert compare(expectation, [floor, moved]).error.startswith("output 1 differs at 4 of 4 elements")
    assert compare(expectation, [floor]).error == "expected 2 outputs, got 1"
    assert "expected float32" in compare(expectation, [floor.astype(np.float64), exact]).error
    assert compare(Expected((np.array([np.nan, np.inf]),), (np.zeros(2),)), [np.array([np.inf, np.nan])]).error


def test_extents_remember_their_expressions() -> None:
    n, m = (Extent(value, ir.var("x", TensorType((name,), "int8")).type.shape[0]) for value, name in ((3, "n"), (5, "m")))
    for extent, value, text in (
        (n + m, 8, "(n + m)"),
        (2 * n - 1, 5, "((n * 2) + -1)"),
        (1 - n, -2, "((n * -1) + 1)"),
        (-(-m // 2), 3, "(((m * -1) // 2) * -1)"),
        (n * 6 // 3, 6, "(n * 2)"),
    ):
        assert (int(extent), repr(extent_dim(extent))) == (value, text)
    assert extent_dim(n - n) == 0 and extent_dim(7) == 7


def test_the_command(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    def answers(keys: Sequence[int], work: Any, jobs: int, limit: float) -> Any:
        for key in keys:
            yield key, processes.Ended(Outcome("right", operators={"add": 3}) if key else Outcome("wrong", "of the test"))

    monkeypatch.setattr(processes, "each", answers)
    monkeypatch.setattr(processes, "alone", lambda work, limit: processes.Ended([]))
    assert random_models.main(["--count", "3", "--seed", "1"]) == 1
    printed = capsys.readouterr().out
    assert "seed 1;" in printed and "model 0: wrong: of the test" in printed
    assert "    3 add" in printed and "2 right, 1 wrong, 0 refused, 0 internal, 0 crash, 0 slow" in printed
    monkeypatch.setattr(
        processes, "each", lambda keys, work, jobs, limit: ((key, processes.Ended(Outcome("right"))) for key in keys)
    )
    assert random_models.main(["--count", "3", "--seed", "1"]) == 0
    assert random_models.main(["--count", "1000", "--seed", "1"]) == 1, "operators that are drawn too rarely"


def test_the_table_has_columns() -> None:
    counts: Mapping[str, int] = {"a": 1, "bb": 22, "c": 3}
    assert random_models.table(counts, 2) == "    1 a       3 c\n   22 bb"
