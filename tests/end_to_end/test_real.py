"""The corpus of exported models: a seeded sample of those that are built by script, at all of their sizes, beside ONNX Runtime.

The seed stands in each test's name. INLAID_REAL_SEED=1234 draws the sample of another run once more, INLAID_REAL_COUNT=0 takes all.
"""

from __future__ import annotations

import os
import random
import time
import zlib
from functools import partial

import numpy as np
import onnx
import pytest
from onnx import numpy_helper
from onnx.reference import ReferenceEvaluator

from inlaid.plugins.registry import default_registry
from real import corpus, scripted
from real.check import Expected, check, difference, isolated
from real.expected_failures import EXPECTED_FAILURES
from real.model import Draw, Model, NotInstalledError
from real.packages import carried
from zoo.net import Net

COUNT = int(os.environ.get("INLAID_REAL_COUNT", "10"))
TARGET = "x86:threads=1"

needs_x86 = pytest.mark.skipif(
    "x86" not in default_registry().kinds(), reason='the x86 plugin is not installed: pip install "inlaid[x86]"'
)


def seed() -> int:
    """Of this run: the same in all of pytest-xdist's workers."""
    setting = os.environ.get("INLAID_REAL_SEED")
    run = os.environ.get("PYTEST_XDIST_TESTRUNUID") or f"{os.getppid()} {time.time()}"
    return int(setting) if setting else zlib.crc32(run.encode()) % 10000


SEED = seed()


def sample() -> list[object]:
    """Models drawn by the seed, those that fail today marked so."""
    chosen = sorted(scripted().values(), key=lambda model: model.name)
    if COUNT:
        chosen = random.Random(SEED).sample(chosen, COUNT)
    marks = {name: [pytest.mark.xfail(reason=reason, strict=True)] for name, reason in EXPECTED_FAILURES.items()}
    return [pytest.param(model, id=f"seed{SEED}-{model.name}", marks=marks.get(model.name, [])) for model in chosen]


@needs_x86
@pytest.mark.parametrize("model", sample())
def test_values_at_all_sizes(model: Model) -> None:
    pytest.importorskip("onnxruntime")
    outcome = isolated(partial(check, model, TARGET, SEED), model.name)
    assert outcome.state == "right", outcome.reason


def test_what_the_corpus_is_made_of() -> None:
    models = corpus()
    sources = [model.source for model in models.values()]
    exporters = ("torch.onnx", "tf2onnx", "paddle2onnx", "skl2onnx", "onnxmltools")
    assert len(models) >= 60
    assert sum(source.startswith(exporters) for source in sources) >= 20
    assert len(carried()) >= 6
    assert len({item.distribution for item in carried()}) >= 6
    assert len(scripted()) >= 34
    assert sum(len(model.sizes) > 1 for model in models.values()) >= 0.9 * len(models)
    assert set(EXPECTED_FAILURES) <= set(models)


def test_a_model_that_is_not_installed_names_the_command() -> None:
    def load() -> onnx.ModelProto:
        raise NotInstalledError("nothing was not exported here; run `python benchmarks/real/install.py`")

    outcome = check(Model("nothing", "none", "torch.onnx", load, lambda draw: {}, ((),)), TARGET)
    assert (outcome.state, "install.py" in outcome.reason) == ("missing", True)


def test_a_process_that_dies_fails_its_model_alone() -> None:
    outcome = isolated(lambda: os._exit(9), "dead")
    assert (outcome.state, outcome.reason) == ("wrong", "the process ended with code 9")
    assert isolated(lambda: time.sleep(60), "slow", limit=0.2).reason == "took more than 0 s"


def test_differences_are_told() -> None:
    ones = np.ones((2, 2), np.float32)
    assert difference({"y": ones}, {"y": ones}, 1e-3) == ""
    assert difference({"y": ones * np.float32(1.0005)}, {"y": ones}, 1e-3) == ""
    assert "differs at 4 of 4 places" in difference({"y": ones * np.float32(1.01)}, {"y": ones}, 1e-3)
    assert "differs at 1 of 4" in difference({"y": np.array([[1, np.nan], [1, 1]], np.float32)}, {"y": ones}, 1e-3)
    assert difference({"y": np.full(2, np.nan)}, {"y": np.full(2, np.nan)}, 1e-3) == ""
    assert "instead of" in difference({"y": ones[0]}, {"y": ones}, 1e-3)
    assert "differs" in difference({"y": np.array([1])}, {"y": np.array([2])}, 1e-3)
    assert "differs" in difference({"y": np.array(["a"], object)}, {"y": np.array(["b"], object)}, 1e-3)


@needs_x86
def test_wrong_values_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("onnxruntime")
    model = Model("dense", "none", "script", _dense, lambda draw, n: {"x": draw.floats(n, 4)}, ((3,), (1,)))
    assert check(model, TARGET).state == "right"
    answer = Expected.run
    monkeypatch.setattr(Expected, "run", lambda self, feeds: {name: value * 1.01 for name, value in answer(self, feeds).items()})
    outcome = check(model, TARGET)
    assert (outcome.state, outcome.reason.split(":")[0]) == ("wrong", "at (3,)")


def _dense() -> onnx.ModelProto:
    net = Net("dense")
    x = net.input("x", ("n", 4))
    net.output(net.node("MatMul", x, net.weight("w", (4, 4), 1.0)), "y", ("n", 4))
    return net.build()


def test_bodies_read_the_graph_around_them() -> None:
    net = Net("outer", opset=14)
    x, flag = net.input("x", (2,)), net.input("flag", (), "bool")
    branches = []
    for name, op in (("then", "Relu"), ("else", "Neg")):
        body = net.body(name)
        body.output(body.node(op, body.node("Add", x, body.weight("w", (2,), 1.0))), f"{name}_out", (2,))
        branches.append(body.graph())
    net.output(net.node("If", flag, then_branch=branches[0], else_branch=branches[1]), "y", (2,))
    model = net.build()
    weights = [numpy_helper.to_array(item) for item in model.graph.initializer]
    feeds = {"x": np.float32([-3, 3]), "flag": np.array(True)}
    (actual,) = ReferenceEvaluator(model).run(None, feeds)
    np.testing.assert_array_equal(actual, np.maximum(feeds["x"] + weights[0], 0))
    (actual,) = ReferenceEvaluator(model).run(None, {**feeds, "flag": np.array(False)})
    np.testing.assert_array_equal(actual, -(feeds["x"] + weights[1]))


def test_seeded_inputs_are_the_same_every_time() -> None:
    for model in scripted().values():
        first, second = (model.feeds(Draw(3), *model.sizes[0]) for _ in range(2))
        assert first.keys() == second.keys()
        for name in first:
            np.testing.assert_array_equal(first[name], second[name])
