"""TreeEnsemble as tensor operations: all trees of all rows go down one level at a time."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from inlaid import ops
from inlaid.frontends.onnx.node import Converter, Node
from inlaid.graph.ir import Expr, constant
from inlaid.ops.compose import cast_to, expand_dims, scalar

_COMPARISONS = ("<=", "<", ">=", ">", "==", "!=", "in")
"""By the number in `nodes_modes`."""

Array = np.ndarray[Any, Any]


@dataclass(frozen=True)
class Trees:
    """The trees as tables by node: interior nodes first, then leaves, which are their own children.

    feature, split, mode, when_true, when_false, missing_is_true: (nodes,); members: (nodes, greatest set), filled up with NaN;
    target, weight: (nodes,), of leaves; roots: (trees,); depth: the greatest number of steps from a root to a leaf.
    """

    feature: Array
    split: Array
    mode: Array
    when_true: Array
    when_false: Array
    missing_is_true: Array
    members: Array
    target: Array
    weight: Array
    roots: Array
    depth: int


def _trees(node: Node) -> Trees:
    attrs = node.attrs
    interior, leaves = len(attrs.get("nodes_featureids", [])), len(attrs.get("leaf_targetids", []))
    modes = np.asarray(attrs.get("nodes_modes", []), np.int64)
    splits = np.asarray(attrs.get("nodes_splits", []))
    weights = np.asarray(attrs.get("leaf_weights", []))
    children = []
    for side in ("true", "false"):
        ids = np.array(attrs.get(f"nodes_{side}nodeids", []), np.int64)
        is_leaf = np.array(attrs.get(f"nodes_{side}leafs", []), np.int64)
        if len(ids) != interior or len(is_leaf) != interior:
            raise node.error("the attributes nodes_* differ in length")
        limits = np.where(is_leaf != 0, leaves, interior)
        if (ids < 0).any() or (ids >= limits).any():
            raise node.error(f"nodes_{side}nodeids has an entry out of range")
        children.append(np.concatenate([np.where(is_leaf != 0, ids + interior, ids), interior + np.arange(leaves)]))
    roots = np.array(attrs.get("tree_roots", []), np.int64)
    if len(modes) != interior or len(splits) != interior or len(weights) != leaves:
        raise node.error("the attributes nodes_* or leaf_* differ in length")
    if not len(roots) or (roots < 0).any() or (roots >= interior).any():
        raise node.error("tree_roots is empty or has an entry out of range")
    if (modes < 0).any() or (modes >= len(_COMPARISONS)).any():
        raise node.error("nodes_modes has an unknown entry")
    missing = np.array(attrs.get("nodes_missing_value_tracks_true") or np.zeros(interior), np.int64)

    def for_all(values: Any, of: Any) -> Array:
        return np.concatenate([np.asarray(values, of), np.zeros(leaves, of)])

    return Trees(
        feature=for_all(attrs.get("nodes_featureids", []), np.int64),
        split=for_all(splits, splits.dtype),
        mode=for_all(modes, np.int64),
        when_true=children[0],
        when_false=children[1],
        missing_is_true=for_all(missing, np.int64) != 0,
        members=_members(node, modes, leaves),
        target=np.concatenate([np.zeros(interior, np.int64), np.array(attrs.get("leaf_targetids", []), np.int64)]),
        weight=np.concatenate([np.zeros(interior, weights.dtype), weights]),
        roots=roots,
        depth=_depth(node, children, roots, interior),
    )


def _members(node: Node, modes: Array, leaves: int) -> Array:
    """The sets of nodes that test membership: lists in the order of these nodes, each ended by NaN."""
    values = np.asarray(node.attrs.get("membership_values", np.zeros(0, np.float32)))
    testing = np.flatnonzero(modes == _COMPARISONS.index("in"))
    ends = np.flatnonzero(np.isnan(values))
    if len(ends) < len(testing):
        raise node.error("membership_values has fewer sets than there are nodes that test membership")
    sets = np.split(values, ends[: len(testing)]) if len(testing) else []
    table = np.full((len(modes) + leaves, max(map(len, sets), default=1)), np.nan, values.dtype)
    for place, item in zip(testing, sets, strict=False):
        table[place, : len(item)] = item  # starts with the NaN that ends the one before, which equals nothing
    return table


def _depth(node: Node, children: list[Array], roots: Array, interior: int) -> int:
    """The number of steps that takes every root to a leaf. Raises `ModelImportError` where there is none."""
    level = roots
    for depth in range(interior + 1):
        level = np.unique(level[level < interior])
        if not len(level):
            return depth
        level = np.concatenate([side[level] for side in children])
    raise node.error("the nodes form a cycle instead of trees")


def _tree_ensemble(node: Node) -> Expr:
    if node.rank(0) != 2:
        raise node.error("the input must be a matrix of rows and features")
    trees = _trees(node)
    rows, features = node.tensor(0).shape
    if isinstance(features, int) and (trees.feature >= features).any():
        raise node.error(f"a node tests a feature that an input of {features} features does not have")
    place: Expr = ops.broadcast_to(constant(trees.roots), shape=(rows, len(trees.roots)))
    for _ in range(trees.depth):
        place = _one_level_down(node, trees, place)
    return _transformed(node, _aggregated(node, trees, place))


def _one_level_down(node: Node, trees: Trees, place: Expr) -> Expr:
    """The child of each node in `place` (rows, trees) to which its test leads."""

    def of_place(table: Array) -> Expr:
        return ops.take(constant(table), place, axis=0)

    x = ops.take_along_axis(node.input(0), of_place(trees.feature), axis=1)
    split = cast_to(of_place(trees.split), node.dtype(0))
    used = set(trees.mode.tolist())
    tests: dict[str, Callable[[], Expr]] = {
        "<=": lambda: ops.less_equal(x, split),
        "<": lambda: ops.less(x, split),
        ">=": lambda: ops.less_equal(split, x),
        ">": lambda: ops.less(split, x),
        "==": lambda: ops.equal(x, split),
        "!=": lambda: ops.logical_not(ops.equal(x, split)),
        "in": lambda: _is_member(node, trees, x, place),
    }
    result: Expr | None = None
    for number, name in enumerate(_COMPARISONS):
        if number in used:
            test = tests[name]()
            is_this = ops.equal(of_place(trees.mode), scalar(number, "int64"))
            result = test if result is None else ops.where(is_this, test, result)
    assert result is not None
    if trees.missing_is_true.any():
        result = ops.logical_or(result, ops.logical_and(ops.isnan(x), of_place(trees.missing_is_true)))
    return ops.where(result, of_place(trees.when_true), of_place(trees.when_false))


def _is_member(node: Node, trees: Trees, x: Expr, place: Expr) -> Expr:
    members = cast_to(ops.take(constant(trees.members), place, axis=0), node.dtype(0))
    same = cast_to(ops.equal(expand_dims(x, 2), members), "int32")
    return ops.less(scalar(0, "int32"), ops.reduce_max(same, axes=(2,), keepdims=False))


def _aggregated(node: Node, trees: Trees, leaf: Expr) -> Expr:
    """The leaves' weights, brought together per target: (rows, targets)."""
    of = node.dtype(0)
    targets = node.attrs.get("n_targets", 1)
    target = expand_dims(ops.take(constant(trees.target), leaf, axis=0), 2)
    weight = expand_dims(cast_to(ops.take(constant(trees.weight), leaf, axis=0), of), 2)
    belongs = ops.equal(target, constant(np.arange(targets, dtype=np.int64)))  # (rows, trees, targets)
    function = node.attrs.get("aggregate_function", 1)
    if function in (0, 1):
        total = ops.reduce_sum(ops.where(belongs, weight, scalar(0, of)), axes=(1,), keepdims=False)
        return total if function == 1 else ops.div(total, scalar(len(trees.roots), of))
    if function not in (2, 3):
        raise node.error(f"aggregate_function {function} is unknown")
    worst = np.inf if function == 2 else -np.inf
    reduce = ops.reduce_min if function == 2 else ops.reduce_max
    best = reduce(ops.where(belongs, weight, scalar(worst, of)), axes=(1,), keepdims=False)
    any_leaf = ops.reduce_max(cast_to(belongs, "int32"), axes=(1,), keepdims=False)
    return ops.where(ops.less(scalar(0, "int32"), any_leaf), best, scalar(0, of))


def _transformed(node: Node, scores: Expr) -> Expr:
    transform = node.attrs.get("post_transform", 0)
    if transform == 0:
        return scores
    if transform == 1:
        return ops.softmax(scores, axis=1)
    if transform == 2:
        return ops.sigmoid(scores)
    raise node.error(f"post_transform {transform} is not supported")


CONVERTERS: Mapping[str, Converter] = {"ai.onnx.ml:TreeEnsemble": _tree_ensemble}
