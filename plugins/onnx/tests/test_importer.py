"""Names, scopes, operator sets, sizes, functions, spans, and what is refused."""

from __future__ import annotations

import json

import numpy as np
import onnx
import onnx.parser
import pytest
from onnx import helper

import inlaid
from inlaid.graph.interp import evaluate
from inlaid.graph.ir import Call, Var, post_order
from inlaid_onnx import load
from inlaid_onnx.node import NeedsStatic
from inlaid_runtime.arith import SizeVar
from inlaid_runtime.errors import InputError, ModelImportError
from inlaid_runtime.types import TensorType

HEAD = '<ir_version: 8, opset_import: ["" : 17]>\n'


def parse(body: str, head: str = HEAD) -> onnx.ModelProto:
    return onnx.parser.parse_model(head + body)


def calls(module) -> list[str]:
    return [expr.callee.name for expr in post_order(module.main.body) if isinstance(expr, Call)]


def test_parameters_and_outputs_keep_their_names():
    module = load(parse("g (float[2] a, float[2] b) => (float[2] y, float[2] z) { y = Add(a, b)  z = Sub(a, b) }"))
    assert [param.name for param in module.main.params] == ["a", "b"]
    assert json.loads(module.main.attr("outputs")) == ["y", "z"]
    y, z = evaluate(module, {"a": np.float32([1, 2]), "b": np.float32([3, 5])})
    assert y.tolist() == [4, 7] and z.tolist() == [-2, -3]


def test_one_output_is_no_tuple():
    module = load(parse("g (float[2] a) => (float[2] a) { }"))
    assert isinstance(module.main.body, Var)


def test_initialized_inputs_are_constants():
    model = parse("g (float[2] x, float[2] w = {1, 2}) => (float[2] y) { y = Mul(x, w) }")
    module = load(model)
    assert [param.name for param in module.main.params] == ["x"]
    assert evaluate(module, {"x": np.float32([3, 4])}).tolist() == [3, 8]


def test_initialized_inputs_that_the_caller_overrides():
    text = "g (float[2] x, float[2] w = {1, 2}, float[2] v = {5, 6}) => (float[2] y) { z = Mul(x, w)  y = Add(z, v) }"
    module = load(parse(text), inputs=["w"])
    assert [param.name for param in module.main.params] == ["x", "w"]
    assert evaluate(module, {"x": np.float32([3, 4]), "w": np.float32([10, 20])}).tolist() == [35, 86]
    with pytest.raises(ModelImportError, match=r"no initializer 'u' that is also an input of the graph; it has v, w"):
        load(parse(text), inputs=["u"])
    with pytest.raises(ModelImportError, match=r"before IR version 4, but the model has version 3.*'w'; set ir_version to 4"):
        load(parse(text, HEAD.replace("8", "3")), inputs=["w"])
    alone = parse("g (float[2] x) => (float[2] y) <float[2] w = {1, 2}> { y = Mul(x, w) }")
    with pytest.raises(ModelImportError, match=r"no initializer 'w'.*; it has none"):
        load(alone, inputs=["w"])
    with pytest.raises(InputError, match=r"inputs must be a sequence of names, got 'w'; give \['w'\]"):
        inlaid.load(parse(text), inputs="w")
    for wrong in (None, [1], 1, b"w"):
        with pytest.raises(InputError, match=r'inputs must be a sequence of names, got .*; give strings, such as \["w"\]'):
            inlaid.load(parse(text), inputs=wrong)
        with pytest.raises(InputError, match=r'donate must be a sequence of names, got .*; give strings, such as \["w"\]'):
            inlaid.compile(parse(text), ["reference"], donate=wrong)
    assert [param.name for param in inlaid.load(parse(text), inputs=["v"]).main.params] == ["x", "v"]


def test_named_and_unnamed_sizes():
    model = parse("g (float[N, 3] x, float[N, ?] z) => (float[?, ?] y) { y = Identity(x) }")
    module = load(model)
    x, z = module.main.params
    assert x.type == TensorType((SizeVar("N"), 3), "float32")
    assert z.type == TensorType((SizeVar("N"), SizeVar("z_1")), "float32")


def test_sizes_can_be_fixed_and_bounded():
    model = parse("g (float[batch, seq] x) => (float[batch, seq] y) { y = Relu(x) }")
    shape = load(model, dims={"batch": 4, "seq": (1, 128)}).main.params[0].type.shape
    assert shape[0] == 4
    assert (shape[1].lower, shape[1].upper) == (1, 128)


def test_names_of_sizes_become_identifiers():
    model = parse("g (float[N] x, float[N] z) => (float[N] y) { y = Relu(x) }")
    for item, name in zip(model.graph.input, ("?seq len", "_seq_len"), strict=True):
        item.type.tensor_type.shape.dim[0].dim_param = name
    x, z = load(model).main.params
    names = [param.type.shape[0].name for param in (x, z)]
    assert len(set(names)) == 2 and all(name.isidentifier() for name in names)
    assert load(model, dims={"?seq len": 3}).main.params[0].type.shape == (3,)


@pytest.mark.parametrize("name", ["?", "", "None", "-1", "unknown"])
def test_sizes_without_a_name_are_independent(name):
    model = parse("g (float[N,N] x, float[N] z) => (float[N] y) { y = Relu(z) }")
    for item in model.graph.input:
        for dim in item.type.tensor_type.shape.dim:
            dim.dim_param = name
    x, z = load(model).main.params
    assert [str(dim) for param in (x, z) for dim in param.type.shape] == ["x_0", "x_1", "z_0"]


def test_sizes_that_share_a_name_are_one():
    x, z = load(parse("g (float[unk__1] x, float[unk__1] z) => (float[N] y) { y = Relu(z) }")).main.params
    assert x.type == z.type


def test_unknown_size_or_input_to_bind_is_refused():
    model = parse("g (float[N] x) => (float[N] y) { y = Relu(x) }")
    with pytest.raises(ModelImportError, match=r"no symbolic dimension 'M'.*N"):
        load(model, dims={"M": 1})
    with pytest.raises(ModelImportError, match="unknown input 'q'"):
        load(model, specialize={"q": np.zeros(1)})
    with pytest.raises(ModelImportError, match="bound to a value of type"):
        load(model, specialize={"x": np.zeros((1, 1), np.float32)})


def test_a_bound_input_fixes_the_sizes_of_others():
    model = parse("g (float[N] z, float[N] x, float[N] y) => (float[N] r) { t = Add(x, y)  r = Add(t, z) }")
    value = np.zeros(3, np.float32)
    module = load(model, specialize={"x": value})
    assert [param.type for param in module.main.params] == [TensorType((3,), "float32")] * 2
    for bound in ({"x": value, "y": np.zeros(1, np.float32)}, {"y": np.zeros(4, np.float32), "x": value}):
        with pytest.raises(ModelImportError, match="bound to a value of type"):
            load(model, specialize=bound)
    with pytest.raises(ModelImportError, match="dimension 'N' must be 4 to 8, but input 'x' is bound to 3"):
        load(model, dims={"N": (4, 8)}, specialize={"x": value})
    with pytest.raises(ModelImportError, match="bound to a value of type"):
        load(model, dims={"N": 2}, specialize={"x": value})
    with pytest.raises(ModelImportError, match="bound to a value of type"):
        load(model, dims={"N": 0}, specialize={"x": value})


def test_an_input_that_decides_a_rank_can_be_bound():
    model = parse("g (float[6] x, int64[n] s) => (float[?, ?] y) { y = Reshape(x, s) }")
    with pytest.raises(NeedsStatic) as caught:
        load(model)
    assert caught.value.sources.inputs == ("s",)
    module = load(model, specialize={"s": np.array([2, 3])})
    assert [param.name for param in module.main.params] == ["x"]
    assert module.main.body.type == TensorType((2, 3), "float32")


def test_every_call_has_a_span():
    model = parse("g (float[2, 3] x) => (float[2, 3] y) { h = Softplus(x)  y = HardSwish(h) }")
    model.graph.node[0].name = "first"
    module = load(model)
    spans = {expr.span.node for expr in post_order(module.main.body) if isinstance(expr, Call)}
    assert spans == {"first", "y"}


def test_versions_of_an_operator_differ():
    """Softmax before opset 13 flattens the axes from `axis` on into one."""
    old = parse("g (float[1, 2, 2] x) => (float[1, 2, 2] y) { y = Softmax <axis = 1> (x) }", HEAD.replace("17", "11"))
    new = parse("g (float[1, 2, 2] x) => (float[1, 2, 2] y) { y = Softmax <axis = 1> (x) }")
    x = {"x": np.zeros((1, 2, 2), np.float32)}
    assert evaluate(load(old), x).flat[0] == 0.25
    assert evaluate(load(new), x).flat[0] == 0.5


def test_nodes_out_of_order_are_sorted():
    module = load(parse("g (float[2] x) => (float[2] y) { y = Relu(h)  h = Neg(x) }"))
    assert calls(module) == ["neg", "relu"]


def test_functions_of_the_model_are_expanded():
    text = (
        '<ir_version: 8, opset_import: ["" : 17, "own" : 1]>\n'
        "g (float[2] x) => (float[2] y) { y = own.scaled <by = 3.0> (x) }\n"
        '<domain: "own", opset_import: ["" : 17]> scaled <by> (a) => (b)'
        " { k = Constant <value_float : float = @by> ()  b = Mul(a, k) }"
    )
    module = load(onnx.parser.parse_model(text))
    assert evaluate(module, {"x": np.float32([1, 2])}).tolist() == [3, 6]
    assert {expr.span.node for expr in post_order(module.main.body) if isinstance(expr, Call)} == {"y/b"}


def test_optional_inputs_of_functions_may_be_left_out():
    text = (
        '<ir_version: 8, opset_import: ["" : 17, "own" : 1]>\n'
        "g (float[2] x) => (float[2] y) { y = own.limited(x) }\n"
        '<domain: "own", opset_import: ["" : 17]> limited (a, low) => (b) { b = Clip(a, low) }'
    )
    assert evaluate(load(onnx.parser.parse_model(text)), {"x": np.float32([1, 2])}).tolist() == [1, 2]


def test_operators_that_onnx_defines_by_a_body_need_no_converter(monkeypatch):
    from inlaid_onnx import convert

    left = {name: converter for name, converter in convert.CONVERTERS.items() if name not in ("LayerNormalization", "HardSwish")}
    monkeypatch.setattr(convert, "CONVERTERS", left)
    model = parse("g (float[2, 4] x, float[4] s) => (float[2, 4] y) { h = HardSwish(x)  y = LayerNormalization(h, s) }")
    module = load(model)
    x = np.linspace(-4, 4, 8, dtype=np.float32).reshape(2, 4)
    h = x * np.clip(x / 6 + 0.5, 0, 1)
    expected = (h - h.mean(1, keepdims=True)) / np.sqrt(h.var(1, keepdims=True) + 1e-5)
    np.testing.assert_allclose(evaluate(module, {"x": x, "s": np.ones(4, np.float32)}), expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ("g (float[2] x) => (float[2] y) { y = NoSuchThing(x) }", r"NoSuchThing \(opset 17\).*no supported operator.*at <model>:y"),
        ("g (float[2] x) => (float[2] y) { y = Relu(q) }", "no previous node computes its input 'q'"),
        ("g (float[2] x) => (float[2] q) { y = Relu(x) }", "nothing computes the output 'q'"),
        ("g (float[2] x) => (float[2] y) { y = Relu(x)  y = Neg(x) }", "duplicate definition of value 'y'"),
        ("g (float[2] x) => (float[2] y) { x = Relu(x)  y = Neg(x) }", "cycle|defined twice"),
        ("g (float[2] x) => (float[2] y, float[2] y) { y = Relu(x) }", "outputs of the graph must have different names"),
        ("g (float[2] x, float[2] x) => (float[2] y) { y = Relu(x) }", "duplicate input 'x'"),
        ("g (float[2] x) => (float[2] b) { a = Add(x, b)  b = Relu(a)  c = Neg(b) }", "cycle of the nodes 'a', 'b'"),
        ("g (float[2] x, float[3] y) => (float[2] z) { z = Add(x, y) }", "Add.*must be 1 or 2 to broadcast, got 3"),
        ("g (float[2] x) => (float[2] y) { y = Transpose <perm = [3]> (x) }", "Transpose"),
        ("g (float[2] x) => (float[2] y) { y = far.Away(x) }", "domain 'far' has no supported operator"),
        (
            "g (float x, float16[2] h) => (float[2] y) { y = Add(x, h) }",
            r"Add.*input 1 \(B\) is tensor\(float16\), expected tensor\(float\)",
        ),
    ],
)
def test_wrong_models_are_refused(body, message):
    with pytest.raises(ModelImportError, match=message):
        load(parse(body))


def test_attributes_given_twice_and_of_the_wrong_kind_are_refused():
    model = parse("g (float[2] x) => (float[2] y) { y = Softmax <axis = 0> (x) }")
    model.graph.node[0].attribute.add().CopyFrom(model.graph.node[0].attribute[0])
    with pytest.raises(ModelImportError, match="duplicate attribute"):
        load(model)
    del model.graph.node[0].attribute[:]
    model.graph.node[0].attribute.append(helper.make_attribute("axis", "text"))
    with pytest.raises(ModelImportError, match="Softmax"):
        load(model)


def test_operator_sets_are_checked():
    body = "g (float[2] x) => (float[2] y) { y = Relu(x) }"
    with pytest.raises(ModelImportError, match=r"expected an opset from .* got 9999"):
        load(parse(body, HEAD.replace("17", "9999")))
    twice = parse(body)
    twice.opset_import.append(helper.make_opsetid("", 16))
    with pytest.raises(ModelImportError, match="expected one version of operator set"):
        load(twice)
    none = parse(body)
    del none.opset_import[:]
    with pytest.raises(ModelImportError, match="expected a graph and an operator set, found none: it is not"):
        load(none)


def test_functions_without_end_are_refused():
    head = '<ir_version: 8, opset_import: ["" : 17, "own" : 1]>\n'
    graph = "g (float[2] x) => (float[2] y) { y = own.f0(x) }\n"
    itself = '<domain: "own", opset_import: ["" : 17, "own" : 1]> f0 (a) => (b) { b = own.f0(a) }'
    with pytest.raises(ModelImportError, match="functions and subgraphs must be nested at most 48 deep and"):
        load(onnx.parser.parse_model(head + graph + itself))


def doubling(levels: int, graph: str = "CALL") -> onnx.ModelProto:
    """Functions that call the next twice, so that 2^levels nodes are at the bottom."""
    head = '<ir_version: 8, opset_import: ["" : 17, "own" : 1]>\n'
    text = head + "g (float[2] x, bool q) => (float[2] y) { " + graph.replace("CALL", "y = own.f0(x)") + " }\n"
    for level in range(levels):
        callee = f"own.f{level + 1}" if level < levels - 1 else "Relu"
        text += f'<domain: "own", opset_import: ["" : 17, "own" : 1]> f{level} (a) => (b) {{ c = {callee}(a)  b = {callee}(c) }}\n'
    return onnx.parser.parse_model(text)


@pytest.mark.parametrize("levels", [18, 45])
@pytest.mark.parametrize("graph", ["CALL", "y = If (q) <then_branch = t () => (y) { CALL }, else_branch = e () => (y) { CALL }>"])
def test_functions_that_multiply_are_refused_before_they_are_expanded(levels, graph):
    with pytest.raises(ModelImportError, match=r"more than 2\d{4} nodes"):
        load(doubling(levels, graph))  # 2^45 nodes would not end


def test_functions_may_be_called_often():
    head = '<ir_version: 8, opset_import: ["" : 17, "own" : 1]>\n'
    text = head + "g (float[2] x) => (float[2] y) { y = own.f0(x) }\n"
    for level in range(3):
        callee = f"own.f{level + 1}" if level < 2 else "Relu"
        body = " ".join(f"v{index + 1} = {callee}(v{index})" for index in range(10))
        text += f'<domain: "own", opset_import: ["" : 17, "own" : 1]> f{level} (v0) => (v10) {{ {body} }}\n'
    assert calls(load(onnx.parser.parse_model(text))) == ["relu"] * 1000


def chain(length: int) -> onnx.ModelProto:
    nodes = [helper.make_node(("Relu", "Neg")[index % 2], [f"x{index}"], [f"x{index + 1}"]) for index in range(length)]
    graph = helper.make_graph(
        nodes,
        "chain",
        [helper.make_tensor_value_info("x0", onnx.TensorProto.FLOAT, ["N"])],
        [helper.make_tensor_value_info(f"x{length}", onnx.TensorProto.FLOAT, ["N"])],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)])


def test_deep_graphs_are_imported():
    assert len(calls(load(chain(10_000)))) == 10_000


def test_a_file_is_named_in_errors_and_spans(tmp_path):
    path = tmp_path / "model.onnx"
    path.write_bytes(parse("g (float[2] x) => (float[2] y) { y = NoSuchThing(x) }").SerializeToString())
    with pytest.raises(ModelImportError, match=r"at model\.onnx:y"):
        load(path)
    with pytest.raises(ModelImportError, match=r"cannot read .*missing"):
        load(tmp_path / "missing.onnx")
    with pytest.raises(ModelImportError, match="cannot read"):
        load(tmp_path)


@pytest.mark.parametrize("data", [b"", b"not a model", b"\x00" * 64, b"\x0a\xff\xff\xff\xff\x0f"])
def test_files_that_are_no_models_are_refused(data):
    with pytest.raises(ModelImportError):
        load(data)
