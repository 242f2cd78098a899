"""The accelerator, simulated with numpy. It sees stored bytes only, and computes on on-chip memory only.

An instruction runs its layer tile by tile: it loads weights and rows of its operands into on-chip memory, computes, and stores rows
of the result. Lanes past the last channel are stored as zeros.
"""

from types import SimpleNamespace

import numpy as np

from inlaid_acme.hardware import ACCUMULATOR_BITS, LANES, SCRATCH

TABLES = ("weights", "table", "divisors")
"""Fields of instructions that are constants."""


class Accelerator:
    """A program. Raises ValueError or KeyError for malformed instructions."""

    def __init__(self, instructions, buffers):
        self._program = [SimpleNamespace(**fields) for fields in instructions]
        for word in self._program:
            numbers = [*word.inputs, word.output, *(getattr(word, name) for name in TABLES if hasattr(word, name))]
            if word.unit not in UNITS or not {*numbers} <= {*buffers}:
                raise ValueError(f"expected a unit of Acme on buffers {[*buffers]}, found {word.unit} on {numbers}")

    def run(self, arrays):
        scratch = np.empty(SCRATCH, np.uint8)
        for word in self._program:
            run_layer(word, arrays, scratch)


def run_layer(word, arrays, scratch):
    """Run one instruction on the arrays of its buffers."""
    operands = [arrays[number].reshape(*shape, LANES) for number, shape in zip(word.inputs, word.data, strict=True)]
    output = arrays[word.output].reshape(*word.result, LANES)
    weights = arrays[word.weights] if hasattr(word, "weights") else None
    batch, height, _, blocks = word.result
    rows, width = word.tile
    (kernel, _), (stride, _), (dilation, _), (before, _) = word.kernel, word.strides, word.dilations, word.before
    *places, last = word.scratch
    buffer = 0  # of the two that each operand has: a tile is loaded while the one before is computed
    for image in range(batch):
        for block in range(0, blocks, width):
            group = slice(block, min(block + width, blocks))
            tile = SimpleNamespace(weights=None)
            if weights is not None:
                tile.weights = load(weights[group], scratch, places[-1])
            for table in ("table", "divisors"):
                if hasattr(word, table):
                    setattr(tile, table, arrays[getattr(word, table)])
            for top in range(0, height, rows):
                bottom = min(top + rows, height)
                first = top * stride - before
                end = (bottom - 1) * stride - before + (kernel - 1) * dilation + 1
                tile.data = []
                for number, operand in enumerate(operands):
                    channels = slice(None) if getattr(word, "dense", False) else group
                    field = operand[image, max(first, 0) : max(end, 0), :, channels]
                    tile.data.append(load(field, scratch, places[2 * number + buffer]).astype(np.int64))
                tile.first, tile.rows, tile.group = first, (top, bottom), group
                result = scratch[last : last + output[image, top:bottom, :, group].size].view(np.int8)
                result = result.reshape(bottom - top, output.shape[2], -1, LANES)
                result[...] = clamp(word, UNITS[word.unit](word, tile), group)
                output[image, top:bottom, :, group] = result
                buffer = 1 - buffer


def load(source, scratch, offset):
    """Copy an array to on-chip memory at a byte offset, and return the copy."""
    if offset + source.nbytes > SCRATCH:
        raise ValueError(f"expected at most {SCRATCH} bytes of on-chip memory, found {offset + source.nbytes}")
    copy = scratch[offset : offset + source.nbytes].view(source.dtype).reshape(source.shape)
    copy[...] = source
    return copy


def clamp(word, values, group):
    """Clamp values of blocks of channels, and put zeros in the lanes past the last channel."""
    lanes = np.arange(group.start * LANES, group.stop * LANES).reshape(-1, LANES)
    return np.where(lanes < word.channels, np.clip(values, word.least, word.greatest), 0)


def taps(word, tile):
    """Return the elements under the window, (rows, columns, kernel rows, kernel columns, blocks, lanes), of the tile's result.
    Elements outside of the image have the fill value."""
    (data,) = tile.data
    (kernel, across), strides, (down, right), (_, left) = word.kernel, word.strides, word.dilations, word.before
    rows, columns = tile.rows[1] - tile.rows[0], word.result[2]
    height, width = (rows - 1) * strides[0] + (kernel - 1) * down + 1, (columns - 1) * strides[1] + (across - 1) * right + 1
    field = np.full((height, width, *data.shape[2:]), word.fill, np.int64)
    above = max(-tile.first, 0)
    inside = data[: max(height - above, 0), : max(width - left, 0)]
    field[above : above + len(inside), left : left + inside.shape[1]] = inside
    windows = np.lib.stride_tricks.sliding_window_view(field, ((kernel - 1) * down + 1, (across - 1) * right + 1), (0, 1))
    windows = windows[:: strides[0], :: strides[1], :, :, ::down, ::right]
    return windows.transpose(0, 1, 4, 5, 2, 3)


def wrap(sums):
    """Wrap sums at the width of the accumulator."""
    half = 1 << (ACCUMULATOR_BITS - 1)
    return ((sums + half) & (2 * half - 1)) - half


def scale(values, multipliers, shifts, rounding):
    """Multiply by factors with one of the roundings of `inlaid.ops.requantization.Factor` that the hardware has."""
    values, multipliers, shifts = (np.asarray(each, np.int64) for each in (values, multipliers, shifts))
    if rounding == "half_even":
        return np.rint(values.astype(np.float32) * np.ldexp(multipliers, shifts - 31).astype(np.float32))
    if rounding == "up":
        left, right = np.maximum(shifts, 0), np.maximum(-shifts, 0)
        high = ((values << left).astype(np.int32) * multipliers + (1 << 30)) >> 31
        return ((np.minimum(high, 2**31 - 1) + ((np.int64(1) << right) >> 1)) >> right).astype(np.int32)
    product = values * multipliers
    away = (product < 0) & (rounding == "once_away")
    return ((product + (np.int64(1) << (30 - shifts)) - away) >> (31 - shifts)).astype(np.int32)


def requantize(word, tile, sums):
    """Add the bias of each lane, scale, and add the zero point."""
    bias, multipliers, shifts = (row.reshape(-1, LANES)[tile.group].astype(np.int64) for row in tile.table)
    values = scale(wrap(sums + bias), multipliers, shifts, word.rounding)
    return values + values.dtype.type(word.zero_point)


def product(word, tile):
    """Convolutions and matrix products."""
    weights = tile.weights.astype(np.int64)
    if word.dense:
        rows = taps(word, tile)
        rows = rows.reshape(*rows.shape[:4], -1)
        return requantize(word, tile, np.einsum("yxrsi,orsil->yxol", rows, weights, optimize=True))
    return requantize(word, tile, np.einsum("yxrsol,orsl->yxol", taps(word, tile), weights))


def mean(word, tile):
    return requantize(word, tile, taps(word, tile).sum((2, 3)))


def average_pool(word, tile):
    """Divide sums by the number of elements in each window, rounded half away from zero."""
    divisors = tile.divisors[slice(*tile.rows), :, None, None].astype(np.int64)
    sums = taps(word, tile).sum((2, 3))
    return np.sign(sums) * ((np.abs(sums) + divisors // 2) // divisors)


def max_pool(word, tile):
    return taps(word, tile).max((2, 3))


def add(word, tile):
    a, b = (data - zero_point for data, zero_point in zip(tile.data, word.zero_points, strict=True))
    if hasattr(word, "step"):
        x, y = (side.astype(np.float32) * np.float32(step) for side, step in zip((a, b), word.scales, strict=True))
        return np.rint((x + y) / np.float32(word.step)) + word.zero_point
    x, y = (scale((side << left).astype(np.int32), *factor) for side, (left, *factor) in zip((a, b), word.operands, strict=True))
    return (scale((x + y + word.bias).astype(np.int32), *word.factor) + word.zero_point).astype(np.int32)


def flatten(word, tile):
    return tile.data[0]


UNITS = {
    "conv": product,
    "matmul": product,
    "mean": mean,
    "average_pool": average_pool,
    "max_pool": max_pool,
    "add": add,
    "flatten": flatten,
}
