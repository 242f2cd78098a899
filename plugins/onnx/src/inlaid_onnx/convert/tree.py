"""TreeEnsemble as tensor operations: all rows descend all trees one level at a time."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from inlaid import ops
from inlaid.graph.conditions import require_at_least
from inlaid.graph.ir import Expr, constant
from inlaid.ops.compose import cast_to, expand_dims, expr_type, scalar
from inlaid_onnx.convert.scores import transformed
from inlaid_onnx.node import Converter, Node
from inlaid_runtime.records import dataclass

COMPARISONS = ("<=", "<", ">=", ">", "==", "!=", "in")
"""Comparison operators, by their number in `nodes_modes`."""

Array = np.ndarray[Any, Any]


@dataclass(frozen=True)
class Trees:
    """The trees as tables indexed by node. A leaf is its own child.

    feature, split, mode, when_true, when_false, missing_is_true: (nodes,). members: (nodes, size of the largest set), padded with
    NaN. weight, present: (nodes, targets), the weight of a leaf for each target, and whether there is one. roots: (trees,). depth:
    the maximum number of steps from a root to a leaf.
    """

    feature: Array
    split: Array
    mode: Array
    when_true: Array
    when_false: Array
    missing_is_true: Array
    members: Array
    weight: Array
    present: Array
    roots: Array
    depth: int

    def leaves_by_root(self) -> list[Array]:
        """Return the leaves of each tree."""
        leaves = []
        for root in self.roots:
            level = np.array([root])
            for _ in range(self.depth):
                level = np.unique(np.concatenate([self.when_true[level], self.when_false[level]]))
            leaves.append(level)
        return leaves


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
            raise node.error("the attributes nodes_* must have the same length")
        limits = np.where(is_leaf != 0, leaves, interior)
        if (ids < 0).any() or (ids >= limits).any():
            raise node.error(f"nodes_{side}nodeids has an index out of range")
        children.append(np.concatenate([np.where(is_leaf != 0, ids + interior, ids), interior + np.arange(leaves)]))
    roots = np.array(attrs.get("tree_roots", []), np.int64)
    if len(modes) != interior or len(splits) != interior or len(weights) != leaves:
        raise node.error("the attributes nodes_* must have the same length, and so must leaf_*")
    if not len(roots) or (roots < 0).any() or (roots >= interior).any():
        raise node.error("tree_roots must have at least one index, each of an interior node")
    if (modes < 0).any() or (modes >= len(COMPARISONS)).any():
        raise node.error(f"nodes_modes must be 0 to {len(COMPARISONS) - 1}")
    missing = np.array(attrs.get("nodes_missing_value_tracks_true") or np.zeros(interior), np.int64)

    targets = attrs.get("n_targets", 1)
    ids = np.array(attrs.get("leaf_targetids", []), np.int64)
    if len(ids) != leaves or (ids < 0).any() or (ids >= targets).any():
        raise node.error(f"leaf_targetids must be one per leaf, >= 0 and < n_targets={targets}")
    present = ids[:, None] == np.arange(targets)

    def extend_with_leaves(values: Any, dtype: Any) -> Array:
        return np.concatenate([np.asarray(values, dtype), np.zeros(leaves, dtype)])

    return Trees(
        feature=extend_with_leaves(attrs.get("nodes_featureids", []), np.int64),
        split=extend_with_leaves(splits, splits.dtype),
        mode=extend_with_leaves(modes, np.int64),
        when_true=children[0],
        when_false=children[1],
        missing_is_true=extend_with_leaves(missing, np.int64) != 0,
        members=_members(node, modes, leaves),
        weight=np.concatenate([np.zeros((interior, targets), weights.dtype), np.where(present, weights[:, None], 0)]),
        present=np.concatenate([np.zeros((interior, targets), bool), present]),
        roots=roots,
        depth=depth(node, children, roots, np.arange(interior + leaves) >= interior),
    )


def _members(node: Node, modes: Array, leaves: int) -> Array:
    """Decode the sets of the nodes that test membership. The sets are lists in the order of the nodes, each terminated by NaN."""
    values = np.asarray(node.attrs.get("membership_values", np.zeros(0, np.float32)))
    testing = np.flatnonzero(modes == COMPARISONS.index("in"))
    ends = np.flatnonzero(np.isnan(values))
    if len(ends) < len(testing):
        raise node.error("membership_values must have a set for each node that tests membership")
    sets = np.split(values, ends[: len(testing)]) if len(testing) else []
    table = np.full((len(modes) + leaves, max(map(len, sets), default=1)), np.nan, values.dtype)
    for node_index, item in zip(testing, sets, strict=False):
        table[node_index, : len(item)] = item  # item starts with the NaN that ends the previous set; NaN never compares equal
    return table


def depth(node: Node, children: list[Array], roots: Array, is_leaf: Array) -> int:
    """Return the number of steps after which every root has reached a leaf. Raises `ModelImportError` for a cycle."""
    level = roots
    for steps in range(len(is_leaf) + 1):
        level = np.unique(level[~is_leaf[level]])
        if not len(level):
            return steps
        level = np.concatenate([side[level] for side in children])
    raise node.error("the nodes must form trees, but have a cycle")


def leaves(node: Node, trees: Trees, x: Expr) -> Expr:
    """Compute, for each row of `x` (rows, features), the leaf that it reaches in each tree: (rows, trees)."""
    rows, features = expr_type(x).shape
    with node.relations():
        require_at_least(features, int(trees.feature.max(initial=-1)) + 1, "the number of features (see nodes_featureids)")
    node_indices: Expr = ops.broadcast_to(constant(trees.roots), shape=(rows, len(trees.roots)))
    for _ in range(trees.depth):
        node_indices = _one_level_down(trees, x, node_indices)
    return node_indices


def _tree_ensemble(node: Node) -> Expr:
    if node.rank(0) != 2:
        raise node.error("the input must be a matrix (rows, features)")
    trees = _trees(node)
    function = node.attrs.get("aggregate_function", 1)
    if function not in range(4):
        raise node.error(f"aggregate_function must be 0 to 3, got {function}")
    return transformed(node, leaf_sums(trees, leaves(node, trees, node.input(0)), node.dtype(0).name, function))


def _one_level_down(trees: Trees, rows: Expr, node_indices: Expr) -> Expr:
    """Return, for each node in `node_indices` (rows, trees), the child that the test of the node selects."""

    def node_entries(table: Array) -> Expr:
        return ops.take(constant(table), node_indices, axis=0)

    dtype = expr_type(rows).dtype
    x = ops.take_along_axis(rows, node_entries(trees.feature), axis=1)
    split = cast_to(node_entries(trees.split), dtype)
    modes = set(trees.mode.tolist())
    tests: dict[str, Callable[[], Expr]] = {
        "<=": lambda: ops.less_equal(x, split),
        "<": lambda: ops.less(x, split),
        ">=": lambda: ops.less_equal(split, x),
        ">": lambda: ops.less(split, x),
        "==": lambda: ops.equal(x, split),
        "!=": lambda: ops.logical_not(ops.equal(x, split)),
        "in": lambda: _is_member(trees, x, node_indices),
    }
    result: Expr | None = None
    for number, name in enumerate(COMPARISONS):
        if number in modes:
            test = tests[name]()
            is_this = ops.equal(node_entries(trees.mode), scalar(number, "int64"))
            result = test if result is None else ops.where(is_this, test, result)
    assert result is not None
    if trees.missing_is_true.any():
        result = ops.logical_or(result, ops.logical_and(ops.isnan(x), node_entries(trees.missing_is_true)))
    return ops.where(result, node_entries(trees.when_true), node_entries(trees.when_false))


def _is_member(trees: Trees, x: Expr, node_indices: Expr) -> Expr:
    members = cast_to(ops.take(constant(trees.members), node_indices, axis=0), expr_type(x).dtype)
    matches = cast_to(ops.equal(expand_dims(x, 2), members), "int32")
    return ops.less(scalar(0, "int32"), ops.reduce_max(matches, axes=(2,), keepdims=False))


def leaf_sums(trees: Trees, leaf: Expr, dtype: str, function: int) -> Expr:
    """Aggregate the weights of the leaves (rows, trees): (rows, targets). `function`: 0 average, 1 sum, 2 minimum, 3 maximum."""
    weight = cast_to(ops.take(constant(trees.weight), leaf, axis=0), dtype)  # (rows, trees, targets)
    if function in (0, 1):
        total = ops.reduce_sum(weight, axes=(1,), keepdims=False)
        return total if function == 1 else ops.div(total, scalar(len(trees.roots), dtype))
    present = ops.take(constant(trees.present), leaf, axis=0)
    reduce = ops.reduce_min if function == 2 else ops.reduce_max
    best = reduce(ops.where(present, weight, scalar(np.inf if function == 2 else -np.inf, dtype)), axes=(1,), keepdims=False)
    any_leaf = ops.reduce_max(cast_to(present, "int32"), axes=(1,), keepdims=False)
    return ops.where(ops.less(scalar(0, "int32"), any_leaf), best, scalar(0, dtype))


CONVERTERS: Mapping[str, Converter] = {"ai.onnx.ml:TreeEnsemble": _tree_ensemble}
