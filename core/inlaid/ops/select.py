"""Operators that select a data-dependent number of elements. Their results have existential dimensions.

Each operator is a loop program that stores the size of its result before it writes the result. Other operators are compositions of
these with a `take` at the returned indices: ONNX Compress takes the elements at the nonzero indices of its mask, ONNX Unique the
values at their first occurrences.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from inlaid.graph.conditions import require_at_least, require_shape
from inlaid.graph.operator import Attrs, FusionKind, Operator, Threaded
from inlaid.graph.unify import fresh_size, upper_bound
from inlaid.ops.define import ANY, FLOAT, Array, common_dtype, make_family, tensor_type, widen, widen_array, working_dtype
from inlaid.ops.ordering import first_in_order, key_dtype, sort_key, visit_in_order
from inlaid.ops.sort import before, merge_sort, stable_argsort
from inlaid.ops.threads.choose import count_selected
from inlaid.ops.threads.distinct import Distinct, find_distinct
from inlaid.ops.threads.grid import Grid, parallel_range, truth, unflatten
from inlaid.ops.threads.suppress import Suppression, suppress
from inlaid.tensor import ir, te
from inlaid.tensor.build import Builder
from inlaid_runtime import arith
from inlaid_runtime.arith import Dim, SizeVar
from inlaid_runtime.records import dataclass
from inlaid_runtime.types import TensorType, TupleType, Type, dtype


def _fresh(hint: str, *factors: Dim) -> SizeVar:
    """Make an existential dimension bounded by the product of dimensions."""
    bounds = [upper_bound(factor) for factor in factors]
    upper_bounds = [bound for bound in bounds if bound is not None]
    return fresh_size(hint, arith.product(tuple(upper_bounds)) if len(upper_bounds) == len(bounds) else None)


def defined_size(type_: Type, axis: int) -> SizeVar:
    """Return the existential dimension of an axis of a result."""
    assert isinstance(type_, TensorType)
    size = type_.shape[axis]
    assert isinstance(size, SizeVar)
    return size


# --- nonzero ----------------------------------------------------------------------------------------------------------


def _infer_nonzero(attrs: Attrs, x: Type) -> Type:
    x = tensor_type(x, ANY)
    return TensorType((x.rank, _fresh("nonzero", *x.shape)), "int64")


def _nonzero(attrs: Attrs, x: Array) -> Array:
    flat_indices = np.nonzero(widen_array(x).reshape(-1))[0]
    return np.stack(np.unravel_index(flat_indices, x.shape)) if x.ndim else np.zeros((0, len(flat_indices)), np.int64)


def _compute_nonzero(attrs: Attrs, x: te.Tensor, *, out_type: Type) -> te.Tensor:
    size = defined_size(out_type, 1)

    def body(b: Builder, inputs: tuple[ir.Buffer, ...], outputs: tuple[ir.Buffer, ...]) -> None:
        (source,) = inputs
        result, count = outputs

        def is_nonzero(element_index: tuple[arith.Var, ...]) -> ir.Expr:
            value = widen(source[element_index])
            return value if value.dtype.kind == "bool" else value.not_equal(0)

        b.store(count, (), 0)
        with b.loops(x.shape) as element_index, b.if_(is_nonzero(element_index)):
            b.store(count, (), count[()] + 1)
        if not x.rank:
            return
        position = b.alloc((), "int64", "position")
        b.store(position, (), 0)
        with b.loops(x.shape) as element_index, b.if_(is_nonzero(element_index)):
            column = b.let(position[()], "column", (0, size - 1))
            for axis, index in enumerate(element_index):
                b.store(result, (axis, column), index)
            b.store(position, (), position[()] + 1)

    (result,) = te.extern([((x.rank, size), "int64")], (x,), body, "nonzero", (size,))
    return result


def _threaded_nonzero(grid: Grid, attrs: Attrs, x: te.Tensor, *, out_type: Type) -> te.Tensor:
    size, elements = defined_size(out_type, 1), arith.product(x.shape)

    def body(b: Builder, inputs: tuple[ir.Buffer, ...], outputs: tuple[ir.Buffer, ...]) -> None:
        result, count = outputs

        def is_nonzero(number: Dim) -> ir.Expr:
            value = widen(inputs[0][unflatten(number, x.shape)])
            return value if value.dtype.kind == "bool" else value.not_equal(0)

        selected = count_selected(b, grid, elements, is_nonzero)
        b.store(count, (), selected.total)
        if x.rank:
            with parallel_range(b, grid, elements) as column, b.if_(truth(arith.compare("<", column, size))):
                for axis, index in enumerate(unflatten(selected.find(b, column), x.shape)):
                    b.store(result, (axis, column), index)

    (result,) = te.extern([((x.rank, size), "int64")], (x,), body, "nonzero", (size,))
    return result


nonzero = Operator(
    "nonzero",
    _infer_nonzero,
    reference=_nonzero,
    compute=_compute_nonzero,
    threaded=Threaded(_threaded_nonzero),
    fusion=FusionKind.OPAQUE,
    inputs=("x",),
    existential=True,
    doc="""Indices of the non-zero elements, in row-major order.
Operand: x, numeric or bool. Result: (rank, count), int64.""",
)


# --- unique -----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class UniqueAttrs(Attrs):
    """`ordered`: whether the unique rows are sorted in ascending order, instead of by first occurrence."""

    ordered: bool = True


def _infer_unique(attrs: UniqueAttrs, x: Type) -> Type:
    x = tensor_type(x)
    if x.rank != 2:
        raise ValueError(f"x must be a matrix, got rank {x.rank}")
    size = _fresh("unique", x.shape[0])
    return TupleType((TensorType((size,), "int64"), TensorType(x.shape[:1], "int64"), TensorType((size,), "int64")))


def _unique(attrs: UniqueAttrs, x: Array) -> tuple[Array, Array, Array]:
    """Return (index of the first occurrence of each unique row, index of the unique row of each row, counts)."""
    keys = widen_array(x)
    ranks = [np.unique(keys[:, column], return_inverse=True)[1].reshape(-1) for column in range(keys.shape[1])]
    order = np.lexsort(ranks[::-1] or [np.zeros(len(keys))])  # the last key is the primary one
    changed = np.zeros(len(keys), np.bool_)
    changed[:1] = True
    for rank in ranks:
        changed[1:] |= rank[order][1:] != rank[order][:-1]
    group = np.empty(len(keys), np.int64)
    group[order] = np.cumsum(changed) - 1
    first = order[changed]  # the sort is stable, so a group starts with its first occurrence
    counts = np.bincount(group, minlength=len(first))
    if not attrs.ordered:
        by_occurrence = np.argsort(first)
        new_groups = np.empty(len(first), np.int64)
        new_groups[by_occurrence] = np.arange(len(first))
        first, group, counts = first[by_occurrence], new_groups[group], counts[by_occurrence]
    return first.astype(np.int64), group, counts.astype(np.int64)


def _compute_unique(attrs: UniqueAttrs, x: te.Tensor, *, out_type: Type) -> tuple[te.Tensor, ...]:
    assert isinstance(out_type, TupleType)
    size = defined_size(out_type.fields[0], 0)
    rows, columns = x.shape

    def body(b: Builder, inputs: tuple[ir.Buffer, ...], outputs: tuple[ir.Buffer, ...]) -> None:
        (source,) = inputs
        first, inverse, counts, count = outputs
        order, spare, founder = (b.alloc((rows,), "int64", name) for name in ("order", "spare", "founder"))
        leader = b.alloc((), "int64", "leader")
        differs, is_new = b.alloc((), "bool", "differs"), b.alloc((), "bool", "is_new")

        def precedes(b: Builder, one: arith.Var, other: arith.Var, result: ir.Buffer) -> None:
            """Compare rows lexicographically."""
            b.store(result, (), False)
            b.store(differs, (), False)
            with b.loop(columns, "column") as column, b.if_(~differs[()]):
                a, c = widen(source[one, column]), widen(source[other, column])
                b.store(result, (), before(a, c))
                b.store(differs, (), before(a, c) | before(c, a))

        if columns == 1:
            keys = b.alloc((rows,), key_dtype(x.dtype), "keys")
            first_in_order(b, rows, rows, lambda row: sort_key(source[row, 0]), (keys, order, spare))
        else:
            merge_sort(b, rows, precedes, order, spare)
        # `founder[row]` is the first row equal to `row`, which the stable sort puts first in the group.
        b.store(leader, (), 0)
        with b.loop(rows) as i:
            row = b.let(order[i], "row", (0, rows - 1))
            previous = b.let(order[arith.maximum(i - 1, 0)], "previous", (0, rows - 1))
            precedes(b, previous, row, is_new)
            with b.if_(is_new[()] | ir.as_expr(arith.compare("==", i, 0), dtype("bool"))):
                b.store(leader, (), row)
            b.store(founder, row, leader[()])
        b.store(count, (), 0)
        with b.loop(rows) as i:
            row = b.let(order[i], "row", (0, rows - 1)) if attrs.ordered else i
            head = b.let(founder[row], "head", (0, rows - 1))
            with b.if_(ir.as_expr(arith.compare("==", head, row), dtype("bool"))):
                b.store(spare, row, count[()])
                b.store(count, (), count[()] + 1)
                group = b.let(spare[row], "group", (0, size - 1))
                b.store(first, group, row)
                b.store(counts, group, 0)
            group = b.let(spare[head], "group", (0, size - 1))
            b.store(inverse, row, group)
            b.store(counts, group, counts[group] + 1)

    return te.extern([((size,), "int64"), ((rows,), "int64"), ((size,), "int64")], (x,), body, "unique", (size,))


def _threaded_unique(grid: Grid, attrs: UniqueAttrs, x: te.Tensor, *, out_type: Type) -> tuple[te.Tensor, ...]:
    assert isinstance(out_type, TupleType)
    size, rows = defined_size(out_type.fields[0], 0), x.shape[0]

    def body(b: Builder, inputs: tuple[ir.Buffer, ...], outputs: tuple[ir.Buffer, ...]) -> None:
        first, inverse, counts, count = outputs
        find_distinct(b, grid, inputs[0], attrs.ordered, Distinct(first, inverse, counts, count, size))

    return te.extern([((size,), "int64"), ((rows,), "int64"), ((size,), "int64")], (x,), body, "unique", (size,))


unique = Operator(
    "unique",
    _infer_unique,
    UniqueAttrs,
    reference=_unique,
    compute=_compute_unique,
    threaded=Threaded(_threaded_unique),
    fusion=FusionKind.OPAQUE,
    inputs=("x",),
    existential=True,
    doc="""Unique rows of a matrix.
Operand: x (rows, columns). Results, int64: index of the first occurrence of each unique row, (count,); index of the unique row of
each row, (rows,); number of occurrences of each unique row, (count,).""",
)


# --- non_max_suppression ----------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class NonMaxSuppressionAttrs(Attrs):
    """`max_output`: the maximum number of boxes to keep per batch element and class. `center`: boxes are (x center, y center,
    width, height) instead of two opposite corners (y, x, y, x)."""

    max_output: Dim
    center: bool = False


def _infer_non_max_suppression(
    attrs: NonMaxSuppressionAttrs, boxes: Type, scores: Type, iou_threshold: Type, score_threshold: Type
) -> Type:
    boxes, scores = tensor_type(boxes, FLOAT, "the boxes"), tensor_type(scores, FLOAT, "the scores")
    limits = [tensor_type(type_, FLOAT, "a threshold") for type_ in (iou_threshold, score_threshold)]
    common_dtype(boxes, scores, *limits)
    if boxes.rank != 3 or scores.rank != 3 or any(limit.rank for limit in limits):
        raise ValueError(f"boxes must be (B, N, 4), scores (B, classes, N) and thresholds 0-d, got {[boxes, scores, *limits]}")
    require_shape(boxes.shape, (scores.shape[0], scores.shape[2], 4), "the boxes")
    require_at_least(attrs.max_output, 0, "max_output")
    candidates = upper_bound(boxes.shape[1])
    max_boxes = attrs.max_output if candidates is None else arith.unwrap(arith.minimum(attrs.max_output, candidates))
    return TensorType((_fresh("kept", scores.shape[0], scores.shape[1], max_boxes), 3), "int64")


def _non_max_suppression(
    attrs: NonMaxSuppressionAttrs, boxes: Array, scores: Array, iou_threshold: Array, score_threshold: Array
) -> Array:
    """Return rows (batch, class, box). By descending score, boxes are kept unless they overlap a kept box too much."""
    assert isinstance(attrs.max_output, int)
    boxes, scores = widen_array(boxes), widen_array(scores)
    kept_boxes: list[tuple[int, int, int]] = []
    for batch, batch_scores in enumerate(scores):
        corners = _corner_arrays(boxes[batch], attrs.center)
        for class_index, class_scores in enumerate(batch_scores):
            kept_in_class: list[int] = []
            for box in stable_argsort(class_scores, 0, descending=True):
                if len(kept_in_class) >= attrs.max_output:
                    break
                overlaps = (_overlap_arrays(corners[box], corners[other]) for other in kept_in_class)
                if class_scores[box] > score_threshold and not any(overlap > iou_threshold for overlap in overlaps):
                    kept_in_class.append(box)
            kept_boxes += [(batch, class_index, box) for box in kept_in_class]
    return np.array(kept_boxes, np.int64).reshape(-1, 3)


def _corner_arrays(boxes: Array, center: bool) -> Array:
    """Convert boxes to (lower y, lower x, upper y, upper x)."""
    if center:
        x, y, width, height = boxes.T
        half_width, half_height = width / 2, height / 2
        return np.stack([y - half_height, x - half_width, y + half_height, x + half_width], -1)
    y1, x1, y2, x2 = boxes.T
    return np.stack([np.minimum(y1, y2), np.minimum(x1, x2), np.maximum(y1, y2), np.maximum(x1, x2)], -1)


def _overlap_arrays(a: Array, b: Array) -> Any:
    """Compute the intersection over union of two boxes; 0 if either is empty or they are disjoint."""
    height, width = (np.minimum(a[2 + k], b[2 + k]) - np.maximum(a[k], b[k]) for k in range(2))
    areas = [(box[2] - box[0]) * (box[3] - box[1]) for box in (a, b)]
    if height <= 0 or width <= 0 or min(areas) <= 0:
        return np.zeros((), a.dtype)
    common = height * width
    return common / (areas[0] + areas[1] - common)


def _corners(box: list[ir.Expr], center: bool) -> list[ir.Expr]:
    """Build the expressions that convert a box as `_corner_arrays` does."""
    if center:
        x, y, width, height = box
        half_width, half_height = width / 2.0, height / 2.0
        return [y - half_height, x - half_width, y + half_height, x + half_width]
    y1, x1, y2, x2 = box
    return [te.minimum(y1, y2), te.minimum(x1, x2), te.maximum(y1, y2), te.maximum(x1, x2)]


def _overlap(a: list[ir.Expr], b: list[ir.Expr]) -> ir.Expr:
    """Build the expression of the intersection over union of two boxes; see `_overlap_arrays`."""
    height, width = (te.minimum(a[2 + k], b[2 + k]) - te.maximum(a[k], b[k]) for k in range(2))
    areas = [(box[2] - box[0]) * (box[3] - box[1]) for box in (a, b)]
    common = height * width
    is_overlapping = (height > 0.0) & (width > 0.0) & (areas[0] > 0.0) & (areas[1] > 0.0)
    return te.select(is_overlapping, common / (areas[0] + areas[1] - common), 0.0)


def _compute_non_max_suppression(
    attrs: NonMaxSuppressionAttrs,
    boxes: te.Tensor,
    scores: te.Tensor,
    iou_threshold: te.Tensor,
    score_threshold: te.Tensor,
    *,
    out_type: Type,
) -> te.Tensor:
    size = defined_size(out_type, 0)
    batches, classes, candidates = scores.shape

    def body(b: Builder, inputs: tuple[ir.Buffer, ...], outputs: tuple[ir.Buffer, ...]) -> None:
        box_buffer, score_buffer, overlap_limit, score_limit = inputs
        result, count = outputs
        # The corners of kept boxes are contiguous, so that a box is compared with several at once.
        overlaps, working = b.alloc((), "int32", "overlaps"), working_dtype(boxes.dtype)
        box_corners, selection_corners = b.alloc((4,), working, "own"), b.alloc((4, candidates), working, "others")
        going = b.alloc((), "bool", "going")
        max_boxes = arith.minimum(attrs.max_output, candidates)
        b.store(count, (), 0)
        with b.loops((batches, classes)) as (batch, class_index):

            def score(box: Dim) -> ir.Expr:
                return widen(score_buffer[batch, class_index, box])

            def rank(box: Dim) -> ir.Expr:
                return sort_key(score_buffer[batch, class_index, box], descending=True)

            start = b.let(count[()], "start")

            def visit(box: Dim) -> None:
                with b.if_(score(box) > widen(score_limit[()])):
                    selection_size = b.let(count[()] - start, "kept")
                    b.store(overlaps, (), 0)
                    corners = _corners([widen(box_buffer[batch, box, side]) for side in range(4)], attrs.center)
                    for side, corner in enumerate(corners):
                        b.store(box_corners, side, corner)
                    with b.loop(selection_size) as j:
                        overlap = _overlap(
                            [box_corners[side] for side in range(4)], [selection_corners[side, j] for side in range(4)]
                        )
                        is_suppressed = te.select(overlap > widen(overlap_limit[()]), te.const(1, "int32"), te.const(0, "int32"))
                        b.store(overlaps, (), te.maximum(overlaps[()], is_suppressed))
                    with b.if_(overlaps[()].equal(0)):
                        slot = b.let(ir.as_expr(selection_size, dtype("int64")), "place", (0, candidates - 1))
                        for side in range(4):
                            b.store(selection_corners, (side, slot), box_corners[side])
                        b.store(count, (), count[()] + 1)
                        row = b.let(count[()] - 1, "row", (0, size - 1))
                        for column, value in enumerate((batch, class_index, box)):
                            b.store(result, (row, column), value)
                        b.store(going, (), ir.as_expr(arith.compare("<", selection_size + 1, max_boxes), dtype("bool")))
                # Scores are descending: all scores after one below the threshold are below it too. NaN comes first.
                with b.else_():
                    b.store(going, (), te.unary("isnan", score(box)))

            b.store(going, (), ir.as_expr(arith.compare(">", max_boxes, 0), dtype("bool")))
            visit_in_order(b, candidates, arith.maximum(max_boxes * 2, 64), (key_dtype(scores.dtype), rank), going, visit)

    tensors = (boxes, scores, iou_threshold, score_threshold)
    (result,) = te.extern([((size, 3), "int64")], tensors, body, "non_max_suppression", (size,))
    return result


def _may_keep(grid: Grid, attrs: NonMaxSuppressionAttrs, boxes: Type, scores: Type, *limits: Type) -> bool:
    """Test whether any box may be kept: False if max_output is 0 or there are no boxes."""
    return isinstance(scores, TensorType) and 0 not in (*scores.shape, attrs.max_output)


def _threaded_non_max_suppression(grid: Grid, attrs: NonMaxSuppressionAttrs, *tensors: te.Tensor, out_type: Type) -> te.Tensor:
    size, candidates = defined_size(out_type, 0), tensors[1].shape[2]
    max_boxes = arith.unwrap(arith.minimum(attrs.max_output, candidates))

    def body(b: Builder, inputs: tuple[ir.Buffer, ...], outputs: tuple[ir.Buffer, ...]) -> None:
        boxes, scores, overlap_limit, score_limit = inputs
        limits = (overlap_limit, score_limit)
        nms = Suppression(boxes, scores, limits, max_boxes, lambda box: _corners(box, attrs.center), _overlap)
        suppress(b, grid, nms, outputs, size)

    (result,) = te.extern([((size, 3), "int64")], tensors, body, "non_max_suppression", (size,))
    return result


non_max_suppression = Operator(
    "non_max_suppression",
    _infer_non_max_suppression,
    NonMaxSuppressionAttrs,
    reference=_non_max_suppression,
    compute=_compute_non_max_suppression,
    threaded=Threaded(_threaded_non_max_suppression, _may_keep),
    fusion=FusionKind.OPAQUE,
    arity=(4, 4),
    inputs=("boxes", "scores", "iou_threshold", "score_threshold"),
    existential=True,
    doc="""Greedy non-maximum suppression: by descending score, keep boxes that overlap no kept box.
Operands, of one float dtype: boxes (B, N, 4), scores (B, classes, N), iou_threshold and score_threshold, 0-d. Boxes overlap if
the IoU > iou_threshold. Boxes with score <= score_threshold are dropped. Result: (count, 3), int64, rows (batch, class, box).""",
)


OPERATORS = make_family(nonzero, unique, non_max_suppression)
