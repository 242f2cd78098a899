"""The corpus: small models as people export them, each at several sizes, whose values must be those of ONNX Runtime.

    python benchmarks/bench_real.py --values

A third are built here by script in the idioms of exporters; the others are written by exporters, or taken out of packages, by
`install.py`, and never committed.
"""

from __future__ import annotations

from real import exported, language, packages, pictures, speech, tables, vision
from real.model import SCRIPT, Model


def corpus() -> dict[str, Model]:
    """Every model by name."""
    models: dict[str, Model] = {}
    for part in (vision, pictures, speech, language, tables, exported, packages):
        for model in part.models():
            if model.name in models:
                raise ValueError(f"two models are called {model.name}")
            models[model.name] = model
    return models


def scripted() -> dict[str, Model]:
    """The models that need nothing installed."""
    return {name: model for name, model in corpus().items() if model.source == SCRIPT}
