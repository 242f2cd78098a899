"""Cost constants: whatever a target declares, kernels compute the same."""

from __future__ import annotations

from dataclasses import fields, replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from inlaid import ops
from inlaid.graph import ir as graph
from inlaid.lowering.kernels.finish import finish
from inlaid.lowering.kernels.kernel import KernelSource, build
from inlaid.plugins import Capabilities, Core, CostConstants
from inlaid.schedules.conv import ConvRule
from inlaid.schedules.default import SHARED_RULES
from inlaid.tensor import interp, ir
from inlaid.tensor.primitives import SEMANTICS
from inlaid.tensor.scheduling.rule import InputInfo, KernelContext
from inlaid.tensor.scheduling.trace import collect_offers, scheduled
from inlaid_runtime.arith import SizeVar
from inlaid_runtime.types import ROW_MAJOR, TensorType

from .test_traces import CONTEXT, KERNELS, is_equivalent

DEFAULT = CostConstants()


def other(name: str) -> st.SearchStrategy[Any]:
    """Values of a constant that differ from the default."""
    value = getattr(DEFAULT, name)
    if isinstance(value, tuple):
        return st.sampled_from([(2,), (5, 3), value])
    return st.sampled_from([1, value, 3 * value] if isinstance(value, int) else [value / 8, value, 8 * value])


COSTS = st.builds(CostConstants, **{item.name: other(item.name) for item in fields(CostConstants)})


def with_costs(context: KernelContext, costs: CostConstants) -> KernelContext:
    return replace(context, capabilities=replace(context.capabilities, core=Core(l1_bytes=512, l2_bytes=4096, costs=costs)))


@pytest.mark.parametrize("name", KERNELS)
def test_kernels_compute_the_same(name: str) -> None:
    source = KERNELS[name]
    facts = tuple(InputInfo(ROW_MAJOR, name.endswith("weights") and number == 1) for number in range(len(source.inputs)))

    @settings(max_examples=15, deadline=None)
    @given(COSTS)
    def check(costs: CostConstants) -> None:
        context = with_costs(CONTEXT, costs)
        offer = next(filter(None, (collect_offers(rule, source, context, facts) for rule in SHARED_RULES)))[0]
        for number in range(len(offer.versions) + 1):
            assert is_equivalent(source, scheduled(source, offer, number, context))

    check()


N, H, W = SizeVar("n"), SizeVar("h", 1), SizeVar("w", 1)


@settings(max_examples=15, deadline=None)
@given(COSTS, st.sampled_from([1, 2]), st.sampled_from([1, 2]), st.sampled_from([8, 16]))
def test_convolutions_of_symbolic_sizes_compute_the_same(costs: CostConstants, threads: int, stride: int, outputs: int) -> None:
    x, w = graph.var("x", TensorType((N, 5, H, W), "float32")), graph.var("w", TensorType((outputs, 5, 3, 3), "float32"))
    y = ops.relu(ops.conv(x, w, strides=(stride, stride), pads=(1,) * 4))
    program = build(KernelSource("kernel", (x, w), y))
    capabilities = Capabilities(("float32",), vector_bits=128, vector_registers=16)
    context = with_costs(KernelContext(capabilities, threads), costs)
    (offer, *_) = ConvRule().offer(program, context, (InputInfo(ROW_MAJOR), InputInfo(ROW_MAJOR, True)))
    kernel = finish(offer.schedule(program))
    generator = np.random.default_rng(2)
    for n, height, width in ((1, 1, 1), (2, 3, 7), (1, 5, 19)):
        sizes: dict[ir.Dim, int] = {N: n, H: height, W: width}
        arrays = [generator.integers(-4, 5, shape).astype(np.float32) for shape in ((n, 5, height, width), (outputs, 5, 3, 3))]
        expected = interp.run(program, arrays, sizes)[0]
        packed = [layout.pack(array) for layout, array in zip(offer.layouts, arrays, strict=False)]
        actual = interp.run(kernel, packed, sizes, SEMANTICS)[0]
        assert np.array_equal(actual.ravel(), offer.layouts[-1].pack(expected).ravel())
