"""Agreement of the outputs of a quantized model and of its float model."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from inlaid_quantization.histogram import Array


@dataclass(frozen=True)
class Agreement:
    """Cosine similarity and top-1 agreement of one output over samples.

    `rows` counts vectors along the last axis, if that axis has at least two elements. `equal` counts the rows whose greatest
    element has the same index in both models; for a classifier, these are unchanged predictions. `dot` is the sum of products,
    `real` and `quantized` are the sums of squares of the float and the quantized model, over finite elements.
    """

    dot: float = 0.0
    real: float = 0.0
    quantized: float = 0.0
    rows: int = 0
    equal: int = 0

    def with_values(self, real: Array, quantized: Array) -> Agreement:
        """Return the agreement with one more sample: the outputs of the float and of the quantized model."""
        rows = equal = 0
        if real.ndim > 0 and real.shape[-1] > 1:
            real_best, quantized_best = (values.reshape(-1, values.shape[-1]).argmax(axis=1) for values in (real, quantized))
            rows, equal = real_best.size, int(np.sum(real_best == quantized_best))
        real, quantized = real.astype(np.float64), quantized.astype(np.float64)
        finite = np.isfinite(real) & np.isfinite(quantized)
        a, b = real[finite], quantized[finite]
        return Agreement(
            self.dot + float(a @ b), self.real + float(a @ a), self.quantized + float(b @ b), self.rows + rows, self.equal + equal
        )

    @property
    def cosine(self) -> float:
        """Cosine of the angle between the outputs of all samples, concatenated; 1 if both are zero."""
        if self.real == self.quantized == 0:
            return 1.0
        return self.dot / math.sqrt(self.real * self.quantized) if self.real and self.quantized else 0.0

    @property
    def top1(self) -> float | None:
        """Fraction of rows with the same greatest element, 0 to 1; None without rows."""
        return self.equal / self.rows if self.rows else None

    def to_json(self) -> dict[str, Any]:
        """Return the agreement as JSON values."""
        return {"cosine": round(self.cosine, 6), "top1": self.top1, "top1_rows": self.rows}

    def __str__(self) -> str:
        top1_text = f", top-1 equal in {self.equal} of {self.rows} ({self.equal / self.rows:.1%})" if self.rows else ""
        return f"cosine {self.cosine:.5f}{top1_text}"
