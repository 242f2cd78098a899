"""The accelerator of the fleet: int8 layers whose tensors have their channels in blocks of lanes, and a few float16 operators."""

import numpy as np

from fleet.machine import Kernel as Machine
from fleet.machine import Runtime
from inlaid_runtime.types import Layout

LANES = 16


def fixed(x, multipliers, shifts, rounding):
    """Multiply by fixed-point factors, as `inlaid.ops.requantization.Factor` says."""
    if rounding in ("once", "once_away"):
        product = x * multipliers
        return (product + (1 << (30 - shifts)) - ((product < 0) & (rounding == "once_away"))) >> (31 - shifts)
    left, right = np.maximum(shifts, 0), np.maximum(-shifts, 0)
    high = ((x << left).astype(np.int32) * multipliers + (1 << 30)) >> 31
    half = (np.int64(1) << right) >> 1
    if rounding == "away":
        half = np.where(high < 0, np.maximum(half - 1, 0), half)
    return (np.minimum(high, 2**31 - 1) + half) >> right


def unlaned(stored, channels):
    """Return a tensor N C ... from its storage N C/16 ... 16."""
    channels_second = np.moveaxis(stored, -1, 2)
    return channels_second.reshape(len(stored), channels_second.shape[1] * LANES, *channels_second.shape[3:])[:, :channels]


class Kernel(Machine):
    def invoke(self, inputs, outputs, workspace, dims):
        values = {}
        for number, (storage, index, laned) in enumerate(self.program["buffers"]):
            if storage in ("input", "constant"):
                stored = (inputs if storage == "input" else self.constants)[index]
                values[number] = unlaned(stored, laned[1]) if laned and storage == "input" else stored
        for name, sources, target, attributes in self.program["steps"]:
            values[target] = self.apply(name, [values[number] for number in sources], attributes)
        for number, (storage, index, laned) in enumerate(self.program["buffers"]):
            if storage == "output":
                np.copyto(outputs[index], self.laned(values[number]) if laned else values[number])

    def laned(self, value):
        return Layout(((1, LANES),)).pack(value)

    def relu(self, x):
        return np.maximum(x, x.dtype.type(0))

    def product(self, a, b):
        return (a.astype(np.float32) @ b.astype(np.float32)).astype(np.float16)

    def pool(self, x, kernel, strides, dilations, pads, fill):
        return self.windows(x, kernel, strides, dilations, pads, fill).max(-1)

    def average(self, x, kernel, strides, dilations, pads, fill, divisors, least, greatest):
        sums = self.windows(x.astype(np.int32), kernel, strides, dilations, pads, fill).sum(-1)
        return np.clip(self.quotients(sums, np.array(divisors, np.int32)), least, greatest).astype(np.int8)

    def quotients(self, sums, divisors):
        """Quotients rounded half away from 0."""
        return np.sign(sums) * ((abs(sums) + divisors // 2) // divisors)

    def dense(self, x, w, bias, multipliers, shifts, **output):
        return self.stored(self.sums(x, w) + bias, multipliers, shifts, **output)

    def conv(self, x, w, bias, multipliers, shifts, groups, kernel, strides, dilations, pads, fill, **output):
        taps = self.windows(x, kernel, strides, dilations, pads, fill)
        batch, _, height, width, _ = taps.shape
        sums = []
        for group_taps, v in zip(np.split(taps, groups, 1), np.split(w, groups), strict=True):
            rows = np.moveaxis(group_taps, 1, 3).reshape(batch * height * width, v[0].size)
            sums.append(self.sums(rows, v.reshape(len(v), v[0].size).T))
        result = self.stored(np.concatenate(sums, -1) + bias, multipliers, shifts, **output)
        return np.moveaxis(result.reshape(batch, height, width, len(w)), -1, 1)

    def sums(self, x, w):
        """Products of rows by columns, summed in int32."""
        return (x.astype(np.int64) @ w.astype(np.int64)).astype(np.int32)

    def stored(self, sums, multipliers, shifts, rounding, point, least, greatest):
        factors = [np.resize(values, sums.shape[-1]).astype(np.int64) for values in (multipliers, shifts)]
        scaled = fixed(sums, *factors, rounding).astype(np.int32)
        return np.clip(scaled + np.int32(point), least, greatest).astype(np.int8)


class Accelerator(Runtime):
    kernel = Kernel
