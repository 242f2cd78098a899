"""Reductions along axes, argmax and argmin, cumulative sums and products."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from inlaid.graph.conditions import require_at_least, require_at_most
from inlaid.graph.operator import NO_TRAITS, Attrs, Choice, ErrorPropagation, FusionKind, Moves, Operator, Threaded, Traits
from inlaid.ops.define import (
    ANY,
    NUMERIC,
    Array,
    AxesAttrs,
    as_array,
    check_axes,
    check_axis,
    loop_nest,
    make_family,
    map_elements,
    quiet,
    reduced_shape,
    tensor_type,
    widen,
    widen_array,
    working_dtype,
)
from inlaid.ops.threads.grid import Grid, unflatten
from inlaid.ops.threads.scan import RowScan, emit_scan
from inlaid.tensor import ir, te
from inlaid.tensor.build import Builder
from inlaid_runtime import arith
from inlaid_runtime.arith import Dim
from inlaid_runtime.records import dataclass
from inlaid_runtime.types import DType, TensorType, Type, dtype, from_numpy

# --- reductions -------------------------------------------------------------------------------------------------------


def accumulator(element_dtype: DType) -> DType:
    """Return the dtype of the accumulator of a reduction: the working dtype, 8 bits for bool."""
    return dtype("uint8") if element_dtype.kind == "bool" else working_dtype(element_dtype)


def reduce_tensor(
    x: te.Tensor,
    axes: tuple[int, ...],
    keepdims: bool,
    reducer: te.Reducer,
    name: str,
    value: Callable[[ir.Expr], ir.Expr] = lambda element: element,
) -> te.Tensor:
    """Reduce `value(element)` over axes. The result has the dtype of the accumulator."""
    to = accumulator(x.dtype)
    reduced = {axis: te.reduce_axis(x.shape[axis], f"k{axis}") for axis in axes}

    def body(*indices: arith.Var) -> ir.Expr:
        free_indices = iter(indices)
        element_index: list[Any] = []
        for axis in range(x.rank):
            if axis in reduced:
                element_index.append(reduced[axis])
                if keepdims:
                    next(free_indices)
            else:
                element_index.append(next(free_indices))
        element = value(te.cast(x[tuple(element_index)], to))
        result: ir.Expr = reducer(element, tuple(reduced.values())) if reduced else element
        return result

    result: te.Tensor = te.compute(reduced_shape(x.shape, axes, keepdims), body, name)
    return result


def _reduction(
    name: str,
    reducer: te.Reducer,
    ufunc: np.ufunc,
    initial: Callable[[DType], Any],
    kinds: tuple[str, ...],
    traits: Traits,
    doc: str,
) -> Operator:
    def infer(attrs: AxesAttrs, x: Type) -> Type:
        tensor = tensor_type(x, kinds)
        check_axes(attrs.axes, tensor.rank)
        return TensorType(reduced_shape(tensor.shape, attrs.axes, attrs.keepdims), tensor.dtype)

    @quiet
    def reference(attrs: AxesAttrs, x: Array) -> Array:
        element_dtype = from_numpy(x.dtype)
        from inlaid.tensor.transform.block_sums import BLOCK  # not at import: few programs run references

        wide = x.astype(accumulator(element_dtype).numpy)
        start = initial(accumulator(element_dtype) if element_dtype.kind != "bool" else element_dtype)
        # NumPy sums pairwise only along the last axis. Along others, one accumulator adds all numbers: long sums need float64.
        is_long_sum = ufunc is np.add and element_dtype.is_float and math.prod(x.shape[axis] for axis in attrs.axes) > BLOCK
        sum_dtype = np.float64 if is_long_sum else wide.dtype
        return as_array(ufunc.reduce(wide, axis=attrs.axes, dtype=sum_dtype, keepdims=attrs.keepdims, initial=start), element_dtype)

    def compute(attrs: AxesAttrs, x: te.Tensor) -> te.Tensor:
        total = reduce_tensor(x, attrs.axes, attrs.keepdims, reducer, name)
        if total.dtype is x.dtype:
            return total
        if x.dtype.kind == "bool":
            return map_elements(lambda value: value.not_equal(0), total, result=x.dtype, name=name)
        return map_elements(lambda value: value, total, result=x.dtype, name=name)

    return Operator(
        name,
        infer,
        AxesAttrs,
        reference=reference,
        compute=compute,
        fusion=FusionKind.REDUCTION,
        inputs=("x",),
        traits=traits,
        doc=doc,
    )


_EXTREME = Traits(moves=Moves(by=Choice.ORDER), errors=ErrorPropagation.DAMPS)
reduce_sum = _reduction(
    "reduce_sum",
    te.sum_,
    np.add,
    lambda element_dtype: 0,
    NUMERIC,
    Traits(errors=ErrorPropagation.DAMPS),
    doc="Sum over axes.\nOperand: x, numeric. Result: dtype of x. `inlaid.ops.sum` sums over all axes by default.",
)
reduce_prod = _reduction(
    "reduce_prod",
    te.prod,
    np.multiply,
    lambda element_dtype: 1,
    NUMERIC,
    NO_TRAITS,
    doc="Product over axes.\nOperand: x, numeric. Result: dtype of x.",
)
reduce_max = _reduction(
    "reduce_max",
    te.max_,
    np.maximum,
    lambda element_dtype: -np.inf if element_dtype.is_float else element_dtype.limits[0],
    ANY,
    _EXTREME,
    doc="""Maximum over axes. NaN-propagating.
Operand: x, numeric or bool. Result: dtype of x; for no elements, the minimum of the dtype.""",
)
reduce_min = _reduction(
    "reduce_min",
    te.min_,
    np.minimum,
    lambda element_dtype: np.inf if element_dtype.is_float else element_dtype.limits[1],
    ANY,
    _EXTREME,
    doc="""Minimum over axes. NaN-propagating.
Operand: x, numeric or bool. Result: dtype of x; for no elements, the maximum of the dtype.""",
)

# --- positions --------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class ArgReduceAttrs(Attrs):
    """`axis`: the axis to reduce. `keepdims`: keep the axis with extent 1. `last`: return the last index of equal extremes, not the
    first."""

    axis: int
    keepdims: bool = False
    last: bool = False


_MAX_EXTENT = (1 << 31) - 1
"""Maximum extent of an axis, as indices are computed in int32."""


def _arg_reduction(name: str, numpy: Callable[..., Any], greatest: bool, doc: str) -> Operator:
    def infer(attrs: ArgReduceAttrs, x: Type) -> Type:
        tensor = tensor_type(x, NUMERIC)
        extent = tensor.shape[check_axis(attrs.axis, tensor.rank)]
        require_at_least(extent, 1, f"dimension {attrs.axis} of the input")
        require_at_most(extent, _MAX_EXTENT, f"dimension {attrs.axis} of the input")
        return TensorType(reduced_shape(tensor.shape, (attrs.axis,), attrs.keepdims), "int64")

    def reference(attrs: ArgReduceAttrs, x: Array) -> Array:
        wide = widen_array(x)
        if not attrs.last:
            return np.asarray(numpy(wide, axis=attrs.axis, keepdims=attrs.keepdims)).astype(np.int64)
        position = numpy(np.flip(wide, attrs.axis), axis=attrs.axis, keepdims=attrs.keepdims)
        return np.asarray(x.shape[attrs.axis] - 1 - position).astype(np.int64)

    def compute(attrs: ArgReduceAttrs, x: te.Tensor) -> te.Tensor:
        """Compute the extreme, then its first or last index: two reductions of scalars, which can be vectorized."""
        extremes = reduce_tensor(x, (attrs.axis,), attrs.keepdims, te.max_ if greatest else te.min_, "extreme")
        index = dtype("int32")
        no_index = te.const(-1 if attrs.last else index.limits[1], index)
        k = te.reduce_axis(x.shape[attrs.axis], "k")

        def body(*indices: arith.Var) -> ir.Expr:
            after = indices[attrs.axis + 1 :] if attrs.keepdims else indices[attrs.axis :]
            element, extreme = widen(x[(*indices[: attrs.axis], k, *after)]), extremes[indices]
            is_extreme = element.equal(extreme)
            if element.dtype.is_float:
                is_extreme = is_extreme | te.unary("isnan", element)  # the extreme is NaN if any element is NaN
            result: ir.Expr = (te.max_ if attrs.last else te.min_)(te.select(is_extreme, ir.Index(index, k), no_index), k)
            return result

        position = te.compute(extremes.shape, body, name)
        return map_elements(lambda value: value, position, result=dtype("int64"), name=name)

    return Operator(
        name, infer, ArgReduceAttrs, reference=reference, compute=compute, fusion=FusionKind.REDUCTION, inputs=("x",), doc=doc
    )


argmax = _arg_reduction(
    "argmax",
    np.argmax,
    True,
    doc="""Index of the maximum along an axis. NaN counts as the maximum.
Operand: x, numeric, axis of 1 to 2^31 - 1 elements. Result: int64.""",
)
argmin = _arg_reduction(
    "argmin",
    np.argmin,
    False,
    doc="""Index of the minimum along an axis. NaN counts as the minimum.
Operand: x, numeric, axis of 1 to 2^31 - 1 elements. Result: int64.""",
)

# --- running ----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class CumulativeAttrs(Attrs):
    """`axis`: the axis of the scan. `exclusive`: a result excludes the element at its index. `reverse`: scan from the end."""

    axis: int
    exclusive: bool = False
    reverse: bool = False


COLUMNS = 1024
"""Number of adjacent columns that are scanned together."""


def _cumulative(name: str, op: str, ufunc: np.ufunc, start: int, doc: str) -> Operator:
    def infer(attrs: CumulativeAttrs, x: Type) -> Type:
        tensor = tensor_type(x, NUMERIC)
        check_axis(attrs.axis, tensor.rank)
        return tensor

    @quiet
    def reference(attrs: CumulativeAttrs, x: Array) -> Array:
        wide = np.moveaxis(widen_array(x), attrs.axis, -1)
        if attrs.reverse:
            wide = wide[..., ::-1]
        if attrs.exclusive:
            wide = np.concatenate([np.full_like(wide[..., :1], start), wide[..., :-1]], axis=-1)
        total = ufunc.accumulate(wide, axis=-1, dtype=wide.dtype)
        total = total[..., ::-1] if attrs.reverse else total
        return np.ascontiguousarray(as_array(np.moveaxis(total, -1, attrs.axis), from_numpy(x.dtype)))

    def compute(attrs: CumulativeAttrs, x: te.Tensor) -> te.Tensor:
        axis, extent, working = attrs.axis, x.shape[attrs.axis], working_dtype(x.dtype)
        outer, inner = x.shape[:axis], x.shape[axis + 1 :]
        # Adjacent columns are scanned together, in vectors.
        columns = inner[-1] if inner else 1
        block_width = min(columns, COLUMNS) if isinstance(columns, int) else COLUMNS

        def body(b: Builder, inputs: tuple[ir.Buffer, ...], outputs: tuple[ir.Buffer, ...]) -> None:
            block_count = arith.unwrap(arith.ceildiv(columns, max(block_width, 1)))
            with loop_nest(b, (*outer, *inner[:-1], block_count), ir.ForKind.PARALLEL) as (*outer_index, block):
                first = block * block_width
                width = arith.minimum(columns - first, block_width)
                total = b.alloc((block_width,), working, "total")
                with b.loop(width, "j") as j:
                    b.store(total, j, te.const(start, working))
                # One row of the result at a time: several concurrent write streams are slower.
                with b.loop(extent, "k") as k, b.loop(width, "j") as j:
                    scan_index = extent - 1 - k if attrs.reverse else k
                    element_index = (*outer_index[:axis], scan_index, *outer_index[axis:], *((first + j,) if inner else ()))
                    before: ir.Expr = total[j]
                    value = ir.binary(op, before, widen(inputs[0][element_index]))
                    b.store(outputs[0], element_index, te.cast(before if attrs.exclusive else value, x.dtype))
                    b.store(total, j, value)

        return te.extern([(x.shape, x.dtype)], [x], body, name)[0]

    def threaded(grid: Grid, attrs: CumulativeAttrs, x: te.Tensor) -> te.Tensor:
        axis, extent, working = attrs.axis, x.shape[attrs.axis], working_dtype(x.dtype)
        outer_dims = (*x.shape[:axis], *x.shape[axis + 1 :])

        def body(b: Builder, inputs: tuple[ir.Buffer, ...], outputs: tuple[ir.Buffer, ...]) -> None:
            def index(row: Dim, position: Dim) -> tuple[Dim, ...]:
                outer_index = unflatten(row, outer_dims)
                scan_index = extent - 1 - position if attrs.reverse else position
                return (*outer_index[:axis], scan_index, *outer_index[axis:])

            def read(row: Dim, position: Dim) -> ir.Expr:
                return widen(inputs[0][index(row, position)])

            def write(b: Builder, row: Dim, position: Dim, before: ir.Expr, value: ir.Expr) -> None:
                b.store(outputs[0], index(row, position), te.cast(before if attrs.exclusive else value, x.dtype))

            rows = arith.product(outer_dims)
            emit_scan(b, grid, RowScan(rows, extent, working, op, te.const(start, working), read, write, axis + 1 < x.rank))

        return te.extern([(x.shape, x.dtype)], [x], body, name)[0]

    return Operator(
        name,
        infer,
        CumulativeAttrs,
        reference=reference,
        compute=compute,
        threaded=Threaded(threaded),
        inputs=("x",),
        doc=doc,
    )


cumsum = _cumulative(
    "cumsum", "add", np.add, 0, doc="Cumulative sum along an axis.\nOperand: x, numeric, any shape. Result: shape and dtype of x."
)
cumprod = _cumulative(
    "cumprod",
    "mul",
    np.multiply,
    1,
    doc="Cumulative product along an axis.\nOperand: x, numeric, any shape. Result: shape and dtype of x.",
)

OPERATORS = make_family(
    *(reduce_sum, reduce_prod, reduce_max, reduce_min),
    *(argmax, argmin, cumsum, cumprod),
)
