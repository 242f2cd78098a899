"""Simulator of the accelerator in numpy. It sees only stored bytes, N 1 H W C/16 16 or N C/16 16.

Sums are int32. The output stage adds a bias per lane, multiplies by the lane's float32 scale, rounds half to even, adds a zero
point and clamps. It writes zeros to the lanes past the last channel, regardless of these lanes of its operands.
"""

import json
from types import SimpleNamespace

import numpy as np

from inlaid_lanes.form import LANES, ON_CHIP


class Simulator:
    """A loaded program. Raises ValueError for malformed bytes and for a layer whose operands exceed the on-chip memory."""

    def __init__(self, code, constants):
        try:
            program = json.loads(code)
        except ValueError as error:
            raise ValueError("expected a program of the accelerator, found other bytes") from error
        self._tensors = [
            SimpleNamespace(storage=s, place=p, shape=shape, dtype=np.dtype(d)) for s, p, shape, d in program["tensors"]
        ]
        self._layers = [SimpleNamespace(**layer) for layer in program["layers"]]
        self._constants = constants
        for layer in self._layers:
            ends = (at + int(np.prod(self._tensors[getattr(layer, name)].shape)) for name, at in layer.chip.items())
            needed = max(ends)
            if needed > ON_CHIP:
                raise ValueError(f"{layer.unit}: expected operands in the first {ON_CHIP} bytes on the chip, found {needed}")

    def invoke(self, inputs, outputs, workspace, dims):
        """Run the program layer by layer."""
        banks = {"input": inputs, "output": outputs, "constant": self._constants}
        chip = np.zeros(ON_CHIP, np.int8)
        for layer in self._layers:
            memory = {name: self._view(getattr(layer, name), banks, workspace) for name in layer.chip}
            view = {name: chip[at : at + memory[name].size].reshape(memory[name].shape) for name, at in layer.chip.items()}
            for name in view:
                view[name][...] = 0 if name == "y" else memory[name]
            result = UNITS[layer.unit](layer, view, lambda number: self._view(number, banks, workspace))
            lanes = np.arange(result.shape[-1]) < layer.channels
            view["y"][...] = np.where(lanes, np.clip(result, layer.least, layer.greatest), 0).reshape(view["y"].shape)
            memory["y"][...] = view["y"]

    def _view(self, number, banks, workspace):
        tensor = self._tensors[number]
        if tensor.storage != "arena":
            return banks[tensor.storage][tensor.place].reshape(tensor.shape)
        size = int(np.prod(tensor.shape)) * tensor.dtype.itemsize
        return workspace[tensor.place : tensor.place + size].view(tensor.dtype).reshape(tensor.shape)


def _lanes(stored):
    """View a stored tensor with its lanes merged into the last axis: N H W C, or N C."""
    merged = stored.reshape(*stored.shape[:-2], stored.shape[-2] * LANES).astype(np.int32)
    return merged[:, 0] if merged.ndim == 5 else merged


def _output_stage(layer, sums, read):
    with np.errstate(over="ignore"):
        sums = sums + read(layer.bias)
    return np.rint(sums.astype(np.float32) * read(layer.scale)) + np.float32(layer.zero)


def _windows(layer, view):
    """Return the data under the window, [N, Y, X, C, rows, columns], for each position of the result "y"."""
    x, (height, width) = _lanes(view["x"]), view["y"].shape[2:4]
    (rows, columns), (down, right), (top, left) = layer.kernel, layer.strides, layer.before
    field = np.full((len(x), (height - 1) * down + rows, (width - 1) * right + columns, x.shape[-1]), layer.fill, np.int32)
    seen = x[:, : field.shape[1] - top, : field.shape[2] - left]
    field[:, top : top + seen.shape[1], left : left + seen.shape[2]] = seen
    return np.lib.stride_tricks.sliding_window_view(field, (rows, columns), (1, 2))[:, ::down, ::right]


def _conv(layer, view, read):
    weights = view["w"].astype(np.int32)
    depthwise = weights.shape[2] == 1
    return _output_stage(layer, np.einsum("nyxcrs,rsc->nyxc", _windows(layer, view), weights[:, :, 0]) if depthwise
                         else np.einsum("nyxirs,rsio->nyxo", _windows(layer, view), weights), read)  # fmt: skip


def _matmul(layer, view, read):
    return _output_stage(layer, _lanes(view["x"]) @ view["w"][0, 0].astype(np.int32), read)


def _add(layer, view, read):
    sides = zip((view["x"], view["w"]), layer.scales, layer.zeros, strict=False)
    a, b = ((_lanes(side) - zero).astype(np.float32) * np.float32(scale) for side, scale, zero in sides)
    return np.rint((a + b) / np.float32(layer.scales[2])) + np.float32(layer.zeros[2])


def _max_pool(layer, view, read):
    return _windows(layer, view).max((4, 5))


UNITS = {"conv": _conv, "matmul": _matmul, "add": _add, "max_pool": _max_pool}
