"""Declares the ONNX frontend. Nothing of the importer is imported until a model is loaded."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING

from inlaid.plugins import Frontend, ModelSource, hookimpl

if TYPE_CHECKING:
    from inlaid.graph.ir import Module

PLUGIN_API_VERSION = 3


def _recognizes(model: object) -> bool:
    """Test whether a model is an `onnx.ModelProto`, or bytes that start with the field ir_version, which all writers emit first."""
    if isinstance(model, bytes):
        return model[:1] == b"\x08" and b"\x00" < model[1:2] < b"\x80"
    onnx = sys.modules.get("onnx")
    return onnx is not None and isinstance(model, onnx.ModelProto)


def _load(source: ModelSource) -> Module:
    from inlaid_onnx import load

    return load(source.model, source.dims, opened=source.opened, inputs=source.inputs)


@hookimpl
def inlaid_frontends() -> Sequence[Frontend]:
    """Return the frontend of ONNX."""
    return [Frontend("onnx", "ONNX", _load, (".onnx",), _recognizes, ("onnx",), "onnx")]
