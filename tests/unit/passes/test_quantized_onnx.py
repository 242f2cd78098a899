"""ONNX's QDQ form computes the integers that ONNX Runtime computes."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper
from tests.onnx_runtime import answers

from inlaid.graph.interp import evaluate
from inlaid.graph.ir import Call, post_order
from inlaid.graph.operator import Operator
from inlaid.passes.manager import PassManager
from inlaid.passes.pipeline import CANONICAL
from inlaid_onnx import load

TENSOR = {np.int8: TensorProto.INT8, np.uint8: TensorProto.UINT8}


def model(relu: bool, bias: bool, per_channel: bool, x_type: Any, w_type: Any, points: tuple[int, int, int]) -> onnx.ModelProto:
    """A convolution between dequantization and quantization; `points` are the zero points of x, w and y."""
    rng = np.random.default_rng(0)
    info = np.iinfo(w_type)
    w_scale = rng.uniform(0.001, 0.02, 6 if per_channel else ()).astype(np.float32)
    scale = np.float32(0.037)
    arrays = {
        "w": rng.integers(info.min, info.max, (6, 4, 3, 3)).astype(w_type),
        "w_scale": w_scale,
        "w_point": np.full(w_scale.shape, points[1], w_type),
        "x_scale": np.asarray(scale),
        "x_point": np.asarray(points[0], x_type),
        "y_scale": np.asarray(0.11, np.float32),
        "y_point": np.asarray(points[2], x_type),
        "b": rng.integers(-5000, 5000, 6).astype(np.int32),
        "b_scale": np.asarray(scale * w_scale),
        "b_point": np.zeros(w_scale.shape, np.int32),
    }
    nodes = [
        helper.make_node("DequantizeLinear", ["x", "x_scale", "x_point"], ["xf"]),
        helper.make_node("DequantizeLinear", ["w", "w_scale", "w_point"], ["wf"], axis=0),
        helper.make_node("DequantizeLinear", ["b", "b_scale", "b_point"], ["bf"], axis=0),
        helper.make_node("Conv", ["xf", "wf", "bf"] if bias else ["xf", "wf"], ["c"], pads=[1, 1, 1, 1]),
        helper.make_node("Relu", ["c"], ["r"]),
        helper.make_node("QuantizeLinear", ["r" if relu else "c", "y_scale", "y_point"], ["y"]),
    ]
    graph = helper.make_graph(
        nodes,
        "qdq",
        [helper.make_tensor_value_info("x", TENSOR[x_type], [1, 4, 8, 8])],
        [helper.make_tensor_value_info("y", TENSOR[x_type], [1, 6, 8, 8])],
        [numpy_helper.from_array(array, name) for name, array in arrays.items()],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 19)], ir_version=9)


@pytest.mark.parametrize("relu", [False, True])
@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize("per_channel", [False, True])
@pytest.mark.parametrize(
    ("x_type", "w_type", "points"),
    [(np.uint8, np.uint8, (128, 120, 3)), (np.uint8, np.int8, (7, 0, 0)), (np.int8, np.int8, (4, 0, -5))],
)
def test_convolutions_are_integer_exact(
    relu: bool, bias: bool, per_channel: bool, x_type: Any, w_type: Any, points: tuple[int, int, int]
) -> None:
    proto = model(relu, bias, per_channel, x_type, w_type, points)
    info = np.iinfo(x_type)
    x = np.random.default_rng(1).integers(info.min, info.max + 1, (1, 4, 8, 8)).astype(x_type)
    (expected,) = answers(proto, {"x": x}).values()
    canonical = PassManager(CANONICAL).run(load(proto))
    names = {
        node.callee.name for node in post_order(canonical.main) if isinstance(node, Call) and isinstance(node.callee, Operator)
    }
    assert "requantize" in names and not names & {"quantize", "dequantize", "cast"}
    np.testing.assert_array_equal(evaluate(canonical, [x]), expected)
