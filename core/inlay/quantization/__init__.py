"""Quantisation: int8 models from float ones."""

from inlay.quantization.quantize import QuantizedModule, quantize_module
from inlay.quantization.report import QuantizationReport
from inlay.quantization.samples import read_samples
from inlay.quantization.settings import Quantization

__all__ = ["Quantization", "QuantizationReport", "QuantizedModule", "quantize_module", "read_samples"]
