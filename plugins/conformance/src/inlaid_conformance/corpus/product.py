"""Examples of products and windows: convolution, matrix product, pooling, attention and recurrent layers."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from inlaid import ops
from inlaid_conformance.corpus.example import DEEP, FLOATS, Choices, Entry, Example, Unfit
from inlaid_runtime.types import dtype

_MULTIPLIED = (*FLOATS, "int8", "uint8", "int32")
_WINDOWS = (
    *((3, 1, 1, 1, 1), (1, 1, 1, 0, 0), (3, 2, 1, 1, 1), (2, 2, 1, 0, 0), (3, 1, 2, 2, 2), (3, 2, 1, 0, 1), (5, 1, 1, 2, 2)),
    *((7, 2, 1, 3, 3), (1, 2, 1, 0, 0), (3, 2, 1, 0, 0)),
)
"""Common windows: extent, stride, dilation, and padding before and after, equal along all axes."""

WIDE = 131
"""Number of input channels with which a window of 3 x 3 has more than `DEEP` elements."""
SEVERAL = "several tiles"
FILLS = "fill an accumulator"
FILLING = 800
"""Number of terms above which a sum fills the accumulator if `deep` is `DEEP`, though a tenth of the integers are not extreme."""
LARGE = 256
"""Greatest size of a tile for which examples have more than two tiles."""
MAX_TILE = 1024
"""Greatest size of a tile around which sizes are drawn. It is limited because the reference computes every example."""
MAX_SCRATCH = 1 << 20
"""Greatest size of a scratch memory, in bytes, for which examples have weights that exceed it."""


def several(tile: int) -> int:
    """Return an odd extent that needs several tiles of size `tile` (at most `MAX_TILE`), the last of them partial."""
    tile = min(tile, MAX_TILE)
    return (2 * tile + 3 if tile <= LARGE else tile + 1) | 1


def _window(choices: Choices, tiled: bool = False) -> tuple[tuple[int, ...], tuple[int, ...], dict[str, Any]]:
    """Pick the spatial shape, kernel shape and attributes of a window that fits at least once; 2-d in the plain example. With
    `tiled`, there may be several tiles of positions."""
    data_shape = choices.fixed_shape(0)
    rank = choices.spatial_rank() if data_shape is None else len(data_shape) - 2
    if rank < 1 or (data_shape is not None and 0 in data_shape[2:]):
        raise Unfit
    # Each attribute is that of a common window, or another, so that one choice leads from any window to its neighbors.
    size, stride, dilation, before, after = choices.pick(*_WINDOWS)
    kernel = choices.each(rank, size, 1, 2, 3, 5)
    strides = choices.each(rank, stride, 1, 2, 3)
    dilations = choices.each(rank, dilation, 1, 2)
    if data_shape is not None:
        kernel = tuple(map(min, kernel, data_shape[2:]))
        dilations = tuple(
            map(min, dilations, (max(extent // size, 1) for extent, size in zip(data_shape[2:], kernel, strict=True)))
        )
    unclamped_pads = choices.pick((before,) * rank + (after,) * rank, choices.each(2 * rank, 0, 1, 2))
    pads = tuple(min(pad, (size - 1) * step) for pad, size, step in zip(unclamped_pads, kernel * 2, dilations * 2, strict=True))
    # The first axis alone may need several tiles.
    pixels = (several(choices.tiles.rows),)
    extra = [choices.pick(4, 0, 1, 7, 11, *(() if axis or not tiled else pixels)) for axis in range(rank)]
    spatial = tuple((size - 1) * step + 1 + slack for size, step, slack in zip(kernel, dilations, extra, strict=True))
    return spatial if data_shape is None else data_shape[2:], kernel, {"strides": strides, "dilations": dilations, "pads": pads}


def _channels(choices: Choices) -> tuple[int, int, int]:
    """Pick the number of groups, and of input and output channels per group: enough for vectors or several tiles, few, or one."""
    inputs, outputs = several(choices.tiles.inputs), several(choices.tiles.outputs)
    wide = -(-choices.deep * WIDE // DEEP)
    groups, inner, outer = choices.pick(
        (1, 5, 7), (1, 16, 16), (2, 3, 4), (8, 1, 1), (1, 1, 3), (1, 13, 33), (16, 1, 1), (2, 16, 16), (1, 32, 16), (1, 4, 4),
        (4, 1, 2), (32, 1, 1), (outputs, 1, 1), (1, inputs, 4), (1, 16, outputs), (1, wide, 3),
    )  # fmt: skip
    data_shape = choices.fixed_shape(0)
    if data_shape is None:
        return groups, inner, outer
    if data_shape[1] == 0:
        raise Unfit
    groups = data_shape[1] if groups > 1 and inner == 1 else groups if data_shape[1] % groups == 0 else 1
    return groups, data_shape[1] // groups, outer


def _batch(choices: Choices, *options: int) -> int:
    batch, data_shape = choices.pick(*options), choices.fixed_shape(0)
    return batch if data_shape is None else data_shape[0]


def _convolution_facets(example: Example) -> dict[str, str]:
    """Describe the grouping of channels, their number, and the kernel's extents."""
    x, w = (value.shape for value in example.inputs[:2])
    groups = example.attrs["groups"]
    is_depthwise, taps = groups > 1 and groups == x[1], math.prod(w[2:])
    per_group = w[1] if example.operator is ops.conv_transpose else w[0] // groups
    kind = (
        "one" if groups == 1 else "several" if not is_depthwise else "depthwise" if per_group == 1 else "depthwise, several outputs"
    )
    kind += ", an odd number" if is_depthwise and x[1] % 2 else ""
    facets = {**_window_facets(example), "groups": kind, "kernel": f"all {w[2]}" if len({*w[2:]}) == 1 else "mixed"}
    return {**facets, **_extents(example, math.prod(x[2:]), x[1] // groups * taps, per_group * groups)}


def _extents(example: Example, rows: int, terms: int, columns: int) -> dict[str, str]:
    """Describe how many tiles a product needs, and whether its sums may fill an accumulator. Kernels of integers and of floats
    differ, so their properties have separate names."""
    integer, tiles = example.inputs[0].dtype.kind in "iu", example.tiles
    extents = {
        "rows": _extent_class(rows, tiles.rows),
        "terms": _extent_class(terms, tiles.inputs),
        "columns": _extent_class(columns, tiles.outputs),
    }
    if integer and terms > example.deep * FILLING // DEEP:
        extents["sums"] = FILLS
    return {f"{name} of integers" if integer else name: extent_class for name, extent_class in extents.items()}


def _extent_class(extent: int, tile: int) -> str:
    return "one" if extent == 1 else SEVERAL if extent > tile else "many"


def _window_facets(example: Example) -> dict[str, str]:
    """Describe the number of channels (several tiles, a multiple of 16, of 4, or any), the spatial rank, and the batch."""
    shape = example.inputs[0].shape
    channels = next((f"a multiple of {by}" for by in (16, 4) if shape[1] % by == 0), "any number")
    channels = SEVERAL if shape[1] > example.tiles.inputs else channels
    return {"channels": channels, "spatial rank": str(len(shape) - 2), "batch": "one" if shape[0] == 1 else "several"}


def _conv(choices: Choices, dtype_name: str) -> Example:
    spatial, kernel, attrs = _window(choices, tiled=True)
    groups, inner, outer = _channels(choices)
    x = choices.factor((_batch(choices, 1, 2, 0), groups * inner, *spatial), dtype_name, 0)
    w = choices.factor((groups * outer, inner, *kernel), {"uint8": "int8"}.get(dtype_name, dtype_name), 1)
    return Example(ops.conv, (x, w), {**attrs, "groups": groups}, tiles=choices.tiles, deep=choices.deep)


def _conv_transpose(choices: Choices, dtype_name: str) -> Example:
    spatial, kernel, attrs = _window(choices)
    groups, inner, outer = _channels(choices)
    extra = tuple(choices.below(stride) for stride in attrs["strides"])
    x = choices.ordinary((_batch(choices, 1, 2, 0), groups * inner, *spatial), dtype_name)
    w = choices.ordinary((groups * inner, outer, *kernel), dtype_name)
    attrs |= {"groups": groups, "output_padding": extra}
    return Example(ops.conv_transpose, (x, w), attrs, tiles=choices.tiles)


def _positions(spatial: tuple[int, ...], kernel: tuple[int, ...], attrs: dict[str, Any]) -> tuple[int, ...]:
    """Return the number of window positions along each axis."""
    rank = len(spatial)
    spans = [(size - 1) * step + 1 for size, step in zip(kernel, attrs["dilations"], strict=True)]
    return tuple(
        (spatial[axis] + attrs["pads"][axis] + attrs["pads"][rank + axis] - spans[axis]) // attrs["strides"][axis] + 1
        for axis in range(rank)
    )


def _deform_conv(choices: Choices, dtype_name: str) -> Example:
    spatial, kernel, attrs = _window(choices)
    out, taps, rank = _positions(spatial, kernel, attrs), math.prod(kernel), len(kernel)
    x, w = choices.ordinary((1, 4, *spatial), dtype_name), choices.ordinary((2, 4, *kernel), dtype_name)
    offset = choices.ordinary((1, taps * rank, *out), dtype_name)
    mask = (choices.ordinary((1, taps, *out), dtype_name),) if choices.flag() else ()
    return Example(ops.deform_conv, (x, w, offset, *mask), attrs)


def _col2im(choices: Choices, dtype_name: str) -> Example:
    spatial, kernel, attrs = _window(choices)
    columns = choices.ordinary((1, 2 * math.prod(kernel), math.prod(_positions(spatial, kernel, attrs))), dtype_name)
    return Example(ops.col2im, (columns,), {**attrs, "shape": spatial, "kernel": kernel})


def _matmul(choices: Choices, dtype_name: str) -> Example:
    tiles, deep = choices.tiles, (choices.deep,) if dtype(dtype_name).is_int else ()
    m = choices.pick(3, 1, 16, 0, 13, several(tiles.rows))
    k, n = choices.pick(5, 1, 16, 33, several(tiles.inputs), *deep), choices.pick(7, 1, 16, 32, several(tiles.outputs))
    if tiles.scratch and choices.pick(False, False, False, True):
        k = n = math.isqrt(min(tiles.scratch, MAX_SCRATCH)) + 1
    left, right = choices.pick(((), ()), ((2,), ()), ((2, 1), (3,)), ((4,), (4,)), ((), (2,)))
    shapes = choices.pick(((*left, m, k), (*right, k, n)), ((k,), (k, n)), ((m, k), (k,)))
    first, second = choices.fixed_shape(0), choices.fixed_shape(1)
    if () in (first, second):
        raise Unfit
    if first is not None:
        shapes = first, second or (first[-1], n)
    elif second is not None:
        shapes = (m, second[-2] if len(second) > 1 else second[0]), second
    names = dtype_name, {"uint8": "int8"}.get(dtype_name, dtype_name)
    arrays = (choices.factor(shape, name, number) for number, (shape, name) in enumerate(zip(shapes, names, strict=True)))
    return Example(ops.matmul, tuple(arrays), tiles=tiles, deep=choices.deep)


def _product_facets(example: Example) -> dict[str, str]:
    """Describe the ranks, the tiles that the product needs, and whether its weights exceed the scratch memory."""
    left, right = (value.shape for value in example.inputs)
    rows, columns = left[-2] if len(left) > 1 else 1, right[-1] if len(right) > 1 else 1
    facets = {"ranks": f"{min(len(left), 3)} and {min(len(right), 3)}", **_extents(example, rows, left[-1], columns)}
    exceeds = 0 < min(example.tiles.scratch, MAX_SCRATCH) < example.inputs[1].nbytes
    return {**facets, "weights": "beyond the scratch memory"} if exceeds else facets


def _det(choices: Choices, dtype_name: str) -> Example:
    size = choices.pick(3, 1, 2, 4)
    return Example(ops.det, (choices.ordinary((*choices.pick((), (2,)), size, size), dtype_name),))


def _pool(name: str, *flags: str) -> Callable[[Choices, str], Example]:
    def make(choices: Choices, dtype_name: str) -> Example:
        spatial, kernel, attrs = _window(choices)
        channels = choices.pick(3, 1, 16, 4, several(choices.tiles.inputs))
        shape = choices.fixed_shape(0) or (choices.pick(1, 2), channels, *spatial)
        x = choices.ordinary(shape, dtype_name) if name == "avg_pool" else choices.array(shape, dtype_name)
        attrs |= {"kernel": kernel, **{flag: choices.flag() for flag in flags}}
        return Example(ops.TABLE[name], (x,), attrs, tiles=choices.tiles)

    return make


def _attention(choices: Choices, dtype_name: str) -> Example:
    queries, keys = choices.pick((2, 2), (4, 2), (3, 1))
    length, context, size, values = choices.pick(4, 1), choices.pick(5, 1, 16), choices.pick(8, 3), choices.pick(6, 2)
    arrays = [
        choices.ordinary((2, queries, length, size), dtype_name),
        choices.ordinary((2, keys, context, size), dtype_name),
        choices.ordinary((2, keys, context, values), dtype_name),
    ]
    mask = choices.pick("", "bool", dtype_name)
    if mask:
        arrays.append(choices.ordinary((2, 1, length, context), mask))
    attrs = {
        "scale": choices.pick(0.5, 1.0), "softcap": choices.pick(0.0, 2.0), "left": choices.pick(-1, 2),
        "right": choices.pick(-1, 0), "masked": bool(mask),
    }  # fmt: skip
    return Example(ops.attention, tuple(arrays), attrs)


_LAYERS: dict[str, tuple[int, int, tuple[str, ...]]] = {
    "lstm": (4, 2, ("Sigmoid", "Tanh", "Tanh")),
    "gru": (3, 1, ("Sigmoid", "Tanh")),
    "rnn": (1, 1, ("Tanh",)),
}
"""Number of gates, number of states, and activations, by layer."""


def _recurrent(name: str, **options: tuple[Any, ...]) -> Callable[[Choices, str], Example]:
    gates, states, activations = _LAYERS[name]

    def make(choices: Choices, dtype_name: str) -> Example:
        steps, batch, inputs, hidden = choices.pick(3, 1), choices.pick(2, 1), choices.pick(3, 1), choices.pick(4, 2)
        direction = choices.pick("forward", "reverse", "bidirectional")
        count = 2 if direction == "bidirectional" else 1
        shapes = [
            (steps, batch, inputs),
            (count, gates * hidden, inputs),
            (count, gates * hidden, hidden),
            (count, 2 * gates * hidden),
        ]
        arrays = [choices.ordinary(shape, dtype_name) for shape in (*shapes, *((count, batch, hidden),) * states)]
        attrs = {"direction": direction, "activations": activations * count, "clip": choices.pick(0.0, 0.7)}
        attrs |= {"alphas": (0.0,) * len(activations) * count, "betas": (0.0,) * len(activations) * count}
        return Example(ops.TABLE[name], tuple(arrays), attrs | {key: choices.pick(*values) for key, values in options.items()})

    return make


def _resize(choices: Choices, dtype_name: str) -> Example:
    shape = choices.solid_shape(2, 4)
    mode = choices.pick("nearest", "linear", "cubic") if dtype(dtype_name).is_float else "nearest"
    output_shape = (*shape[:-2], *(choices.pick(2 * extent, extent, max(extent // 2, 1), extent + 3) for extent in shape[-2:]))
    attrs = {"shape": output_shape, "mode": mode, "coordinates": choices.pick("half_pixel", "align_corners", "asymmetric")}
    return Example(ops.resize, (choices.ordinary(shape, dtype_name),), attrs)


def _grid_sample(choices: Choices, dtype_name: str) -> Example:
    spatial = choices.pick((4, 5), (3,), (2, 3, 4))
    grid = choices.ordinary((2, *(choices.pick(3, 1) for _ in spatial), len(spatial)), dtype_name)
    attrs = {
        "mode": choices.pick("linear", "nearest", "cubic"), "padding": choices.pick("zeros", "border", "reflection"),
        "align_corners": choices.flag(), "elements": choices.flag(),
    }  # fmt: skip
    return Example(ops.grid_sample, (choices.ordinary((2, 3, *spatial), dtype_name), grid), attrs)


_REGIONS = np.array([[0, 0, 3, 3], [1, 1, 6.5, 5], [2, 2, 2, 2]])


def _roi_align(choices: Choices, dtype_name: str) -> Example:
    attrs = {
        "shape": (2, 3),
        "sampling": choices.pick(2, 0),
        "scale": 0.75,
        "half_pixel": choices.flag(),
        "maximum": choices.flag(),
    }
    regions = _REGIONS.astype(dtype(dtype_name).numpy)
    return Example(ops.roi_align, (choices.ordinary((2, 3, 6, 7), dtype_name), regions, np.array([0, 1, 1])), attrs)


def _roi_max_pool(choices: Choices, dtype_name: str) -> Example:
    regions = np.column_stack([[0, 1, 1], _REGIONS]).astype(dtype(dtype_name).numpy)
    return Example(
        ops.roi_max_pool,
        (choices.ordinary((2, 3, 6, 7), dtype_name), regions),
        {"shape": choices.pick((2, 3), (1, 1)), "scale": 0.75},
    )


_WIDE = ("float32", "float16", "float64")

ENTRIES = (
    Entry(ops.conv, (*FLOATS, "int8", "uint8"), _conv, facets=_convolution_facets),
    Entry(ops.conv_transpose, FLOATS, _conv_transpose, facets=_convolution_facets),
    Entry(ops.deform_conv, _WIDE, _deform_conv),
    Entry(ops.col2im, FLOATS, _col2im),
    Entry(ops.matmul, _MULTIPLIED, _matmul, facets=_product_facets),
    Entry(ops.det, FLOATS, _det),
    Entry(ops.max_pool, (*FLOATS, "int8", "uint8"), _pool("max_pool"), exact=True, facets=_window_facets),
    Entry(
        ops.max_pool_indices,
        (*FLOATS, "int8", "uint8"),
        _pool("max_pool_indices", "column_major"),
        exact=True,
        facets=_window_facets,
    ),
    Entry(ops.avg_pool, FLOATS, _pool("avg_pool", "count_include_pad"), facets=_window_facets),
    Entry(ops.attention, FLOATS, _attention),
    Entry(ops.lstm, _WIDE, _recurrent("lstm", coupled=(False, True))),
    Entry(ops.gru, _WIDE, _recurrent("gru", linear_before_reset=(False, True))),
    Entry(ops.rnn, _WIDE, _recurrent("rnn")),
    Entry(ops.resize, (*FLOATS, "int8", "uint8"), _resize),
    Entry(ops.grid_sample, _WIDE, _grid_sample),
    Entry(ops.roi_align, _WIDE, _roi_align),
    Entry(ops.roi_max_pool, _WIDE, _roi_max_pool, exact=True),
)
