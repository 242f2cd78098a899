"""ONNX's Backend interface on Inlaid."""

from __future__ import annotations

import numpy as np
import onnx
import onnx.parser
import pytest
from onnx import helper

import inlaid.onnx_backend as backend
from inlaid_runtime.errors import InputError, ModelImportError


def parse(body: str) -> onnx.ModelProto:
    return onnx.parser.parse_model(f'<ir_version: 8, opset_import: ["" : 17]>\n{body}')


def test_prepare_and_run():
    prepared = backend.prepare(parse("g (float[2] a, float[2] b) => (float[2] y) { y = Add(a, b) }"), device="reference")
    (y,) = prepared.run([np.float32([1, 2]), np.float32([3, 4])])
    assert y.tolist() == [4, 6]
    (y,) = prepared.run({"b": np.float32([1, 2]), "a": np.float32([3, 4])})
    assert y.tolist() == [4, 6]
    assert len(prepared.programs) == 1


def test_shape_valued_inputs_are_bound_at_the_first_run():
    prepared = backend.prepare(parse("g (float[6] x, int64[n] s) => (float[?, ?] y) { y = Reshape(x, s) }"), device="reference")
    assert not prepared.programs
    x = np.arange(6, dtype=np.float32)
    for shape in ([2, 3], [3, 2], [2, 3], [6]):
        (y,) = prepared.run([x, np.array(shape)])
        assert y.shape == tuple(shape)
    assert len(prepared.programs) == 3


def test_large_inputs_are_not_bound():
    model = parse("g (float[8192] x) => (float[?] y) { h = Cast <to = 7> (x)  y = ConstantOfShape(h) }")
    with pytest.raises(ModelImportError, match="must be known"):
        backend.prepare(model, device="reference").run([np.ones(8192, np.float32)])


def test_sequences_take_their_types_from_values():
    model = parse("g (seq(float[1]) s, float[2, 2] x) => (seq(float[1]) y) { y = SequenceInsert(s, x) }")
    prepared = backend.prepare(model, device="reference")
    (y,) = prepared.run([[np.zeros((1, 3), np.float32)], np.ones((2, 2), np.float32)])
    assert [item.shape for item in y] == [(1, 3), (2, 2)]
    (y,) = prepared.run([[], np.ones((2, 2), np.float32)])
    assert [item.shape for item in y] == [(2, 2)]


def test_run_node():
    (y,) = backend.run_node(helper.make_node("Relu", ["x"], ["y"]), [np.float32([-1, 1])], device="reference")
    assert y.tolist() == [0, 1]
    node = helper.make_node("Squeeze", ["x"], ["y"], axes=[0])
    (y,) = backend.run_node(node, [np.zeros((1, 2), np.float32)], device="reference", opset_version=11)
    assert y.shape == (2,)


def test_wrong_inputs_are_refused():
    prepared = backend.prepare(parse("g (float[2] a, float[2] b) => (float[2] y) { y = Add(a, b) }"), device="reference")
    good = np.zeros(2, np.float32)
    for inputs in ([good], [good, good, good], {"a": good}, {"a": good, "c": good}, [good, np.zeros(3, np.float32)]):
        with pytest.raises(InputError):
            prepared.run(inputs)
    with pytest.raises(InputError):
        prepared.run([good, np.zeros(2)])


def test_unsupported_nodes_are_refused_when_prepared():
    with pytest.raises(ModelImportError, match="NoSuchThing"):
        backend.prepare(parse("g (float[2] x) => (float[2] y) { y = NoSuchThing(x) }"), device="reference")
