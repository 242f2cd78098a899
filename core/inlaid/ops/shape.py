"""Operators that move, repeat or generate elements."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from inlaid.graph.conditions import (
    Constraint,
    provably_equal,
    require,
    require_at_least,
    require_broadcast_to,
    require_equal,
    require_range,
)
from inlaid.graph.operator import Attrs, FusionKind, Moves, Operator, Traits
from inlaid.ops.define import NUMERIC, Array, AxisAttrs, broadcast_read, check_axis, common_dtype, make_family, tensor_type
from inlaid.tensor import ir, te
from inlaid_runtime import arith
from inlaid_runtime.arith import Dim
from inlaid_runtime.records import dataclass
from inlaid_runtime.types import TensorType, Type, dtype


@dataclass(frozen=True)
class ShapeAttrs(Attrs):
    """`shape`: the shape of the result."""

    shape: tuple[Dim, ...]


def concrete(dims: Sequence[Dim]) -> tuple[int, ...]:
    """Return dimensions as integers, for references, which run with concrete sizes. Raises ValueError for a symbolic dimension."""
    for dim in dims:
        if not isinstance(dim, int):
            raise ValueError(f"expected a concrete dimension, got {dim!r}")
    return tuple(dims)  # type: ignore[arg-type]


def simple(dim: Dim) -> Dim:
    """Simplify a dimension."""
    return dim if isinstance(dim, int) else arith.unwrap(arith.simplify(dim))


# --- reshape ----------------------------------------------------------------------------------------------------------


def _infer_reshape(attrs: ShapeAttrs, x: Type) -> Type:
    x = tensor_type(x)
    result = TensorType(attrs.shape, x.dtype)
    require_equal(result.size, x.size, "the number of elements of the new shape")
    return result


def _compute_reshape(attrs: ShapeAttrs, x: te.Tensor) -> te.Tensor:
    result: te.Tensor = te.compute(attrs.shape, lambda *index: x[reindex(index, attrs.shape, x.shape)], "reshape")
    return result


def reindex(index: Sequence[Dim], shape: Sequence[Dim], other: Sequence[Dim]) -> tuple[Dim, ...]:
    """Convert an index into a row-major array of shape `shape` to the index of the same element in shape `other`.

    Groups of dimensions with the same number of elements are mapped separately, so that (n, 12) -> (n, 3, 4) has no division by n.
    """
    result: list[Dim] = []
    for old, new in matching_runs(shape, other):
        flat: Dim = 0
        for axis in range(*old):
            flat = flat * shape[axis] + index[axis]
        result += _unflatten(flat, other[slice(*new)])
    return tuple(result)


def _unflatten(flat: Dim, shape: Sequence[Dim]) -> list[Dim]:
    """Convert a flat index to a multi-dimensional index. Skips the remainder for the first dimension that is not 1."""
    first = next((axis for axis, dim in enumerate(shape) if dim != 1), len(shape))
    index: list[Dim] = [0] * len(shape)
    stride: Dim = 1
    for axis in range(len(shape) - 1, first - 1, -1):
        dim = shape[axis] if shape[axis] != 0 else 1  # an index into an empty array is never evaluated, but must be well formed
        index[axis] = flat // stride if axis == first else flat // stride % dim
        stride = dim * stride
    return index


def matching_runs(a: Sequence[Dim], b: Sequence[Dim]) -> list[tuple[tuple[int, int], tuple[int, int]]]:
    """Pair ranges of dimensions of two shapes of equal size, such that the ranges of a pair have the same number of elements."""
    end_a, end_b = len(a), len(b)
    tail: list[tuple[tuple[int, int], tuple[int, int]]] = []
    while end_a and end_b and a[end_a - 1] == b[end_b - 1]:
        tail.append(((end_a - 1, end_a), (end_b - 1, end_b)))
        end_a, end_b = end_a - 1, end_b - 1
    runs: list[tuple[tuple[int, int], tuple[int, int]]] = []
    i = j = 0
    while i < end_a or j < end_b:
        start = i, j
        i, j = min(i + 1, end_a), min(j + 1, end_b)
        while (size_a := arith.product(tuple(a[start[0] : i]))) != (size_b := arith.product(tuple(b[start[1] : j]))):
            if isinstance(size_a, int) and isinstance(size_b, int) and 0 != size_a < size_b and i < end_a:
                i += 1
            elif isinstance(size_a, int) and isinstance(size_b, int) and 0 != size_b < size_a and j < end_b:
                j += 1
            else:
                i, j = end_a, end_b
                break
        runs.append(((start[0], i), (start[1], j)))
    return runs + tail[::-1]


reshape = Operator(
    "reshape",
    _infer_reshape,
    ShapeAttrs,
    reference=lambda attrs, x: x.reshape(concrete(attrs.shape)),
    compute=_compute_reshape,
    fusion=FusionKind.INJECTIVE,
    traits=Traits(moves=Moves(), view=True),
    inputs=("x",),
    doc="""Change the shape and keep the elements in row-major order.
Operand: x, any dtype. Result: shape `shape`, where one -1 stands for the extent that fits, dtype of x.""",
)


# --- transpose --------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class TransposeAttrs(Attrs):
    """`perm`: a permutation of the axes; axis `perm[k]` of x becomes axis k of the result."""

    perm: tuple[int, ...]


def _infer_transpose(attrs: TransposeAttrs, x: Type) -> Type:
    x = tensor_type(x)
    if sorted(attrs.perm) != list(range(x.rank)):
        raise ValueError(f"perm must be a permutation of {x.rank} axes, got {attrs.perm}")
    return TensorType(tuple(x.shape[axis] for axis in attrs.perm), x.dtype)


def _compute_transpose(attrs: TransposeAttrs, x: te.Tensor) -> te.Tensor:
    inverse = tuple(attrs.perm.index(axis) for axis in range(x.rank))
    shape = tuple(x.shape[axis] for axis in attrs.perm)
    result: te.Tensor = te.compute(shape, lambda *index: x[tuple(index[axis] for axis in inverse)], "transpose")
    return result


transpose = Operator(
    "transpose",
    _infer_transpose,
    TransposeAttrs,
    reference=lambda attrs, x: x.transpose(attrs.perm),
    compute=_compute_transpose,
    fusion=FusionKind.INJECTIVE,
    traits=Traits(moves=Moves()),
    inputs=("x",),
    doc="Permute the axes: axis k of the result is axis `perm[k]` of x.\nOperand: x, any dtype. Result: dtype of x.",
)


# --- broadcast_to, full -----------------------------------------------------------------------------------------------


def _infer_broadcast_to(attrs: ShapeAttrs, x: Type) -> Type:
    x = tensor_type(x)
    require_broadcast_to(x.shape, attrs.shape, "x")
    return TensorType(attrs.shape, x.dtype)


def _compute_broadcast_to(attrs: ShapeAttrs, x: te.Tensor) -> te.Tensor:
    result: te.Tensor = te.compute(attrs.shape, lambda *index: broadcast_read(x, attrs.shape, index), "broadcast_to")
    return result


broadcast_to = Operator(
    "broadcast_to",
    _infer_broadcast_to,
    ShapeAttrs,
    reference=lambda attrs, x: np.array(np.broadcast_to(x, concrete(attrs.shape))),
    compute=_compute_broadcast_to,
    fusion=FusionKind.INJECTIVE,
    traits=Traits(moves=Moves()),
    inputs=("x",),
    doc="Broadcast to a shape.\nOperand: x, any dtype. Result: shape `shape`, dtype of x.",
)


def _infer_full(attrs: ShapeAttrs, value: Type) -> Type:
    value = tensor_type(value, what="the value")
    if value.rank != 0:
        raise ValueError("the value must be 0-d")
    return TensorType(attrs.shape, value.dtype)


def _compute_full(attrs: ShapeAttrs, value: te.Tensor) -> te.Tensor:
    result: te.Tensor = te.compute(attrs.shape, lambda *index: value[()], "full")
    return result


full = Operator(
    "full",
    _infer_full,
    ShapeAttrs,
    reference=lambda attrs, value: np.full(concrete(attrs.shape), value, value.dtype),
    compute=_compute_full,
    fusion=FusionKind.INJECTIVE,
    inputs=("value",),
    doc="Fill a tensor with a value.\nOperand: value, 0-d, any dtype. Result: shape `shape`, dtype of value.",
)


# --- concat -----------------------------------------------------------------------------------------------------------


def _infer_concat(attrs: AxisAttrs, *types: Type) -> Type:
    tensors = [tensor_type(type_, what=f"input {position}") for position, type_ in enumerate(types)]
    element_dtype = common_dtype(*tensors)
    shape = list(tensors[0].shape)
    axis = check_axis(attrs.axis, len(shape))
    extents = [arith.wrap(shape[axis])]
    for tensor in tensors[1:]:
        if tensor.rank != len(shape):
            raise ValueError(f"the operands must have one rank, got {len(shape)} and {tensor.rank}")
        for position, dim in enumerate(tensor.shape):
            if position == axis:
                extents.append(arith.wrap(dim))
            else:
                shape[position] = require_equal(shape[position], dim, f"dimension {position} of an operand")
    shape[axis] = simple(arith.balanced(arith.add, extents))
    return TensorType(tuple(shape), element_dtype)


def _compute_concat(attrs: AxisAttrs, *xs: te.Tensor) -> te.Tensor:
    axis = attrs.axis
    type_ = _infer_concat(attrs, *(TensorType(x.shape, x.dtype) for x in xs))
    assert isinstance(type_, TensorType)
    pieces = [x for x in xs if x.shape[axis] != 0] or [xs[0]]
    starts: list[Dim] = [0]
    for x in pieces:
        starts.append(arith.unwrap(arith.add(starts[-1], x.shape[axis])))

    def read(index: tuple[Dim, ...], first: int, last: int) -> ir.Expr:
        """Read an element of one of pieces[first:last]. Bisection keeps the nested selects shallow."""
        if last - first == 1:
            return pieces[first][(*index[:axis], index[axis] - starts[first], *index[axis + 1 :])]
        middle = (first + last) // 2
        return te.select(arith.compare("<", index[axis], starts[middle]), read(index, first, middle), read(index, middle, last))

    result: te.Tensor = te.compute(type_.shape, lambda *index: read(index, 0, len(pieces)), "concat")
    return result


concat = Operator(
    "concat",
    _infer_concat,
    AxisAttrs,
    reference=lambda attrs, *xs: np.concatenate(xs, attrs.axis),
    compute=_compute_concat,
    fusion=FusionKind.INJECTIVE,
    traits=Traits(moves=Moves(operands=None)),
    arity=(1, None),
    inputs=("xs",),
    doc="""Concatenate tensors along an axis.
Operands: xs..., at least one, of one dtype and rank and of equal extents on the other axes. Result: that dtype and rank.""",
)


# --- strided_slice ----------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class SliceAttrs(Attrs):
    """For each axis of extent n, `begin` is the first index, `end` the exclusive end, and `strides` the non-zero step.

    A positive step requires 0 <= begin <= end <= n, a negative one n - 1 >= begin >= end >= -1, where -1 is before the first
    element. This is checked at run time for symbolic values.
    """

    begin: tuple[Dim, ...]
    end: tuple[Dim, ...]
    strides: tuple[int, ...]


LONGEST_STRIDE = 2**62
"""Greatest stride in a slice. No axis has as many elements, so longer strides select the same elements, but their sums with sizes
could overflow."""


def bounded_stride(stride: int) -> int:
    """Return the stride with which a slice takes the same elements, at most `LONGEST_STRIDE` in magnitude."""
    return max(min(stride, LONGEST_STRIDE), -LONGEST_STRIDE)


def slice_extent(begin: Dim, end: Dim, stride: int) -> Dim:
    """Return the number of elements of a slice of an axis; see `SliceAttrs`."""
    span = arith.add(end, -arith.wrap(begin)) if stride > 0 else arith.add(begin, -arith.wrap(end))
    return simple(arith.ceildiv(span, abs(bounded_stride(stride))))


def _infer_strided_slice(attrs: SliceAttrs, x: Type) -> Type:
    x = tensor_type(x)
    if not len(attrs.begin) == len(attrs.end) == len(attrs.strides) == x.rank:
        raise ValueError(f"begin, end and strides must have {x.rank} elements, got {attrs.begin}, {attrs.end} and {attrs.strides}")
    for extent, begin, end, stride in zip(x.shape, attrs.begin, attrs.end, attrs.strides, strict=True):
        if stride == 0:
            raise ValueError(f"strides must not be 0, got {attrs.strides}")
        low, high = (begin, end) if stride > 0 else (end + 1, begin + 1)
        require_range(low, high, extent, f"the range of slice {begin}:{end}:{stride}")
    return TensorType(tuple(map(slice_extent, attrs.begin, attrs.end, attrs.strides)), x.dtype)


def _strided_slice(attrs: SliceAttrs, x: Array) -> Array:
    def python_slice(begin: int, end: int, stride: int) -> slice:
        if begin == end:
            return slice(0, 0)
        return slice(begin, None if end < 0 else end, stride)  # an end of -1 is before the first element, unlike in Python

    return np.array(x[tuple(map(python_slice, concrete(attrs.begin), concrete(attrs.end), attrs.strides))])


def _compute_strided_slice(attrs: SliceAttrs, x: te.Tensor) -> te.Tensor:
    shape = tuple(map(slice_extent, attrs.begin, attrs.end, attrs.strides))

    def element(*index: arith.Var) -> ir.Expr:
        steps = map(bounded_stride, attrs.strides)
        return x[tuple(i * step + begin for i, begin, step in zip(index, attrs.begin, steps, strict=True))]

    result: te.Tensor = te.compute(shape, element, "strided_slice")
    return result


strided_slice = Operator(
    "strided_slice",
    _infer_strided_slice,
    SliceAttrs,
    reference=_strided_slice,
    compute=_compute_strided_slice,
    fusion=FusionKind.INJECTIVE,
    traits=Traits(moves=Moves()),
    inputs=("x",),
    doc="""Slice with a begin, an end and a stride per axis. x[1:, ::2] builds such a slice.
Operand: x, any dtype. Result: dtype of x.""",
)


# --- pad --------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class PadAttrs(Attrs):
    """`pads`: the number of elements to add before each axis, then after each; a negative number removes elements.

    `mode`: "constant" adds the operand `value`, "edge" repeats the edge, "reflect" mirrors without repeating the edge, "wrap" is
    periodic. A pad longer than the axis mirrors or wraps repeatedly.
    """

    pads: tuple[Dim, ...]
    mode: str = "constant"


def _infer_pad(attrs: PadAttrs, x: Type, value: Type | None = None) -> Type:
    x = tensor_type(x)
    if attrs.mode not in ("constant", "edge", "reflect", "wrap"):
        raise ValueError(f"mode must be constant, edge, reflect or wrap, got {attrs.mode!r}")
    if len(attrs.pads) != 2 * x.rank:
        raise ValueError(f"pads must have {2 * x.rank} elements for rank {x.rank}, got {len(attrs.pads)}")
    if (value is not None) != (attrs.mode == "constant"):
        raise ValueError(f"expected a value with mode constant and none with other modes, got mode {attrs.mode}")
    if value is not None and common_dtype(x, tensor_type(value, what="the value")) and tensor_type(value).rank != 0:
        raise ValueError("the value must be 0-d")
    shape: list[Dim] = []
    for extent, before, after in zip(x.shape, attrs.pads[: x.rank], attrs.pads[x.rank :], strict=True):
        padded = simple(arith.add(arith.add(extent, before), after))
        require_at_least(padded, 0, f"dimension {len(shape)} of the output")
        if attrs.mode != "constant" and not provably_equal(padded, extent):
            is_nonempty = arith.logical_or(arith.compare(">=", extent, 1), arith.compare("==", padded, 0))
            require(Constraint(arith.unwrap(is_nonempty), f"an axis that is padded in mode {attrs.mode}", ">= 1", extent))
        shape.append(padded)
    return TensorType(tuple(shape), x.dtype)


def _pad(attrs: PadAttrs, x: Array, value: Array | None = None) -> Array:
    pads = concrete(attrs.pads)
    before, after = pads[: x.ndim], pads[x.ndim :]
    nonnegative_pads = [(max(low, 0), max(high, 0)) for low, high in zip(before, after, strict=True)]
    if value is not None:
        padded = np.full(
            tuple(size + low + high for size, (low, high) in zip(x.shape, nonnegative_pads, strict=True)), value, x.dtype
        )
        padded[tuple(slice(low, low + size) for size, (low, _) in zip(x.shape, nonnegative_pads, strict=True))] = x
    else:
        padded = np.pad(x, nonnegative_pads, attrs.mode) if x.ndim else x  # type: ignore[call-overload]
    crops = (slice(max(-low, 0), size - max(-high, 0)) for low, high, size in zip(before, after, padded.shape, strict=True))
    return np.array(padded[tuple(crops)])


def _compute_pad(attrs: PadAttrs, x: te.Tensor, value: te.Tensor | None = None) -> te.Tensor:
    type_ = _infer_pad(attrs, *(TensorType(tensor.shape, tensor.dtype) for tensor in (x, value) if tensor is not None))
    assert isinstance(type_, TensorType)

    def element(*index: arith.Var) -> ir.Expr:
        source = tuple(i - before for i, before in zip(index, attrs.pads, strict=False))
        if value is None:
            pads = zip(attrs.pads[: x.rank], attrs.pads[x.rank :], strict=True)
            unpadded_axes = [before == after == 0 for before, after in pads]
            axes = zip(source, x.shape, unpadded_axes, strict=True)
            source_indices = [i if is_unpadded else _source_index(attrs.mode, i, extent) for i, extent, is_unpadded in axes]
            if unpadded_axes[-1:] != [False]:
                return x[tuple(source_indices)]
            # Within a row, the copy needs no index arithmetic.
            is_inside_row = arith.logical_and(arith.compare("<=", 0, source[-1]), arith.compare("<", source[-1], x.shape[-1]))
            return te.select(is_inside_row, x[(*source_indices[:-1], source[-1])], x[tuple(source_indices)])
        inside: Dim = 1
        for axis, (i, extent) in enumerate(zip(source, x.shape, strict=True)):
            if attrs.pads[axis] != 0:
                inside = arith.logical_and(inside, arith.compare("<=", 0, i))
            if attrs.pads[axis + x.rank] != 0:
                inside = arith.logical_and(inside, arith.compare("<", i, extent))
        return x[source] if inside == 1 or inside == arith.ONE else te.select(inside, x[source], value[()])

    result: te.Tensor = te.compute(type_.shape, element, "pad")
    return result


def _source_index(mode: str, index: Dim, extent: Dim) -> Dim:
    """Map an index, which may be out of bounds, to the index in [0, extent) of the element that padding in `mode` puts there."""
    last = arith.add(extent, -1)
    if mode == "edge":
        return arith.minimum(arith.maximum(index, 0), last)
    if mode == "wrap":
        return arith.floormod(index, extent)
    if extent == 1:
        return 0
    period = arith.mul(last, 2)
    phase = arith.floormod(index, arith.maximum(period, 1))
    return arith.minimum(phase, arith.add(period, -phase))


pad = Operator(
    "pad",
    _infer_pad,
    PadAttrs,
    reference=_pad,
    compute=_compute_pad,
    fusion=FusionKind.INJECTIVE,
    traits=Traits(moves=Moves(fill=1)),
    arity=(1, 2),
    inputs=("x", "value"),
    doc="""Pad with a constant, the edge, a reflection or periodically. Negative pads crop.
Operands: x, any dtype; with mode "constant", value, 0-d, dtype of x. Result: dtype of x.""",
)


# --- tile -------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class TileAttrs(Attrs):
    """`repeats`: the number of repetitions along each axis."""

    repeats: tuple[Dim, ...]


def _infer_tile(attrs: TileAttrs, x: Type) -> Type:
    x = tensor_type(x)
    if len(attrs.repeats) != x.rank:
        raise ValueError(f"repeats must have {x.rank} elements, got {attrs.repeats}")
    for count in attrs.repeats:
        require_at_least(count, 0, "a repeat")
    return TensorType(_tiled(x.shape, attrs.repeats), x.dtype)


def _tiled(shape: Sequence[Dim], repeats: Sequence[Dim]) -> tuple[Dim, ...]:
    return tuple(simple(arith.product(pair)) for pair in zip(shape, repeats, strict=True))


def _compute_tile(attrs: TileAttrs, x: te.Tensor) -> te.Tensor:
    def element(*index: arith.Var) -> ir.Expr:
        return x[
            tuple(i if n == 1 else i % (1 if dim == 0 else dim) for i, dim, n in zip(index, x.shape, attrs.repeats, strict=True))
        ]

    result: te.Tensor = te.compute(_tiled(x.shape, attrs.repeats), element, "tile")
    return result


tile = Operator(
    "tile",
    _infer_tile,
    TileAttrs,
    reference=lambda attrs, x: np.tile(x, concrete(attrs.repeats)),
    compute=_compute_tile,
    fusion=FusionKind.INJECTIVE,
    traits=Traits(moves=Moves()),
    inputs=("x",),
    doc="Repeat the tensor along each axis.\nOperand: x, any dtype. Result: dtype of x.",
)


# --- iota, sizes, after -----------------------------------------------------------------------------------------------
#
# Existential sizes are known only after the kernel that computes them. If an operator has such a size in its attributes but not in
# the type of an operand, it needs an extra operand, a *witness*: a tensor that has the size and whose elements are not read. `iota`
# and `sizes` have witness operands; any other operator uses `after`, which returns its first operand unchanged. Decompositions and
# rewrites need not add witnesses: the pass `witness_sizes` does.


@dataclass(frozen=True)
class IotaAttrs(Attrs):
    """`shape`: the shape of the result. `axis`: the axis to count along. `dtype`: the dtype of the result."""

    shape: tuple[Dim, ...]
    axis: int = 0
    dtype: str = "int64"


def _infer_iota(attrs: IotaAttrs, *witnesses: Type) -> Type:
    check_axis(attrs.axis, len(attrs.shape))
    element_dtype = dtype(attrs.dtype)
    if element_dtype.kind not in NUMERIC:
        raise ValueError(f"dtype must be numeric, got {element_dtype}")
    return TensorType(attrs.shape, element_dtype)


def _iota(attrs: IotaAttrs, *witnesses: Array) -> Array:
    shape = concrete(attrs.shape)
    count = np.arange(shape[attrs.axis]).reshape([-1 if axis == attrs.axis else 1 for axis in range(len(shape))])
    return np.array(np.broadcast_to(count, shape)).astype(dtype(attrs.dtype).numpy)


def _compute_iota(attrs: IotaAttrs, *witnesses: te.Tensor) -> te.Tensor:
    element_dtype = dtype(attrs.dtype)
    result: te.Tensor = te.compute(attrs.shape, lambda *index: ir.as_expr(index[attrs.axis], element_dtype), "iota")
    return result


iota = Operator(
    "iota",
    _infer_iota,
    IotaAttrs,
    reference=_iota,
    compute=_compute_iota,
    fusion=FusionKind.INJECTIVE,
    arity=(0, None),
    doc="""Count from 0 along an axis.
Operands: witness..., tensors whose existential sizes occur in `shape`. Result: shape `shape`, numeric dtype `dtype`.""",
)


@dataclass(frozen=True)
class SizesAttrs(Attrs):
    """`dims`: the dimensions to return."""

    dims: tuple[Dim, ...]


def _compute_sizes(attrs: SizesAttrs, *witnesses: te.Tensor) -> te.Tensor:
    element_dtype = dtype("int64")

    def element(index: arith.Var) -> ir.Expr:
        value: Dim = attrs.dims[-1] if attrs.dims else 0
        for position in range(len(attrs.dims) - 2, -1, -1):
            value = arith.select(arith.compare("==", index, position), attrs.dims[position], value)
        return ir.as_expr(arith.wrap(value), element_dtype)

    result: te.Tensor = te.compute((len(attrs.dims),), element, "sizes")
    return result


sizes = Operator(
    "sizes",
    lambda attrs, *witnesses: TensorType((len(attrs.dims),), "int64"),
    SizesAttrs,
    reference=lambda attrs, *witnesses: np.array(concrete(attrs.dims), np.int64),
    compute=_compute_sizes,
    fusion=FusionKind.INJECTIVE,
    arity=(0, None),
    doc="""Return dimensions as a vector.
Operands: witness..., tensors whose existential sizes occur in `dims`. Result: (number of dims,), int64.""",
)


after = Operator(
    "after",
    lambda attrs, x, *witnesses: tensor_type(x),
    reference=lambda attrs, x, *witnesses: x,
    compute=lambda attrs, x, *witnesses: te.compute(x.shape, lambda *index: x[index], "after"),
    fusion=FusionKind.INJECTIVE,
    arity=(1, None),
    inputs=("x",),
    doc="Return x unchanged, evaluated after the other operands.\nOperands: x; witness..., any tensors.",
)


OPERATORS = make_family(reshape, transpose, broadcast_to, full, concat, strided_slice, pad, tile, iota, sizes, after)
