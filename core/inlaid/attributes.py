"""Attributes of `inlaid` that other distributions provide, as entry points of the group `inlaid.attributes`.

Their names are listed here, so that the error for an attribute whose distribution is not installed can say what to install.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from inlaid_runtime.errors import NotInstalled
from inlaid_runtime.plugins.entry_points import EntryPoint, installed

GROUP = "inlaid.attributes"
"""Group of the entry points."""
DISTRIBUTIONS = {
    "Quantization": "inlaid-quantization",
    "QuantizationReport": "inlaid-quantization",
    "QuantizedModule": "inlaid-quantization",
    "onnx_backend": "inlaid-onnx",
    "quantize": "inlaid-quantization",
}
"""The distribution of each attribute."""


def attribute(name: str) -> Any:
    """Return an attribute in `DISTRIBUTIONS`. Raises `NotInstalled`."""
    for point in installed(GROUP):
        if point.name == name:
            return point.load()
    distribution = DISTRIBUTIONS[name]
    raise NotInstalled(f"inlaid.{name} is provided by {distribution}, not installed here", remedy=f"pip install {distribution}")


def available() -> list[str]:
    """Return the attributes whose distributions are installed."""
    return sorted({point.name for point in installed(GROUP)} & set(DISTRIBUTIONS))


def folders(points: Iterable[EntryPoint]) -> Iterator[Path]:
    """Yield the folder of each package that provides an attribute, without importing it."""
    for package in sorted({point.value.partition(":")[0].partition(".")[0] for point in points}):
        spec = importlib.util.find_spec(package)
        if spec is not None and spec.origin is not None:
            yield Path(spec.origin).parent
