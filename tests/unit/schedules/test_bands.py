"""Convolutions in bands of rows compute the same, and have bands only where data is fetched too often."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from inlaid import ops
from inlaid.graph import ir as graph
from inlaid.lowering.kernels.finish import finish
from inlaid.lowering.kernels.kernel import KernelSource, build
from inlaid.plugins import Capabilities, Core
from inlaid.schedules.bands import band_rows
from inlaid.schedules.conv import ConvRule
from inlaid.schedules.direct_conv import ConvTile, find_conv
from inlaid.tensor import interp, ir
from inlaid.tensor.primitives import SEMANTICS
from inlaid.tensor.scheduling.rule import InputInfo, KernelContext
from inlaid_runtime.arith import size_hint
from inlaid_runtime.types import ROW_MAJOR, TensorType

SMALL = Core(l2_bytes=1024)


def convolution(inputs: int, outputs: int, size: tuple[int, int], window: int, stride: int) -> ir.LoopProgram:
    x = graph.var("x", TensorType((1, inputs, *size), "float32"))
    w = graph.var("w", TensorType((outputs, inputs, window, window), "float32"))
    pads = (window // 2,) * 4
    body = ops.conv(x, w, strides=(stride, stride), pads=pads, dilations=(1, 1), groups=1)
    return build(KernelSource("kernel", (x, w), body))


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize(("size", "window", "stride"), [((8, 6), 1, 1), ((16, 8), 1, 2)])
def test_bands_compute_the_same(size: tuple[int, int], window: int, stride: int, threads: int) -> None:
    program = convolution(8, 16, size, window, stride)
    capabilities = Capabilities(dtypes=("float32",), vector_bits=128, vector_registers=16, core=SMALL)
    facts = (InputInfo(ROW_MAJOR, constant=False), InputInfo(ROW_MAJOR, constant=True))
    texts = []
    for core in (SMALL, Core()):
        context = KernelContext(replace(capabilities, core=core), threads)
        (offer, *_) = ConvRule().offer(program, context, facts)
        scheduled = finish(offer.schedule(program))
        texts.append(str(scheduled))
        generator = np.random.default_rng(3)
        arrays = [generator.integers(-4, 5, tuple(map(size_hint, buffer.shape))).astype("float32") for buffer in program.inputs]
        packed = [layout.pack(array) for layout, array in zip(offer.layouts, arrays, strict=False)]
        (expected,) = interp.run(program, arrays)
        (actual,) = interp.run(scheduled, packed, intrinsics=SEMANTICS)
        assert np.array_equal(actual, offer.layouts[2].pack(expected))
    assert texts[0] != texts[1]


@pytest.mark.parametrize(
    ("size", "window", "stride", "width", "expected"),
    [
        (56, 1, 1, 16, 8),  # eight rows of 256 channels fill half of L2
        (56, 1, 1, 32, 0),  # each element is used 32 times
        (56, 3, 2, 16, 0),  # 16 channels times nine taps, at every fourth position
        (14, 1, 1, 16, 0),  # all rows fit
    ],
)
def test_bands_follow_the_cache(size: int, window: int, stride: int, width: int, expected: int) -> None:
    program = convolution(256, 128, (size, size), window, stride)
    conv = find_conv(program, lambda anchor: anchor.product)
    assert conv is not None
    assert band_rows(conv, ConvTile(8, width // 8, 1, 6), Core(), 1) == expected
