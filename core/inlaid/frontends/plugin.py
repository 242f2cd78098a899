"""The core's built-in frontends, registered like a plugin's."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING

from inlaid.plugins import Frontend, ModelSource, hookimpl

if TYPE_CHECKING:
    from inlaid.graph.ir import Module

PLUGIN_API_VERSION = 3

_IDENTIFIER = b"TFL3"
"""The file identifier of TensorFlow Lite, at byte offset 4."""


def _is_onnx(model: object) -> bool:
    """Test whether a model is an `onnx.ModelProto`, or bytes that start with the field ir_version, which all writers emit first."""
    if isinstance(model, bytes):
        return model[:1] == b"\x08" and b"\x00" < model[1:2] < b"\x80"
    onnx = sys.modules.get("onnx")
    return onnx is not None and isinstance(model, onnx.ModelProto)


def _load_onnx(source: ModelSource) -> Module:
    from inlaid.frontends.onnx import load

    return load(source.model, source.dims, opened=source.opened, inputs=source.inputs)


def _is_tflite(model: object) -> bool:
    return isinstance(model, bytes) and model[4:8] == _IDENTIFIER


def _load_tflite(source: ModelSource) -> Module:
    from inlaid.frontends.tflite import load

    return load(source.model, source.dims)


@hookimpl
def inlaid_frontends() -> Sequence[Frontend]:
    """Return the frontends for ONNX and TensorFlow Lite."""
    return [
        Frontend("onnx", "ONNX", _load_onnx, (".onnx",), _is_onnx, ("onnx",), "onnx"),
        Frontend("tflite", "TensorFlow Lite", _load_tflite, (".tflite",), _is_tflite, ("tflite",), "inlaid[tflite]"),
    ]
