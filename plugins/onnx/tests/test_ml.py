"""Label encoders, tree ensembles and n-gram counts, against plain Python."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx import helper, numpy_helper

from inlaid.graph.interp import evaluate
from inlaid_onnx import load
from inlaid_runtime.errors import ModelImportError


def run(op_type, domain, opset, x, **attrs):
    node = helper.make_node(op_type, ["x"], ["y"], domain=domain, **attrs)
    code = helper.np_dtype_to_tensor_dtype(x.dtype)
    graph = helper.make_graph([node], "g", [helper.make_tensor_value_info("x", code, x.shape)], [onnx.ValueInfoProto(name="y")])
    imports = {"": 17} | {domain: opset}
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid(*item) for item in imports.items()])
    return evaluate(load(model), {"x": x})


ML = "ai.onnx.ml"


def test_label_encoder_of_numbers():
    x = np.array([3, 1, 9, 1])
    y = run("LabelEncoder", ML, 2, x, keys_int64s=[1, 3, 1], values_floats=[0.5, 1.5, 2.5], default_float=-1.0)
    assert y.tolist() == [1.5, 2.5, -1, 2.5] and y.dtype == np.float32  # the last of equal keys counts


def test_label_encoder_of_nan():
    x = np.float32([np.nan, 2])
    assert run("LabelEncoder", ML, 2, x, keys_floats=[float("nan")], values_int64s=[7], default_int64=0).tolist() == [7, 0]


def test_label_encoder_of_strings():
    x = np.array(["b", "?"], object)
    assert run("LabelEncoder", ML, 2, x, keys_strings=["a", "b"], values_int64s=[1, 2]).tolist() == [2, -1]
    assert run("LabelEncoder", ML, 1, x, classes_strings=["a", "b"], default_int64=9).tolist() == [1, 9]
    assert run("LabelEncoder", ML, 1, np.array([1, 5]), classes_strings=["a", "b"]).tolist() == ["b", "_Unused"]


def test_binarizer_and_feature_extractor():
    assert run("Binarizer", ML, 1, np.float32([[1, 2, 3]]), threshold=2.0).tolist() == [[0, 0, 1]]


TREE = {
    "nodes_featureids": [0, 1],
    "nodes_splits": numpy_helper.from_array(np.float32([0, 1])),
    "nodes_truenodeids": [1, 2],
    "nodes_trueleafs": [0, 1],
    "nodes_falsenodeids": [0, 1],
    "nodes_falseleafs": [1, 1],
    "leaf_targetids": [0, 1, 0],
    "leaf_weights": numpy_helper.from_array(np.float32([1, 10, 100])),
    "n_targets": 2,
}
OPERATORS = [np.less_equal, np.less, np.greater_equal, np.greater, np.equal, np.not_equal]


def tree(x, modes, **attrs):
    modes = numpy_helper.from_array(np.array(modes, np.uint8))
    return run("TreeEnsemble", ML, 5, x, **{**TREE, "nodes_modes": modes, "tree_roots": [0], **attrs})


@settings(deadline=None, max_examples=25)
@given(
    st.lists(st.integers(0, 5), min_size=2, max_size=2),
    st.lists(st.tuples(st.integers(-2, 2), st.integers(-1, 3)), min_size=1, max_size=4),
)
def test_tree_ensemble(modes, rows):
    x = np.array(rows, np.float32)

    def leaf(row):
        if not OPERATORS[modes[0]](row[0], 0):
            return [1, 0]
        return [100, 0] if OPERATORS[modes[1]](row[1], 1) else [0, 10]

    assert tree(x, modes).tolist() == [leaf(row) for row in x]
    assert tree(x, modes, tree_roots=[0, 1]).shape == (len(rows), 2)


def test_membership_and_missing_values():
    members = numpy_helper.from_array(np.float32([1, 2, np.nan]))
    x = np.float32([[2, 0], [3, 0], [np.nan, 0]])
    actual = tree(x, [6, 0], membership_values=members, nodes_missing_value_tracks_true=[1, 0])
    assert actual.tolist() == [[100, 0], [1, 0], [100, 0]]


@pytest.mark.parametrize(("function", "expected"), [(0, 50.5), (1, 101), (2, 1), (3, 100)])
def test_aggregation(function, expected):
    two = {"nodes_truenodeids": [2, 2], "nodes_trueleafs": [1, 1], "nodes_falsenodeids": [0, 0], "nodes_falseleafs": [1, 1]}
    actual = tree(np.float32([[-1, 5]]), [0, 0], tree_roots=[0, 1], aggregate_function=function, **two)
    assert actual.tolist() == [[expected, 0]]


@pytest.mark.parametrize(
    "attrs",
    [
        {"nodes_truenodeids": [0, 0], "nodes_trueleafs": [0, 0]},  # a cycle
        {"nodes_truenodeids": [9, 2]},
        {"nodes_featureids": [0, 5]},
        {"tree_roots": [7]},
        {"tree_roots": [-1]},
        {"leaf_weights": numpy_helper.from_array(np.float32([1]))},
        {"aggregate_function": 9},
        {"post_transform": 9},
        {"post_transform": -1},
    ],
)
def test_malformed_trees_are_refused(attrs):
    with pytest.raises(ModelImportError):
        tree(np.zeros((1, 2), np.float32), [0, 0], **attrs)


def counted(row, pool, skips, length):
    windows = [
        tuple(row[start : start + length * step : step])
        for step in range(1, skips + 2)
        for start in range(len(row) - (length - 1) * step)
    ]
    return [windows.count(gram) for gram in pool]


@settings(deadline=None, max_examples=25)
@given(st.lists(st.integers(1, 3), min_size=1, max_size=6), st.integers(0, 3), st.sampled_from(["TF", "IDF", "TFIDF"]))
def test_bigram_counts(row, skips, mode):
    pool = [(1, 2), (2, 2), (3, 1)]
    weights = [1.0, 2.0, 0.5]
    x = np.array([row, row[::-1]])
    actual = run(
        "TfIdfVectorizer", "", 9, x,
        mode=mode, min_gram_length=2, max_gram_length=2, max_skip_count=skips, ngram_counts=[0, 1], ngram_indexes=[2, 0, 4, 1],
        pool_int64s=[9, *(item for gram in pool for item in gram)], weights=[1.0, *weights],
    )  # fmt: skip
    for result, line in zip(actual, x.tolist(), strict=True):
        counts = np.array(counted(line, pool, skips, 2), np.float32)
        scaled = {"TF": counts, "IDF": np.minimum(counts, 1) * weights, "TFIDF": counts * weights}[mode]
        assert result.tolist() == [scaled[0], scaled[2], 0, 0, scaled[1]]
