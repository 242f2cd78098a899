"""The report on a partitioned model: as text, and as data."""

from __future__ import annotations

import json

import numpy as np

from inlay import arith, ops
from inlay.arith import SizeVar
from inlay.graph import ir
from inlay.partitioning import partition
from inlay.partitioning.explain import Report, explain
from inlay.plugins import AcceptIf
from inlay.types import TensorType

from .fakes import takers_of, taking

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
    assert found.summary() == TEXT[: TEXT.index("\n\nrelu")]


def test_data() -> None:
    found = report(ir.var("x", TensorType((N, 3), "float32"))).to_json()
    assert json.loads(json.dumps(found)) == found
    assert found["operators"][2] == {
        "node": "m.onnx:exp",
        "operator": "exp",
        "type": "Tensor[(n, 3), float32]",
        "target": "reference",
        "region": "region2_reference",
        "composite": "",
        "verdicts": {"a": "rejected: takes no exp", "b": "rejected: takes no exp", "reference": "accepted"},
    }
    assert found["regions"][1] == {
        "name": "region1_b",
        "target": "b",
        "operators": 1,
        "bytes_in": None,
        "bytes_out": None,
        "condition": "",
    }


def test_nothing_to_say() -> None:
    x = ir.var("x", TensorType((2,), "float32"))
    takers = takers_of({"a": taking()})
    found = explain(partition(ir.Module({"main": ir.function([x], x)}), takers), takers)
    assert found.to_text() == found.summary() == "0 operators in 0 regions"
    assert found.to_json() == {"operators": [], "regions": []}


def test_conditions() -> None:
    x = ir.var("x", TensorType((N,), "float32"))
    takers = takers_of({"a": lambda call: AcceptIf(arith.compare("!=", N, 5))})
    found = explain(partition(ir.Module({"main": ir.function([x], ops.relu(x))}), takers), takers)
    assert "where (n != 5); else other targets" in found.to_text()
    assert "a varying number of bytes in" in found.to_text()
