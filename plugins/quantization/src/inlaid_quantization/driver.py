"""Quantization driver. Compiles the models that calibration and evaluation run."""

from __future__ import annotations

from collections.abc import Sequence

from inlaid.driver.compile import compile_module
from inlaid.graph.ir import Module
from inlaid.plugins import Requantization
from inlaid.plugins.registry import PluginRegistry, default_registry
from inlaid_quantization.calibrate import Run, Sample
from inlaid_quantization.quantize import QuantizedModule, quantize_module
from inlaid_quantization.settings import Quantization, fitted


def quantize(
    module: Module,
    samples: Sequence[Sample],
    evaluation_samples: Sequence[Sample],
    settings: Quantization,
    targets: Sequence[str],
    deployment_targets: Sequence[str],
    registry: PluginRegistry | None = None,
    keep: bool = True,
) -> QuantizedModule:
    """Quantize a module to int8. `targets` run it for calibration on `samples` and for evaluation on `evaluation_samples`. The
    first target of `deployment_targets` that declares a requantization determines the module's requantization. Raises as
    `quantize_module` and `compile_module` do."""
    registry = registry or default_registry()
    requantizations = (registry.capabilities(registry.target(text)).requantization for text in deployment_targets)
    settings = fitted(settings, next((item for item in requantizations if item.roundings), Requantization()))

    def compiled(variant: Module) -> Run:
        executable = compile_module(variant, targets, registry, keep=keep)
        return lambda sample: list(executable.run(sample).values())

    return quantize_module(module, samples, evaluation_samples, settings, compiled)
