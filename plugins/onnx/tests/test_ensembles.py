"""Tree ensembles, linear models and preparation of features of ai.onnx.ml, beside ONNX Runtime."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx import helper

from inlaid.graph.interp import evaluate
from inlaid_onnx import load
from inlaid_runtime.errors import ModelImportError

ort = pytest.importorskip("onnxruntime")
ML = "ai.onnx.ml"
FEATURES = 3


def make_model(op_type, x, outputs, opset=3, **attrs):
    node = helper.make_node(op_type, ["x"], outputs, domain=ML, **attrs)
    code = helper.np_dtype_to_tensor_dtype(x.dtype) if x.dtype != object else onnx.TensorProto.STRING
    shape = ["rows", *x.shape[1:]]
    graph = helper.make_graph(
        [node], "g", [helper.make_tensor_value_info("x", code, shape)], [onnx.ValueInfoProto(name=name) for name in outputs]
    )
    imports = [helper.make_opsetid("", 17), helper.make_opsetid(ML, opset)]
    return helper.make_model(graph, opset_imports=imports, ir_version=8)


def run_onnxruntime(model, x):
    options = ort.SessionOptions()
    options.log_severity_level = 4
    return ort.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"]).run(None, {"x": x})


def compare(op_type, x, outputs=("y",), leave_out=(), **attrs):
    model = make_model(op_type, x, list(outputs), **attrs)
    results = evaluate(load(model), {"x": x})
    results = results if isinstance(results, tuple) else (results,)
    for name, actual, expected in zip(outputs, results, run_onnxruntime(model, x), strict=True):
        if name in leave_out:
            continue
        assert actual.shape == expected.shape
        if expected.dtype.kind == "f":
            np.testing.assert_allclose(actual, expected, rtol=1e-5, atol=1e-6)
        else:
            assert actual.tolist() == expected.tolist()


def trees(random, count, modes):
    """Attributes of random trees, and their leaves as (tree, node)."""
    rows, leaves = [], []

    def grow(tree, number, depth):
        if depth == 0 or random.random() < 0.2:
            rows.append((tree, number, 0, 0.0, "LEAF", 0, 0, 0))
            leaves.append((tree, number))
            return number + 1
        at = len(rows)
        rows.append(())
        false = grow(tree, number + 1, depth - 1)
        end = grow(tree, false, depth - 1)
        split = float(random.integers(-2, 3))
        mode = str(random.choice(modes))
        rows[at] = (tree, number, int(random.integers(FEATURES)), split, mode, number + 1, false, int(random.integers(2)))
        return end

    for tree in range(count):
        grow(tree, 0, 3)
    names = ("treeids", "nodeids", "featureids", "values", "modes", "truenodeids", "falsenodeids", "missing_value_tracks_true")
    return {f"nodes_{name}": list(column) for name, column in zip(names, zip(*rows, strict=True), strict=True)}, leaves


def random_rows(random, missing):
    x = random.integers(-3, 4, (12, FEATURES)).astype(np.float32)
    x[random.random(x.shape) < 0.2] = np.nan if missing else 0
    return x


MODES = (["BRANCH_LEQ"], ["BRANCH_LT"], ["BRANCH_GT", "BRANCH_GTE", "BRANCH_EQ", "BRANCH_NEQ", "BRANCH_LEQ"])
SEEDS = st.integers(0, 2**31)


@settings(deadline=None, max_examples=25)
@given(SEEDS, st.sampled_from(MODES), st.sampled_from(["SUM", "AVERAGE", "MIN", "MAX"]), st.integers(1, 3), st.booleans())
def test_regressor(seed, modes, function, targets, based):
    random = np.random.default_rng(seed)
    attrs, leaves = trees(random, 4, modes)
    leaf_targets = [(*leaf, target) for leaf in leaves for target in range(targets)]
    compare(
        "TreeEnsembleRegressor",
        random_rows(random, missing=len(modes) == 1),
        n_targets=targets,
        aggregate_function=function,
        target_treeids=[item[0] for item in leaf_targets],
        target_nodeids=[item[1] for item in leaf_targets],
        target_ids=[item[2] for item in leaf_targets],
        target_weights=random.uniform(-1, 1, len(leaf_targets)).tolist(),
        **({"base_values": random.uniform(-1, 1, targets).tolist()} if based else {}),
        **attrs,
    )


@settings(deadline=None, max_examples=25)
@given(
    SEEDS,
    st.sampled_from([(2, (0,)), (2, (1,)), (2, (0, 1)), (3, (0, 1, 2)), (4, (0, 1, 3))]),
    st.booleans(),
    st.booleans(),
    st.booleans(),
    st.booleans(),
)
@pytest.mark.parametrize("transform", ["NONE", "SOFTMAX", "LOGISTIC", "SOFTMAX_ZERO"])
def test_classifier(transform, seed, classes, positive, text, every_leaf, based):
    random = np.random.default_rng(seed)
    attrs, leaves = trees(random, 5, ["BRANCH_LEQ"])
    count, ids = classes
    # Of two classes that both have weights ONNX Runtime gives 0 or 1 for the label, whatever the labels are, adds one base value to
    # class 0 alone, and takes a row without a weight of class 1 for one of a single class: exporters write none of this.
    both = ids == (0, 1)
    leaf_classes = [(*leaf, each) for leaf in leaves for each in (ids if every_leaf or both else [random.choice(ids)])]
    if {each for *_, each in leaf_classes} != set(ids):
        return
    labels = {"classlabels_strings": list("abcd"[:count])} if text else {"classlabels_int64s": [7, 3, 9, 1][:count]}
    compare(
        "TreeEnsembleClassifier",
        random_rows(random, missing=True),
        ("label", "scores"),
        leave_out=("label",) if both else (),
        post_transform=transform,
        **(
            {"base_values": random.uniform(-1, 1, base).tolist()}
            if (base := based * {2: 0 if both else 1}.get(count, count))
            else {}
        ),
        class_treeids=[item[0] for item in leaf_classes],
        class_nodeids=[item[1] for item in leaf_classes],
        class_ids=[int(item[2]) for item in leaf_classes],
        class_weights=random.uniform(0 if positive else -1, 0.3, len(leaf_classes)).tolist(),
        **labels,
        **attrs,
    )


def test_gaps_in_trees_are_refused():
    attrs, leaves = trees(np.random.default_rng(0), 1, ["BRANCH_LEQ"])
    target_attrs = {"target_treeids": [0], "target_nodeids": [leaves[0][1]], "target_ids": [0], "target_weights": [1.0]}
    x = np.zeros((1, FEATURES), np.float32)
    cases = (
        ("nodes_truenodeids refers to an unknown node of tree 0", {"nodes_truenodeids": [99] * len(attrs["nodes_treeids"])}),
        ("a weight refers to an unknown node 2 of tree 0 or target 4", {"target_ids": [4]}),
        ("expected one entry of nodes_values", {"nodes_values": [1.0]}),
        ("nodes_modes must be", {"nodes_modes": ["BRANCH_MAYBE"] * len(attrs["nodes_treeids"])}),
    )
    for message, changed in cases:
        with pytest.raises(ModelImportError, match=message):
            load(make_model("TreeEnsembleRegressor", x, ["y"], **{**attrs, **target_attrs, **changed}))


X = np.float32([[1, -2, 0], [0, 0, 0], [3, np.nan, 5]])


def test_scaler_and_imputer():
    compare("Scaler", X, offset=[1.0, 2.0, 3.0], scale=[0.5, 2.0, -1.0])
    compare("Scaler", np.array([[1, 2]]), offset=[1.0], scale=[0.5])
    compare("Imputer", X, imputed_value_floats=[7.0, 8.0, 9.0], replaced_value_float=float("nan"))
    compare("Imputer", X, imputed_value_floats=[7.0], replaced_value_float=0.0)
    compare("Imputer", np.array([[1, 0], [0, 5]]), imputed_value_int64s=[7, 8], replaced_value_int64=0)


@pytest.mark.parametrize("norm", ["MAX", "L1", "L2"])
def test_normalizer(norm):
    compare("Normalizer", np.float32([[1, -2, 4], [0, 0, 0], [3, 3, 0.5]]), norm=norm)


def test_one_hot_encoder():
    compare("OneHotEncoder", np.array([["b"], ["?"], ["a"]], object), cats_strings=["a", "b"])
    compare("OneHotEncoder", np.array([[3, 1], [2, 9]]), cats_int64s=[1, 2, 3])
    compare("OneHotEncoder", np.array([[3, 1], [2, 1]]), cats_int64s=[1, 2, 3], zeros=0)


@pytest.mark.parametrize("transform", ["NONE", "SOFTMAX", "LOGISTIC"])
def test_linear_models(transform):
    x = np.float32([[1, -2, 4], [0.5, 0, 0]])
    compare("LinearRegressor", x, coefficients=[1.0, 2.0, -0.5, 0.1, 0.2, 0.3], intercepts=[0.5, -1.0], targets=2)
    compare(
        "LinearClassifier",
        x,
        ("label", "scores"),
        coefficients=[1.0, 2.0, -0.5, 0.1, 0.2, 0.3, -1.0, 0.0, 1.0],
        intercepts=[0.5, -1.0, 0.0],
        classlabels_ints=[5, 6, 8],
        post_transform=transform,
    )


@pytest.mark.parametrize("kernel", ["LINEAR", "RBF", "POLY", "SIGMOID"])
def test_svm_regressor(kernel):
    compare(
        "SVMRegressor",
        np.float32([[1, -2, 0.5], [0.5, 0, 0.25]]),
        kernel_type=kernel,
        kernel_params=[0.5, 1.0, 2.0],
        coefficients=[1.0, -0.5],
        support_vectors=[1.0, 0.0, 0.5, -1.0, 0.5, 0.0],
        n_supports=2,
        rho=[0.25],
    )
