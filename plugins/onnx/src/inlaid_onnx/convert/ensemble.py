"""TreeEnsembleClassifier and TreeEnsembleRegressor, the tree ensembles before ai.onnx.ml 5. Module `tree` evaluates them."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from inlaid import ops
from inlaid.graph.ir import Expr, constant
from inlaid.ops.compose import cast_to, join, scalar, squeeze
from inlaid_onnx.convert.scores import class_labels, transformed
from inlaid_onnx.convert.tree import COMPARISONS, Array, Trees, depth, leaf_sums, leaves
from inlaid_onnx.node import Converter, Node

_SIGNS = {"LEQ": "<=", "LT": "<", "GTE": ">=", "GT": ">", "EQ": "==", "NEQ": "!="}
_MODES = {f"BRANCH_{name}": COMPARISONS.index(sign) for name, sign in _SIGNS.items()}
_FUNCTIONS = ("AVERAGE", "SUM", "MIN", "MAX")


def _attribute(node: Node, name: str) -> Array:
    """Return the float attribute `name` as a vector. Since version 3 it may be a tensor, named `<name>_as_tensor`."""
    tensor = node.attrs.get(f"{name}_as_tensor")
    return np.asarray(node.attrs.get(name) or [], np.float32) if tensor is None else np.asarray(tensor).reshape(-1)


def _trees(node: Node, kind: str, targets: int) -> Trees:
    """Decode the trees from attributes: lists with one entry per node, identified by (tree id, node id), and lists with one entry
    per weight of a leaf.

    `kind` is the prefix of the names of the weight attributes, "target" or "class"."""
    attrs = node.attrs
    keys = list(zip(attrs.get("nodes_treeids") or [], attrs.get("nodes_nodeids") or [], strict=False))
    node_indices = {key: index for index, key in enumerate(keys)}
    count = len(keys)
    modes = attrs.get("nodes_modes") or []
    values = _attribute(node, "nodes_values")
    missing = np.array(attrs.get("nodes_missing_value_tracks_true") or np.zeros(count), np.int64)
    features = np.array(attrs.get("nodes_featureids") or [], np.int64)
    lists = {"nodes_modes": modes, "nodes_values": values, "nodes_featureids": features, "nodes_missing_value_tracks_true": missing}
    for name, entries in lists.items():
        if len(entries) != count:
            raise node.error(f"expected one entry of {name} for each of {count} nodes, got {len(entries)}")
    if not count or len(node_indices) != count:
        raise node.error("expected at least one node, each with a unique (tree, node) pair")
    unknown = sorted(set(modes) - {*_MODES, "LEAF"})
    if unknown:
        raise node.error(f"nodes_modes must be LEAF or one of {', '.join(_MODES)}, got {unknown[0]!r}")
    is_leaf = np.array([mode == "LEAF" for mode in modes])
    # Leaves get the mode of the first interior node: if all nodes have one mode, one comparison suffices.
    first = next((_MODES[mode] for mode in modes if mode != "LEAF"), 0)
    children = []
    for side in ("true", "false"):
        ids = attrs.get(f"nodes_{side}nodeids") or []
        if len(ids) != count:
            raise node.error(f"expected one entry of nodes_{side}nodeids for each of {count} nodes, got {len(ids)}")
        child_indices = [
            index if is_leaf[index] else node_indices.get((keys[index][0], child), -1) for index, child in enumerate(ids)
        ]
        if -1 in child_indices:
            raise node.error(f"nodes_{side}nodeids refers to an unknown node of tree {keys[child_indices.index(-1)][0]}")
        children.append(np.array(child_indices, np.int64))
    roots = np.array([index for index, key in enumerate(keys) if index == 0 or key[0] != keys[index - 1][0]], np.int64)
    weight, present = _weights(node, kind, node_indices, targets)
    return Trees(
        feature=np.where(is_leaf, 0, features),
        split=values,
        mode=np.array([_MODES.get(mode, first) for mode in modes], np.int64),
        when_true=children[0],
        when_false=children[1],
        missing_is_true=(missing != 0) & ~is_leaf,
        members=np.full((count, 1), np.nan, np.float32),
        weight=weight,
        present=present,
        roots=roots,
        depth=depth(node, children, roots, is_leaf),
    )


def _weights(node: Node, kind: str, node_indices: Mapping[tuple[int, int], int], targets: int) -> tuple[Array, Array]:
    """Return two arrays (nodes, targets): the weight of each node for each target, and whether the model has that weight."""
    weights = _attribute(node, f"{kind}_weights")
    columns = [node.attrs.get(f"{kind}_{name}") or [] for name in ("treeids", "nodeids", "ids")]
    if any(len(column) != len(weights) for column in columns):
        raise node.error(f"the attributes {kind}_treeids, {kind}_nodeids, {kind}_ids and {kind}_weights must have one length")
    table, present = np.zeros((len(node_indices), targets), weights.dtype), np.zeros((len(node_indices), targets), bool)
    for tree, number, target, weight in zip(*columns, weights, strict=True):
        if (tree, number) not in node_indices or not 0 <= target < targets:
            raise node.error(f"a weight refers to an unknown node {number} of tree {tree} or {kind} {target}")
        table[node_indices[tree, number], target] += weight
        present[node_indices[tree, number], target] = True
    return table, present


def _walked(node: Node, trees: Trees) -> tuple[Expr, str]:
    """Return the leaf that each row reaches in each tree, and the dtype of the sum."""
    x = node.input(0)
    if node.rank(0) == 1:
        x = ops.reshape(x, shape=(1, node.tensor(0).shape[0]))
    if not node.dtype(0).is_float:
        x = cast_to(x, "float32")
    return leaves(node, trees, x), "float64" if trees.weight.dtype == np.float64 else "float32"


def _regressor(node: Node) -> Expr:
    targets = node.attrs.get("n_targets", 1)
    trees = _trees(node, "target", targets)
    leaf, dtype = _walked(node, trees)
    function = node.attrs.get("aggregate_function", "SUM")
    if function not in _FUNCTIONS:
        raise node.error(f"aggregate_function must be one of {', '.join(_FUNCTIONS)}, got {function!r}")
    total = leaf_sums(trees, leaf, dtype, _FUNCTIONS.index(function))
    base = _attribute(node, "base_values")
    if len(base) in (1, targets):
        total = ops.add(total, constant(base.astype(dtype)))
    elif len(base):
        raise node.error(f"expected one base value for each of {targets} targets, got {len(base)}")
    return cast_to(transformed(node, total), "float32")


def _classifier(node: Node) -> tuple[Expr, Expr]:
    """Convert TreeEnsembleClassifier to labels (rows,) and scores (rows, classes)."""
    labels = node.attrs.get("classlabels_int64s") or node.attrs.get("classlabels_strings") or []
    ids = set(node.attrs.get("class_ids") or [])
    classes = max(len(labels), max(ids, default=0) + 1)
    if classes > len(labels):
        raise node.error(f"expected at least {classes} class labels, as class_ids go up to {classes - 1}, got {len(labels)}")
    trees = _trees(node, "class", classes)
    leaf, dtype = _walked(node, trees)
    base = _attribute(node, "base_values").astype(dtype)
    if len(base) not in (0, 1, classes):
        raise node.error(f"expected one base value for each of {classes} classes, got {len(base)}")
    if classes == 2 and len(ids) == 1:
        chosen, scores = _one_sided(node, trees, leaf, dtype, base)
    else:
        scores = leaf_sums(trees, leaf, dtype, _FUNCTIONS.index("SUM"))
        if len(base):
            scores = ops.add(scores, constant(base))
        chosen = ops.argmax(_mask_unreached_classes(trees, leaf, scores, dtype, bool(len(base))), axis=1, keepdims=False)
        scores = transformed(node, scores)
    return class_labels(chosen, labels), cast_to(scores, "float32")


def _mask_unreached_classes(trees: Trees, leaf: Expr, scores: Expr, dtype: str, has_base: bool) -> Expr:
    """Set the score of each class that has no weight in a row's leaves to -infinity, so that the class is never selected.
    With base values, every class has a score and none is masked."""
    every_leaf = [trees.present[reached].all(axis=0) for reached in trees.leaves_by_root()]
    if has_base or np.any(every_leaf, axis=0).all():
        return scores
    any_leaf = ops.reduce_max(cast_to(ops.take(constant(trees.present), leaf, axis=0), "int32"), axes=(1,), keepdims=False)
    return ops.where(ops.less(scalar(0, "int32"), any_leaf), scores, scalar(-np.inf, dtype))


def _one_sided(node: Node, trees: Trees, leaf: Expr, dtype: str, base: Array) -> tuple[Expr, Expr]:
    """Classify into two classes if only one has weights. Returns the class and both scores, computed as in ONNX Runtime."""
    if len(base) == 2:
        raise node.error("expected at most one base value if one of two classes has weights, got 2")
    (weighted_class,) = set(node.attrs["class_ids"])
    sums = leaf_sums(trees, leaf, dtype, _FUNCTIONS.index("SUM"))
    score = ops.take(sums, constant(np.array([weighted_class])), axis=1)
    if len(base) and weighted_class == 0:  # ONNX Runtime adds the base value to class 0, but reads the class that has weights
        score = ops.add(score, scalar(float(base[0]), dtype))
    positive = bool((trees.weight[trees.present] >= 0).all())
    chosen = cast_to(ops.less(scalar(0.5 if positive else 0.0, dtype), squeeze(score, 1)), "int64")
    if weighted_class == 1:
        return chosen, transformed(node, join([ops.mul(score, scalar(0, dtype)), score], 1))
    if node.attrs.get("post_transform", "NONE") == "LOGISTIC":
        return chosen, join([ops.sigmoid(ops.neg(score)), ops.sigmoid(score)], 1)
    return chosen, join([ops.sub(scalar(1, dtype), score) if positive else ops.neg(score), score], 1)


CONVERTERS: Mapping[str, Converter] = {
    "ai.onnx.ml:TreeEnsembleClassifier": _classifier,
    "ai.onnx.ml:TreeEnsembleRegressor": _regressor,
}
