"""The report on a partitioned model: as text, and as data."""

from __future__ import annotations

import json
from functools import partial

import numpy as np
from hypothesis import given, settings
from tests.unit.graph.strategies import Program

from inlay import arith, ops
from inlay.arith import SizeVar
from inlay.graph import ir
from inlay.partitioning import partition
from inlay.partitioning.annotate import Annotated, Claim
from inlay.partitioning.explain import explain
from inlay.partitioning.place import by_priority
from inlay.partitioning.report import Report
from inlay.plugins import Accept, AcceptIf
from inlay.types import TensorType

from .fakes import takers_of, taking
from .test_random import judges_of, plan_programs, targets

N = SizeVar("n", 1, 8)


def report(first: ir.Var) -> Report:
    """Of a model that a takes the most of, b a little, and the reference target the rest."""
    second = ops.neg(ops.relu(first, span=ir.Span("m.onnx", "act")), span=ir.Span("m.onnx", "turn"))
    body = ops.add(ops.exp(second, span=ir.Span("m.onnx", "exp")), ir.constant(np.float32(1)))
    module = ir.Module({"main": ir.function([first], body)})
    takers = takers_of({"a": taking("relu", "add"), "b": taking("neg")})
    return explain(partition(module, takers), takers)


TEXT = """\
4 operators in 4 regions
  a: 2 operators
  b: 1 operator
  reference: 1 operator

region0_a on a: 1 operator, 24 bytes in, 24 bytes out
region1_b on b: 1 operator, 24 bytes in, 24 bytes out
region2_reference on reference: 1 operator, 24 bytes in, 24 bytes out
region3_a on a: 1 operator, 24 bytes in, 24 bytes out

neg at m.onnx:turn, exp at m.onnx:exp keep region0_a and region3_a apart

If a took neg at m.onnx:turn, exp at m.onnx:exp: 1 region instead of 4, 24 bytes instead of 96 across borders
If a took neg at m.onnx:turn: 3 regions instead of 4, 72 bytes instead of 96 across borders
If a took exp at m.onnx:exp: 3 regions instead of 4, 72 bytes instead of 96 across borders
If b took relu at m.onnx:act: 3 regions instead of 4, 72 bytes instead of 96 across borders
If b took exp at m.onnx:exp: 3 regions instead of 4, 72 bytes instead of 96 across borders

relu at m.onnx:act: a
neg at m.onnx:turn: b
    a: rejected: takes no neg
exp at m.onnx:exp: reference
    a: rejected: takes no exp
    b: rejected: takes no exp
add at ?: a"""


def test_text() -> None:
    found = report(ir.var("x", TensorType((2, 3), "float32")))
    assert found.to_text() == TEXT
    assert found.summary() == TEXT[: TEXT.index("\n\nneg")]


def test_data() -> None:
    found = report(ir.var("x", TensorType((N, 3), "float32"))).to_json()
    assert json.loads(json.dumps(found)) == found
    assert found["operators"][2] == {
        "number": 2,
        "node": "m.onnx:exp",
        "operator": "exp",
        "type": "Tensor[(n, 3), float32]",
        "target": "reference",
        "region": "region2_reference",
        "composite": "",
        "reads": [1],
        "seconds": None,
        "verdicts": {"a": "rejected: takes no exp", "b": "rejected: takes no exp", "reference": "accepted"},
    }
    assert found["regions"][1] == {
        "name": "region1_b",
        "target": "b",
        "operators": 1,
        "bytes_in": None,
        "bytes_out": None,
        "condition": "",
        "seconds": None,
        "transfer": None,
        "measured": None,
        "earlier": "",
        "through": [],
    }


def test_one_operator_keeps_regions_apart() -> None:
    x = ir.var("x", TensorType((4,), "float32"))
    act = ops.gelu(ops.relu(x), approximate=False, span=ir.Span("m.onnx", "/h.3/mlp/act"))
    takers = takers_of({"a": taking("relu", "add"), "b": taking("gelu")})
    found = explain(partition(ir.Module({"main": ir.function([x], ops.add(act, x))}), takers), takers)
    assert "One operator, gelu at m.onnx:/h.3/mlp/act, keeps region0_a and region2_a apart" in found.to_text()
    (change,) = [item for item in found.changes if item.target == "a"]
    assert (change.regions, change.regions_then, change.operators) == (3, 1, (1,))


def test_a_longer_way_that_would_close_a_cycle() -> None:
    x = ir.var("x", TensorType((4,), "float32"))
    value: ir.Expr = ops.relu(x)
    for number in range(5):
        value = ops.exp(value) if number % 2 else ops.neg(value)
    takers = takers_of({"a": taking("relu")})
    found = explain(partition(ir.Module({"main": ir.function([x], ops.relu(value))}), takers), takers)
    assert "region2_a would close a cycle with region0_a through neg at ?, exp at ?, neg at ? and 2 more" in found.to_text()


def test_nothing_is_advised_that_was_not_counted() -> None:
    """Control flow between operators: regions are not counted there."""
    x, c = ir.var("x", TensorType((4,), "float32")), ir.var("c", TensorType((), "bool"))
    body = ops.relu(ir.if_(c, ops.neg(ops.relu(x)), x))
    takers = takers_of({"a": taking("relu")})
    found = explain(partition(ir.Module({"main": ir.function([x, c], body)}), takers), takers)
    assert not found.changes


def place_as_if(moved: tuple[int, ...], target: int, name: str, annotated: Annotated) -> tuple[Claim, ...]:
    """By priority, operator by operator, but for some that go to a target."""
    homes = {id(call): claim.target for claim in by_priority(annotated) for call in claim.members}
    homes.update((id(annotated.calls[number]), target) for number in moved)
    return tuple(Claim(homes[id(call)], (call,), Accept()) for call in annotated.calls)


@settings(max_examples=40, deadline=None)
@given(plan_programs(), targets)
def test_changes_are_what_a_plugin_that_took_more_would_bring(program: Program, drawn: list[tuple[int, float]]) -> None:
    """Counted anew with a target that takes the operators of a change as well."""
    judges = judges_of(drawn)
    takers = takers_of(judges)
    found = partition(program.module, takers)
    report = explain(found, takers)
    numbers = {str(taker.target): number for number, taker in enumerate(takers)}
    for change in report.changes[:3]:
        then = partition(program.module, takers, place=partial(place_as_if, change.operators, numbers[change.target]))
        assert len(then.regions) == change.regions_then


def test_nothing_to_say() -> None:
    x = ir.var("x", TensorType((2,), "float32"))
    takers = takers_of({"a": taking()})
    found = explain(partition(ir.Module({"main": ir.function([x], x)}), takers), takers)
    assert found.to_text() == found.summary() == "0 operators in 0 regions"
    assert found.to_json() == {"operators": [], "regions": [], "changes": []}


def test_conditions() -> None:
    x = ir.var("x", TensorType((N,), "float32"))
    takers = takers_of({"a": lambda call: AcceptIf(arith.compare("!=", N, 5))})
    found = explain(partition(ir.Module({"main": ir.function([x], ops.relu(x))}), takers), takers)
    assert "where (n != 5); else other targets" in found.to_text()
    assert "a varying number of bytes in" in found.to_text()
