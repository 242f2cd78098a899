"""Options, models, inputs and output shared by the subcommands."""

from __future__ import annotations

import re
import sys
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from click.core import ParameterSource

from inlaid_cli.text import printable
from inlaid_runtime.errors import InlaidWarning, InputError

if TYPE_CHECKING:
    from inlaid_runtime.artifact import TensorSpec
    from inlaid_runtime.execution.executable import Executable

Report = Callable[[str, int, int], None]
PACKAGE = ".inlaid"
"""Suffix of packages."""
_SIZE = re.compile(r"[0-9]{1,19}")  # no more digits than a 64-bit integer has


def parse_dims(context: click.Context, parameter: click.Parameter, values: tuple[str, ...]) -> dict[str, int | tuple[int, int]]:
    """Parse `name=4` or `name=1:64` into sizes and (least, greatest) bounds by name."""
    dims: dict[str, int | tuple[int, int]] = {}
    for value in values:
        name, equals, size = value.partition("=")
        low, colon, high = size.partition(":")
        if not (name and equals and _SIZE.fullmatch(low) and (_SIZE.fullmatch(high) if colon else True)):
            raise click.BadParameter(f"expected NAME=SIZE or NAME=LEAST:GREATEST, got {value!r}")
        if name in dims:
            raise click.BadParameter(f"dimension {name!r} is given twice")
        if int(high if colon else low) < max(int(low), 1):
            raise click.BadParameter(f"expected sizes >= 1 and LEAST <= GREATEST for dimension {name!r}, got {size}")
        dims[name] = (int(low), int(high)) if colon else int(low)
    return dims


def parse_targets(context: click.Context, parameter: click.Parameter, values: tuple[str, ...]) -> tuple[str, ...]:
    """Split targets given as separate options or separated by commas. A target may contain commas, as in
    `x86:threads=1,cpu=native`."""
    targets: list[str] = []
    for value in values:
        for part in value.split(","):
            if targets and "=" in part and ":" in targets[-1] and ":" not in part.partition("=")[0]:
                targets[-1] += f",{part}"
            else:
                targets.append(part)
    return tuple(targets)


def target_option() -> Callable[[Any], Any]:
    """Create the repeatable option `--target` (or `--targets`), whose values are in order of priority."""
    return click.option(
        "--target",
        "--targets",
        "targets",
        multiple=True,
        callback=parse_targets,
        metavar="TARGET",
        help="Target, such as x86 or x86:threads=1. For several, in order of priority, use commas or repeat the option. "
        "Default: x86, or reference if x86 is not installed.",
    )


def resolve_targets(targets: tuple[str, ...]) -> tuple[str, ...]:
    """Return the targets of the command line, or else the default targets, with a warning on standard error if these are slow."""
    from inlaid.api import default_targets

    if targets:
        return targets
    with echo_warnings():
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
    """Parse `cuda=1` into device numbers by target kind or target."""
    devices: dict[str, int] = {}
    for value in values:
        target, equals, number = value.rpartition("=")
        if not (target and equals and _SIZE.fullmatch(number)):
            raise click.BadParameter(f"expected TARGET=NUMBER, got {value!r}")
        if target in devices:
            raise click.BadParameter(f"target {target} is given two devices: give one")
        devices[target] = int(number)
    return devices


devices_option = click.option(
    "--device",
    "devices",
    multiple=True,
    callback=parse_devices,
    metavar="TARGET=NUMBER",
    help="Number of the device to run on, by target kind (cuda=1) or by target. Default: 0.",
)
inputs_option = click.option(
    "--input",
    "inputs",
    multiple=True,
    metavar="NAME=FILE",
    help="An input as a .npy file, or all inputs as FILE.npz without NAME=. Inputs not given are random.",
)
precision_option = click.option(
    "--precision",
    default="model",
    show_default=True,
    help="Arithmetic of float32 models. model: in the model's dtypes; bf16: multiply in bfloat16, accumulate in float32.",
)
placement_option = click.option(
    "--placement",
    type=click.Choice(["priority", "cost", "measured"]),
    default="priority",
    show_default=True,
    help="How to choose among targets that accept an operator. priority: the first listed; cost: the least predicted total time; "
    "measured: the least total time, with operators timed on their targets.",
)
lock_option = click.option(
    "--lock",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="Place operators as in this file, written by `inlaid partition --lock`.",
)
seed_option = click.option("--seed", default=0, show_default=True, type=click.IntRange(0), help="Seed for random inputs.")
json_option = click.option("--json", "as_json", is_flag=True, help="Print JSON.")
model_argument = click.argument("model", type=click.Path(exists=True, path_type=Path))


@contextmanager
def progress_bar(quiet: bool = False) -> Iterator[Report]:
    """Show a progress bar on standard error if it is a terminal. Yields the progress callback (stage, completed, total)."""
    if quiet or not sys.stderr.isatty():
        yield lambda stage, completed, total: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

    console = Console(stderr=True)
    columns = (SpinnerColumn(), TextColumn("{task.description}"), BarColumn(), TimeElapsedColumn())
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as progress:
        task = progress.add_task("import", total=None)
        current = ""

        def report(stage: str, completed: int, total: int) -> None:
            nonlocal current
            if stage != current:
                current = stage
                progress.reset(task, total=total or None)  # without a total the bar pulses
            progress.update(task, description=stage, completed=completed)

        yield report


@contextmanager
def echo_warnings() -> Iterator[list[warnings.WarningMessage]]:
    """Print Inlaid's warnings to standard error at the end, equal ones once. Yields the list of all warnings, complete after the
    block."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", InlaidWarning)
        yield caught
    for text in dict.fromkeys(str(warning.message) for warning in caught if issubclass(warning.category, InlaidWarning)):
        click.echo(printable(text), err=True)
    for warning in caught:
        if not issubclass(warning.category, InlaidWarning):
            warnings.warn_explicit(warning.message, warning.category, warning.filename, warning.lineno)


def is_package(model: Path) -> bool:
    """Test whether a path names a package, judged by its suffix."""
    return model.suffix == PACKAGE


def refuse_package_options(model: Path, *parameters: str) -> None:
    """Raise `UsageError` if a package is given options that only compilation uses."""
    context = click.get_current_context()
    for name in parameters if is_package(model) else ():
        if context.get_parameter_source(name) is ParameterSource.COMMANDLINE:
            raise click.UsageError(f"{model} is already compiled: leave out --{name.removesuffix('s')}")


def refuse_package(model: Path) -> None:
    """Raise `UsageError` if the model is a package where an uncompiled model is required."""
    if is_package(model):
        raise click.UsageError(f"expected a model, got the compiled package {model}: packages are for inlaid run, bench and export")


def load_or_compile(
    model: Path,
    targets: tuple[str, ...],
    dims: Mapping[str, Any],
    quiet: bool = False,
    precision: str = "model",
    devices: Mapping[str, int] | None = None,
) -> Executable:
    """Load a package, or compile a model. Raises `UsageError` if a package is given a target or a precision."""
    if is_package(model):
        from inlaid_runtime import load

        refuse_package_options(model, "targets", "precision")
        return load(model, devices=devices)
    import inlaid

    with progress_bar(quiet) as report:
        return inlaid.compile(model, resolve_targets(targets), dims=dims, progress=report, precision=precision, devices=devices)


def make_inputs(
    specs: Sequence[TensorSpec], assignments: tuple[str, ...], seed: int, dims: Mapping[str, int | tuple[int, int]] | None = None
) -> dict[str, Any]:
    """Read inputs from `name=file.npy` or an .npz file; other inputs are random, from `seed`. A symbolic dimension has the size in
    `dims`, else that of the inputs read, else its lower bound, but at least 1. Raises `InputError` where sizes differ."""
    import zipfile

    import numpy as np

    from inlaid_runtime.execution.example import example_inputs

    arrays: dict[str, Any] = {}
    sizes = {name: size for name, size in (dims or {}).items() if isinstance(size, int)}
    remedy = "give one input as NAME=FILE.npy, or all of them as FILE.npz"
    for item in assignments:
        name, path = item.split("=", 1) if "=" in item else ("", item)
        source, equals = Path(path), "=" in item
        try:
            loaded = np.load(source, allow_pickle=False)
        except (OSError, ValueError, EOFError, zipfile.BadZipFile) as error:
            raise InputError(f"cannot read {source}: {error}", remedy=remedy) from error
        if equals != isinstance(loaded, np.ndarray):
            raise InputError(f"{source} holds {'one array' if isinstance(loaded, np.ndarray) else 'several arrays'}", remedy=remedy)
        named_arrays = {name: loaded} if equals else loaded
        for repeated in set(named_arrays) & set(arrays):
            raise InputError(f"input {repeated} is given twice", remedy=remedy)
        arrays.update(named_arrays)
    for spec in specs:
        array = arrays.get(spec.name)
        for dim, extent in zip(spec.shape, getattr(array, "shape", ()), strict=False):
            if not isinstance(dim, int) and sizes.setdefault(repr(dim), extent) != extent:
                raise InputError(
                    f"dimension '{dim!r}' must be {sizes[repr(dim)]}, got {extent} in input {spec.name!r}",
                    remedy="give one size by --dim and all inputs",
                )
        if array is not None and spec.dtype is not None and array.dtype == np.dtype(f"V{spec.dtype.bytes}"):
            arrays[spec.name] = array.view(spec.dtype.numpy)  # .npy files store types that numpy lacks as raw bytes
    return {**example_inputs([spec for spec in specs if spec.name not in arrays], seed, sizes), **arrays}


def echo(text: str) -> None:
    """Print text to standard output, with characters that would control the terminal escaped."""
    click.echo(printable(text))
