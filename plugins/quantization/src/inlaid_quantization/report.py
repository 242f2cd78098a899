"""Report of a quantization and its accuracy: as data, as text and as JSON."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sized
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from inlaid_quantization.agreement import Agreement
from inlaid_quantization.histogram import Array
from inlaid_quantization.settings import Quantization


@dataclass(frozen=True)
class Difference:
    """Difference between values of a quantized and of a float model: sums of squares of the values and of the differences, and the
    greatest difference. If the float model has NaN or infinity, an equal value has difference 0, any other value infinity."""

    signal: float = 0.0
    noise: float = 0.0
    max_error: float = 0.0

    def with_values(self, real: Array, quantized: Array) -> Difference:
        """Return the difference with more values included."""
        real, quantized = real.astype(np.float64), quantized.astype(np.float64)
        finite = np.isfinite(real) & np.isfinite(quantized)
        is_equal = (real == quantized) | (np.isnan(real) & np.isnan(quantized))
        differences = np.where(is_equal, 0.0, math.inf)
        differences[finite] = quantized[finite] - real[finite]
        signal = float(np.sum(np.square(real[finite])))
        greatest = float(np.abs(differences).max(initial=0.0))
        return Difference(
            self.signal + signal, self.noise + float(np.sum(differences * differences)), max(self.max_error, greatest)
        )

    @property
    def sqnr_db(self) -> float:
        """Signal-to-quantization-noise ratio in decibels; infinite if there is no difference."""
        if self.noise == 0:
            return math.inf
        ratio = self.signal / self.noise
        return 10 * math.log10(ratio) if ratio else -math.inf

    def to_json(self) -> dict[str, Any]:
        """Return the difference as JSON values; None for infinity."""
        ratio, max_error = self.sqnr_db, self.max_error
        return {
            "sqnr_db": round(ratio, 3) if math.isfinite(ratio) else None,
            "max_error": max_error if math.isfinite(max_error) else None,
        }


@dataclass(frozen=True)
class LayerReport:
    """A tensor computed in integers, or `in_floats` and then stored. `node` is its source node, `operators` are fused into one
    layer. A float that is converted from an int32 accumulator has no scale and no zero point. `difference` compares it with the
    float model: it includes errors of preceding layers, but excludes values masked for a softmax."""

    node: str
    operators: tuple[str, ...]
    in_floats: bool
    scale: float | None
    zero_point: int | None
    difference: Difference


@dataclass(frozen=True)
class BorderReport:
    """An input or output. `scale` and `zero_point` are None if it is not stored. `difference` and `agreement` compare a float
    output with the float model; they are None otherwise."""

    name: str
    dtype: str
    scale: float | None
    zero_point: int | None
    difference: Difference | None = None
    agreement: Agreement | None = None


@dataclass(frozen=True)
class FloatReport:
    """An operator that stays float, and the reason."""

    node: str
    operator: str
    why: str


@dataclass(frozen=True)
class QuantizationReport:
    """Report of a quantization. `layers` are in order of execution; `floats` are the operators that stay float; `samples` is the
    number of samples on which accuracy was measured."""

    settings: Quantization
    samples: int
    inputs: tuple[BorderReport, ...]
    outputs: tuple[BorderReport, ...]
    layers: tuple[LayerReport, ...]
    floats: tuple[FloatReport, ...]

    def to_json(self) -> dict[str, Any]:
        """Return the report as JSON values."""
        return {
            "settings": {**asdict(self.settings), "keep_float": list(self.settings.keep_float)},
            "samples": self.samples,
            "inputs": [_border(item) for item in self.inputs],
            "outputs": [_border(item) for item in self.outputs],
            "layers": [
                {
                    "node": layer.node,
                    "operators": list(layer.operators),
                    "in_floats": layer.in_floats,
                    "scale": layer.scale,
                    "zero_point": layer.zero_point,
                    **layer.difference.to_json(),
                }
                for layer in self.layers
            ],
            "float": [asdict(item) for item in self.floats],
        }

    def to_text(self) -> str:
        """Format the report as a table."""
        return "\n".join(self._lines())

    def _lines(self) -> Iterator[str]:
        settings = self.settings
        samples = _count(range(self.samples), "sample")
        hardware = settings.requantization
        limits = (
            f", for rounding {' or '.join(hardware.roundings)} and {hardware.multiplier_bits} bits" if hardware.roundings else ""
        )
        yield f"int8, {settings.calibration} ranges, {settings.scales.replace('_', ' ')} scales{limits}; measured on {samples}"
        for what, items in (("input", self.inputs), ("output", self.outputs)):
            for item in items:
                stored = "" if item.scale is None else f", scale {item.scale:.6g}, zero point {item.zero_point}"
                difference = "" if item.difference is None else f": {_words(item.difference)}"
                agreement = "" if item.agreement is None else f"; {item.agreement}"
                yield f"{what} {item.name}: {item.dtype}{stored}{difference}{agreement}"
        if self.layers:
            width = max(len(_operators_text(layer)) for layer in self.layers)
            yield f"{_count(self.layers, 'layer')} in integers (errors include those of preceding layers):"
            for layer in self.layers:
                yield f"  {_words(layer.difference):<32}  {_operators_text(layer):<{width}}  {layer.node}"
        if self.floats:
            yield f"{_count(self.floats, 'operator')} in floats:"
            yield from (f"  {item.operator} at {item.node or '?'}: {item.why}" for item in self.floats)


def _count(items: Sized, what: str) -> str:
    return f"{len(items)} {what}" + "s" * (len(items) != 1)


def _operators_text(layer: LayerReport) -> str:
    return " + ".join(layer.operators) + " in floats" * layer.in_floats


def _words(difference: Difference) -> str:
    ratio = difference.sqnr_db
    sqnr = f"{ratio:6.1f} dB" if math.isfinite(ratio) else "exact" if ratio > 0 else "all noise"
    return f"{sqnr:>9}, max error {difference.max_error:.3g}"


def _border(item: BorderReport) -> dict[str, Any]:
    metrics = {} if item.difference is None else item.difference.to_json()
    if item.agreement is not None:
        metrics |= item.agreement.to_json()
    return {"name": item.name, "dtype": item.dtype, "scale": item.scale, "zero_point": item.zero_point, **metrics}
