"""Quantization options of `inlaid compile`."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

import inlaid
from inlaid_runtime.errors import NotInstalled

if TYPE_CHECKING:
    from inlaid import Module, Quantization, QuantizationReport


class Setting(click.ParamType):  # type: ignore[type-arg, unused-ignore]  # generic since click 8.3
    """A setting of quantization that has choices: those of `inlaid.Quantization`, which another distribution provides."""

    name = "text"

    def __init__(self, setting: str) -> None:
        self._setting = setting

    def _choice(self) -> click.Choice[str]:
        return click.Choice(inlaid.Quantization.choices()[self._setting])

    def get_metavar(self, param: click.Parameter, ctx: click.Context) -> str | None:
        """Return the choices, as the help shows them."""
        try:
            return self._choice().get_metavar(param, ctx)
        except NotInstalled:
            return None

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        """Check that a value is one of the choices."""
        return self._choice().convert(value, param, ctx)


def quantize_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add `--quantize` and its settings to a command."""
    for option in (
        click.option("--borders", type=Setting("borders"), help="With --quantize: type of inputs and outputs. Default: float32."),
        click.option(
            "--arithmetic",
            type=Setting("arithmetic"),
            help="With --quantize: requantization in fixed point or float. Default: fixed.",
        ),
        click.option("--scales", type=Setting("scales"), help="With --quantize: power_of_two permits shifts. Default: any."),
        click.option(
            "--calibration",
            type=Setting("calibration"),
            help="With --quantize: the rule that selects ranges from observed values. Default: minmax.",
        ),
        click.option(
            "--quantize",
            "samples",
            type=click.Path(exists=True, dir_okay=False, path_type=Path),
            metavar="FILE.npz",
            help="Quantize the model to int8, calibrated with the samples in this file: one array per input, by name, with samples "
            "along its first axis. Prints the accuracy loss of every layer.",
        ),
    ):
        command = option(command)
    return command


@dataclass
class Quantizer:
    """Quantizes a module for the targets, and stores the report."""

    samples: Path
    settings: Quantization
    targets: tuple[str, ...]
    report: Callable[[str, int, int], None]
    reports: list[QuantizationReport] = field(default_factory=list)

    def __call__(self, module: Module) -> Module:
        self.report("quantize", 0, 0)
        quantized = inlaid.quantize(module, self.samples, self.settings, for_targets=self.targets)
        self.reports.append(quantized.report)
        return quantized


def chosen(
    samples: Path | None, calibration: str | None, scales: str | None, arithmetic: str | None, borders: str | None
) -> Quantization | None:
    """Return the quantization settings, None if `samples` is None. Raises `UsageError` for settings without samples."""
    if samples is not None:
        defaults = inlaid.Quantization()
        return inlaid.Quantization(
            calibration=calibration or defaults.calibration,
            scales=scales or defaults.scales,
            arithmetic=arithmetic or defaults.arithmetic,
            borders=borders or defaults.borders,
        )
    choices = {"--calibration": calibration, "--scales": scales, "--arithmetic": arithmetic, "--borders": borders}
    for option, value in choices.items():
        if value is not None:
            raise click.UsageError(f"{option} applies to requantization: add --quantize")
    return None
