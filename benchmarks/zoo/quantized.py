"""Models in eight bits: the float ones after ONNX Runtime's static quantizer, as its documentation has it done.

Activations become uint8, each with one scale, which the range of seeded inputs gives; weights become int8, with a scale for each
output channel. The operators stay those of floats, between DequantizeLinear and QuantizeLinear ("QDQ"): whoever runs the model
makes integer operators of them.
"""

from __future__ import annotations

import logging
import tempfile
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnx.version_converter

from zoo.net import IR_VERSION, OPSET

SAMPLES = 4
"""Inputs that ranges are taken from."""

Arrays = Mapping[str, np.ndarray[Any, Any]]


def quantized(
    model: onnx.ModelProto, feeds: Callable[[int], Arrays], signed: bool = False, per_channel: bool = True
) -> onnx.ModelProto:
    """The model with QuantizeLinear and DequantizeLinear around its operators. `feeds(seed)` are inputs to take ranges from.

    `signed`: activations in int8; `per_channel`: whether weights have a scale for each output channel, or one.
    Raises ImportError where ONNX Runtime is not installed.
    """
    from onnxruntime.quantization import CalibrationDataReader, QuantFormat, QuantType, quantize_static
    from onnxruntime.quantization.shape_inference import quant_pre_process

    class Reader(CalibrationDataReader):  # type: ignore[misc]
        def __init__(self) -> None:
            self.samples: Iterator[Arrays] = map(feeds, range(1, SAMPLES + 1))

        def get_next(self) -> Arrays | None:
            return next(self.samples, None)

    before = logging.root.manager.disable
    logging.disable(logging.WARNING)  # it recommends what has been done
    try:
        with tempfile.TemporaryDirectory() as folder:
            source, prepared, result = (str(Path(folder) / f"{name}.onnx") for name in ("given", "prepared", "result"))
            onnx.save(_up_to_date(model), source)
            quant_pre_process(source, prepared, skip_symbolic_shape=True)
            quantize_static(
                prepared,
                result,
                Reader(),
                quant_format=QuantFormat.QDQ,
                per_channel=per_channel,
                activation_type=QuantType.QInt8 if signed else QuantType.QUInt8,
                weight_type=QuantType.QInt8,
            )
            return onnx.load(result)
    finally:
        logging.disable(before)


def _up_to_date(model: onnx.ModelProto) -> onnx.ModelProto:
    """The model in the operators of `OPSET`, since those before 13 have no scale for each channel; and with weights that are not
    inputs too, as the oldest format had them, which the quantizer would take for inputs."""
    source_opset = next(item.version for item in model.opset_import if item.domain in ("", "ai.onnx"))
    fixed = onnx.ModelProto()
    fixed.CopyFrom(model if source_opset >= OPSET else onnx.version_converter.convert_version(model, OPSET))
    fixed.ir_version = max(model.ir_version, IR_VERSION)
    for node in fixed.graph.node:
        if node.op_type == "Sum" and len(node.input) == 2:
            node.op_type = "Add"  # which the quantizer knows
    initializer_names = {item.name for item in fixed.graph.initializer}
    inputs = [item for item in fixed.graph.input if item.name not in initializer_names]
    del fixed.graph.input[:]
    fixed.graph.input.extend(inputs)
    return fixed
