"""Convolution by Winograd's minimal filtering algorithm.

The algorithm and the matrices for tiles of 2 and 4 are those of Lavin and Gray, "Fast Algorithms for Convolutional Neural Networks"
(CVPR 2016): a tile of m x m outputs of a 3 x 3 window takes (m + 2)^2 products per pair of channels instead of 9 m^2.

The algorithm is exact for integers with sums modulo 2^32. Matrices with fractions are scaled to integers, which scales results by
a known factor. The factor's odd part is divided out by its inverse modulo 2^32, its power of two by a shift.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from fractions import Fraction
from functools import cache

import numpy as np

from inlaid.graph.conditions import require_shape
from inlaid.graph.operator import FusionKind, Operator
from inlaid.ops.define import FLOAT, Array, as_array, quiet, tensor_type
from inlaid.ops.window import WindowAttrs, WindowAxis, pad_spatial, window_axes, window_shape
from inlaid.tensor import ir, te
from inlaid_runtime import arith
from inlaid_runtime.arith import Dim
from inlaid_runtime.cores import in_threads
from inlaid_runtime.records import dataclass
from inlaid_runtime.types import DType, TensorType, Type, dtype, from_numpy

WINDOW = 3
"""Extent of each side of the window."""
Matrix = tuple[tuple[float, ...], ...]


@dataclass(frozen=True)
class Transforms:
    """The transform matrices of a tile: `inputs` (B transposed), `weights` (G) and `outputs` (A transposed)."""

    inputs: Matrix
    weights: Matrix
    outputs: Matrix


TRANSFORMS = {
    2: Transforms(
        inputs=((1, 0, -1, 0), (0, 1, 1, 0), (0, -1, 1, 0), (0, 1, 0, -1)),
        weights=((1, 0, 0), (1 / 2, 1 / 2, 1 / 2), (1 / 2, -1 / 2, 1 / 2), (0, 0, 1)),
        outputs=((1, 1, 1, 0), (0, 1, -1, -1)),
    ),
    4: Transforms(
        inputs=(
            (4, 0, -5, 0, 1, 0),
            (0, -4, -4, 1, 1, 0),
            (0, 4, -4, -1, 1, 0),
            (0, -2, -1, 2, 1, 0),
            (0, 2, -1, -2, 1, 0),
            (0, 4, 0, -5, 0, 1),
        ),
        weights=(
            (1 / 4, 0, 0),
            (-1 / 6, -1 / 6, -1 / 6),
            (-1 / 6, 1 / 6, -1 / 6),
            (1 / 24, 1 / 12, 1 / 6),
            (1 / 24, -1 / 12, 1 / 6),
            (0, 0, 1),
        ),
        outputs=((1, 1, 1, 1, 1, 0), (0, 1, -1, 2, -2, 0), (0, 1, 1, 4, 4, 0), (0, 1, -1, 8, -8, 1)),
    ),
}
"""Transforms, keyed by `m`, the number of outputs along a side of a tile. They interpolate at 0, 1, -1 and infinity, tiles of
4 also at 2 and -2."""
HALVES = {
    4: Transforms(
        inputs=(
            (2, 3, -4, -3, 2, 0),
            (0, 2, 5, 1, -2, 0),
            (0, 2, 1, -5, 2, 0),
            (0, 1, 2, -1, -2, 0),
            (0, -2, 1, 2, -1, 0),
            (0, 2, 3, -4, -3, 2),
        ),
        weights=(
            (1 / 2, 0, 0),
            (1 / 6, 1 / 6, 1 / 6),
            (1 / 6, -1 / 6, 1 / 6),
            (-1 / 30, -1 / 15, -2 / 15),
            (2 / 15, -1 / 15, 1 / 30),
            (0, 0, 1 / 2),
        ),
        outputs=((1, 1, 1, 1, 8, 0), (0, 1, -1, 2, -4, 0), (0, 1, 1, 4, 2, 0), (0, 1, -1, 8, -1, 1)),
    ),
}
"""Transforms that interpolate at -1/2 instead of -2. They take more operations, but their denominators have fewer factors of two:
integer results are exact up to 2^29 instead of 2^25."""


INTEGER = "int16"
"""The dtype of transformed integer data and weights; sums are int32."""
BYTES = ("int8", "uint8")
"""The dtypes of integer data that is cast as it is read."""
_SUM_DTYPES = {INTEGER: "int32", "bfloat16": "float32"}
"""The dtype of sums of products, by the dtype of narrow transformed weights. Transforms of bfloat16 are computed in it, too."""


@dataclass(frozen=True)
class Scaled:
    """Integer `transforms`. Results computed with them, times `inverse` modulo 2^32, are the exact results times 2^`shift`."""

    transforms: Transforms
    inverse: int
    shift: int


@cache
def scaled_transforms(tile: int, halves: bool = False) -> Scaled:
    """Return transforms of a tile for integers: each row of `weights` is scaled to integers, and `outputs` is scaled to match."""
    transforms = (HALVES if halves else TRANSFORMS)[tile]
    factors = [math.lcm(*(Fraction(value).limit_denominator(99).denominator for value in row)) for row in transforms.weights]
    common_multiple = math.lcm(*factors)
    weights = tuple(tuple(round(value * factor) for value in row) for row, factor in zip(transforms.weights, factors, strict=True))
    parts = [common_multiple // factor for factor in factors]
    outputs = tuple(tuple(round(value) * part for value, part in zip(row, parts, strict=True)) for row in transforms.outputs)
    shift = (common_multiple**2 & -(common_multiple**2)).bit_length() - 1
    inverse = np.uint32(pow(common_multiple**2 >> shift, -1, 1 << 32)).view(np.int32)
    return Scaled(Transforms(transforms.inputs, weights, outputs), int(inverse), shift)


def is_exact(weights: Array, tile: int, data: tuple[int, int], result: int, halves: bool = False) -> bool:
    """Test whether int16 tiles give exact sums, for data in the interval `data` and absolute results up to `result`."""
    scaled, limit = scaled_transforms(tile, halves), np.iinfo(INTEGER).max
    input_transform, factor = np.array(scaled.transforms.inputs), max(sum(map(abs, row)) for row in scaled.transforms.weights)
    transform_2d, low, high = np.kron(input_transform, input_transform), min(data[0], 0), max(data[1], 0)  # padding is 0
    positive_sums, negative_sums = transform_2d.clip(0).sum(axis=1), (-transform_2d).clip(0).sum(axis=1)
    largest_input = max((positive_sums * high - negative_sums * low).max(), (negative_sums * high - positive_sums * low).max())
    largest_weight = np.abs(weights.astype(np.int64)).max(initial=0)
    return bool(largest_input <= limit and factor**2 * largest_weight <= limit and result << scaled.shift < 1 << 31)


@dataclass(frozen=True)
class WinogradAttrs(WindowAttrs):
    """`pads`: as in `conv`. `tile`: the number of outputs along a side of a tile, a key of `TRANSFORMS`.
    `halves`: use `HALVES`, for integers only."""

    tile: int = 4
    halves: bool = False


_PLANES = 1024
"""Number of 3 x 3 windows of weights that are transformed at a time. The matrix product of more windows leaves the cache, and waits
for the threads of a BLAS library."""


def transform_weights(weights: Array, tile: int, halves: bool = False) -> Array:
    """Transform weights (O, C, 3, 3) of a convolution to weights (tile + 2, tile + 2, C, O) of `winograd_conv`. Integers are exact;
    floats are computed in float64 and rounded once."""
    is_integer = weights.dtype == INTEGER
    rows = (scaled_transforms(tile, halves).transforms if is_integer else TRANSFORMS[tile]).weights
    g = np.array(rows, np.int64 if is_integer else np.float64)
    planes, transform_2d = weights.transpose(1, 0, 2, 3).reshape(-1, WINDOW * WINDOW), np.kron(g, g)
    result, starts = np.empty((len(transform_2d), len(planes)), weights.dtype), range(0, len(planes), _PLANES)
    in_threads(
        lambda start: np.copyto(
            result[:, start : start + _PLANES], transform_2d @ planes[start : start + _PLANES].T.astype(g.dtype)
        ),
        starts,
    )
    return result.reshape(len(g), len(g), weights.shape[1], weights.shape[0])


def _output_shape(attrs: WinogradAttrs, spatial: Sequence[Dim]) -> tuple[Dim, ...]:
    return window_shape(spatial, window_axes(attrs, (WINDOW, WINDOW)))


def _infer(attrs: WinogradAttrs, x: Type, u: Type, w: Type | None = None) -> Type:
    kinds = (*FLOAT, "int", "uint")
    data, weights = tensor_type(x, kinds, "the data"), tensor_type(u, kinds, "the weights")
    if attrs.tile not in TRANSFORMS:
        raise ValueError(f"tile must be one of {', '.join(map(str, TRANSFORMS))}, got {attrs.tile}")
    if attrs.halves and attrs.tile not in HALVES:
        raise ValueError(f"with halves, tile must be one of {', '.join(map(str, HALVES))}, got {attrs.tile}")
    if attrs.strides or attrs.dilations:
        raise ValueError(f"strides and dilations must be 1, got {attrs.strides} and {attrs.dilations}")
    if data.rank != 4 or weights.rank != 4:
        raise ValueError(f"x must be (N, C, H, W) and u ({attrs.tile + 2}, {attrs.tile + 2}, C, O), got {data!r} and {weights!r}")
    require_shape(weights.shape[:3], (attrs.tile + 2, attrs.tile + 2, data.shape[1]), "u")
    if data.dtype.is_int or weights.dtype.is_int:
        if data.dtype.name not in (*BYTES, INTEGER) or weights.dtype.name != INTEGER:
            raise ValueError(f"integers x must be of at most 16 bits and u {INTEGER}, got {data.dtype} and {weights.dtype}")
    elif data.dtype != weights.dtype and weights.dtype.name != "float32":
        raise ValueError(f"u must have the dtype of x, {data.dtype}, or float32, got {weights.dtype}")
    if w is not None:
        untransformed = tensor_type(w, kinds, "the untransformed weights")
        require_shape(untransformed.shape, (weights.shape[3], data.shape[1], WINDOW, WINDOW), "w")
    shape = (data.shape[0], weights.shape[3], *_output_shape(attrs, data.shape[2:]))
    return TensorType(shape, _sum_dtype(weights.dtype))


def _sum_dtype(element_dtype: DType) -> DType:
    """Return the dtype of sums of products with transformed weights of a dtype."""
    return dtype(_SUM_DTYPES.get(element_dtype.name, element_dtype.name))


def _axes(attrs: WinogradAttrs, spatial: Sequence[Dim]) -> tuple[tuple[WindowAxis, ...], tuple[Dim, ...]]:
    """Return the windows along each side of the data padded to whole tiles, and the numbers of tiles."""
    axes, tiles = [], []
    for axis, extent in zip(window_axes(attrs, (WINDOW, WINDOW)), spatial, strict=True):
        count = arith.ceildiv(axis.positions(extent), attrs.tile)
        after = count * attrs.tile + (WINDOW - 1) - extent - axis.before
        axes.append(WindowAxis(WINDOW, 1, 1, axis.before, arith.unwrap(arith.simplify(arith.wrap(after)))))
        tiles.append(arith.unwrap(arith.simplify(arith.wrap(count))))
    return tuple(axes), tuple(tiles)


def _static_pair(dims: Sequence[Dim]) -> tuple[int, int]:
    first, second = (arith.evaluate(dim, {}) for dim in dims)
    return first, second


@quiet
def _reference(attrs: WinogradAttrs, x: Array, u: Array, w: Array | None = None) -> Array:
    is_integer = u.dtype == INTEGER
    size, scaled, total = attrs.tile, scaled_transforms(attrs.tile, attrs.halves), _sum_dtype(from_numpy(u.dtype)).numpy
    transforms, working = (scaled.transforms, np.dtype(np.int64)) if is_integer else (TRANSFORMS[attrs.tile], total)
    axes, tiles = _axes(attrs, x.shape[2:])
    padded = np.pad(x.astype(working), [(0, 0), (0, 0), *(_static_pair((axis.before, axis.after)) for axis in axes)])
    view = np.lib.stride_tricks.sliding_window_view(padded, (size + 2, size + 2), (2, 3))[:, :, ::size, ::size]
    input_transform, output_transform = np.array(transforms.inputs, working), np.array(transforms.outputs, working)
    v = np.einsum("ai,ncyxij,bj->abncyx", input_transform, view, input_transform, optimize=True)
    m = np.einsum("abncyx,abco->abnoyx", v.astype(u.dtype).astype(working), u.astype(working), optimize=True)
    y = np.einsum(
        "ia,abnoyx,jb->noyixj",
        output_transform,
        m.astype(np.int32) if is_integer else m,
        output_transform,
        dtype=working,
        optimize=True,
    )
    if is_integer:
        y = (y.astype(np.int32).astype(working) * scaled.inverse).astype(np.int32) >> scaled.shift
    height, width = _static_pair(_output_shape(attrs, x.shape[2:]))
    tile_rows, tile_columns = _static_pair(tiles)
    full_output = y.reshape(x.shape[0], u.shape[3], tile_rows * size, tile_columns * size)
    return as_array(full_output[:, :, :height, :width], from_numpy(y.dtype))


def _linear_combination(row: Sequence[float], terms: Sequence[ir.Expr]) -> ir.Expr:
    """Build the linear combination of terms. Terms with the same absolute factor are added first, with the sign of the first one,
    so that rows of a matrix that differ only in signs share sums."""
    groups: dict[float, list[int]] = {}
    for index, factor in enumerate(row):
        if factor:
            groups.setdefault(abs(factor), []).append(index)
    total: ir.Expr | None = None
    for size in sorted(groups):
        first, *other_indices = groups[size]
        part = terms[first]
        for index in other_indices:
            part = part + terms[index] if row[index] == row[first] else part - terms[index]
        part = part if size == 1 else part * te.const(size, part.dtype)
        if total is None:
            total = part if row[first] > 0 else te.unary("neg", part)
        else:
            total = total + part if row[first] > 0 else total - part
    assert total is not None
    return total


def _select(index: Dim, values: Sequence[ir.Expr]) -> ir.Expr:
    """Select values[index]."""
    result = values[-1]
    for number in range(len(values) - 2, -1, -1):
        result = te.select(arith.compare("==", index, number), values[number], result)
    return result


def _compute(attrs: WinogradAttrs, x: te.Tensor, u: te.Tensor, w: te.Tensor | None = None) -> te.Tensor:
    """Build the stages "pad", "rows" and "tiles" (the data transformed along one side, then along both), "products", "columns" and
    "winograd" (the products transformed along one side, then along both)."""
    size, scaled = attrs.tile, scaled_transforms(attrs.tile, attrs.halves) if u.dtype.is_int else None
    transforms = TRANSFORMS[size] if scaled is None else scaled.transforms
    total, transform_dtype = _sum_dtype(u.dtype), u.dtype if scaled else _sum_dtype(u.dtype)
    side = size + 2
    axes, (tile_rows, tile_columns) = _axes(attrs, x.shape[2:])
    padded = pad_spatial(x, axes, te.const(0, x.dtype))
    batch, channels, output_channels = x.shape[0], x.shape[1], u.shape[3]
    count = tile_rows * tile_columns

    def row(a: arith.Var, j: arith.Var, n: arith.Var, c: arith.Var, t: arith.Var) -> ir.Expr:
        indices = [(n, c, t // tile_columns * size + i, t % tile_columns * size + j) for i in range(side)]
        data = [te.cast(padded[index], transform_dtype) for index in indices]
        return _select(a, [_linear_combination(factors, data) for factors in transforms.inputs])

    rows = te.compute((side, side, batch, channels, count), row, "rows")

    def tile(a: arith.Var, b: arith.Var, n: arith.Var, c: arith.Var, t: arith.Var) -> ir.Expr:
        data = [rows[(a, j, n, c, t)] for j in range(side)]
        value = _select(b, [_linear_combination(factors, data) for factors in transforms.inputs])
        return value if value.dtype is u.dtype else te.cast(te.math("flush", value), u.dtype)

    tiles = te.compute((side, side, batch, channels, count), tile, "tiles")
    k = te.reduce_axis(channels, "c")
    products = te.compute(
        (side, side, batch, output_channels, count),
        lambda a, b, n, o, t: te.sum_(te.cast(tiles[(a, b, n, k, t)], total) * te.cast(u[(a, b, k, o)], total), k),
        "products",
    )

    def column(i: arith.Var, b: arith.Var, n: arith.Var, o: arith.Var, t: arith.Var) -> ir.Expr:
        data = [products[(a, b, n, o, t)] for a in range(side)]
        return _select(i, [_linear_combination(factors, data) for factors in transforms.outputs])

    columns = te.compute((size, side, batch, output_channels, count), column, "columns")

    def element(n: arith.Var, o: arith.Var, y: arith.Var, x: arith.Var) -> ir.Expr:
        data = [columns[(y % size, b, n, o, y // size * tile_columns + x // size)] for b in range(side)]
        value = _select(x % size, [_linear_combination(factors, data) for factors in transforms.outputs])
        return value if scaled is None else value * te.const(scaled.inverse, total) >> te.const(scaled.shift, total)

    result: te.Tensor = te.compute((batch, output_channels, *_output_shape(attrs, x.shape[2:])), element, "winograd")
    return result


winograd_conv = Operator(
    "winograd_conv",
    _infer,
    WinogradAttrs,
    reference=_reference,
    compute=_compute,
    fusion=FusionKind.COMPLEX_OUT_FUSABLE,
    arity=(2, 3),
    inputs=("x", "u", "w"),
)
"""Convolution of x (N, C, H, W) by 3 x 3 windows with stride 1, with weights u from `transform_weights`. Narrow floats are cast to
float32 as they are read; transformed data is rounded to bfloat16 if u is bfloat16, and sums are float32. u may be int16 and x int16
or bytes; int32 sums are then exact if `is_exact` holds. w (O, C, 3, 3), optional, are the weights before their transformation, from
which schedules may compute results as well, such as those of small images."""

OPERATORS: tuple[Operator, ...] = (winograd_conv,)
