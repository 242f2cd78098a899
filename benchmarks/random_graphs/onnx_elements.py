"""Makers of ONNX nodes: element-wise operators, reductions, and operators that move elements."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from onnx import helper, numpy_helper

from .extents import RUNS
from .onnx_models import FLOATS, INTS, Array, Maker, OnnxGenerator, Shape, Skipped, Unfit, Value

ANY = (*FLOATS, *INTS, "bool")
COMMON = ("float32", "int64", "int32", "float64", "float16", "bool", "uint8", "int8")
SIGNED = (*FLOATS, "int64", "int32", "int8", "int16")
F32 = ("float32",)

_FLOAT_UNARY = (
    *(
        "Acos",
        "Acosh",
        "Asin",
        "Asinh",
        "Atan",
        "Atanh",
        "Ceil",
        "Cos",
        "Cosh",
        "Erf",
        "Exp",
        "Floor",
        "Log",
        "Reciprocal",
        "Round",
    ),
    *("Sigmoid", "Sin", "Sinh", "Softplus", "Softsign", "Sqrt", "Tan", "Tanh", "HardSwish", "Identity"),
)
_DOMAINS = {"Acos": (-1, 1), "Asin": (-1, 1), "Atanh": (-0.9, 0.9), "Acosh": (1, 4), "Log": (0, 4), "Sqrt": (0, 9)}
_PARAMETERS: dict[str, dict[str, tuple[float, ...]]] = {
    "Celu": {"alpha": (1.0, 0.5, 2.0)},
    "Elu": {"alpha": (1.0, 0.5)},
    "Selu": {"alpha": (1.67, 1.0), "gamma": (1.05, 2.0)},
    "LeakyRelu": {"alpha": (0.01, 0.3, 0.0)},
    "ThresholdedRelu": {"alpha": (1.0, 0.0, 2.0)},
    "HardSigmoid": {"alpha": (0.2, 0.5), "beta": (0.5, 0.1)},
    "Shrink": {"lambd": (0.5, 1.0), "bias": (0.0, 0.25)},
    "Swish": {"alpha": (1.0, 0.5)},
}


def _unary(name: str, dtypes: tuple[str, ...] = FLOATS) -> Maker:
    def make(g: OnnxGenerator) -> None:
        low, high = _DOMAINS.get(name, (None, None)) if g.chance(0.7) else (None, None)
        attrs = {key: g.pick(options) for key, options in _PARAMETERS.get(name, {}).items() if g.chance(0.7)}
        x = g.data(dtypes, low=low, high=high)
        if name == "Sign" and x.dtype == "float16" and any(np.isnan(array).any() for array in x.arrays):
            raise Skipped("Sign: of NaN is NaN, in ONNX Runtime 0 in float16")
        g.node(name, [x], **attrs)

    return make


def _gelu(g: OnnxGenerator) -> None:
    g.node("Gelu", [g.data()], **({"approximate": g.pick(("none", "tanh"))} if g.chance(0.8) else {}))


def _isinf(g: OnnxGenerator) -> None:
    flags = {name: g.number(0, 1) for name in ("detect_negative", "detect_positive") if g.chance(0.5)}
    g.node("IsInf", [g.data(("float32", "float64") if g.opset < 20 else FLOATS)], **flags)


def _binary(name: str, dtypes: tuple[str, ...]) -> Maker:
    def make(g: OnnxGenerator) -> None:
        x = g.data(dtypes)
        y = g.beside(x)
        g.node(name, [y, x] if g.chance(0.3) else [x, y])

    return make


def _div(g: OnnxGenerator) -> None:
    x = g.data((*FLOATS, "int64", "int32", "uint8", "int8"))
    y = g.beside(x, None, *((1, 9) if x.dtype not in FLOATS else (None, None)))
    if y.dtype not in FLOATS and not y.all(lambda array: array > 0):
        raise Unfit  # undefined in C++
    g.node("Div", [x, y])


def _mod(g: OnnxGenerator) -> None:
    x = g.data((*FLOATS, *INTS))
    y = g.beside(x, None, 1, 9)
    if not y.all(lambda array: array > 0):
        raise Unfit  # undefined in C++
    fmod = x.dtype in FLOATS or g.chance(0.3)
    g.node("Mod", [x, y], **({"fmod": 1} if fmod else {}))


def _pow(g: OnnxGenerator) -> None:
    x = g.data(("float32", "float64", "int64", "int32"), low=0, high=4)
    y = g.beside(x, g.pick(("float32", "int64", "int32")) if g.chance(0.3) else None, 0, 3)
    g.node("Pow", [x, y])


def _prelu(g: OnnxGenerator) -> None:
    x = g.data(("float32", "float64", "float16"))
    slope = [(1,) * RUNS if g.chance(0.2) else dim for dim in x.dims[g.number(0, x.rank) :]]
    g.node("PRelu", [x, g.operand(slope, x.dtype)])


def _shift(g: OnnxGenerator) -> None:
    x = g.data(("uint8", "uint32", "uint64", "uint16"))
    g.node("BitShift", [x, g.beside(x, None, 0, 7)], direction=g.pick(("LEFT", "RIGHT")))


def _variadic(name: str, dtypes: tuple[str, ...]) -> Maker:
    def make(g: OnnxGenerator) -> None:
        x = g.data(dtypes)
        g.node(name, [x, *(g.beside(x) for _ in range(g.number(0, 2)))])

    return make


def _where(g: OnnxGenerator) -> None:
    x = g.data(("float32", "int64", "int32", "float64", "uint8", "bool", "string"))
    g.node("Where", [g.beside(x, "bool"), x, g.beside(x)])


def _clip(g: OnnxGenerator) -> None:
    x = g.data(("float32", "float64", "float16", "int64", "int32", "int8", "uint8", "uint64"))
    low = g.operand((), x.dtype, 0 if x.dtype.startswith("u") else -2, 1) if g.chance(0.7) else None
    high = g.operand((), x.dtype, 2, 4) if g.chance(0.7) else None
    if x.dtype == "float16" and None in (low, high) and g.opset < 12 and any(np.isinf(array).any() for array in x.arrays):
        raise Skipped("Clip: without a bound, infinities become finite, in ONNX Runtime not those of float16 before version 12")
    g.node("Clip", [x, low, high])


def _cast_target(g: OnnxGenerator, x: Value) -> str:
    """Draw an element type to cast to. C++ leaves open what integer an infinity, a NaN or a large float is."""
    if x.dtype not in FLOATS:
        return g.pick(("float32", "float64", "int64", "int32", "uint8", "bool", "int8", "uint16"))
    targets = ["float32", "float64", "float16", "bool"]
    for name in INTS:
        least, greatest = max(int(np.iinfo(name).min), -(2**31)), min(int(np.iinfo(name).max), 2**31 - 1)

        def fits(array: Array, least: int = least, greatest: int = greatest) -> Array:
            wide = array.astype(np.float64)
            return np.isfinite(wide) & (wide > least - 1) & (wide < greatest + 1)

        targets += [name] if x.all(fits) else []
    return g.pick(targets)


def _cast(g: OnnxGenerator) -> None:
    x = g.data(ANY)
    g.node("Cast", [x], to=int(helper.np_dtype_to_tensor_dtype(np.dtype(_cast_target(g, x)))))


def _cast_like(g: OnnxGenerator) -> None:
    x = g.data(ANY)
    g.node("CastLike", [x, g.operand([g.dim()], _cast_target(g, x))])


# --- reductions -------------------------------------------------------------------------------------------------------

_AXES_INPUT_SINCE = {"ReduceSum": 13}


def _reduce(name: str) -> Maker:
    def make(g: OnnxGenerator) -> None:
        dtypes = ("float32", "float64", "int32", "int64")
        if name in ("ReduceMax", "ReduceMin"):
            dtypes += ("int8", "uint8")
        if name in ("ReduceLogSum", "ReduceLogSumExp", "ReduceL2"):
            dtypes = ("float32", "float64")
        positive = (0.5, 3) if name == "ReduceLogSum" else (None, None)
        x = g.data(dtypes, low=positive[0], high=positive[1])
        if any(0 in array.shape for array in x.arrays) and name not in ("ReduceSum", "ReduceSumSquare", "ReduceL1", "ReduceL2"):
            raise Unfit  # reducing nothing: ONNX leaves the value open for these
        if name == "ReduceProd" and x.dtype not in FLOATS and any(_grown(array) for array in x.arrays):
            raise Skipped("ReduceProd: integers wrap around, in ONNX Runtime they saturate")
        attrs: dict[str, Any] = {"keepdims": g.number(0, 1)} if g.chance(0.8) else {}
        inputs: list[Value | None] = [x]
        if g.opset >= _AXES_INPUT_SINCE.get(name, 18):
            if g.chance(0.8):
                inputs.append(g.ints(*g.axes(x)))
            if g.chance(0.3):
                attrs["noop_with_empty_axes"] = g.number(0, 1)
        elif g.chance(0.8) and x.rank:
            attrs["axes"] = g.axes(x, 1)
        g.node(name, inputs, **attrs)

    return make


def _grown(array: Array) -> bool:
    """Test whether a product of elements may exceed an int32."""
    return bool(np.log2(np.maximum(np.abs(array.astype(np.float64)), 1)).sum() >= 31)


def _position(name: str) -> Maker:
    def make(g: OnnxGenerator) -> None:
        x = g.data(("float32", "float64", "int32", "int8", "uint8"), (1, 2, 3, 4), lambda value: all(all(d) for d in value.dims))
        attrs = {"axis": g.axis(x), "keepdims": g.number(0, 1), "select_last_index": g.number(0, 1)}
        g.node(name, [x], **{key: value for key, value in attrs.items() if g.chance(0.8) or key == "axis"})

    return make


def _running(name: str) -> Maker:
    def make(g: OnnxGenerator) -> None:
        x = g.data(("float32", "float64", "int32", "int64"), (1, 2, 3, 4))
        axis = g.constant(np.array(g.axis(x), g.pick((np.int64, np.int32))))
        g.node(name, [x, axis], **{key: g.number(0, 1) for key in ("exclusive", "reverse") if g.chance(0.6)})

    return make


def _along(name: str, since_axis: int = 1) -> Maker:
    def make(g: OnnxGenerator) -> None:
        x = g.data(FLOATS if name != "Hardmax" else ("float32", "float64"), (1, 2, 3, 4))
        if not x.all(np.isfinite):
            raise Skipped(f"{name}: a row with infinities is NaN, in ONNX Runtime a number in places")
        g.node(name, [x], **({"axis": g.axis(x)} if g.chance(0.8) else {}))

    return make


def _lp_normalization(g: OnnxGenerator) -> None:
    x = g.data(("float32", "float64"), (1, 2, 3, 4))
    g.node("LpNormalization", [x], axis=g.axis(x), p=g.pick((1, 2)))


def _topk(g: OnnxGenerator) -> None:
    x = g.data(("float32", "float64", "int64", "int32"), (1, 2, 3))
    axis = g.number(0, x.rank - 1)
    count = g.ints(g.number(0, min(x.least(axis), 9)))
    g.several("TopK", [x, count], 2, axis=axis - x.rank if g.chance(0.3) else axis, largest=g.number(0, 1), sorted=1)


# --- movement ---------------------------------------------------------------------------------------------------------


def _concat(g: OnnxGenerator) -> None:
    x = g.data((*COMMON, "string"), (1, 2, 3, 4))
    axis = g.number(0, x.rank - 1)
    parts = [x]
    for _ in range(g.number(0, 2)):
        dims = [g.dim() if number == axis else dim for number, dim in enumerate(x.dims)]
        parts.append(g.operand(dims if g.chance(0.7) else x.dims, x.dtype))
    g.random.shuffle(parts)
    g.node("Concat", parts, axis=axis - x.rank if g.chance(0.3) else axis)


def _split(g: OnnxGenerator) -> None:
    x = g.data(("float32", "int64", "uint8", "float64", "bool"), (1, 2, 3, 4))
    axis = g.number(0, x.rank - 1)
    extents = x.dims[axis]
    count = g.number(1, 3)
    attrs: dict[str, Any] = {"axis": axis - x.rank if g.chance(0.3) else axis}
    inputs: list[Value | None] = [x]
    if len(set(extents)) == 1 and g.chance(0.6):
        cuts = sorted(g.number(0, extents[0]) for _ in range(count - 1))
        inputs.append(g.ints(*(b - a for a, b in zip((0, *cuts), (*cuts, extents[0]), strict=True))))
    elif g.opset >= 18:
        attrs["num_outputs"] = count
    elif any(extent % count for extent in extents):
        raise Unfit
    g.several("Split", inputs, count, **attrs)


def _slice(g: OnnxGenerator) -> None:
    x = g.data((*COMMON, "string"), (1, 2, 3, 4))
    axes = [axis % x.rank for axis in g.axes(x, 1)]
    starts, ends, steps = [], [], []
    for axis in axes:
        step = g.pick((1, 1, 1, 2, 3, -1, -2))
        extent = max(x.dims[axis])
        low, high = (
            g.pick((0, 0, 1, -1, g.number(-extent - 2, extent + 2))),
            g.pick((2**62, extent, -1, g.number(-extent - 2, extent + 2))),
        )
        if step < 0:
            low, high = high if high < 2**62 else -1, g.pick((low, -(2**62)))
        starts, ends, steps = [*starts, low], [*ends, high], [*steps, step]
    named = [axis - x.rank if g.chance(0.2) else axis for axis in axes]
    if g.chance(0.15):
        values = [g.input([np.array(each, np.int64)] * RUNS) for each in (starts, ends)]
    else:
        values = [g.ints(*starts), g.ints(*ends)]
    g.node("Slice", [x, *values, g.ints(*named), g.ints(*steps)])


def _pad(g: OnnxGenerator) -> None:
    x = g.data(("float32", "float64", "int64", "int32", "uint8", "bool"), (1, 2, 3, 4))
    mode = g.pick(("constant", "constant", "edge", "reflect", *(("wrap",) if g.opset >= 19 else ())))
    pads = []
    for number in range(2 * x.rank):
        extent = x.least(number % x.rank)
        max_pad = {"reflect": extent - 1, "edge": 3 if extent else 0, "wrap": extent}.get(mode, 3)
        low = -min(extent // 2, 2) if mode == "constant" else 0
        pads.append(g.number(low, max(max_pad, low)) if g.chance(0.6) else 0)
    inputs: list[Value | None] = [x, g.ints(*pads)]
    if mode == "constant" and g.chance(0.6):
        inputs.append(g.operand((), x.dtype))
    g.node("Pad", inputs, mode=mode)


def _tile(g: OnnxGenerator) -> None:
    x = g.data(("float32", "int64", "float64", "uint8", "bool"), (1, 2, 3))
    g.node("Tile", [x, g.ints(*(g.pick((1, 2, 3, 1, 0)) if g.chance(0.9) else 1 for _ in range(x.rank)))])


def _expand(g: OnnxGenerator) -> None:
    x = g.data(COMMON, (0, 1, 2, 3))
    fixed = [dim[0] if len(set(dim)) == 1 and dim[0] > 1 else 1 for dim in x.dims]
    shape = [
        g.pick((1, 2, 3)) if extent == 1 and all(each == 1 for each in dim) else extent
        for extent, dim in zip(fixed, x.dims, strict=True)
    ]
    shape = [*(g.number(0, 3) for _ in range(g.number(0, 2))), *shape]
    g.node("Expand", [x, g.ints(*shape)])


def _expand_to_shape(g: OnnxGenerator) -> None:
    """Expand to the shape of another value, as exporters write it."""
    x = g.data(COMMON, (1, 2, 3))
    target = g.data(ANY, (2, 3, 4))
    narrow = g.operand([(1,) * RUNS if g.chance(0.5) else dim for dim in target.dims[g.number(0, target.rank) :]], x.dtype)
    g.node("Expand", [narrow, g.node("Shape", [target])])


def _reshape(g: OnnxGenerator) -> None:
    x = g.data((*COMMON, "string"), (0, 1, 2, 3, 4))
    static = [dim[0] if len(set(dim)) == 1 else None for dim in x.dims]
    count = math.prod(extent for extent in static if extent is not None)
    options: list[list[int]] = [[-1], [-1, 1], [1, -1]]
    if x.rank:
        options += [[0] * x.rank, [0, -1], [*(0 for _ in range(x.rank - 1)), -1]]
    if x.rank and None not in static:
        options += [[count], [1, *static[::-1]], [*static, 1]]  # type: ignore[list-item]
    for factor in (2, 3, 4, 8):
        if count and count % factor == 0:
            options += [[-1, factor], [factor, -1], [factor, 1, -1]]
    shape = list(g.pick(options))
    if len(shape) > x.rank and any(number == 0 for number in shape[x.rank :]):
        raise Unfit
    g.node("Reshape", [x, g.ints(*shape)], **({"allowzero": 0} if g.opset >= 14 and g.chance(0.2) else {}))


def _reshape_to_shape(g: OnnxGenerator) -> None:
    """Reshape to a shape that is computed from the extents of the value, as exporters write it."""
    x = g.data(COMMON, (2, 3, 4))
    shape = g.node("Shape", [x])
    axis = g.number(0, x.rank - 2)
    zero, one = g.ints(0), g.ints(1)
    # An element that is 0 would copy the dimension at its place, which Inlaid does only for elements not computed from `x`.
    merged = [before * after for before, after in zip(x.dims[axis], x.dims[axis + 1], strict=True)]
    new_dims = (*x.dims[:axis], merged, *x.dims[axis + 2 :])
    copies = any(new == 0 != old for dims in zip(new_dims, x.dims, strict=False) for new, old in zip(*dims, strict=True))
    if copies and g.opset < 14:
        raise Unfit
    first = g.node("Gather", [shape, g.ints(axis)], axis=0)
    second = g.node("Gather", [shape, g.ints(axis + 1)], axis=0)
    parts = [g.node("Mul", [first, second])]
    if axis:
        parts.insert(0, g.node("Slice", [shape, zero, g.ints(axis)]))
    if axis + 2 < x.rank:
        parts.append(g.node("Slice", [shape, g.ints(axis + 2), g.ints(x.rank)]))
    new_shape = g.node("Concat", [*parts, *([one] if g.chance(0.3) else [])], axis=0)
    g.node("Reshape", [x, new_shape], **({"allowzero": 1} if copies else {}))


def _flatten(g: OnnxGenerator) -> None:
    x = g.data(("float32", "int64", "uint8"), (0, 1, 2, 3, 4))
    g.node("Flatten", [x], **({"axis": g.number(-x.rank, x.rank)} if g.chance(0.8) else {}))


def _squeeze(g: OnnxGenerator) -> None:
    x = g.data(COMMON, (1, 2, 3, 4), lambda value: any(all(extent == 1 for extent in dim) for dim in value.dims))
    ones = [axis for axis, dim in enumerate(x.dims) if all(extent == 1 for extent in dim)]
    if g.chance(0.15) and all(len(set(dim)) == 1 for dim in x.dims):
        g.node("Squeeze", [x])
        return
    axes = g.random.sample(ones, g.number(1, len(ones)))
    g.node("Squeeze", [x, g.ints(*(axis - x.rank if g.chance(0.3) else axis for axis in axes))])


def _unsqueeze(g: OnnxGenerator) -> None:
    x = g.data((*COMMON, "string"), (0, 1, 2, 3))
    count = g.number(1, 2)
    axes = g.random.sample(range(x.rank + count), count)
    g.node("Unsqueeze", [x, g.ints(*(axis - x.rank - count if g.chance(0.3) else axis for axis in axes))])


def _transpose(g: OnnxGenerator) -> None:
    x = g.data((*COMMON, "string"), (1, 2, 3, 4, 5))
    order = list(range(x.rank))
    g.random.shuffle(order)
    g.node("Transpose", [x], **({"perm": order} if g.chance(0.85) else {}))


def indices(g: OnnxGenerator, dims: tuple[Shape, ...], extent: int, negative: bool = True) -> Value:
    """Draw indices into an axis whose least extent is given."""
    if extent < 1 and not any(0 in dim for dim in dims):
        raise Unfit
    low = -extent if negative and g.chance(0.5) else 0
    return g.operand(dims, g.pick(("int64", "int64", "int32")), low, max(extent - 1, low))


def draw_dims(g: OnnxGenerator, rank: int) -> tuple[Shape, ...]:
    """Draw some dimensions."""
    return tuple(g.dim() for _ in range(rank))


def _gather(g: OnnxGenerator) -> None:
    x = g.data((*COMMON, "string"), (1, 2, 3, 4))
    axis = g.number(0, x.rank - 1)
    if x.dtype == "string" and axis < x.rank - 1:
        raise Skipped("Gather: all strings of a row are copied, in ONNX Runtime the first")
    where = indices(g, draw_dims(g, g.number(0, 2)), x.least(axis))
    g.node("Gather", [x, where], **({"axis": axis - x.rank if g.chance(0.3) else axis} if axis or g.chance(0.6) else {}))


def _within(g: OnnxGenerator, x: Value, axis: int) -> tuple[Shape, ...]:
    """Draw dimensions of indices along an axis: no greater along the other axes, in every run."""
    return tuple(
        g.dim() if number == axis else dim if g.chance(0.6) else (g.number(0 if min(dim) == 0 else 1, max(min(dim), 1)),) * RUNS
        for number, dim in enumerate(x.dims)
    )


def _gather_elements(g: OnnxGenerator) -> None:
    x = g.data((*COMMON, "string"), (1, 2, 3))
    axis = g.number(0, x.rank - 1)
    where = indices(g, _within(g, x, axis), x.least(axis))
    g.node("GatherElements", [x, where], axis=axis - x.rank if g.chance(0.3) else axis)


def _columns(g: OnnxGenerator, x: Value, depth: int, dims: Sequence[Shape], batch: int = 0) -> Value:
    """Draw rows of indices along some axes."""
    arrays = []
    for run in range(RUNS):
        shape = tuple(dim[run] for dim in dims)
        extents = [x.dims[batch + number][run] for number in range(depth)]
        if not all(extents) and math.prod(shape):
            raise Unfit
        rng = g.rng()
        columns = [rng.integers(-extent, extent, shape) if extent else np.zeros(shape) for extent in extents]
        arrays.append(np.stack(columns, -1).astype(np.int64) if columns else np.zeros((*shape, 0), np.int64))
    return g.input(arrays)


def _gather_nd(g: OnnxGenerator) -> None:
    x = g.data(("float32", "int64", "int32", "uint8", "bool", "float64"), (1, 2, 3, 4))
    batch = g.number(0, min(x.rank - 1, 1)) if g.chance(0.4) else 0
    depth = g.number(1, x.rank - batch)
    dims = (*x.dims[:batch], *draw_dims(g, g.number(0, 2)))
    g.node("GatherND", [x, _columns(g, x, depth, dims, batch)], **({"batch_dims": batch} if batch else {}))


def _scatter_elements(g: OnnxGenerator) -> None:
    x = g.data(("float32", "int64", "int32", "float64", "uint8"), (1, 2, 3))
    axis = g.number(0, x.rank - 1)
    dims = _within(g, x, axis)
    least = x.least(axis)
    if least < 1 and not any(0 in dim for dim in dims):
        raise Unfit
    reduction = (
        g.pick(("none", "none", "add", "mul", "max", "min"))
        if g.opset >= 18
        else g.pick(("none", "add", "mul"))
        if g.opset >= 16
        else "none"
    )
    if reduction == "none":
        where = _distinct(g, x, axis, dims)
    else:
        where = indices(g, dims, least)
    _ordered(g, x, reduction)
    attrs = {"axis": axis, **({"reduction": reduction} if reduction != "none" else {})}
    g.node("ScatterElements", [x, where, g.operand(dims, x.dtype)], **attrs)


def _ordered(g: OnnxGenerator, x: Value, reduction: str) -> None:
    """Raise `Skipped` for the extremes of NaN."""
    if reduction in ("max", "min") and not x.all(lambda array: array == array):
        raise Skipped("Scatter: extremes of NaN are NaN, in ONNX Runtime the other number")


def _distinct(g: OnnxGenerator, x: Value, axis: int, dims: tuple[Shape, ...]) -> Value:
    """Draw indices that differ along an axis, since the order of writes is open."""
    arrays = []
    for run in range(RUNS):
        shape = tuple(dim[run] for dim in dims)
        extent = x.dims[axis][run]
        if shape[axis] > extent:
            raise Unfit
        rng = g.rng()
        order = rng.random((*shape[:axis], extent, *shape[axis + 1 :])).argsort(axis)
        where = np.take(order, range(shape[axis]), axis)
        arrays.append(np.where(rng.random(shape) < 0.3, where - extent, where).astype(np.int64))
    return g.input(arrays)


def _scatter_nd(g: OnnxGenerator) -> None:
    x = g.data(("float32", "int64", "int32", "float64"), (1, 2, 3))
    depth = g.number(1, x.rank)
    dims = draw_dims(g, g.number(0, 1))
    where = _columns(g, x, depth, dims)
    reduction = g.pick(("add", "mul", "max", "min")) if g.opset >= 18 else "add"
    _ordered(g, x, reduction)
    g.node("ScatterND", [x, where, g.operand((*dims, *x.dims[depth:]), x.dtype)], reduction=reduction)


def _shape(g: OnnxGenerator) -> None:
    x = g.data(ANY)
    attrs = {"start": g.number(-x.rank, x.rank), "end": g.number(-x.rank, x.rank)} if g.opset >= 15 and g.chance(0.5) else {}
    g.node("Shape", [x], **attrs)


def _constant_of_shape(g: OnnxGenerator) -> None:
    shape = g.node("Shape", [g.data(ANY, (1, 2, 3))]) if g.chance(0.6) else g.ints(*(g.number(0, 4) for _ in range(g.number(0, 3))))
    value = g.pick((np.float32(1.5), np.int64(3), np.float64(-2), np.int32(7), np.bool_(True), np.uint8(9)))
    g.node("ConstantOfShape", [shape], **({"value": numpy_helper.from_array(np.array([value]))} if g.chance(0.8) else {}))


def _range(g: OnnxGenerator) -> None:
    dtype = g.pick(("int64", "float32", "int32"))
    if dtype == "int64" and g.chance(0.5):
        size = (
            g.node("Size", [g.data(ANY, (1, 2))])
            if g.chance(0.5)
            else g.node("Squeeze", [g.node("Gather", [g.node("Shape", [g.data(ANY, (1, 2, 3))]), g.ints(0)], axis=0), g.ints(0)])
        )
        g.node("Range", [g.constant(np.int64(0)), size, g.constant(np.int64(g.pick((1, 2))))])
        return
    step = g.pick((1, 2, -1))
    start, limit = g.number(-3, 3), g.number(0, 12)
    numbers = [np.array(number, dtype) for number in (start, start + limit * (1 if step > 0 else -1), step)]
    g.node("Range", [g.input([each] * RUNS) if g.chance(0.3) else g.constant(each) for each in numbers])


def _eye_like(g: OnnxGenerator) -> None:
    x = g.data(("float32", "int64", "int32", "float64"), (2,))
    attrs = {"k": g.number(-2, 3)} if g.chance(0.6) else {}
    if g.chance(0.4):
        attrs["dtype"] = g.pick((1, 7, 11))
    g.node("EyeLike", [x], **attrs)


def _trilu(g: OnnxGenerator) -> None:
    x = g.data(("float32", "int64", "float64", "bool"), (2, 3, 4))
    inputs: list[Value | None] = [x, g.constant(np.int64(g.number(-3, 3)))] if g.chance(0.6) else [x]
    g.node("Trilu", inputs, upper=g.number(0, 1))


def _one_hot(g: OnnxGenerator) -> None:
    depth = g.number(1, 6)
    x = g.data(("int64", "int32", "uint8"), (0, 1, 2), low=0, high=7)
    dtype = g.pick(("float32", "int64", "int32"))
    if x.dtype != "int64" and dtype != "float32":
        x = g.operand(x.dims, "int64", -depth, depth)
    count = g.constant(np.array(depth if g.chance(0.5) else [depth], np.int64))
    g.node("OneHot", [x, count, g.operand([(2,) * RUNS], dtype)], axis=g.number(-1, x.rank))


def _compress(g: OnnxGenerator) -> None:
    x = g.data(("float32", "int64", "uint8"), (1, 2, 3))
    axis = g.number(0, x.rank - 1)
    if g.chance(0.4) and x.rank > 1:
        least = min(array.size for array in x.arrays)
        g.node("Compress", [x, g.operand([(g.number(0, min(least, 9)),) * RUNS], "bool")])
        return
    g.node("Compress", [x, g.operand([x.dims[axis]], "bool")], axis=axis - x.rank if g.chance(0.3) else axis)


def _nonzero(g: OnnxGenerator) -> None:
    g.node("NonZero", [g.data(("bool", "float32", "int64", "int32", "uint8"), (1, 2, 3))])


def _unique(g: OnnxGenerator) -> None:
    x = g.data(("int64", "float32", "int8", "float64"), (1, 2, 3))
    attrs: dict[str, Any] = {"axis": g.axis(x)} if x.rank == 1 or g.chance(0.6) else {}
    if attrs and any(array.size == 0 for array in x.arrays):
        raise Skipped("Unique: slices without elements are equal, and ONNX Runtime ends the process")
    if g.chance(0.7):
        attrs["sorted"] = g.number(0, 1)
    g.several("Unique", [x], g.number(1, 4), **attrs)


def _reverse_sequence(g: OnnxGenerator) -> None:
    x = g.data(("float32", "int64", "float64"), (2, 3, 4))
    batch = g.number(0, 1)
    lengths = [g.rng().integers(0, array.shape[1 - batch] + 1, array.shape[batch]) for array in x.arrays]
    g.node("ReverseSequence", [x, g.input(lengths)], batch_axis=batch, time_axis=1 - batch)


def _depth_to_space(g: OnnxGenerator) -> None:
    block = g.pick((1, 2, 3))
    dims = [g.dim(), (block * block * g.number(1, 3),) * RUNS, g.dim(), g.dim()]
    g.node(
        "DepthToSpace",
        [g.operand(dims, g.pick(("float32", "float64")))],
        blocksize=block,
        **({"mode": g.pick(("DCR", "CRD"))} if g.chance(0.7) else {}),
    )


def _space_to_depth(g: OnnxGenerator) -> None:
    block = g.pick((1, 2, 3))
    spatial = [tuple(block * extent for extent in g.dim()) for _ in range(2)]
    g.node("SpaceToDepth", [g.operand([g.dim(), g.dim(), *spatial], g.pick(("float32", "float64")))], blocksize=block)


def _center_crop_pad(g: OnnxGenerator) -> None:
    x = g.data(("float32", "int64"), (1, 2, 3))
    axes = [axis % x.rank for axis in g.axes(x, 1)]
    g.node("CenterCropPad", [x, g.ints(*(g.number(0, 6) for _ in axes))], axes=axes)


def _constant(g: OnnxGenerator) -> None:
    array = g.array(tuple(g.number(0, 3) for _ in range(g.number(0, 3))), g.pick(("float32", "int64", "bool")))
    g.node("Constant", [], value=numpy_helper.from_array(array))


ELEMENTS: Mapping[str, Maker] = {
    **{name: _unary(name) for name in (*_FLOAT_UNARY, *_PARAMETERS, "Mish")},
    **{name: _unary(name, SIGNED) for name in ("Abs", "Neg", "Sign", "Relu")},
    "IsNaN": _unary("IsNaN"),
    "Not": _unary("Not", ("bool",)),
    "BitwiseNot": _unary("BitwiseNot", INTS),
    "Gelu": _gelu,
    "IsInf": _isinf,
    **{name: _binary(name, (*FLOATS, "int64", "int32", "int8", "uint8")) for name in ("Add", "Sub", "Mul")},
    **{
        name: _binary(name, ("float32", "float64", "int32", "int64"))
        for name in ("Greater", "Less", "GreaterOrEqual", "LessOrEqual")
    },
    "Equal": _binary("Equal", ("float32", "float64", "int32", "int64", "bool")),
    **{name: _binary(name, ("bool",)) for name in ("And", "Or", "Xor")},
    **{name: _binary(name, INTS) for name in ("BitwiseAnd", "BitwiseOr", "BitwiseXor")},
    "Div": _div,
    "Mod": _mod,
    "Pow": _pow,
    "PRelu": _prelu,
    "BitShift": _shift,
    **{name: _variadic(name, ("float32", "float64", "int32", "int64", "float16")) for name in ("Max", "Min")},
    **{name: _variadic(name, ("float32", "float64")) for name in ("Sum", "Mean")},
    "Where": _where,
    "Clip": _clip,
    "Cast": _cast,
    "CastLike": _cast_like,
    **{
        f"Reduce{name}": _reduce(f"Reduce{name}")
        for name in ("L1", "L2", "LogSum", "LogSumExp", "Max", "Mean", "Min", "Prod", "Sum", "SumSquare")
    },
    "ArgMax": _position("ArgMax"),
    "ArgMin": _position("ArgMin"),
    "CumSum": _running("CumSum"),
    "CumProd": _running("CumProd"),
    **{name: _along(name) for name in ("Softmax", "LogSoftmax", "Hardmax")},
    "LpNormalization": _lp_normalization,
    "TopK": _topk,
    "Concat": _concat,
    "Split": _split,
    "Slice": _slice,
    "Pad": _pad,
    "Tile": _tile,
    "Expand": _expand,
    "Expand, computed": _expand_to_shape,
    "Reshape": _reshape,
    "Reshape, computed": _reshape_to_shape,
    "Flatten": _flatten,
    "Squeeze": _squeeze,
    "Unsqueeze": _unsqueeze,
    "Transpose": _transpose,
    "Gather": _gather,
    "GatherElements": _gather_elements,
    "GatherND": _gather_nd,
    "ScatterElements": _scatter_elements,
    "ScatterND": _scatter_nd,
    "Shape": _shape,
    "Size": _unary("Size", ANY),
    "ConstantOfShape": _constant_of_shape,
    "Range": _range,
    "EyeLike": _eye_like,
    "Trilu": _trilu,
    "OneHot": _one_hot,
    "Compress": _compress,
    "NonZero": _nonzero,
    "Unique": _unique,
    "ReverseSequence": _reverse_sequence,
    "DepthToSpace": _depth_to_space,
    "SpaceToDepth": _space_to_depth,
    "CenterCropPad": _center_crop_pad,
    "Constant": _constant,
}
"""Makers by the operator that they are for."""
