"""Quantisation on the command line: options of `inlay compile`."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from inlay.quantization.settings import BORDERS, CALIBRATIONS, SCALES

if TYPE_CHECKING:
    from inlay.graph.ir import Module
    from inlay.quantization import Quantization, QuantizationReport


def quantize_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """`--quantize` and how."""
    for option in (
        click.option(
            "--borders", type=click.Choice(BORDERS), help="With --quantize: what the model takes and gives; default: float32."
        ),
        click.option("--scales", type=click.Choice(SCALES), help="With --quantize; power_of_two is for accelerators that shift."),
        click.option(
            "--calibration", type=click.Choice(CALIBRATIONS), help="With --quantize: how ranges are chosen; default: minmax."
        ),
        click.option(
            "--quantize",
            "samples",
            type=click.Path(exists=True, dir_okay=False, path_type=Path),
            metavar="FILE.npz",
            help="Make the model int8, calibrated with the samples of inputs in this file; says what every layer loses.",
        ),
    ):
        command = option(command)
    return command


@dataclass
class Quantizer:
    """Quantises a model when it is called, and keeps the report."""

    samples: Path
    settings: Quantization
    told: Callable[[str, int, int], None]
    reports: list[QuantizationReport] = field(default_factory=list)

    def __call__(self, module: Module) -> Module:
        from inlay.api import quantize

        self.told("quantize", 0, 0)
        found = quantize(module, self.samples, self.settings)
        self.reports.append(found.report)
        return found


def chosen(calibration: str | None, scales: str | None, borders: str | None, samples: Path | None) -> Quantization | None:
    """The settings, None for none. Raises `UsageError` for choices without samples."""
    from inlay.quantization import Quantization

    given = {"calibration": calibration, "scales": scales, "borders": borders}
    given = {name: value for name, value in given.items() if value is not None}
    if samples is not None:
        return Quantization(**given)  # type: ignore[arg-type]
    if given:
        raise click.UsageError(f"--{next(iter(given))} is for quantisation: give --quantize too")
    return None
