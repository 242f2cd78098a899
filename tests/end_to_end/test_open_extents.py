"""Axes that may be empty at run time, and last extents of boxes and indices that the model leaves open, beside ONNX Runtime."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest

import inlaid
from inlaid_runtime.errors import InputError, ModelImportError

TARGETS = ["reference", "x86"]
RNG = np.random.default_rng(7)
BOXES = np.array([[[0, 0, 2, 2], [0, 0, 2.1, 2], [3, 3, 5, 5], [3, 3, 5, 6]]], np.float32)
NMS = (
    "g (float[b, n, k] x, float[b, c, n] s) => (int64[q, 3] y) { m = Constant <value_ints = [3]> ()"
    " i = Constant <value_floats = [0.5]> () y = NonMaxSuppression (x, s, m, i) }"
)
ALIGN = (
    "g (float[1, 2, 8, 8] x, float[n, k] r, int64[n] i) => (float[n, 2, 2, 2] y)"
    " { y = RoiAlign <output_height = 2, output_width = 2> (x, r, i) }"
)
SCATTER = "g (float[3, 4] x, int64[n, k] i, float[n] u) => (float[3, 4] y) { y = ScatterND (x, i, u) }"
GATHER = "g (float[m] x, int64[n, k] i) => (float[n] y) { y = GatherND (x, i) }"
HARDMAX = "g (float[n, m] x) => (float[n, m] y) { y = Hardmax <axis = 1> (x) }"
ARGMAX = "g (float[n, m] x) => (int64[n, 1] y) { y = ArgMax <axis = 1> (x) }"


def parse(body: str) -> onnx.ModelProto:
    return onnx.parser.parse_model(f'<ir_version: 8, opset_import: ["" : 17]>\n{body}')


def noise(*shape: int) -> np.ndarray[Any, Any]:
    return RNG.standard_normal(shape).astype(np.float32)


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize(
    ("body", "inputs"),
    [
        (HARDMAX, [{"x": noise(2, 3)}, {"x": noise(2, 0)}, {"x": noise(0, 3)}, {"x": -np.full((2, 3), np.inf, np.float32)}]),
        (HARDMAX.replace("m]", "0]"), [{"x": noise(2, 0)}]),
        (NMS, [{"x": BOXES, "s": np.abs(noise(1, 2, 4))}, {"x": BOXES[:, :1], "s": np.abs(noise(1, 2, 1))}]),
        (ALIGN, [{"x": noise(1, 2, 8, 8), "r": BOXES[0], "i": np.zeros(4, np.int64)}]),
        (SCATTER, [{"x": noise(3, 4), "i": np.array([[0, 1], [2, 3]]), "u": noise(2)}]),
        (GATHER, [{"x": noise(5), "i": np.array([[4], [0], [2]])}]),
    ],
)  # fmt: skip
def test_open_extents_agree_with_onnxruntime(body: str, inputs: list[dict[str, Any]], target: str) -> None:
    model = parse(body)
    executable = inlaid.compile(model, [target], cache=False)
    session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    for feeds in inputs:
        actual, expected = executable.run(feeds)["y"], session.run(None, feeds)[0]
        assert actual.shape == expected.shape
        np.testing.assert_allclose(actual, expected, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize(
    ("body", "feeds", "message"),
    [
        (NMS, {"x": BOXES[..., :3], "s": np.ones((1, 1, 4), np.float32)}, r"boxes must be 4, got 3 .*non_max"),
        (ALIGN, {"x": noise(1, 2, 8, 8), "r": noise(1, 5), "i": np.zeros(1, np.int64)}, r"rois must be 4, got 5 .*roi"),
        (SCATTER, {"x": noise(3, 4), "i": np.zeros((1, 1), np.int64), "u": noise(1)}, r"indices must be 2, got 1 where k is 1 "),
        (ARGMAX, {"x": noise(2, 0)}, r"dimension 1 of the input must be >= 1, got 0 .*argmax"),
    ],
)  # fmt: skip
def test_open_extents_that_do_not_fit_are_refused_before_the_run(
    body: str, feeds: dict[str, Any], message: str, target: str
) -> None:
    executable = inlaid.compile(parse(body), [target], cache=False)
    with pytest.raises(InputError, match=message):
        executable.run(feeds)


def test_an_extent_that_decides_a_rank_must_be_known() -> None:
    body = GATHER.replace("float[m]", "float[m, 4]")
    with pytest.raises(ModelImportError, match="determines the rank") as caught:
        inlaid.load(parse(body))
    assert 'dims={"k": ...}' in str(caught.value)
    assert "--dim k=SIZE" in caught.value.on_command_line()
    inlaid.load(parse(body), dims={"k": 2})
