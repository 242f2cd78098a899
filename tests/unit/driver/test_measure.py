"""Placement by what was measured, and the seconds of regions."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import Any

import pytest
from tests.unit.partitioning.fakes import Judge, fake_candidates, make_registry, taking

import inlaid
from inlaid import ops
from inlaid.driver import build_regions, cut
from inlaid.driver.measure import MeasuredCosts, region_seconds, usual_inputs
from inlaid.graph import ir
from inlaid.graph.pattern import is_op, wildcard
from inlaid.partitioning import annotate
from inlaid.plugins import Accept, Loaded, OpRule, RuntimeModule, Target
from inlaid.settings import MEASURED, Settings
from inlaid_runtime.arith import SizeVar
from inlaid_runtime.execution.executable import Executable
from inlaid_runtime.types import TensorType

pytest.importorskip("scipy", reason='needs SciPy: pip install "inlaid[cost]"')
X = ir.var("x", TensorType((4, 4), "float32"))
MODEL = ir.Module({"main": ir.function([X], ops.neg(ops.relu(X)))})
BOTH: dict[str, Judge] = {"a": taking("relu", "neg"), "b": taking("relu", "neg")}


class Slow(RuntimeModule):
    """A runtime that takes its time."""

    def __init__(self, inner: Any) -> None:
        self.inner = inner

    def check(self, artifact: Any) -> str | None:
        return None

    def load(self, artifact: Any, constants: Mapping[str, Any]) -> Any:
        kernel = self.inner.load(artifact, constants).allocating

        class Kernel:
            def call(self, inputs: Sequence[Any]) -> Sequence[Any]:
                time.sleep(0.01)
                outputs: Sequence[Any] = kernel.call(inputs)
                return outputs

        return Loaded(allocating=Kernel())


def test_operators_go_where_they_run_fastest(monkeypatch: pytest.MonkeyPatch) -> None:
    registry = make_registry(BOTH)
    runtime = type(registry).runtime

    def slowed(self: Any, target: Target, device: int = 0) -> Any:
        module = runtime(self, target, device)
        return Slow(module) if target.kind == "a" else module

    monkeypatch.setattr(type(registry), "runtime", slowed)
    by_measure = cut(MODEL, ["a", "b"], registry, settings=Settings(placement=MEASURED))[0]
    assert list(by_measure.regions.values()) == [1]
    assert list(cut(MODEL, ["a", "b"], registry)[0].regions.values()) == [0]


def test_equal_operators_are_measured_once_and_composites_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    pair = OpRule(is_op("neg")(is_op("relu")(wildcard())), "pair")
    judges: dict[str, Judge] = {"a": (pair, OpRule("*", "any", lambda call: Accept()))}
    body = ops.neg(ops.relu(ops.neg(ops.relu(X))))
    candidates, registry = fake_candidates(judges), make_registry(judges)
    capabilities = tuple(registry.capabilities(candidate.target) for candidate in candidates)
    costs = MeasuredCosts(capabilities, candidates=candidates, registry=registry)
    member_counts: list[int] = []
    original = MeasuredCosts._measure
    monkeypatch.setattr(
        MeasuredCosts, "_measure", lambda self, claim: member_counts.append(len(claim.members)) or original(self, claim)
    )
    claims = [claim for claim in annotate(ir.function([X], body), candidates).claims if claim.target == 0]
    seconds = [costs.seconds(claim) for claim in claims]
    assert sorted(member_counts) == [1, 1, 2] and len(claims) == 6
    assert all(second > 0 for second in seconds)


def test_regions_of_a_model_are_timed_at_usual_sizes() -> None:
    x = ir.var("x", TensorType((SizeVar("n", 1, 8), 4), "float32"))
    module = ir.Module({"main": ir.function([x], ops.neg(ops.relu(x)))})
    judges: dict[str, Judge] = {"a": taking("relu")}
    registry = make_registry(judges)
    partitioned, candidates = cut(module, ["a"], registry)
    executable = Executable(build_regions(partitioned, candidates, registry), registry=registry)
    inputs = usual_inputs(executable)
    assert inputs["x"].shape == (4, 4)
    seconds = region_seconds(executable, inputs)
    assert list(seconds) == list(partitioned.regions) and all(second > 0 for second in seconds.values())


def test_an_estimate_is_for_programs() -> None:
    report = inlaid.estimate(MODEL, ["reference"])
    assert report.seconds == sum((region.seconds or 0) + (region.transfer or 0) for region in report.regions) > 0
    assert [item.operator for item in report.operators] == ["relu", "neg"]
