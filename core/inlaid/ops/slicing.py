"""Slices whose starts and ends are computed at run time. Their extents are therefore existential."""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence

import numpy as np

from inlaid.graph.conditions import require_shape
from inlaid.graph.operator import Attrs, Choice, FusionKind, Moves, Operator, Threaded, Traits
from inlaid.graph.unify import fresh_size, upper_bound
from inlaid.ops.define import INTEGER, Array, check_axes, make_family, tensor_type
from inlaid.ops.index import positive_index
from inlaid.ops.select import defined_size
from inlaid.ops.shape import bounded_stride, slice_extent
from inlaid.ops.threads.grid import Grid, parallel_rows, truth, unflatten
from inlaid.tensor import ir, te
from inlaid.tensor.build import Builder
from inlaid_runtime import arith
from inlaid_runtime.arith import Dim
from inlaid_runtime.records import dataclass
from inlaid_runtime.types import TensorType, Type


@dataclass(frozen=True)
class DynamicSliceAttrs(Attrs):
    """`axes`: the axes to slice. `strides`: the non-zero step along each axis."""

    axes: tuple[int, ...]
    strides: tuple[int, ...]


def _infer_dynamic_slice(attrs: DynamicSliceAttrs, x: Type, starts: Type, ends: Type) -> Type:
    x = tensor_type(x)
    axes = check_axes(attrs.axes, x.rank)
    for limits, what in ((starts, "the starts"), (ends, "the ends")):
        require_shape(tensor_type(limits, INTEGER, what).shape, (len(axes),), what)
    if len(attrs.strides) != len(axes) or 0 in attrs.strides:
        raise ValueError(f"strides must have {len(axes)} non-zero elements, got {attrs.strides}")
    shape = list(x.shape)
    for axis, stride in zip(axes, attrs.strides, strict=True):
        bound = upper_bound(shape[axis])
        greatest = None if bound is None else arith.unwrap(arith.ceildiv(bound, abs(bounded_stride(stride))))
        shape[axis] = fresh_size("slice", greatest)
    return TensorType(tuple(shape), x.dtype)


def _dynamic_slice(attrs: DynamicSliceAttrs, x: Array, starts: Array, ends: Array) -> Array:
    """Slice as ONNX Slice does: negative starts and ends count from the end, then starts and ends are clamped to the axis.

    Unlike in Python, a start before the axis is clamped to the first element even for a negative stride.
    """
    slices = [slice(None)] * x.ndim
    for axis, start, end, stride in zip(attrs.axes, starts.tolist(), ends.tolist(), attrs.strides, strict=True):
        slices[axis] = slice(max(start, -x.shape[axis]), end, stride)
    return np.array(x[tuple(slices)])


def _slice_limits(limits: Sequence[ir.Buffer], number: int, extent: Dim, stride: int) -> tuple[ir.Expr, ir.Expr]:
    """Return the first index and the number of elements of a slice of an axis. `limits` are the starts and the ends."""
    high = arith.wrap(extent) if stride > 0 else arith.add(extent, -1)
    begin, end = (
        te.minimum(te.maximum(positive_index(buffer[number], extent), low), high)  # this order is correct for an empty axis
        for buffer, low in zip(limits, (0, 0 if stride > 0 else -1), strict=True)
    )
    distance = te.maximum(end - begin if stride > 0 else begin - end, 0)
    step = abs(bounded_stride(stride))
    return begin, (distance + (step - 1)) / step


def _source_index(attrs: DynamicSliceAttrs, begins: Mapping[int, Dim], result_index: Sequence[Dim]) -> tuple[Dim, ...]:
    """Return the index in x of the element at `result_index` of the result."""
    steps = dict(zip(attrs.axes, map(bounded_stride, attrs.strides), strict=True))
    return tuple(begins[axis] + index * steps[axis] if axis in steps else index for axis, index in enumerate(result_index))


def _compute_dynamic_slice(
    attrs: DynamicSliceAttrs, x: te.Tensor, starts: te.Tensor, ends: te.Tensor, *, out_type: Type
) -> te.Tensor:
    assert isinstance(out_type, TensorType)
    shape = out_type.shape

    def body(b: Builder, inputs: tuple[ir.Buffer, ...], outputs: tuple[ir.Buffer, ...]) -> None:
        source, *limits = inputs
        result, *sizes = outputs
        begins: dict[int, arith.Dim] = {}
        for number, (axis, stride) in enumerate(zip(attrs.axes, attrs.strides, strict=True)):
            begin, count = _slice_limits(limits, number, x.shape[axis], stride)
            b.store(sizes[number], (), count)
            begins[axis] = b.let(begin, "begin")
        with b.loops(shape) as result_index:
            b.store(result, result_index, source[_source_index(attrs, begins, result_index)])

    defined = tuple(defined_size(out_type, axis) for axis in attrs.axes)
    (result,) = te.extern([(shape, x.dtype)], (x, starts, ends), body, "dynamic_slice", defined)
    return result


def _threaded_dynamic_slice(
    grid: Grid, attrs: DynamicSliceAttrs, x: te.Tensor, starts: te.Tensor, ends: te.Tensor, *, out_type: Type
) -> te.Tensor:
    assert isinstance(out_type, TensorType)
    shape = out_type.shape
    strides = dict(zip(attrs.axes, attrs.strides, strict=True))
    max_shape = [slice_extent(0, extent, abs(strides.get(axis, 1))) for axis, extent in enumerate(x.shape)]

    def body(b: Builder, inputs: tuple[ir.Buffer, ...], outputs: tuple[ir.Buffer, ...]) -> None:
        source, *limits = inputs
        result, *sizes = outputs
        ranges = [_slice_limits(limits, number, x.shape[axis], strides[axis]) for number, axis in enumerate(attrs.axes)]
        for number, (_, count) in enumerate(ranges):
            b.store(sizes[number], (), count)
        with parallel_rows(b, grid, arith.product(tuple(max_shape[:-1])), max_shape[-1]) as (row, position):
            result_index = (*unflatten(row, max_shape[:-1]), position)
            inside = [arith.compare("<", index, extent) for index, extent in zip(result_index, shape, strict=True)]
            with b.if_(truth(functools.reduce(arith.logical_and, inside))):
                begins = {axis: b.let(ranges[number][0], "begin") for number, axis in enumerate(attrs.axes)}
                b.store(result, result_index, source[_source_index(attrs, begins, result_index)])

    defined = tuple(defined_size(out_type, axis) for axis in attrs.axes)
    (result,) = te.extern([(shape, x.dtype)], (x, starts, ends), body, "dynamic_slice", defined)
    return result


dynamic_slice = Operator(
    "dynamic_slice",
    _infer_dynamic_slice,
    DynamicSliceAttrs,
    reference=_dynamic_slice,
    compute=_compute_dynamic_slice,
    threaded=Threaded(_threaded_dynamic_slice, lambda grid, attrs, *types: bool(attrs.axes)),
    fusion=FusionKind.OPAQUE,
    traits=Traits(moves=Moves(by=Choice.INDEX)),
    arity=(3, 3),
    inputs=("x", "starts", "ends"),
    existential=True,
    doc="""Slice along axes by starts and ends computed at run time, as ONNX Slice.
Operands: x, any dtype; starts and ends, integer, one element per axis of `axes`. A negative start or end counts from the end; both
are clamped to the axis. Result: dtype of x; the sliced extents are existential.""",
)


OPERATORS = make_family(dynamic_slice)
