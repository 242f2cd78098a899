"""Nodes that ONNX's schemas do not allow, and operators that Inlaid does not have: refused on import with all that is needed."""

from __future__ import annotations

import functools
import random
import warnings

import onnx
import onnx.backend.test.loader
import onnx.parser
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx import AttributeProto, helper

from inlaid_onnx import load
from inlaid_runtime.errors import InlaidError, ModelImportError

F2 = "float[2, 3] x"


def parse(body: str, opset: int = 17, domains: str = "") -> onnx.ModelProto:
    return onnx.parser.parse_model(f'<ir_version: 8, opset_import: ["" : {opset}{domains}]>\n{body}')


@pytest.mark.parametrize(
    ("inputs", "node", "message"),
    [
        (F2, "Softmax <axis = 0.5> (x)", r"Softmax \(opset 17\): attribute 'axis' must be an int, got a float, 0.5"),
        (F2, 'Gemm <transA = "q"> (x, x)', "attribute 'transA' must be an int, got a string, 'q'"),
        (F2, "Softmax <axes = [1]> (x)", r"unknown attribute 'axes' \(is 'axis' meant\?\), expected one of axis"),
        (F2, "Relu <alpha = 1.0> (x)", "unknown attribute 'alpha', expected none"),
        (F2, "LeakyRelu <alpha = 1> (x)", "attribute 'alpha' must be a float, got an int, 1"),
        (F2, "Transpose <perm = 1> (x)", "attribute 'perm' must be ints, got an int, 1"),
        (F2, "Concat (x, x)", "required attribute 'axis' is missing"),
        (F2, "Relu (x, x)", "expected 1 input, got 2"),
        (F2, "Add (x)", "expected 2 inputs, got 1"),
        (F2, "Add (, x)", r"required input 0"),
        (F2, "Gemm (x)", "expected 2 to 3 inputs, got 1"),
        (F2, "Concat <axis = 0> ()", "expected at least 1 inputs, got 0"),
        ("string[2] x", "Relu (x)", r"input 0 \(X\) must be one of tensor\(bfloat16\), .*, got tensor\(string\)"),
        ("float[2] x, int64[2] z", "Add (x, z)", r"input 1 \(B\) is tensor\(int64\), expected tensor\(float\) as another input"),
        ("float[2] x, float[1] z", "Reshape (x, z)", r"input 1 \(shape\) must be tensor\(int64\), got tensor\(float\)"),
        ("seq(float[2]) x", "Relu (x)", r"got seq\(tensor\(float\)\)"),
    ],
)  # fmt: skip
def test_a_node_that_its_schema_does_not_allow(inputs: str, node: str, message: str) -> None:
    model = parse(f"g ({inputs}) => (float[2, 3] y) {{ y = {node} }}")
    with pytest.raises(ModelImportError, match=message) as caught:
        load(model)
    assert caught.value.operator == node.split(" ")[0]
    assert caught.value.node == "<model>:y"
    assert "correct the node" in str(caught.value.remedy)


def test_all_faults_of_a_node_are_told() -> None:
    with pytest.raises(ModelImportError) as caught:
        load(parse('g (float[2] x) => (float[2] y) { y, z = Gemm <transA = "q", gama = 1.0> (x) }'))
    for part in ("'transA' must be an int", "unknown attribute 'gama'", "at most 1 outputs, got 2", "2 to 3 inputs, got 1"):
        assert part in str(caught.value)


def test_what_the_version_of_the_operator_set_has_is_allowed() -> None:
    old = "g (float[2, 3] x) => (float[2, 1] y) { y = ReduceMean <axes = [1]> (x) }"
    load(parse(old, 17))
    with pytest.raises(ModelImportError, match="unknown attribute 'axes', expected one of keepdims, noop_with_empty_axes"):
        load(parse(old, 18))
    load(parse("g (float[2] x) => (float[2] y) { y = Relu <consumed_inputs = [0]> (x) }", 1))


def test_nodes_of_subgraphs_and_functions_are_checked() -> None:
    branch = "t () => (float[2] a) { a = Relu <alpha = 1.0> (x) }"
    with pytest.raises(ModelImportError, match="unknown attribute 'alpha'"):
        load(parse(f"g (bool c, float[2] x) => (float[2] y) {{ y = If (c) <then_branch = {branch}, else_branch = {branch}> }}"))
    function = '<domain: "own", opset_import: ["" : 17]> F <axis> (a) => (b) { b = Softmax <axis: int = @axis> (a) }'
    for axis_text, fine in (("1", True), ("0.5", False)):
        text = f"g (float[2, 3] x) => (float[2, 3] y) {{ y = own.F <axis = {axis_text}> (x) }}\n{function}"
        model = parse(text, domains=', "own" : 1')
        if fine:
            load(model)
        else:
            with pytest.raises(ModelImportError, match=r"attribute 'axis' must be an int, got a float, 0\.5"):
                load(model)


def test_operators_of_other_domains_are_listed_with_what_to_do() -> None:
    body = (
        "g (float[2, 2] x) => (float[2, 2] y) { [one] a = com.microsoft.FusedMatMul (x, x)"
        " [two] b = com.microsoft.FusedMatMul (a, a) c = com.acme.Turbo (b) y = Relu (c) }"
    )
    for domains in ("", ', "com.microsoft" : 1, "com.acme" : 2'):
        with pytest.raises(ModelImportError) as caught:
            load(parse(body, domains=domains))
        message = str(caught.value)
        assert caught.value.operator == "com.microsoft:FusedMatMul"
        assert caught.value.node == "<model>:one"
        assert "domain 'com.microsoft' has no supported operator of this name" in message
        assert "com.microsoft:FusedMatMul (nodes one, two), com.acme:Turbo (node c)" in message
        assert "com.microsoft: these are contrib operators of ONNX Runtime: use the model from before" in message
        assert "com.acme: define it as a function of the model" in message


def test_an_operator_that_onnx_lacks_is_refused_with_a_near_name() -> None:
    with pytest.raises(
        ModelImportError, match=r"operator set 17 has no supported operator.*is 'Softmax' meant.*export the model for"
    ):
        load(parse("g (float[2] x) => (float[2] y) { y = SoftMax (x) }"))


# --- mutations ---------------------------------------------------------------------------------------------------------


@functools.cache
def cases() -> list[onnx.ModelProto]:
    """Valid models of one node each, of ONNX's own test suite."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return [case.model for case in onnx.backend.test.loader.load_model_tests(kind="node") if case.model is not None]


VALUES = [
    1,
    -1,
    0,
    7,
    1 << 40,
    -(1 << 62),
    0.5,
    float("nan"),
    float("inf"),
    "q",
    "",
    [1],
    [],
    [-3, 2],
    [0, 0],
    [1 << 40],
    [0.5],
    ["q"],
]
TYPES = list(range(1, 24))


def mutate(model: onnx.ModelProto, rng: random.Random) -> onnx.ModelProto:
    """A model with one to three changes of a node's attributes, inputs and outputs, or of an input's type."""
    changed = onnx.ModelProto()
    changed.CopyFrom(model)
    for _ in range(rng.randint(1, 3)):
        node = rng.choice(changed.graph.node)
        names = [item.name for item in node.attribute]
        match rng.randrange(7):
            case 0 | 1 if names:
                name = rng.choice(names)
                del node.attribute[names.index(name)]
                if rng.random() < 0.9:
                    value = rng.choice(VALUES)
                    kind = AttributeProto.INTS if value == [] else None
                    node.attribute.append(helper.make_attribute(name, value, attr_type=kind))
            case 2:
                node.attribute.append(helper.make_attribute(rng.choice(["axis", "alpha", "mode", "zzz"]), rng.choice(VALUES[:12])))
            case 3 if node.input:
                del node.input[rng.randrange(len(node.input))]
            case 4:
                node.input.insert(rng.randint(0, len(node.input)), rng.choice(["", *(item.name for item in changed.graph.input)]))
            case 5:
                node.output.append(rng.choice(["", "more"]))
            case _ if changed.graph.input:
                type_ = rng.choice(changed.graph.input).type
                if type_.HasField("tensor_type"):
                    if rng.random() < 0.6:
                        type_.tensor_type.elem_type = rng.choice(TYPES)
                    else:
                        del type_.tensor_type.shape.dim[:]
                        type_.tensor_type.shape.dim.extend(
                            onnx.TensorShapeProto.Dimension(dim_value=rng.choice([0, 1, 2, 3, 1 << 40]))
                            for _ in range(rng.randrange(5))
                        )
    return changed


@settings(max_examples=600, deadline=None)
@given(st.integers(0, 1 << 32))
def test_mutated_nodes_give_one_clear_error(seed: int) -> None:
    rng = random.Random(seed)
    model = mutate(rng.choice(cases()), rng)
    message = ""
    try:
        load(model)
    except InlaidError as error:
        message = str(error)
    words = [word for word in ("TypeError", "KeyError", "AttributeError", "AssertionError", "is damaged") if word in message]
    assert not words, f"{message}\n{onnx.printer.to_text(model)[:3000]}"
