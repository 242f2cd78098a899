"""ONNX Runtime as an oracle that is exact in integers on every processor."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import onnx
import onnxruntime

Array = np.ndarray[Any, Any]


def answers(model: onnx.ModelProto, feeds: Mapping[str, Any], optimized: bool = True) -> dict[str, Any]:
    """Outputs of a model by name, by ONNX Runtime's CPU provider.

    Without VNNI, ONNX Runtime multiplies uint8 by int8 with `vpmaddubsw`, whose sums of pairs saturate in 16 bits. The setting
    `session.x64quantprecision` has it multiply uint8 by uint8 there, which is exact (onnxruntime_session_options_config_keys.h).
    """
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    options.add_session_config_entry("session.x64quantprecision", "1")
    levels = onnxruntime.GraphOptimizationLevel
    options.graph_optimization_level = levels.ORT_ENABLE_ALL if optimized else levels.ORT_DISABLE_ALL
    session = onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    return dict(zip([item.name for item in session.get_outputs()], session.run(None, dict(feeds)), strict=True))
