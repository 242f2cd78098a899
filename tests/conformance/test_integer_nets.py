"""Models in integers tell apart the roundings that they are made for."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from inlaid.graph.interp import evaluate
from inlaid.plugins.contract import ROUNDINGS
from inlaid_conformance.nets import NETS


@pytest.mark.parametrize("name", ["convolution", "perceptron"])
def test_each_rounding_has_results_of_its_own(name: str) -> None:
    nets = {net.name: net for net in NETS if net.name.startswith(f"integer-{name}-")}
    results = {}
    for rounding, net in ((each, nets.get(f"integer-{name}-{each}")) for each in ROUNDINGS):
        if net is not None:
            outputs = evaluate(net.build(), list(net.inputs().values()))
            results[rounding] = np.concatenate([np.ravel(output) for output in outputs])
    assert len(results) >= 4
    equal_pairs = [pair for pair in itertools.combinations(results, 2) if np.array_equal(*(results[each] for each in pair))]
    assert not equal_pairs
