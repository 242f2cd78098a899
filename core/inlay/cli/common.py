"""What the subcommands share: options, models, inputs, output."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import click
import numpy as np
from rich.console import Console
from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

from inlay.errors import InputError
from inlay.runtime.executable import Executable

Report = Callable[[str, int, int], None]


def parse_dims(context: click.Context, parameter: click.Parameter, values: tuple[str, ...]) -> dict[str, int | tuple[int, int]]:
    """`name=4` or `name=1:64` as sizes and bounds, by name."""
    dims: dict[str, int | tuple[int, int]] = {}
    for value in values:
        name, equals, size = value.partition("=")
        low, colon, high = size.partition(":")
        if not (name and equals and low.isdigit() and (high.isdigit() if colon else True)):
            raise click.BadParameter(f"{value!r} is not NAME=SIZE or NAME=LEAST:GREATEST")
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


def target_option(name: str = "--target") -> Callable[[Any], Any]:
    """`--target`, which may be given several times, in order of priority."""
    return click.option(
        name,
        "targets",
        multiple=True,
        default=("x86",),
        show_default=True,
        callback=parse_targets,
        metavar="TARGET",
        help="Target, such as x86 or x86:threads=1. Several, in order of priority: separate by commas or repeat.",
    )


dims_option = click.option(
    "--dim",
    "dims",
    multiple=True,
    callback=parse_dims,
    metavar="NAME=SIZE",
    help="Fix a symbolic dimension (batch=1), or bound it (batch=1:64).",
)
json_option = click.option("--json", "as_json", is_flag=True, help="Print JSON, for programs.")
model_argument = click.argument("model", type=click.Path(exists=True, dir_okay=False, path_type=Path))


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


def executable_of(model: Path, targets: tuple[str, ...], dims: Mapping[str, Any], quiet: bool = False) -> Executable:
    """A package loaded, or a model compiled."""
    if model.suffix == ".inlay":
        from inlay.runtime import load

        return load(model)
    import inlay

    with progress_bar(quiet) as report:
        return inlay.compile(model, targets, dims=dims, progress=report)


def make_inputs(executable: Executable, given: tuple[str, ...], seed: int) -> dict[str, Any]:
    """Inputs from `name=file.npy` (or an .npz file with all), and seeded random ones for those not given."""
    arrays: dict[str, Any] = {}
    for item in given:
        name, equals, path = item.partition("=")
        source = Path(path if equals else item)
        try:
            loaded = np.load(source, allow_pickle=False)
        except (OSError, ValueError) as error:
            raise InputError(f"cannot read {source}: {error}", remedy="give a .npy or .npz file") from error
        if equals:
            arrays[name] = loaded
        else:
            arrays.update(loaded)
    generator = np.random.default_rng(seed)
    for spec in executable.inputs:
        if spec.name not in arrays:
            shape = tuple(dim if isinstance(dim, int) else 1 for dim in spec.shape)
            arrays[spec.name] = random_array(generator, shape, spec.dtype)
    return arrays


def random_array(generator: np.random.Generator, shape: tuple[int, ...], dtype: Any) -> Any:
    """Random elements: floats in [0, 1), integers and bools 0 or 1."""
    values = generator.random(shape)
    return (values if dtype.is_float else np.round(values)).astype(dtype.numpy)


def print_json(value: object) -> None:
    """JSON on standard output."""
    click.echo(json.dumps(value, indent=2))
