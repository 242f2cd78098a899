"""Declares the TensorFlow Lite frontend. Nothing of the importer is imported until a model is loaded."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from inlaid.plugins import Frontend, ModelSource, hookimpl

if TYPE_CHECKING:
    from inlaid.graph.ir import Module

PLUGIN_API_VERSION = 3

_IDENTIFIER = b"TFL3"
"""The file identifier of TensorFlow Lite, at byte offset 4."""


def _recognizes(model: object) -> bool:
    return isinstance(model, bytes) and model[4:8] == _IDENTIFIER


def _load(source: ModelSource) -> Module:
    from inlaid_tflite import load

    return load(source.model, source.dims)


@hookimpl
def inlaid_frontends() -> Sequence[Frontend]:
    """Return the frontend of TensorFlow Lite."""
    return [Frontend("tflite", "TensorFlow Lite", _load, (".tflite",), _recognizes, ("tflite",), "tflite")]
