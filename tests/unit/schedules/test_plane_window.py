"""Windows over planes that lie row by row: what the schedule computes, and what it leaves to others."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from inlaid import ops
from inlaid.graph import ir as graph
from inlaid.lowering.kernels.finish import finish
from inlaid.lowering.kernels.kernel import KernelSource, build
from inlaid.plugins import Capabilities
from inlaid.schedules.plane_window import offer_planes
from inlaid.schedules.shape import find_anchor
from inlaid.tensor import interp, ir
from inlaid.tensor.scheduling.rule import KernelContext, Offer
from inlaid_runtime import arith
from inlaid_runtime.arith import SizeVar
from inlaid_runtime.types import ROW_MAJOR, TensorType

SHAPES = ((2, 3, 7, 11), (1, 1, 5, 24), (1, 2, 9, 9))
WINDOWS: dict[str, dict[str, Any]] = {
    "3x3 by 2": {"kernel": (3, 3), "strides": (2, 2), "pads": (1, 1, 1, 1)},
    "3x3": {"kernel": (3, 3), "strides": (1, 1), "pads": (1, 0, 1, 1)},
    "2x2 by 2": {"kernel": (2, 2), "strides": (2, 2)},
    "2x3 by 3 dilated": {"kernel": (2, 3), "strides": (1, 3), "dilations": (2, 2), "pads": (0, 2, 1, 2)},
    "1x4 by 4": {"kernel": (1, 4), "strides": (2, 4), "pads": (0, 0, 0, 3)},
    "3x1": {"kernel": (3, 1), "strides": (1, 1), "pads": (2, 0, 0, 0)},
}


def make_program(shape: tuple[Any, ...], make: Any, **window: Any) -> ir.LoopProgram:
    x = graph.var("x", TensorType(shape, "float32"))
    return build(KernelSource("kernel", (x,), make(x, **window)))


def offered(program: ir.LoopProgram, bits: int = 256, threads: int = 1) -> Offer | None:
    anchor = find_anchor(program)
    assert anchor is not None
    capabilities = Capabilities(dtypes=("float32",), vector_bits=bits, vector_registers=16, masks=bits >= 256)
    return offer_planes(program, anchor, KernelContext(capabilities, threads))


def pooled(kind: str) -> Any:
    if kind == "max":
        return ops.max_pool
    if kind == "residual":
        return lambda x, **window: ops.add(x, ops.max_pool(x, **window))
    return lambda x, **window: ops.relu(ops.avg_pool(x, count_include_pad=kind == "mean", **window))


@pytest.mark.parametrize("kind", ["max", "mean", "mean inside"])
@pytest.mark.parametrize("window", WINDOWS)
@pytest.mark.parametrize("symbolic", [False, True])
def test_planes_compute_the_same(kind: str, window: str, symbolic: bool) -> None:
    free = (SizeVar("n"), SizeVar("c", 1), SizeVar("h", 3), SizeVar("w", 5))
    for shape in SHAPES:
        program = make_program(free if symbolic else shape, pooled(kind), **WINDOWS[window])
        offer = offered(program)
        if offer is None:  # rows shorter than half a vector
            assert not symbolic
            continue
        assert set(offer.layouts) == {ROW_MAJOR}
        scheduled = finish(offer.schedule(program))
        sizes = dict(zip(free, shape, strict=True)) if symbolic else {}
        data = np.random.default_rng(3).integers(-4, 5, shape).astype(np.float32)
        expected = interp.run(program, [data], sizes)[0]
        collapsed_shape = [arith.evaluate(arith.wrap(dim), sizes) for dim in scheduled.inputs[0].shape]
        actual = interp.run(scheduled, [data.reshape(collapsed_shape)], sizes)[0]
        np.testing.assert_allclose(actual.reshape(expected.shape), expected, rtol=1e-6)


def test_data_may_be_read_besides() -> None:
    for pads in ((1, 1, 1, 1), (0, 0, 0, 0)):
        kernel = tuple(1 + 2 * pad for pad in pads[:2])
        program = make_program((1, 2, 6, 19), pooled("residual"), kernel=kernel if pads[0] else (1, 1), pads=pads)
        anchor = find_anchor(program)
        offer = None if anchor is None else offered(program)
        if offer is not None:
            data = np.random.default_rng(4).integers(-4, 5, (1, 2, 6, 19)).astype(np.float32)
            expected, scheduled = interp.run(program, [data])[0], finish(offer.schedule(program))
            actual = interp.run(scheduled, [data.reshape([int(dim) for dim in scheduled.inputs[0].shape])])[0]
            np.testing.assert_array_equal(actual.reshape(expected.shape), expected)


def test_planes_are_declined() -> None:
    window = WINDOWS["3x3 by 2"]
    assert offered(make_program((1, 2, 8, 8), ops.max_pool, **window), bits=128) is None  # no masks
    assert offered(make_program((1, 2, 8, 5), ops.max_pool, **window)) is None  # short rows
    assert offered(make_program((1, 2, 8, 80), ops.max_pool, kernel=(3, 9))) is None  # a long window
    assert offered(make_program((1, 2, SizeVar("h", 3), 8), ops.max_pool, **window), threads=2) is None
    assert offered(make_program((1, 2, 8, 8), ops.max_pool, **window), threads=2) is not None
