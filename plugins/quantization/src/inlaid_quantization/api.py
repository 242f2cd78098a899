"""`inlaid.quantize`."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from inlaid.api import Model, as_module, checked_targets
from inlaid.frontends.dims import DimSpec
from inlaid.support.faults import reports_faults
from inlaid_quantization import driver
from inlaid_quantization.quantize import QuantizedModule
from inlaid_quantization.samples import read_samples
from inlaid_quantization.settings import Quantization
from inlaid_runtime.errors import InputError


@reports_faults
def quantize(
    model: Model,
    calibration_data: str | Path | Iterable[Mapping[str, Any]],
    settings: Quantization | None = None,
    *,
    dims: Mapping[str, DimSpec] | None = None,
    targets: Sequence[str] | None = None,
    for_targets: Sequence[str] | None = None,
    evaluation_data: str | Path | Iterable[Mapping[str, Any]] | None = None,
) -> QuantizedModule:
    """Quantize a float model to int8. Returns a module for `compile` that also has a `report` on the accuracy of each layer.

    calibration_data
        Samples of the inputs: dictionaries by input name, or the path of an .npz file with one array per input, samples along
        the first axis.
    settings
        See `inlaid.Quantization`.
    targets
        Targets that run the float model and the int8 model for calibration and evaluation.
    for_targets
        The first of these targets that declares a requantization determines the model's; default: `targets`.
    evaluation_data
        Samples on which accuracy is measured; default: the calibration data.

    Other arguments are as for `compile`. Raises `ModelImportError`, `CompileError`, and `InputError` for samples that do not fit.
    """
    if settings is not None and not isinstance(settings, Quantization):
        raise InputError(
            f"expected settings of type inlaid.Quantization, got {settings!r}",
            remedy='give one, such as Quantization(calibration="mse")',
        )
    module = as_module(model, dims)
    samples = read_samples(calibration_data, module.main.params)
    evaluation_samples = samples if evaluation_data is None else read_samples(evaluation_data, module.main.params)
    run_targets = checked_targets(targets)
    deployment_targets = run_targets if for_targets is None else checked_targets(for_targets)
    return driver.quantize(module, samples, evaluation_samples, settings or Quantization(), run_targets, deployment_targets)
