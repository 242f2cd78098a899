"""If, Loop and Scan of all versions, and constants."""

from __future__ import annotations

import numpy as np
import onnx
import onnx.parser
import pytest

from inlaid.graph.interp import evaluate
from inlaid.graph.ir import If, Loop, post_order
from inlaid_onnx import load
from inlaid_onnx.node import NeedsStatic
from inlaid_runtime.errors import ModelImportError
from inlaid_runtime.types import TensorType


def run(body: str, opset: int = 17, specialize=None, **inputs):
    module = load(onnx.parser.parse_model(f'<ir_version: 8, opset_import: ["" : {opset}]>\n{body}'), specialize=specialize)
    return module, evaluate(module, inputs)


def test_if_reads_the_enclosing_scope():
    body = """g (bool c, float[2] x) => (float[2] y) {
      d = Neg(x)
      y = If (c) <
        then_branch = t () => (float[2] a) { a = Add(d, x) },
        else_branch = e () => (float[2] b) { b = Identity(d) }>
    }"""
    x = np.float32([1, 2])
    module, output = run(body, c=np.array(True), x=x)
    assert output.tolist() == [0, 0]
    assert evaluate(module, {"c": np.array(False), "x": x}).tolist() == [-1, -2]
    assert any(isinstance(expr, If) for expr in post_order(module.main.body))


BRANCHES = """g (bool c, float[4] x) => (float y) {
      two = Constant <value_ints = [2, 2]> ()
      y = If (c) <
        then_branch = t () => (float[4] a) { a = Neg(x) },
        else_branch = e () => (float[2, 2] b) { b = Reshape(x, two) }>
    }"""


def test_branches_of_different_rank_need_a_known_condition():
    with pytest.raises(NeedsStatic) as caught:
        run(BRANCHES, c=np.array(True), x=np.zeros(4, np.float32))
    assert caught.value.sources.inputs == ("c",)
    module, _ = run(BRANCHES, specialize={"c": np.array(False)}, x=np.zeros(4, np.float32))
    assert module.main.body.type == TensorType((2, 2), "float32")


LOOP = """g (int64 n, bool c, float[2] x) => (float[2] last, float[?, 2] all) {
      last, all = Loop (n, c, x) <body = b (int64 i, bool go, float[2] s) => (bool more, float[2] t, float[2] out) {
        one = Constant <value_float = 1.0> ()
        t = Add(s, one)
        limit = Constant <value_float = 4.0> ()
        zero = Constant <value_int = 0> ()
        head = Gather(t, zero)
        more = Less(head, limit)
        out = Identity(t)
      }>
    }"""


@pytest.mark.parametrize(
    ("trips", "condition", "expected"),
    [(10, True, [1, 2, 3, 4]), (2, True, [1, 2]), (0, True, []), (10, False, [])],
)
def test_loop_stops_at_the_trip_count_or_the_condition(trips, condition, expected):
    x = np.float32([0, 10])
    for bound in (None, {"n": np.array(trips), "c": np.array(condition)}):
        inputs = {"x": x} if bound else {"n": np.array(trips), "c": np.array(condition), "x": x}
        _, (last, stacked) = run(LOOP, specialize=bound, **inputs)
        assert stacked[:, 0].tolist() == expected
        assert last.tolist() == [expected[-1] if expected else 0, 10 + len(expected)]


def test_without_a_condition_the_body_cannot_stop_the_loop():
    body = """g (float x) => (float y) {
      n = Constant <value_int = 3> ()
      y = Loop (n, , x) <body = b (int64 i, bool go, float s) => (bool more, float t) {
        one = Constant <value_float = 1.0> ()
        t = Add(s, one)
        no = Constant <value = bool {0}> ()
        more = Identity(no)
      }>
    }"""
    _, y = run(body, x=np.float32(0))
    assert y == 3


def test_carried_values_may_grow():
    body = """g (int64 n, float[1] x) => (float[?] y) {
      yes = Constant <value = bool {1}> ()
      y = Loop (n, yes, x) <body = b (int64 i, bool go, float[?] s) => (bool more, float[?] t) {
        more = Identity(go)
        t = Concat <axis = 0> (s, s)
      }>
    }"""
    module, y = run(body, n=np.array(3), x=np.float32([5]))
    assert y.tolist() == [5] * 8
    assert module.main.body.type.shape[0].existential


def test_a_known_trip_count_gives_the_extent_of_stacked_outputs():
    body = """g (float x) => (float y, float[?] all) {
      n = Constant <value_int = 3> ()
      yes = Constant <value = bool {1}> ()
      y, all = Loop (n, yes, x) <body = b (int64 i, bool go, float s) => (bool more, float t, float o) {
        more = Identity(go)
        t = Add(s, s)
        o = Identity(t)
      }>
    }"""
    module, (_, stacked) = run(body, x=np.float32(1))
    assert stacked.tolist() == [2, 4, 8]
    (loop,) = [expr for expr in post_order(module.main.body) if isinstance(expr, Loop)]
    assert loop.type.fields[1] == TensorType((3,), "float32")


SCAN = """g (float[2] s, float[3, 2] x) => (float[2] last, float[?, ?] all) {
      last, all = Scan (s, x) <num_scan_inputs = 1, ATTRS body = b (float[2] a, float[2] r) => (float[2] c, float[2] o) {
        c = Add(a, r)
        o = Identity(c)
      }>
    }"""


@pytest.mark.parametrize(
    ("attrs", "expected"),
    [
        ("", [[1, 2], [4, 6], [9, 12]]),
        ("scan_input_directions = [1],", [[5, 6], [8, 10], [9, 12]]),
        ("scan_output_directions = [1],", [[9, 12], [4, 6], [1, 2]]),
        ("scan_output_axes = [1],", [[1, 4, 9], [2, 6, 12]]),
        ("scan_output_axes = [-1],", [[1, 4, 9], [2, 6, 12]]),
    ],
)
def test_scan(attrs, expected):
    x = np.float32([[1, 2], [3, 4], [5, 6]])
    _, (last, stacked) = run(SCAN.replace("ATTRS", attrs), s=np.zeros(2, np.float32), x=x)
    assert last.tolist() == [9, 12]
    assert stacked.tolist() == expected


def test_scan_along_another_axis():
    text = SCAN.replace("float[3, 2] x", "float[2, 3] x").replace("ATTRS", "scan_input_axes = [1],")
    _, (_, stacked) = run(text, s=np.zeros(2, np.float32), x=np.float32([[1, 3, 5], [2, 4, 6]]))
    assert stacked.tolist() == [[1, 2], [4, 6], [9, 12]]


def test_scan_of_opset_8_has_a_batch_axis():
    body = """g (float[2, 1] s, float[2, 3, 1] x) => (float[2, 1] last, float[2, 3, 1] all) {
      last, all = Scan ( , s, x) <num_scan_inputs = 1, body = b (float[1] a, float[1] r) => (float[1] c, float[1] o) {
        c = Add(a, r)
        o = Identity(c)
      }>
    }"""
    x = np.float32([[1, 2, 3], [10, 20, 30]])[..., None]
    _, (last, stacked) = run(body, opset=8, s=np.zeros((2, 1), np.float32), x=x)
    assert last[:, 0].tolist() == [6, 60]
    assert stacked[..., 0].tolist() == [[1, 3, 6], [10, 30, 60]]


@pytest.mark.parametrize(
    ("attribute", "dtype", "expected"),
    [
        ("value_float = 1.5", "float32", 1.5),
        ("value_floats = [1.5, 2]", "float32", [1.5, 2.0]),
        ("value_int = 3", "int64", 3),
        ("value_ints = [3, 4]", "int64", [3, 4]),
        ('value_string = "a"', "string", "a"),
        ('value_strings = ["a", "b"]', "string", ["a", "b"]),
        ("value = uint8[2] {1, 2}", "uint8", [1, 2]),
    ],
)
def test_constants(attribute, dtype, expected):
    module, y = run(f"g () => (float y) {{ y = Constant <{attribute}> () }}")
    assert module.main.body.type.dtype.name == dtype
    assert y.tolist() == expected


def test_sparse_constant():
    values = onnx.helper.make_tensor("v", onnx.TensorProto.FLOAT, [2], [5.0, 7.0])
    indices = onnx.helper.make_tensor("i", onnx.TensorProto.INT64, [2, 2], [0, 1, 1, 0])
    node = onnx.helper.make_node("Constant", [], ["y"], sparse_value=onnx.helper.make_sparse_tensor(values, indices, [2, 2]))
    graph = onnx.helper.make_graph([node], "g", [], [onnx.ValueInfoProto(name="y")])
    module = load(onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 17)]))
    assert evaluate(module, {}).tolist() == [[0, 5], [7, 0]]


@pytest.mark.parametrize(
    "body",
    [
        "g (bool[2] c, float x) => (float y) { y = If (c) <then_branch = t () => (float a) { a = Neg(x) }> }",
        "g (float x) => (float y) { y = Loop (, , x) }",
        "g (float x) => (float y) { y = Scan <num_scan_inputs = 1> (x) }",
        "g (float[2] x) => (float y) { y = Scan <num_scan_inputs = 3, body = b (float a) => (float c) { c = Neg(a) }> (x) }",
        "g () => (float y) { y = Constant () }",
        "g (int64 n, float x) => (float y) { y = Loop (n, , x) <body = b (int64 i, bool c) => (bool d) { d = Not(c) }> }",
    ],
)
def test_malformed_control_flow_is_refused(body):
    with pytest.raises(ModelImportError):
        load(onnx.parser.parse_model(f'<ir_version: 8, opset_import: ["" : 17]>\n{body}'))


def nested_loops(depth: int) -> onnx.ModelProto:
    """Loops within one another, the innermost of which doubles a vector."""

    def value(name, code, shape):
        return onnx.helper.make_tensor_value_info(name, code, shape)

    numbers, flag, vector = onnx.TensorProto.INT64, onnx.TensorProto.BOOL, onnx.TensorProto.FLOAT
    step = onnx.helper.make_node("Concat", ["s", "s"], ["t"], axis=0)
    for level in range(depth):
        nodes = [onnx.helper.make_node("Identity", ["c"], ["d"]), step]
        inputs = [value("i", numbers, []), value("c", flag, []), value("s", vector, [None])]
        body = onnx.helper.make_graph(nodes, f"b{level}", inputs, [value("d", flag, []), value("t", vector, [None])])
        step = onnx.helper.make_node("Loop", ["n", "", "s" if level < depth - 1 else "x"], ["t"], body=body)
    graph = onnx.helper.make_graph([step], "g", [value("n", numbers, []), value("x", vector, [1])], [value("t", vector, [None])])
    return onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 17)])


def test_nested_loops_that_widen_do_not_multiply():
    load(nested_loops(20))  # would not end if each level were imported twice
    assert evaluate(load(nested_loops(3)), {"n": np.array(2), "x": np.float32([1])}).shape == (2**8,)
