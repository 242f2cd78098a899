"""Examples of operators that move values: by shape, by index, and depending on data."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from inlaid import ops
from inlaid_conformance.corpus.example import COMMON, FLOATS, INTEGERS, MOVED, NUMBERS, Choices, Entry, Example, Unfit

REACHED = 16
"""Extent of an axis for which computed indices are in range."""


def _reshape(choices: Choices, dtype_name: str) -> Example:
    shape = choices.shape()
    count = math.prod(shape)
    middle = max(len(shape) // 2, 1)
    shapes = ((count,), tuple(reversed(shape)), (*shape, 1), (1, math.prod(shape[:middle]), math.prod(shape[middle:])))
    return Example(ops.reshape, (choices.array(shape, dtype_name),), {"shape": choices.pick(*shapes)})


def _transpose(choices: Choices, dtype_name: str) -> Example:
    shape = choices.shape()
    perm = list(reversed(range(len(shape))))
    for axis in range(len(perm) - 1):
        if choices.flag():
            perm[axis], perm[axis + 1] = perm[axis + 1], perm[axis]
    return Example(ops.transpose, (choices.array(shape, dtype_name),), {"perm": tuple(perm)})


def _broadcast_to(choices: Choices, dtype_name: str) -> Example:
    narrow, full_shape = choices.broadcasting(2) if choices.flag() else ((1,), choices.shape(1))
    wide = np.broadcast_shapes(narrow, full_shape)
    return Example(ops.broadcast_to, (choices.array(narrow, dtype_name),), {"shape": wide})


def _full(choices: Choices, dtype_name: str) -> Example:
    return Example(ops.full, (choices.array((), dtype_name),), {"shape": choices.shape()})


def _concat(choices: Choices, dtype_name: str) -> Example:
    shape = choices.solid_shape()
    axis = choices.axis(len(shape))
    part_shapes = [(*shape[:axis], choices.size(), *shape[axis + 1 :]) for _ in range(1 + choices.pick(1, 0, 2))]
    parts = [choices.fixed_shape(number) or part_shape for number, part_shape in enumerate(part_shapes)]
    return Example(ops.concat, tuple(choices.array(part, dtype_name) for part in parts), {"axis": axis})


def _slice(choices: Choices, dtype_name: str) -> Example:
    shape = choices.solid_shape()
    begin, end, strides = [], [], []
    for extent in shape:
        step = choices.pick(1, 2, -1, -3)
        low = choices.below(extent)
        high = low + 1 + choices.below(extent - low)
        begin.append(low if step > 0 else high - 1)
        end.append(high if step > 0 else low - 1)
        strides.append(step)
    attrs = {"begin": tuple(begin), "end": tuple(end), "strides": tuple(strides)}
    return Example(ops.strided_slice, (choices.array(shape, dtype_name),), attrs)


def _pad(choices: Choices, dtype_name: str) -> Example:
    shape = choices.solid_shape(max_rank=3)
    mode = choices.pick("constant", "edge", "reflect", "wrap")
    pads = [choices.pick(1, 0, 2) if extent > 2 else choices.below(2) * (mode != "reflect") for extent in (*shape, *shape)]
    if choices.flag():  # only the spatial axes
        pads = [0 if index % len(shape) < 2 else count for index, count in enumerate(pads)]
    if mode != "constant":
        return Example(ops.pad, (choices.array(shape, dtype_name),), {"pads": tuple(pads), "mode": mode})
    value = choices.array((), dtype_name)
    if choices.flag():  # the only value with which much hardware pads
        value = np.zeros_like(value)
    return Example(ops.pad, (choices.array(shape, dtype_name), value), {"pads": tuple(pads), "mode": mode})


def _tile(choices: Choices, dtype_name: str) -> Example:
    shape = choices.shape(max_rank=3)
    return Example(ops.tile, (choices.array(shape, dtype_name),), {"repeats": tuple(choices.pick(2, 1, 3) for _ in shape)})


def _iota(choices: Choices, dtype_name: str) -> Example:
    shape = choices.solid_shape()
    return Example(ops.iota, (), {"shape": shape, "axis": choices.axis(len(shape)), "dtype": dtype_name})


def _sizes(choices: Choices, dtype_name: str) -> Example:
    return Example(ops.sizes, (), {"dims": choices.solid_shape()})


def _after(choices: Choices, dtype_name: str) -> Example:
    return Example(ops.after, (choices.array(choices.shape(), dtype_name), choices.array((2,), "float32")))


def _take(choices: Choices, dtype_name: str) -> Example:
    data, rows = choices.fixed_shape(0), choices.fixed_shape(1)
    shape = choices.solid_shape(max_rank=3) if data is None else data
    if not shape:
        raise Unfit
    axis = choices.axis(len(shape))
    if data is None and rows is not None:
        # Indices are computed from ordinary integers, of magnitudes up to 8.
        shape = tuple(REACHED if number == axis else extent for number, extent in enumerate(shape))
    indices = choices.indices(choices.shape(max_rank=2) if rows is None else rows, shape[axis], choices.pick("int64", "int32"))
    return Example(ops.take, (choices.array(shape, dtype_name), indices), {"axis": axis})


def _along(choices: Choices) -> tuple[tuple[int, ...], int, Any]:
    """Pick a shape, an axis, and indices along the axis, one for each element of a smaller shape."""
    shape = choices.solid_shape(max_rank=3)
    axis = choices.axis(len(shape))
    rows = tuple(choices.pick(2, 5) if number == axis else 1 + choices.below(extent) for number, extent in enumerate(shape))
    return shape, axis, choices.indices(rows, shape[axis])


def _take_along_axis(choices: Choices, dtype_name: str) -> Example:
    shape, axis, indices = _along(choices)
    return Example(ops.take_along_axis, (choices.array(shape, dtype_name), indices), {"axis": axis})


def _by_rows(choices: Choices, shape: tuple[int, ...], batch: int) -> tuple[int, Any]:
    """Pick the number of indexed axes, after `batch` axes that data and indices share, and draw rows of indices along them."""
    depth = choices.below(len(shape) - batch) + 1 if len(shape) > batch else 0
    rows = (*shape[:batch], *choices.pick((4,), (2, 3), ()))
    columns = [choices.indices(rows, extent) for extent in shape[batch : batch + depth]]
    return depth, np.stack(columns, -1) if columns else np.zeros((*rows, 0), np.int64)


def _gather_nd(choices: Choices, dtype_name: str) -> Example:
    shape = choices.solid_shape(2, 3)
    batch = choices.below(2)
    _, indices = _by_rows(choices, shape, batch)
    return Example(ops.gather_nd, (choices.array(shape, dtype_name), indices), {"batch_dims": batch})


def _reverse_sequence(choices: Choices, dtype_name: str) -> Example:
    shape = choices.solid_shape(2, 3)
    batch = choices.below(2)
    lengths = np.array([choices.below(shape[1 - batch] + 1) for _ in range(shape[batch])], np.int64)
    return Example(ops.reverse_sequence, (choices.array(shape, dtype_name), lengths), {"batch_axis": batch, "time_axis": 1 - batch})


def _reduction(choices: Choices, dtype_name: str) -> str:
    return "none" if dtype_name == "bool" else choices.pick("none", "add", "max", "min", "mul")


def _scatter_nd(choices: Choices, dtype_name: str) -> Example:
    shape = choices.solid_shape(max_rank=3)
    depth, indices = _by_rows(choices, shape, 0)
    updates = choices.ordinary((*indices.shape[:-1], *shape[depth:]), dtype_name)
    return Example(
        ops.scatter_nd, (choices.ordinary(shape, dtype_name), indices, updates), {"reduction": _reduction(choices, dtype_name)}
    )


def _scatter_along_axis(choices: Choices, dtype_name: str) -> Example:
    shape, axis, indices = _along(choices)
    arrays = (choices.ordinary(shape, dtype_name), indices, choices.ordinary(indices.shape, dtype_name))
    return Example(ops.scatter_along_axis, arrays, {"axis": axis, "reduction": _reduction(choices, dtype_name)})


def _nonzero(choices: Choices, dtype_name: str) -> Example:
    return Example(ops.nonzero, (choices.array(choices.shape(1), dtype_name, 0, 1),))


def _unique(choices: Choices, dtype_name: str) -> Example:
    return Example(
        ops.unique, (choices.array((choices.size(), choices.pick(1, 2)), dtype_name, 0, 2),), {"ordered": not choices.flag()}
    )


def _non_max_suppression(choices: Choices, dtype_name: str) -> Example:
    batches, classes, boxes = choices.pick(1, 2), choices.pick(2, 1), choices.size()
    box_corners, scores = (
        choices.array((batches, boxes, 4), dtype_name, 0, 4),
        choices.array((batches, classes, boxes), dtype_name, 0, 1),
    )
    limits = (
        np.asarray(choices.pick(0.4, 0.7)).astype(box_corners.dtype),
        np.asarray(choices.pick(0.2, 0.0)).astype(box_corners.dtype),
    )
    attrs = {"max_output": choices.pick(3, 0, 9), "center": choices.flag()}
    return Example(ops.non_max_suppression, (box_corners, scores, *limits), attrs)


def _dynamic_slice(choices: Choices, dtype_name: str) -> Example:
    shape = choices.solid_shape(2, 3)
    starts = np.array([choices.pick(0, 1, -2, 2**62), choices.pick(1, 0, -(2**63))])
    ends = np.array([choices.pick(2**62, 2, -1), choices.pick(3, 9, -9)])
    attrs = {"axes": choices.pick((0, 1), (1, 0)), "strides": (choices.pick(1, 2, -1), choices.pick(1, -2))}
    return Example(ops.dynamic_slice, (choices.array(shape, dtype_name), starts, ends), attrs)


ENTRIES = (
    *(
        Entry(ops.TABLE[name], MOVED, make, exact=True)
        for name, make in (
            ("reshape", _reshape), ("transpose", _transpose), ("broadcast_to", _broadcast_to), ("full", _full),
            ("concat", _concat), ("strided_slice", _slice), ("pad", _pad), ("tile", _tile), ("after", _after), ("take", _take),
            ("take_along_axis", _take_along_axis), ("gather_nd", _gather_nd), ("reverse_sequence", _reverse_sequence),
            ("dynamic_slice", _dynamic_slice),
        )
    ),
    Entry(ops.iota, (*FLOATS, *INTEGERS), _iota, exact=True),
    Entry(ops.sizes, ("int64",), _sizes, exact=True),
    Entry(ops.scatter_nd, COMMON, _scatter_nd),
    Entry(ops.scatter_along_axis, COMMON, _scatter_along_axis),
    Entry(ops.nonzero, (*NUMBERS, "bool"), _nonzero, exact=True),
    Entry(ops.unique, ("float32", "float16", "int32", "int64", "uint8", "bool"), _unique, exact=True),
    Entry(ops.non_max_suppression, ("float32", "float16", "float64"), _non_max_suppression, exact=True),
)  # fmt: skip
