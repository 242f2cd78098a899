"""Models in bfloat16 on x86: within the tolerance that `inlaid.passes.lower_precision` states, and kept apart in caches."""

from __future__ import annotations

import math
import subprocess
import sys

import numpy as np
import onnx
import pytest

import inlaid
from inlaid.graph.ir import Call, children, post_order
from inlaid.graph.operator import Operator
from inlaid.plugins.registry import default_registry
from inlaid_runtime.errors import InputError
from zoo import GENERATED, feeds
from zoo.language import TINY_BERT, TINY_LSTM, bert, lstm
from zoo.vision import TINY_MOBILENET, mobilenet

TARGET = "x86:threads=1"
RECURRENT_STEPS = 7
"""Of the tiny recurrent model: products that follow one another in a loop, which the depth of the graph counts once."""

pytestmark = pytest.mark.skipif(
    "x86" not in default_registry().kinds(), reason='the x86 plugin is not installed: pip install "inlaid[x86]"'
)


def depth(module) -> int:
    """How many products follow one another at most."""
    depths = {}
    for expr in post_order(module.main):
        name = expr.callee.name if isinstance(expr, Call) and isinstance(expr.callee, Operator) else ""
        one = name in ("conv", "conv_transpose", "matmul")
        product_count = 2 if name == "attention" else RECURRENT_STEPS if name in ("lstm", "gru", "rnn") else int(one)
        depths[id(expr)] = max((depths[id(child)] for child in children(expr)), default=0) + product_count
    return depths[id(module.main)]


def check(model, arrays):
    tolerance = 3 * math.sqrt(2 / 3 * depth(inlaid.load(model))) * 2**-8
    expected = inlaid.compile(model, [TARGET]).run(arrays)
    executable = inlaid.compile(model, [TARGET], precision="bf16")
    assert {region.target for region in executable.regions} == {TARGET}
    outputs = executable.run(arrays)
    for name, other in expected.items():
        assert outputs[name].dtype == other.dtype
        np.testing.assert_allclose(outputs[name], other, rtol=0, atol=tolerance * np.abs(other).max(), err_msg=name)
    assert any(not np.array_equal(outputs[name], other) for name, other in expected.items()), "something was rounded"
    return executable


@pytest.mark.parametrize("name", GENERATED)
def test_tolerance(name):
    model = GENERATED[name].tiny()
    check(model, feeds(model))


@pytest.mark.parametrize(
    ("model", "sizes"),
    [
        (bert(TINY_BERT, "batch", "sequence"), [{"batch": 1, "sequence": 1}, {"batch": 3, "sequence": 17}]),
        (lstm(TINY_LSTM, "batch", "sequence"), [{"batch": 1, "sequence": 1}, {"batch": 3, "sequence": 5}]),
        (mobilenet(TINY_MOBILENET, "batch"), [{"batch": 1}, {"batch": 3}]),
    ],
    ids=["bert", "lstm", "mobilenet"],
)
def test_one_executable_for_all_sizes(model, sizes):
    executable = inlaid.compile(model, [TARGET], precision="bf16")
    exact = inlaid.compile(model, [TARGET])
    for each in sizes:
        arrays = feeds(model, sizes=each)
        for name, other in exact.run(arrays).items():
            actual = executable.run(arrays)[name]
            np.testing.assert_allclose(actual, other, rtol=0, atol=0.03 * np.abs(other).max())


def test_weights_take_half_the_bytes():
    model = GENERATED["bert_base"].tiny()
    full, half = (inlaid.compile(model, [TARGET], precision=precision).package.weight_bytes for precision in ("model", "bf16"))
    assert half < 0.8 * full


@pytest.mark.parametrize("target", [TARGET, "x86:threads=1,cpu=x86-64-v3", "x86:threads=1,cpu=x86-64-v2", "reference"])
def test_special_values(target):
    """NaN and infinities stay, and what is greater than bfloat16 holds is infinite. What is less than the least normal number may
    be zero."""
    x = np.array([[np.nan, np.inf, -np.inf, 0.0, -0.0, 1e-40, -1e-39, 3.4e38]], np.float32).T
    param = inlaid.var("x", inlaid.TensorType(x.shape, "float32"))
    model = inlaid.function([param], inlaid.ops.matmul(param, inlaid.constant(np.ones((1, 1), np.float32))))
    (actual,) = inlaid.compile(model, [target], precision="bf16").run({"x": x}).values()
    import ml_dtypes

    expected = x.astype(ml_dtypes.bfloat16).astype(np.float32)
    np.testing.assert_allclose(actual, expected, rtol=0, atol=np.finfo(np.float32).tiny)


def test_a_precision_that_there_is_not(tmp_path):
    path = tmp_path / "model.onnx"
    onnx.save(GENERATED["lstm"].tiny(), path)
    with pytest.raises(InputError, match=r"unknown precision 'fp4'.*model, bf16"):
        inlaid.compile(path, [TARGET], precision="fp4")
    command = [sys.executable, "-c", "from inlaid_cli import main; main()", "run", str(path), "--precision", "fp4"]
    process = subprocess.run(command, capture_output=True, text=True, check=False)
    assert process.returncode != 0
    assert "choose from model, bf16" in process.stderr


def test_precisions_are_kept_apart_in_the_cache(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    path = tmp_path / "model.onnx"
    model = GENERATED["bert_base"].tiny()
    onnx.save(model, path)
    arrays = feeds(model)
    first, second, again = (
        inlaid.compile(path, [TARGET], precision=precision).run(arrays)["pooled"] for precision in ("bf16", "model", "bf16")
    )
    assert np.array_equal(first, again)
    assert not np.array_equal(first, second)
