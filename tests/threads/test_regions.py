"""Random graphs of static and symbolic sizes on grids of threads, interpreted launch by launch."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from inlaid.driver.compile import compile_module
from inlaid.graph import ir
from inlaid.graph.interp import evaluate
from inlaid_conformance.corpus import CORPUS
from inlaid_conformance.graphs import grown
from inlaid_runtime.errors import KernelFault

from .grid_target import CLASSES, KIND, Grid

ENTRIES = [entry for entry in CORPUS if entry.exact and entry.operator.compute is not None and entry.operator.name != "bitcast"]
"""Operators with exact results; the bits of a NaN may differ."""


def holds(able: Any, function: ir.Function, inputs: Any) -> Grid:
    """Check that a compiled function agrees with the graph interpreter, without fallback to the reference."""
    target = Grid(able)
    executable = compile_module(ir.Module({"main": function}), [KIND], target.registry(), keep=False)
    names = [param.name for param in function.params]
    with np.errstate(all="ignore"):
        try:
            expected = evaluate(function, list(inputs))
        except KernelFault:
            with pytest.raises(KernelFault):
                executable.run(dict(zip(names, inputs, strict=True)))
            return target
        results = executable.run(dict(zip(names, inputs, strict=True)))
    for a, b in zip(results.values(), expected if isinstance(expected, tuple) else (expected,), strict=True):
        assert a.dtype == b.dtype
        np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-3 if b.dtype.kind == "f" else 0)
    return target


@pytest.mark.parametrize("kind", CLASSES)
@settings(max_examples=40, deadline=None)
@given(seed=st.integers(0, 1 << 32))
def test_random_graphs(kind, seed) -> None:
    choose = random.Random(seed).randrange
    graph = grown(choose, ENTRIES, lambda call: call.callee.compute is not None)
    if graph is not None:
        holds(CLASSES[kind], graph.function, graph.inputs)
