"""Models on target `cuda:arch=host`, with threads in every order, compared with the reference."""

from __future__ import annotations

import random
from functools import cache
from pathlib import Path

import numpy as np
import pytest
from hypothesis import Phase, example, given, settings
from hypothesis import strategies as st
from tests.computed_relations import CASES, check_target
from tests.threads.test_regions import ENTRIES

import inlaid
from inlaid.graph import ir
from inlaid.graph.interp import evaluate
from inlaid_conformance.graphs import grown
from inlaid_conformance.nets import NETS
from inlaid_cuda import device as devices
from inlaid_cuda.emulation.driver import HostDriver, Order
from inlaid_runtime.errors import KernelFault
from inlaid_runtime.execution.example import example_inputs
from zoo import model_path

pytestmark = pytest.mark.usefixtures("host_compiler")
TARGET = "cuda:arch=host"
MODELS = Path(__file__).parents[4] / "shared" / "models"
TRAINED = {
    "ad01_fp32": 1e-3,
    "ad01_int8": 0,
    "kws_ref_model_float32": 1e-3,
    "kws_ref_model": 0,
    "pretrainedResnet": 1e-3,
    "pretrainedResnet_quant": 0,
    "vww_96_float": 1e-3,
    "vww_96_int8": 0,
}
"""Models of MLPerf Tiny, and the difference that results may have in parts of their largest value."""


@cache
def machine(order: Order) -> devices.Devices:
    """An emulated device with an order of threads."""
    return devices.Devices(HostDriver(order, seed=11))


@pytest.fixture(params=Order, ids=lambda order: order.name.lower())
def order(request, monkeypatch):
    """Make the target run threads in an order."""
    monkeypatch.setattr(devices, "open_devices", lambda options: machine(request.param))


def check(actual, expected, tolerance):
    for a, b in zip(actual, expected, strict=True):
        assert a.dtype == b.dtype and a.shape == b.shape
        a, b = (item.astype(np.float64) for item in (a, b))
        magnitude = np.abs(b[np.isfinite(b)]).max(initial=1)
        np.testing.assert_allclose(a, b, rtol=tolerance, atol=tolerance * magnitude)


@pytest.mark.parametrize("net", NETS, ids=[net.name for net in NETS])
def test_small_models(order, net):
    inputs = net.inputs()
    executable = inlaid.compile(net.module(), targets=[TARGET, "reference"], cache=False)
    assert TARGET in {region.target for region in executable.regions}
    reference = evaluate(net.build(), list(inputs.values()))
    check(executable.run(inputs).values(), reference if isinstance(reference, tuple) else (reference,), 1e-3)


@settings(max_examples=6, deadline=None, phases=[Phase.explicit, Phase.generate])
@given(seed=st.integers(0, 1 << 32))
@example(seed=1833)  # gives a NaN
def test_random_graphs(seed):
    graph = grown(random.Random(seed).randrange, ENTRIES, lambda call: call.callee.compute is not None)
    if graph is None:
        return
    feeds = dict(zip((param.name for param in graph.function.params), graph.inputs, strict=True))
    executable = inlaid.compile(ir.Module({"main": graph.function}), targets=[TARGET], cache=False)
    try:
        with np.errstate(all="ignore"):
            reference = evaluate(graph.function, list(graph.inputs))
    except KernelFault:
        with pytest.raises(KernelFault):
            executable.run(feeds)
        return
    check(executable.run(feeds).values(), reference if isinstance(reference, tuple) else (reference,), 1e-3)


def check_file(path, tolerance):
    """Check that a model from a file agrees with the reference."""
    outputs = {}
    for target in (TARGET, "reference"):
        executable = inlaid.compile(path, targets=[target], cache=False)
        inputs = example_inputs(executable.inputs)
        outputs[target] = executable.run(inputs).values()
    check(outputs[TARGET], outputs["reference"], tolerance)


@pytest.mark.parametrize("name", ["mobilenet_v2", "bert_base", "gpt2_step", "lstm"])
def test_light_models(name):
    check_file(model_path(name, tiny=True), 1e-3)


@pytest.mark.slow
@pytest.mark.skipif(not MODELS.is_dir(), reason="the trained models are not beside the checkout, in ../shared/models")
@pytest.mark.parametrize("name", TRAINED)
def test_trained_models(name):
    """int8 results are exact."""
    check_file(MODELS / f"{name}.tflite", TRAINED[name])


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_relations_of_computed_sizes(case):
    check_target(case, TARGET)
