"""The values that a row must have: ONNX Runtime's without graph optimizations."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any

import numpy as np
import onnx

from variants.row import Array

TOLERANCES = MappingProxyType({"float16": 5e-3, "float32": 1e-4, "float64": 1e-9})
"""Greatest difference of floats by element type, relative to the greatest magnitude of an output."""


def reference(model: onnx.ModelProto, feeds: Mapping[str, Array]) -> list[Any]:
    """Return the model's outputs. Raises ImportError where ONNX Runtime is not installed, and its exceptions where it cannot run
    the model."""
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    # Without VNNI, its products of uint8 and int8 saturate unless precision is requested.
    options.add_session_config_entry("session.x64quantprecision", "1")
    session = onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    return list(session.run(None, dict(feeds)))


def mismatch(outputs: Sequence[Any], expected: Sequence[Any], levels: int = 0, tolerance: float | None = None) -> str:
    """Describe where outputs differ from the expected ones by more than `levels` in integers, or by more than `tolerance` of the
    greatest magnitude in floats, None for that of the element type. Returns "" if they do not."""
    for number, (actual, exact) in enumerate(zip(outputs, expected, strict=True)):
        if (actual.shape, actual.dtype) != (exact.shape, exact.dtype):
            return f"output {number} is {actual.dtype}{list(actual.shape)} instead of {exact.dtype}{list(exact.shape)}"
        if exact.dtype.kind == "f":
            finite = np.isfinite(exact)
            greatest = float(np.abs(exact[finite]).max(initial=0).astype(np.float64)) or 1.0
            bound = (TOLERANCES[str(exact.dtype)] if tolerance is None else tolerance) * greatest
        else:
            greatest, bound = 1.0, float(levels)
        close = np.isclose(actual.astype(np.float64), exact.astype(np.float64), rtol=0, atol=bound, equal_nan=True)
        if not close.all():
            at = tuple(np.argwhere(~close)[0])
            where = f"{np.count_nonzero(~close)} of {close.size} elements"
            return f"output {number} differs in {where}, at {[int(i) for i in at]}: {actual[at]} instead of {exact[at]}"
    return ""
