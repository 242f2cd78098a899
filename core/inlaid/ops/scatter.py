"""Scatter operators.

A scatter is a loop program: it copies the input, then applies the updates one by one in row-major order. Without a reduction, the
last of several updates of an element wins. The in-place version omits the copy. Negative indices count from the end; all indices
are checked.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np

from inlaid.graph.conditions import require_shape
from inlaid.graph.operator import Attrs, FusionKind, Operator, Traits
from inlaid.ops.define import (
    INDEX_RULE,
    INTEGER,
    NUMERIC,
    SAME_TYPE,
    Array,
    check_axis,
    common_dtype,
    make_family,
    quiet,
    tensor_type,
    widen_array,
    working_dtype,
)
from inlaid.ops.index import check_along_axis, grids, index_depth, positive_index, positive_indices
from inlaid.tensor import ir, te
from inlaid.tensor.build import Builder
from inlaid_runtime import arith
from inlaid_runtime.arith import Dim
from inlaid_runtime.records import dataclass
from inlaid_runtime.types import TensorType, Type

_REDUCTIONS: dict[str, tuple[Callable[[ir.Expr, ir.Expr], ir.Expr], Any]] = {
    "add": (lambda a, b: a + b, np.add),
    "mul": (lambda a, b: a * b, np.multiply),
    "min": (te.minimum, np.minimum),
    "max": (te.maximum, np.maximum),
}


def _check_reduction(reduction: str, x: TensorType) -> None:
    if reduction != "none":
        if reduction not in _REDUCTIONS:
            raise ValueError(f"reduction must be one of none, {', '.join(_REDUCTIONS)}, got {reduction!r}")
        tensor_type(x, NUMERIC)


def _write(reduction: str, x: Array, index: tuple[Array, ...], updates: Array) -> Array:
    """Apply the updates to a copy of the input, in order."""
    if reduction == "none":
        result = x.copy()
        result[index] = updates  # numpy assigns repeated indices in order: the last one wins
        return result
    result = widen_array(x).copy()
    _REDUCTIONS[reduction][1].at(result, index, widen_array(updates))
    return result.astype(x.dtype, copy=False)


def _program(
    reduction: str,
    tensors: Sequence[te.Tensor],
    shape: Sequence[Dim],
    target_index: Callable[[Builder, ir.Buffer, tuple[arith.Var, ...]], tuple[Dim, ...]],
    name: str,
    in_place: bool,
) -> te.Tensor:
    """Build the loop program: copy x, unless `in_place`, then loop over the updates' `shape` and apply each at the index
    `target_index(...)`.

    A reduction is computed in the working dtype and rounded once, at the end.
    """
    x = tensors[0]
    wide = working_dtype(x.dtype) if reduction != "none" else x.dtype

    def body(b: Builder, inputs: tuple[ir.Buffer, ...], outputs: tuple[ir.Buffer, ...]) -> None:
        source, indices, updates = inputs
        (result,) = outputs
        target = result if wide is x.dtype else b.alloc(x.shape, wide, "wide")
        if target is not result or not in_place:
            with b.loops(x.shape) as position:
                b.store(target, position, te.cast((result if in_place else source)[position], wide))
        with b.loops(shape) as position:
            index = target_index(b, indices, position)
            update = te.cast(updates[position], wide)
            if reduction != "none":
                update = _REDUCTIONS[reduction][0](target[index], update)
            b.store(target, index, update)
        if target is not result:
            with b.loops(x.shape) as position:
                b.store(result, position, te.cast(target[position], x.dtype))

    (result,) = te.extern([(x.shape, x.dtype)], tensors, body, name)
    return result


# --- scatter_nd -------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class ScatterNdAttrs(Attrs):
    """`reduction`: how an update changes an element: "none" (the update replaces it), "add", "mul", "min" or "max"."""

    reduction: str = "none"


def _infer_scatter_nd(attrs: ScatterNdAttrs, x: Type, indices: Type, updates: Type) -> Type:
    x, updates = tensor_type(x), tensor_type(updates, what="the updates")
    indices = tensor_type(indices, INTEGER, "the indices")
    common_dtype(x, updates)
    _check_reduction(attrs.reduction, x)
    depth = index_depth(indices, x.rank)
    require_shape(updates.shape, indices.shape[:-1] + x.shape[depth:], "the updates")
    return x


@quiet
def _scatter_nd(attrs: ScatterNdAttrs, x: Array, indices: Array, updates: Array) -> Array:
    if not updates.size:
        return x.copy()
    depth = indices.shape[-1]
    count = math.prod(indices.shape[:-1])
    index = tuple(positive_indices(indices[..., axis].reshape(-1), x.shape[axis]) for axis in range(depth))
    slices = updates.reshape(count, *x.shape[depth:])
    if depth:
        return _write(attrs.reduction, x, index, slices)
    return np.asarray(_write(attrs.reduction, x[None], (np.zeros(count, np.int64),), slices)[0])


def _compute_scatter_nd(
    attrs: ScatterNdAttrs, x: te.Tensor, indices: te.Tensor, updates: te.Tensor, in_place: bool = False
) -> te.Tensor:
    index_rank, depth = indices.rank - 1, index_depth(TensorType(indices.shape, indices.dtype), x.rank)

    def target_index(b: Builder, source: ir.Buffer, update_index: tuple[arith.Var, ...]) -> tuple[Dim, ...]:
        coordinates = (
            b.let(positive_index(source[(*update_index[:index_rank], axis)], x.shape[axis]), "at", (0, x.shape[axis] - 1))
            for axis in range(depth)
        )
        return (*coordinates, *update_index[index_rank:])

    return _program(
        attrs.reduction, (x, indices, updates), indices.shape[:-1] + x.shape[depth:], target_index, "scatter_nd", in_place
    )


scatter_nd = Operator(
    "scatter_nd",
    _infer_scatter_nd,
    ScatterNdAttrs,
    reference=_scatter_nd,
    compute=_compute_scatter_nd,
    update=partial(_compute_scatter_nd, in_place=True),
    fusion=FusionKind.OPAQUE,
    traits=Traits(fails=True),
    arity=(3, 3),
    inputs=("x", "indices", "updates"),
    doc=f"""Update slices at index vectors, as ONNX ScatterND.
Operands: x, any dtype; indices (index shape..., depth), integer: vectors that index the first `depth` axes of x; updates (index
shape..., remaining axes of x), dtype of x. {SAME_TYPE} Without a reduction, the last update of an element wins.
{INDEX_RULE}""",
)


# --- scatter_along_axis -----------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class ScatterAlongAxisAttrs(Attrs):
    """`axis`: the axis that is indexed. `reduction`: as in `scatter_nd`."""

    axis: int
    reduction: str = "none"


def _infer_scatter_along_axis(attrs: ScatterAlongAxisAttrs, x: Type, indices: Type, updates: Type) -> Type:
    x, updates = tensor_type(x), tensor_type(updates, what="the updates")
    indices = tensor_type(indices, INTEGER, "the indices")
    common_dtype(x, updates)
    check_axis(attrs.axis, x.rank)
    _check_reduction(attrs.reduction, x)
    check_along_axis(attrs.axis, x, indices)
    require_shape(updates.shape, indices.shape, "the updates")
    return x


@quiet
def _scatter_along_axis(attrs: ScatterAlongAxisAttrs, x: Array, indices: Array, updates: Array) -> Array:
    if not updates.size:
        return x.copy()
    index = [np.broadcast_to(grid, indices.shape) for grid in grids(indices.shape)]
    index[attrs.axis] = positive_indices(indices, x.shape[attrs.axis])
    return _write(attrs.reduction, x, tuple(index), updates)


def _compute_scatter_along_axis(
    attrs: ScatterAlongAxisAttrs, x: te.Tensor, indices: te.Tensor, updates: te.Tensor, in_place: bool = False
) -> te.Tensor:
    axis = attrs.axis

    def target_index(b: Builder, source: ir.Buffer, update_index: tuple[arith.Var, ...]) -> tuple[Dim, ...]:
        index = b.let(positive_index(source[update_index], x.shape[axis]), "at", (0, x.shape[axis] - 1))
        return (*update_index[:axis], index, *update_index[axis + 1 :])

    return _program(attrs.reduction, (x, indices, updates), indices.shape, target_index, "scatter_along_axis", in_place)


scatter_along_axis = Operator(
    "scatter_along_axis",
    _infer_scatter_along_axis,
    ScatterAlongAxisAttrs,
    reference=_scatter_along_axis,
    compute=_compute_scatter_along_axis,
    update=partial(_compute_scatter_along_axis, in_place=True),
    fusion=FusionKind.OPAQUE,
    traits=Traits(fails=True),
    arity=(3, 3),
    inputs=("x", "indices", "updates"),
    doc=f"""Update elements along an axis, one index per update, as ONNX ScatterElements.
Operands: x, any dtype; indices, integer, of the rank of x; updates, shape of indices, dtype of x. \
{SAME_TYPE} Without a reduction, the
last update of an element wins.
{INDEX_RULE}""",
)


OPERATORS = make_family(scatter_nd, scatter_along_axis)
