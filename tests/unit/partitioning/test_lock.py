"""Locks: decisions written down, replayed, and compared."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from tests.unit.graph.strategies import Program

from inlaid import ops
from inlaid.driver.compile import cut
from inlaid.graph import ir
from inlaid.graph.pattern import is_op, wildcard
from inlaid.partitioning import partition
from inlaid.partitioning.lock import Lock, replay
from inlaid.partitioning.outline import first_come
from inlaid.plugins import OpRule
from inlaid.settings import Settings
from inlaid_runtime.errors import CompileError, InputError, LockWarning
from inlaid_runtime.types import TensorType

from .fakes import Judge, fake_candidates, make_registry, taking
from .test_random import plan_programs, random_judges, targets

X = ir.var("x", TensorType((2, 3), "float32"))


def model(first: str = "act") -> ir.Module:
    """neg(relu(x)) + exp(relu(x)), whose first operator is at the node given."""
    start = ops.relu(X, span=ir.Span("m.onnx", first))
    body = ops.add(ops.neg(start, span=ir.Span("m.onnx", "turn")), ops.exp(start, span=ir.Span("m.onnx", "turn")))
    return ir.Module({"main": ir.function([X], body)})


BEFORE: dict[str, Judge] = {"a": taking("relu", "add"), "b": taking("neg", "exp", "relu")}
TEXT = """\
{
  "version": 1,
  "functions": {
    "main": [
      ["a", "", "relu at act"],
      ["b", "", "neg at turn"],
      ["b", "", "exp at turn"],
      ["a", "", "add"]
    ]
  }
}
"""


def make_lock(module: ir.Module, judges: dict[str, Judge]) -> Lock:
    candidates = fake_candidates(judges)
    return Lock.from_partition(partition(module, candidates), candidates)


def test_a_lock_is_text_that_gives_the_lock_back() -> None:
    lock = make_lock(model(), BEFORE)
    assert lock.to_text() == TEXT
    assert Lock.from_text(TEXT) == lock
    assert Lock.from_text(Lock({}).to_text()) == Lock({})


def test_a_replayed_lock_stays_where_rules_have_changed() -> None:
    after: dict[str, Judge] = {"a": taking("relu", "add", "neg"), "b": taking("neg", "exp", "relu")}
    registry = make_registry(after)
    with pytest.warns(LockWarning, match=r"(?s)- neg at turn: b\n\+ neg at turn: a"):
        partitioned, candidates = cut(model(), ["a", "b"], registry, settings=Settings(lock=TEXT))
    assert Lock.from_partition(partitioned, candidates).to_text() == TEXT


def test_a_lock_without_news_says_nothing() -> None:
    changes: list[tuple[str, ...]] = []
    candidates = fake_candidates(BEFORE)
    partition(model(), candidates, placer=replay(Lock.from_text(TEXT), candidates, first_come, changes.append))
    assert changes == []


@pytest.mark.parametrize(
    ("module", "judges", "message"),
    [
        (model("other"), BEFORE, "the lock is for another model: this model has no relu at act"),
        (model(), {"a": taking("add"), "b": BEFORE["b"]}, "a no longer accepts relu at act, but the lock places it there"),
        (model(), {"c": BEFORE["a"], "b": BEFORE["b"]}, "the lock needs target a, which is not listed"),
    ],
)
def test_a_lock_that_cannot_be_kept_is_an_error(module: ir.Module, judges: dict[str, Judge], message: str) -> None:
    candidates = fake_candidates(judges)
    with pytest.raises(CompileError, match=message) as caught:
        partition(module, candidates, placer=replay(Lock.from_text(TEXT), candidates, first_come, lambda lines: None))
    assert "inlaid partition --lock" in str(caught.value)


def test_an_operator_that_the_lock_does_not_know_is_an_error() -> None:
    candidates = fake_candidates(BEFORE)
    short = Lock({"main": Lock.from_text(TEXT).functions["main"][:-1]})
    with pytest.raises(CompileError, match="add"):
        partition(model(), candidates, placer=replay(short, candidates, first_come, lambda lines: None))


def test_composites_are_named_by_their_rules() -> None:
    pair = OpRule(is_op("relu")(is_op("neg")(wildcard())), "turned")
    module = ir.Module({"main": ir.function([X], ops.relu(ops.neg(X)))})
    lock = make_lock(module, {"a": (pair,)})
    assert '["a", "turned", "relu", "neg"]' in lock.to_text()
    candidates = fake_candidates({"a": (pair,)})
    again = partition(module, candidates, placer=replay(lock, candidates, first_come, lambda lines: None))
    assert Lock.from_partition(again, candidates) == lock


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{",
        "[]",
        '{"version": 1}',
        '{"version": 1, "functions": {"main": [["a"]]}}',
        '{"version": 1, "functions": 3}',
        "[" * 9999,
    ],
)
def test_text_that_is_no_lock_is_refused(text: str) -> None:
    with pytest.raises(InputError, match="this is not a valid lock"):
        Lock.from_text(text)


def test_a_lock_of_another_version_is_refused() -> None:
    with pytest.raises(InputError, match="expected lock version 1, got 2"):
        Lock.from_text(TEXT.replace("1", "2", 1))


@settings(max_examples=25, deadline=None)
@given(plan_programs(), targets)
def test_what_was_decided_is_decided_again(program: Program, drawn: list[tuple[int, float]]) -> None:
    module = program.module
    candidates = fake_candidates(random_judges(drawn))
    first = partition(module, candidates)
    lock = Lock.from_text(Lock.from_partition(first, candidates).to_text())
    changes: list[tuple[str, ...]] = []
    again = partition(module, candidates, placer=replay(lock, candidates, first_come, changes.append))
    assert changes == [] and Lock.from_partition(again, candidates) == lock
    assert list(again.regions.items()) == list(first.regions.items())
    assert np.array_equal([len(item.claims) for item in first.placements], [len(item.claims) for item in again.placements])
