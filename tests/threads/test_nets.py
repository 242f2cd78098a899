"""The conformance suite's models on grids of threads, interpreted launch by launch."""

from __future__ import annotations

import numpy as np
import pytest

from inlaid.driver.compile import compile_module
from inlaid.graph.interp import evaluate
from inlaid_conformance.nets import NETS

from .grid_target import CLASSES, KIND, Grid


@pytest.mark.parametrize("net", NETS, ids=[net.name for net in NETS])
@pytest.mark.parametrize("kind", CLASSES)
def test_models(kind, net) -> None:
    target, inputs = Grid(CLASSES[kind]), net.inputs()
    results = compile_module(net.module(), [KIND], target.registry(), keep=False).run(inputs)
    expected = evaluate(net.build(), list(inputs.values()))
    for a, b in zip(results.values(), expected if isinstance(expected, tuple) else (expected,), strict=True):
        np.testing.assert_allclose(a.astype(float), b.astype(float), rtol=1e-3, atol=1e-3 * max(np.abs(b.astype(float)).max(), 1))
