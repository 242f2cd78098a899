"""Sequences, optionals and strings from ONNX models."""

from __future__ import annotations

import numpy as np
import onnx
import onnx.parser
import pytest
from tests.onnx_runtime import answers

from inlaid import ops
from inlaid.driver import compile_module
from inlaid.graph.interp import evaluate
from inlaid.graph.ir import constant, function, var
from inlaid.ops.container import NOTHING, host_attrs, host_type
from inlaid_onnx import importer, load
from inlaid_onnx.element_ranks import element_ranks
from inlaid_runtime.errors import KernelFault, ModelImportError, TypeInferenceError
from inlaid_runtime.types import OptionalType, SequenceType, TensorType


def run(body: str, **inputs):
    module = load(onnx.parser.parse_model(f'<ir_version: 8, opset_import: ["" : 20]>\n{body}'))
    return module, evaluate(module, inputs)


def test_sequences_of_different_sizes():
    body = """g (float[2] a, float[3] b, int64 at) => (float[?] y, int64 n, float[?] all) {
      s = SequenceConstruct(a, b)
      t = SequenceInsert(s, a)
      zero = Constant <value_int = 0> ()
      u = SequenceErase(t, zero)
      y = SequenceAt(u, at)
      n = SequenceLength(u)
      all = ConcatFromSequence <axis = 0> (t)
    }"""
    module, (y, n, joined) = run(body, a=np.float32([1, 2]), b=np.float32([3, 4, 5]), at=np.array(-1))
    assert y.tolist() == [1, 2] and n == 2
    assert joined.tolist() == [1, 2, 3, 4, 5, 1, 2]
    assert all(dim.existential for field in (0, 2) for dim in module.main.body.fields[field].type.shape)


def test_positions_out_of_range_are_refused():
    body = "g (float[2] a, int64 at) => (float[2] y) { s = SequenceConstruct(a)  y = SequenceAt(s, at) }"
    for position in (1, -2):
        with pytest.raises(KernelFault, match=r"position must be >= -1 and <= 0"):
            run(body, a=np.zeros(2, np.float32), at=np.array(position))


def test_elements_of_one_sequence_need_not_agree_in_size():
    """Two items of a sequence have sizes of their own, so nothing may be concluded from one for the other."""
    s = var("s", SequenceType(TensorType(("?n",), "float32")))
    one, two = (ops.sequence_at(s, constant(np.array(index))) for index in (0, 1))
    assert one.type.shape[0] != two.type.shape[0]


@pytest.mark.parametrize(
    ("inputs", "attrs", "expected"),
    [
        ("x", "", [[[0, 1]], [[2, 3]], [[4, 5]]]),
        ("x", "keepdims = 0", [[0, 1], [2, 3], [4, 5]]),
        ("x, two", "", [[[0, 1], [2, 3]], [[4, 5]]]),
        ("x, parts", "axis = -1", [[[0], [2], [4]], [[1], [3], [5]]]),
    ],
)
def test_split_to_sequence(inputs, attrs, expected):
    body = f"""g (int32[3, 2] x) => (seq(int32[?]) y) {{
      two = Constant <value_int = 2> ()
      parts = Constant <value_ints = [1, 1]> ()
      y = SplitToSequence <{attrs}> ({inputs})
    }}""".replace("<>", "")
    _, y = run(body, x=np.arange(6, dtype=np.int32).reshape(3, 2))
    assert [item.tolist() for item in y] == expected


def test_branches_that_give_an_empty_and_a_full_sequence():
    body = """g (bool c, float[2] x) => (int64 n) {
      s = If (c) <
        then_branch = t () => (seq(float[2]) a) { a = SequenceConstruct(x) },
        else_branch = e () => (seq(float[2]) b) { b = SequenceEmpty() }>
      n = SequenceLength(s)
    }"""
    for condition, expected in ((True, 1), (False, 0)):
        _, n = run(body, c=np.array(condition), x=np.zeros(2, np.float32))
        assert n == expected


def test_a_loop_may_fill_a_sequence():
    body = """g (int64 n, float[4] x) => (float[?] y) {
      yes = Constant <value = bool {1}> ()
      empty = SequenceEmpty()
      s = Loop (n, yes, empty) <body = b (int64 i, bool go, seq(float[?]) s0) => (bool more, seq(float[?]) s1) {
        more = Identity(go)
        s1 = SequenceInsert(s0, x)
      }>
      y = ConcatFromSequence <axis = 0> (s)
    }"""
    _, y = run(body, n=np.array(2), x=np.float32([1, 2, 3, 4]))
    assert y.tolist() == [1, 2, 3, 4, 1, 2, 3, 4]


def test_optionals():
    body = """g (float[2] x) => (bool has, bool tensor, float[2] y) {
      o = Optional(x)
      has = OptionalHasElement(o)
      tensor = OptionalHasElement(x)
      y = OptionalGetElement(o)
    }"""
    _, (has, tensor, y) = run(body, x=np.float32([1, 2]))
    assert has and tensor and y.tolist() == [1, 2]


def test_an_empty_optional():
    o = var("o", OptionalType(TensorType((2,), "float32")))
    assert not evaluate(function([o], ops.optional_has(o)), [None])
    with pytest.raises(KernelFault, match="empty"):
        evaluate(function([o], ops.optional_get(o)), [None])
    with pytest.raises(TypeInferenceError, match="expected an optional with a known value type, got Optional"):
        ops.optional_get(ops.optional_none(kinds=("optional",)))


@pytest.mark.parametrize(
    "type_",
    [
        SequenceType(NOTHING),
        SequenceType(TensorType((2, 3), "float32")),
        OptionalType(SequenceType(TensorType((), "string"))),
        OptionalType(TensorType((4,), "int4")),
    ],
)
def test_types_in_attributes(type_):
    assert host_type(host_attrs(type_)) == type_


def strings(*items: str) -> np.ndarray:
    return np.array(items, object)


def test_string_operators():
    body = """g (string[2] a, string[1] b) => (string[2] c, string[2, ?] parts, int64[2] n, bool[2] m, bool[2] e) {
      c = StringConcat(a, b)
      parts, n = StringSplit <delimiter = "."> (c)
      m = RegexFullMatch <pattern = "[a-z]+\\\\.x"> (c)
      e = Equal(c, a)
    }"""
    _, (c, parts, n, m, e) = run(body, a=strings("one", "a.B"), b=strings(".x"))
    assert c.tolist() == ["one.x", "a.B.x"]
    assert parts.tolist() == [["one", "x", ""], ["a", "B", "x"]] and n.tolist() == [2, 3]
    assert m.tolist() == [True, False] and e.tolist() == [False, False]


@pytest.mark.parametrize(
    ("attrs", "expected"),
    [
        ('case_change_action = "UPPER", stopwords = ["monday"]', ["TUESDAY"]),
        ('case_change_action = "LOWER", is_case_sensitive = 1, stopwords = ["monday"]', ["monday", "tuesday"]),
        ('stopwords = ["Monday", "Tuesday"]', [""]),
    ],
)
def test_string_normalizer(attrs, expected):
    _, y = run(f"g (string[2] x) => (string[?] y) {{ y = StringNormalizer <{attrs}> (x) }}", x=strings("Monday", "Tuesday"))
    assert y.tolist() == expected


def test_a_choice_of_strings():
    body = "g (bool[2, 1] c, string[n] a, string b) => (string[2, n] y) { y = Where (c, a, b) }"
    _, y = run(body, c=np.array([[True], [False]]), a=strings("one", "two"), b=np.array("x", object))
    assert y.tolist() == [["one", "two"], ["x", "x"]]


def test_casts_of_strings():
    body = "g (string[4] x) => (float[4] y, string[4] z) { y = Cast <to = 1> (x)  z = Cast <to = 8> (y) }"
    _, (y, z) = run(body, x=strings("1.5", "-INF", "NaN", "1e3"))
    np.testing.assert_array_equal(y, np.float32([1.5, -np.inf, np.nan, 1000]))
    assert z.tolist() == ["1.5", "-INF", "NaN", "1000.0"]
    _, n = run("g (string[2] x) => (int64[2] y) { y = Cast <to = 7> (x) }", x=strings("9007199254740993", "-2.0"))
    assert n.tolist() == [9007199254740993, -2]


@pytest.mark.parametrize(
    "body",
    [
        "g (float[2] a) => (float[2] y) { y = SequenceAt(a, a) }",
        "g (float[2] a, int64[2] b) => (seq(float[2]) y) { y = SequenceConstruct(a, b) }",
        "g (float[2] a) => (float[2] y) { s = SequenceConstruct(a)  y = ConcatFromSequence <axis = 3> (s) }",
        "g (float[2] a) => (optional(float[2]) y) { y = Optional() }",
        "g (string[2, 2] a) => (string[2, 2] y) { y = StringNormalizer (a) }",
        "g (string[2] a) => (string[2] y) { y = Relu(a) }",
        "g (float[2] a) => (bool[2] y) { y = RegexFullMatch(a) }",
    ],
)
def test_wrong_uses_are_refused(body):
    with pytest.raises(ModelImportError):
        load(onnx.parser.parse_model(f'<ir_version: 8, opset_import: ["" : 20]>\n{body}'))


def make_sequence_model(nodes, outputs=(), inputs=(), initializers=()):
    """A model with an input `s`, a sequence of tensors without a shape, with shapes of some outputs."""
    named = {name: onnx.helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, shape) for name, shape in dict(outputs).items()}
    results = [named.get(name) or onnx.helper.make_empty_tensor_value_info(name) for name in nodes[-1].output]
    sequence = onnx.helper.make_tensor_sequence_value_info("s", onnx.TensorProto.FLOAT, None)
    value_info = [item for name, item in named.items() if name not in nodes[-1].output]
    graph = onnx.helper.make_graph(nodes, "g", [sequence, *inputs], results, list(initializers), value_info=value_info)
    return onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 17)], ir_version=8)


FIRST = onnx.numpy_helper.from_array(np.array(0), "first")
NODE = onnx.helper.make_node
TABLE = onnx.helper.make_tensor_value_info("x", onnx.TensorProto.FLOAT, ["rows", "columns"])
UNSHAPED = {
    "concatenated": make_sequence_model([NODE("ConcatFromSequence", ["s"], ["y"], axis=0)], {"y": ["n", 3]}),
    "stacked": make_sequence_model([NODE("ConcatFromSequence", ["s"], ["y"], axis=0, new_axis=1)], {"y": ["k", "n", 3]}),
    "chosen": make_sequence_model(
        [NODE("Identity", ["s"], ["t"]), NODE("SequenceAt", ["t", "first"], ["z"]), NODE("Relu", ["z"], ["y"])],
        {"z": ["n", 3]},
        initializers=[FIRST],
    ),
    "inserted": make_sequence_model(
        [NODE("SequenceInsert", ["s", "x"], ["t"]), NODE("ConcatFromSequence", ["t"], ["y"], axis=0)], inputs=[TABLE]
    ),
}


@pytest.mark.parametrize("use", UNSHAPED)
def test_uses_of_a_sequence_show_the_rank_of_its_elements(use):
    model = UNSHAPED[use]
    items = [np.ones((2, 3), np.float32), np.zeros((2, 3), np.float32)]
    inputs = {"s": items, **({"x": items[0]} if use == "inserted" else {})}
    (expected,) = answers(model, inputs).values()
    module = load(model)
    np.testing.assert_array_equal(evaluate(module, inputs), expected)
    (actual,) = compile_module(module, ["reference"]).run(inputs).values()
    np.testing.assert_array_equal(actual, expected)


@pytest.mark.parametrize("node", [NODE("SequenceInsert", ["s"], ["t"]), NODE("SequenceAt", ["s"], []), NODE("Identity", [], ["t"])])
def test_damaged_uses_of_a_sequence_are_refused(node):
    with pytest.raises(ModelImportError):
        load(make_sequence_model([node, NODE("SequenceLength", ["s"], ["y"])]))


def test_the_first_use_shows_the_rank_also_of_aliases():
    nodes = [
        NODE("Identity", ["s"], ["t"]),
        NODE("Identity", ["u"], ["s"]),
        NODE("Identity", ["t"], ["u"]),  # damaged: a cycle
        NODE("SequenceAt", ["t", "first"], ["y"]),
        NODE("SequenceAt", ["s", "first"], ["z"]),
        NODE("SequenceLength", ["v"], ["n"]),
    ]
    outputs = [onnx.helper.make_tensor_value_info(name, 1, shape) for name, shape in (("y", [2, 3]), ("z", [4]))]
    assert element_ranks(onnx.helper.make_graph(nodes, "g", [], outputs)) == {"s": 2, "t": 2, "u": 2}


def test_the_ranks_of_all_sequences_are_read_once(monkeypatch):
    """Else the time of an import would grow with the product of the numbers of inputs, nodes and attempts."""
    graphs = []

    def counting(graph):
        graphs.append(graph)
        return element_ranks(graph)

    monkeypatch.setattr(importer, "element_ranks", counting)
    names = [f"s{number}" for number in range(5)]
    nodes = [NODE("SequenceAt", [name, "first"], [f"y{name}"]) for name in names]
    model = onnx.helper.make_model(
        onnx.helper.make_graph(
            nodes,
            "g",
            [onnx.helper.make_tensor_sequence_value_info(name, onnx.TensorProto.FLOAT, None) for name in names],
            [onnx.helper.make_tensor_value_info(f"y{name}", onnx.TensorProto.FLOAT, ["n", 3]) for name in names],
            [FIRST],
        ),
        opset_imports=[onnx.helper.make_opsetid("", 17)],
        ir_version=8,
    )
    attempts = 0
    body = importer.Importer._body

    def failing(self, graph, frame):
        nonlocal attempts
        attempts += 1
        if self.guesses.choose(("guess",), True):
            raise ModelImportError("the guess is wrong")
        return body(self, graph, frame)

    monkeypatch.setattr(importer.Importer, "_body", failing)
    assert [param.type.element.rank for param in load(model).main.params] == [2] * 5
    assert attempts == 2 and len(graphs) == 1


def test_a_sequence_whose_uses_show_no_rank_is_refused():
    with pytest.raises(ModelImportError, match="input 's': expected the shape of its elements"):
        load(make_sequence_model([NODE("SequenceLength", ["s"], ["y"])]))
