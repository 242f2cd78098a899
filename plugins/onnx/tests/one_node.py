"""Models of one node, run by Inlaid and by ONNX Runtime."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
from onnx import helper
from tests.onnx_runtime import answers

from inlaid import onnx_backend

Array = np.ndarray[Any, Any]


def make_model(op: str, opset: int, inputs: list[Any], outputs: int = 1, domain: str = "", **attrs: Any) -> onnx.ModelProto:
    """A model of one node; an input of None is left out."""
    arrays = {f"x{index}": np.asarray(item) for index, item in enumerate(inputs) if item is not None}
    names = [f"x{index}" if item is not None else "" for index, item in enumerate(inputs)]
    results = [f"y{index}" for index in range(outputs)]
    graph = helper.make_graph(
        [helper.make_node(op, names, results, domain=domain, **attrs)],
        "g",
        [
            helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(item.dtype), item.shape)
            for name, item in arrays.items()
        ],
        [onnx.ValueInfoProto(name=name) for name in results],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid(domain, opset)], ir_version=8)


def make_feeds(inputs: list[Any]) -> dict[str, Array]:
    return {f"x{index}": np.asarray(item) for index, item in enumerate(inputs) if item is not None}


def run(op: str, opset: int, inputs: list[Any], outputs: int = 1, domain: str = "", **attrs: Any) -> tuple[Array, ...]:
    model = make_model(op, opset, inputs, outputs, domain, **attrs)
    return tuple(onnx_backend.prepare(model, device="reference").run(make_feeds(inputs)))


def check_with_onnxruntime(op: str, opset: int, inputs: list[Any], outputs: int = 1, exact: bool = False, **attrs: Any) -> None:
    """Assert that Inlaid gives what ONNX Runtime gives."""
    expected = answers(make_model(op, opset, inputs, outputs, **attrs), make_feeds(inputs)).values()
    for mine, other in zip(run(op, opset, inputs, outputs, **attrs), expected, strict=True):
        assert (mine.dtype, mine.shape) == (np.asarray(other).dtype, np.shape(other))
        np.testing.assert_allclose(mine, other, rtol=0 if exact else 1e-5, atol=0 if exact else 1e-5)
