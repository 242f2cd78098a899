"""inlaid run."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click
import numpy as np

from inlaid.arith import SizeVar, free_vars
from inlaid.cli.common import (
    devices_option,
    dims_option,
    echo,
    executable_of,
    given_or_default,
    inputs_option,
    is_package,
    json_option,
    make_inputs,
    model_argument,
    precision_option,
    seed_option,
    target_option,
)
from inlaid.cli.json_output import print_json
from inlaid.errors import CheckFailed, InputError
from inlaid.runtime.example import PYTHON
from inlaid.runtime.executable import Executable
from inlaid.runtime.output import check_output
from inlaid.runtime.profile import Profile


@click.command("run")
@model_argument
@target_option()
@dims_option
@devices_option
@precision_option
@inputs_option
@seed_option
@click.option("-o", "--output", type=click.Path(path_type=Path), help="Write the outputs to this .npz file.")
@click.option("--profile", is_flag=True, help="Say where the time went, by region and source node.")
@click.option(
    "--shadow",
    "shadowed",
    is_flag=True,
    help="Compare every region with the reference target; fail where one differs by more than is allowed.",
)
@click.option("--trace", type=click.Path(path_type=Path), help="Write the profile as a Chrome trace to this file.")
@click.option(
    "--roofline", type=click.Path(path_type=Path), help="Draw the profile under the target's limits on a page in this file."
)
@json_option
def run_command(
    model: Path,
    targets: tuple[str, ...],
    dims: dict[str, Any],
    devices: dict[str, int],
    precision: str,
    inputs: tuple[str, ...],
    seed: int,
    output: Path | None,
    profile: bool,
    shadowed: bool,
    trace: Path | None,
    roofline: Path | None,
    as_json: bool,
) -> None:
    """Run MODEL, a package or an ONNX file, once."""
    written = list(filter(None, (output, trace, roofline)))
    if len({*written}) < len(written):
        raise click.UsageError("expected a file for each of --output, --trace and --roofline, found one for several")
    for path in written:
        check_output(path, [model, *(Path(item.partition("=")[2] or item) for item in inputs)])
    if shadowed and is_package(model):
        raise click.UsageError(f"{model} is a package, which has no graph to compare with: give the model that it was made of")
    executable = executable_of(model, targets, dims, as_json, precision, devices)
    if is_package(model):
        _check_sizes(model, executable, dims)
    arrays = make_inputs(executable.inputs, inputs, seed, dims)
    results = executable.run(arrays)
    if shadowed:
        compared = _shadow(model, given_or_default(targets), dims, precision, arrays)
        runs = "1 run is" if compared == 1 else f"{compared} runs are"
        click.echo(f"every region agrees with the reference: {runs} compared", err=as_json)
    if output is not None:
        _save(output, results)
    measured = executable.profile(arrays) if profile or trace is not None or roofline is not None else None
    if measured is not None and trace is not None:
        measured.save_chrome_trace(trace)
    if measured is not None and roofline is not None:
        roofline.write_text(_roofline(measured, model.name), encoding="utf-8")
    shown = measured if profile else None
    if as_json:
        outputs = {name: _summary(value) for name, value in results.items()}
        print_json({"outputs": outputs, **({"profile": shown.to_json()} if shown is not None else {})})
        return
    for name, value in results.items():
        echo(f"{name}: {_words(value)}")
    if shown is not None:
        echo(shown.table())


def _roofline(profile: Profile, title: str) -> str:
    """The page of a profile."""
    from inlaid.cli.roofline import roofline_page
    from inlaid.plugins.registry import default_registry

    registry = default_registry()
    targets = dict.fromkeys(row.target for row in profile.rows())
    return roofline_page(profile, {name: registry.capabilities(registry.target(name)) for name in targets}, title)


def _shadow(model: Path, targets: tuple[str, ...], dims: dict[str, Any], precision: str, arrays: dict[str, Any]) -> int:
    """Compare regions with the reference, and print those that differ at all, the worst first: how many runs of them agree. Raises
    `CheckFailed` where one differs by more than is allowed, with the inputs of the worst saved beside."""
    import inlaid
    from inlaid.driver.shadow import shadow
    from inlaid.settings import Settings

    found = shadow(inlaid.load(model, dims), arrays, targets, settings=Settings(precision=precision))
    for region in found.regions:
        if region.deviation.excess:
            click.echo(str(region), err=True)
    if found.difference is None:
        return found.compared
    path = Path(f"{model.stem}.shadow.npz")
    check_output(path, [model])
    found.difference.save(path)
    wrong = sum(region.difference is not None for region in found.regions)
    others = f"; {wrong} of {len(found.regions)} regions differ, and this is the worst" if wrong > 1 else ""
    raise CheckFailed(f"{found.difference}{others}", remedy=f"the inputs are in {path}")


def _check_sizes(model: Path, executable: Executable, dims: dict[str, Any]) -> None:
    """A package's dimensions are fixed or bounded already: `--dim` only says how large random inputs are. Raises `UsageError`."""
    names = {each.name for spec in executable.inputs for dim in spec.shape for each in free_vars(dim) if isinstance(each, SizeVar)}
    for name, size in dims.items():
        if name not in names:
            raise click.UsageError(f"{model} is a package, and its inputs have no symbolic dimension {name!r}: leave --dim out")
        if not isinstance(size, int):
            raise click.UsageError(f"{model} is a package, whose dimensions are bounded already: give {name!r} one size")


def _save(path: Path, results: dict[str, Any]) -> None:
    """Write arrays to an .npz file of that very name. Raises `InputError` for results that are no arrays of numbers."""
    others = [name for name, value in results.items() if not isinstance(value, np.ndarray) or value.dtype == object]
    if others:
        raise InputError(f"output {others[0]} is a sequence, an optional or text, which no .npz file holds", remedy=PYTHON)
    with path.open("wb") as file:
        np.savez(file, **results)


def _summary(value: Any) -> dict[str, Any]:
    if not isinstance(value, np.ndarray):
        return {"type": type(value).__name__, "value": repr(value)[:200]}
    return {"dtype": value.dtype.name, "shape": list(value.shape), "first": [_plain(item) for item in value.reshape(-1)[:8]]}


def _plain(element: Any) -> Any:
    """An element as JSON has it: a number or a truth value, and of strings the text."""
    return element.item() if isinstance(element, np.generic) else str(element)


def _words(value: Any) -> str:
    if not isinstance(value, np.ndarray):
        return repr(value)[:200]
    shown = ", ".join(str(item) for item in value.reshape(-1)[:8])
    return f"{value.dtype.name}{list(value.shape)} [{shown}{', ...' if value.size > 8 else ''}]"
