"""Products in fixed point by lanes of even and odd number, and signed bytes through instructions that take unsigned ones."""

from __future__ import annotations

import numpy as np
import pytest

import inlaid
from inlaid import ops
from inlaid.graph import ir as graph
from inlaid.graph.interp import evaluate
from inlaid_runtime.types import TensorType

CPUS = ("native", "x86-64-v4", "x86-64-v3", "x86-64-v2")
LIMITS = np.iinfo(np.int32)


@pytest.mark.parametrize("cpu", CPUS)
@pytest.mark.parametrize("rounding", ["up", "away"])
@pytest.mark.parametrize(
    ("shape", "axis", "several"), [((1,), 0, False), ((7, 37), 1, True), ((3, 16, 5), 1, True), ((2, 64), 0, False)]
)
def test_products(cpu, rounding, shape, axis, several):
    """Next to halves and at the ends of the range too; of one factor, or one for each index along an axis."""
    generator = np.random.default_rng(1)
    size = (shape[axis],) if several else ()
    x = graph.var("x", TensorType(shape, "int32"))
    results, feed = (
        [],
        generator.choice([LIMITS.min, LIMITS.max, -1, 0, 1, 1 << 20, -(1 << 20), 3 << 21, -(3 << 21), 12345, -777], shape),
    )
    for least, greatest in ((-12, -2), (-1, -1)):
        multiplier = np.where(generator.random(size) < 0.3, 1 << 30, generator.integers(1 << 30, 1 << 31, size)).astype(np.int32)
        shift = np.asarray(generator.integers(least, greatest + 1, size), np.int32)
        results.append(ops.multiply_fixed(x, graph.constant(multiplier), graph.constant(shift), axis=axis, rounding=rounding))
    unit = graph.function([x], graph.tuple_(results))
    feed = feed.astype(np.int32)
    outputs = inlaid.compile(unit, targets=[f"x86:threads=1,cpu={cpu}"]).run({"x": feed})
    for actual, expected in zip(outputs.values(), evaluate(unit, [feed]), strict=True):
        np.testing.assert_array_equal(actual, expected)


@pytest.mark.parametrize("cpu", [*CPUS, "native,threads=2"])
@pytest.mark.parametrize(("channels", "size"), [(32, 7), (13, 5)])
def test_convolutions_of_signed_bytes(cpu, channels, size):
    """One after the other with a sum of both, as residual networks have it: in vectors, and where channels fill none."""
    generator = np.random.default_rng(2)
    x = graph.var("x", TensorType((1, 3, size, size), "int8"))

    def layer(data, inputs, window, groups=1):
        w = generator.integers(-127, 128, (channels, inputs, window, window)).astype(np.int8)
        pads = (0, 0, window // 2, window // 2) * 2
        around = ops.pad(data, graph.constant(np.int8(-128)), pads=pads) if window > 1 else data
        total = ops.conv(
            around, graph.constant(w), strides=(1, 1), pads=(0,) * 4, dilations=(1, 1), groups=groups, out_dtype="int32"
        )
        bias = generator.integers(-999, 999, (channels, 1, 1)).astype(np.int32)
        return stored(ops.add(total, graph.constant(bias)), -7, "up" if groups == 1 else "away")

    def stored(total, shift, rounding):
        factor = graph.constant(np.int32(1654321987))
        moved = ops.multiply_fixed(total, factor, graph.constant(np.int32(shift)), rounding=rounding)
        limited = ops.clip(ops.add(moved, graph.constant(np.int32(-128))), minimum=-128.0, maximum=127.0)
        return ops.cast(limited, dtype="int8")

    def raised(data, multiplier):
        wide = ops.shift_left(ops.sub(ops.cast(data, dtype="int32"), graph.constant(np.int32(-128))), graph.constant(np.int32(20)))
        return ops.multiply_fixed(wide, graph.constant(np.int32(multiplier)), graph.constant(np.int32(0)), rounding="away")

    first = layer(x, 3, 1)
    second = layer(layer(first, 1, 3, channels), channels, 3)
    unit = graph.function([x], stored(ops.add(raised(first, 1 << 30), raised(second, 1234567890)), -19, "away"))
    feed = generator.integers(-128, 128, (1, 3, size, size)).astype(np.int8)
    (actual,) = (
        inlaid.compile(unit, targets=[f"x86:cpu={cpu}" if "threads" in cpu else f"x86:threads=1,cpu={cpu}"])
        .run({"x": feed})
        .values()
    )
    expected = evaluate(unit, [feed])
    assert len(np.unique(expected)) > 20
    np.testing.assert_array_equal(actual, expected)
