"""What the subcommands share: options, models, inputs, output."""

from __future__ import annotations

import re
import warnings
import zipfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import click
import numpy as np
from click.core import ParameterSource
from rich.console import Console
from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

from inlaid.artifact import TensorSpec
from inlaid.cli.text import printable
from inlaid.errors import InlaidWarning, InputError
from inlaid.runtime.example import example_inputs
from inlaid.runtime.executable import Executable

Report = Callable[[str, int, int], None]
PACKAGE = ".inlaid"
"""Suffix of packages."""
_SIZE = re.compile(r"[0-9]{1,19}")  # as many digits as 64-bit integers have


def parse_dims(context: click.Context, parameter: click.Parameter, values: tuple[str, ...]) -> dict[str, int | tuple[int, int]]:
    """`name=4` or `name=1:64` as sizes and bounds, by name."""
    dims: dict[str, int | tuple[int, int]] = {}
    for value in values:
        name, equals, size = value.partition("=")
        low, colon, high = size.partition(":")
        if not (name and equals and _SIZE.fullmatch(low) and (_SIZE.fullmatch(high) if colon else True)):
            raise click.BadParameter(f"{value!r} is not NAME=SIZE or NAME=LEAST:GREATEST")
        if name in dims:
            raise click.BadParameter(f"dimension {name!r} is given twice")
        if int(high if colon else low) == 0:
            raise click.BadParameter(f"the size of dimension {name!r} must be >= 1, got {size}")
        dims[name] = (int(low), int(high)) if colon else int(low)
    return dims


def parse_targets(context: click.Context, parameter: click.Parameter, values: tuple[str, ...]) -> tuple[str, ...]:
    """Targets, given one by one or separated by commas; within a target, options are too: `x86:threads=1,cpu=native`."""
    found: list[str] = []
    for value in values:
        for part in value.split(","):
            if found and "=" in part and ":" in found[-1] and ":" not in part.partition("=")[0]:
                found[-1] += f",{part}"
            else:
                found.append(part)
    return tuple(found)


def target_option() -> Callable[[Any], Any]:
    """`--target`, or `--targets`, which may be given several times, in order of priority."""
    return click.option(
        "--target",
        "--targets",
        "targets",
        multiple=True,
        callback=parse_targets,
        metavar="TARGET",
        help="Target, such as x86 or x86:threads=1. Several, in order of priority: separate by commas or repeat. Default: x86, or "
        "reference where that is not installed.",
    )


def given_or_default(targets: tuple[str, ...]) -> tuple[str, ...]:
    """The targets of the command line, or the default ones, with a word on standard error where those are slow."""
    from inlaid.api import default_targets

    if targets:
        return targets
    with warnings_told():
        return default_targets()


dims_option = click.option(
    "--dim",
    "dims",
    multiple=True,
    callback=parse_dims,
    metavar="NAME=SIZE",
    help="Fix a symbolic dimension (batch=1), or bound it (batch=1:64).",
)


def parse_devices(context: click.Context, parameter: click.Parameter, values: tuple[str, ...]) -> dict[str, int]:
    """`cuda=1` as the number of a device, by kind of target or target."""
    devices: dict[str, int] = {}
    for value in values:
        target, equals, number = value.rpartition("=")
        if not (target and equals and _SIZE.fullmatch(number)):
            raise click.BadParameter(f"{value!r} is not TARGET=NUMBER")
        if target in devices:
            raise click.BadParameter(f"{target} is given two devices")
        devices[target] = int(number)
    return devices


devices_option = click.option(
    "--device",
    "devices",
    multiple=True,
    callback=parse_devices,
    metavar="TARGET=NUMBER",
    help="The number of the device that a kind of target runs on (cuda=1), or one target of several; 0 where it is left out.",
)
inputs_option = click.option(
    "--input",
    "inputs",
    multiple=True,
    metavar="NAME=FILE",
    help="An input as a .npy file, or all of them as an .npz file. Those left out are random.",
)
precision_option = click.option(
    "--precision",
    default="model",
    show_default=True,
    help="model: as the model says; bf16: products of float32 are taken of bfloat16, and summed in float32.",
)
placement_option = click.option(
    "--placement",
    type=click.Choice(["priority", "cost", "measured"]),
    default="priority",
    show_default=True,
    help="Where an operator goes that several targets take: to the first; where all takes the least predicted time; or as cost, "
    "with operators timed on their targets.",
)
lock_option = click.option(
    "--lock",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="Put operators where this file says, which `inlaid partition --lock` wrote.",
)
seed_option = click.option("--seed", default=0, show_default=True, type=click.IntRange(0), help="Seed of the random inputs.")
json_option = click.option("--json", "as_json", is_flag=True, help="Print JSON, for programs.")
model_argument = click.argument("model", type=click.Path(exists=True, path_type=Path))


@contextmanager
def progress_bar(quiet: bool = False) -> Iterator[Report]:
    """A progress bar on a terminal, nothing in a pipe."""
    console = Console(stderr=True)
    if quiet or not console.is_terminal:
        yield lambda stage, done, total: None
        return
    columns = (SpinnerColumn(), TextColumn("{task.description}"), BarColumn(), TimeElapsedColumn())
    with Progress(*columns, console=console, transient=True) as progress:
        task = progress.add_task("import", total=None)
        current = ""

        def report(stage: str, done: int, total: int) -> None:
            nonlocal current
            if stage != current:
                current = stage
                progress.reset(task, total=total or None)  # a bar that runs to and fro where the number of steps is not known
            progress.update(task, description=stage, completed=done)

        yield report


@contextmanager
def warnings_told() -> Iterator[list[warnings.WarningMessage]]:
    """Says Inlaid's own warnings on standard error, such as what a lock holds otherwise than it would be. Gives the list of all
    warnings, complete at the end."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", InlaidWarning)
        yield caught
    for warning in caught:
        if issubclass(warning.category, InlaidWarning):
            click.echo(printable(str(warning.message)), err=True)
        else:
            warnings.warn_explicit(warning.message, warning.category, warning.filename, warning.lineno)


def is_package(model: Path) -> bool:
    """Whether a file is a package by its name."""
    return model.suffix == PACKAGE


def refuse_given(model: Path, *parameters: str) -> None:
    """Raises `UsageError` where a package is given options that only compiling has a use for."""
    context = click.get_current_context()
    for name in parameters if is_package(model) else ():
        if context.get_parameter_source(name) is ParameterSource.COMMANDLINE:
            raise click.UsageError(f"{model} is a package, compiled already: leave --{name.removesuffix('s')} out")


def refuse_package(model: Path) -> None:
    """Raises `UsageError` for a package where only a model that is still to be compiled will do."""
    if is_package(model):
        raise click.UsageError(
            f"{model} is a compiled package, which inlaid run, bench and export take: give the ONNX model instead"
        )


def executable_of(
    model: Path,
    targets: tuple[str, ...],
    dims: Mapping[str, Any],
    quiet: bool = False,
    precision: str = "model",
    devices: Mapping[str, int] | None = None,
) -> Executable:
    """A package loaded, or a model compiled. Raises `UsageError` where a package is given a target or precision: it has them."""
    if is_package(model):
        from inlaid.runtime import load

        refuse_given(model, "targets", "precision")
        return load(model, devices=devices)
    import inlaid

    with progress_bar(quiet) as report:
        return inlaid.compile(model, given_or_default(targets), dims=dims, progress=report, precision=precision, devices=devices)


def make_inputs(
    specs: Sequence[TensorSpec], given: tuple[str, ...], seed: int, dims: Mapping[str, int | tuple[int, int]] | None = None
) -> dict[str, Any]:
    """Inputs from `name=file.npy` (or an .npz file with all), and seeded random ones for those not given. `dims` says how large
    the symbolic dimensions of random inputs are; those it does not fix are as small as may be, but not empty."""
    arrays: dict[str, Any] = {}
    remedy = "give one input as NAME=FILE.npy, or all of them as FILE.npz"
    for item in given:
        name, path = item.split("=", 1) if "=" in item else ("", item)
        source, equals = Path(path), "=" in item
        try:
            loaded = np.load(source, allow_pickle=False)
        except (OSError, ValueError, EOFError, zipfile.BadZipFile) as error:
            raise InputError(f"cannot read {source}: {error}", remedy=remedy) from error
        if equals != isinstance(loaded, np.ndarray):
            raise InputError(f"{source} holds {'one array' if isinstance(loaded, np.ndarray) else 'several arrays'}", remedy=remedy)
        found = {name: loaded} if equals else loaded
        for repeated in set(found) & set(arrays):
            raise InputError(f"input {repeated} is given twice", remedy=remedy)
        arrays.update(found)
    for spec in specs:
        array = arrays.get(spec.name)
        if array is not None and spec.dtype is not None and array.dtype == np.dtype(f"V{spec.dtype.bytes}"):
            arrays[spec.name] = array.view(spec.dtype.numpy)  # .npy files do not name the types that numpy lacks
    return {**example_inputs([spec for spec in specs if spec.name not in arrays], seed, dims or {}), **arrays}


def echo(text: str) -> None:
    """A line or more on standard output, with nothing in it that a terminal acts on."""
    click.echo(printable(text))
