"""inlaid run."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click
import numpy as np

from inlaid_cli.common import (
    devices_option,
    dims_option,
    echo,
    inputs_option,
    is_package,
    json_option,
    load_or_compile,
    make_inputs,
    model_argument,
    precision_option,
    resolve_targets,
    seed_option,
    target_option,
)
from inlaid_cli.json_output import print_json
from inlaid_runtime.arith import SizeVar, free_vars
from inlaid_runtime.errors import CheckFailed, InputError
from inlaid_runtime.execution.example import PYTHON
from inlaid_runtime.execution.executable import Executable
from inlaid_runtime.execution.output import check_output, replacing, write_text
from inlaid_runtime.execution.profile import Profile


@click.command("run")
@model_argument
@target_option()
@dims_option
@devices_option
@precision_option
@inputs_option
@seed_option
@click.option("-o", "--output", type=click.Path(path_type=Path), help="Write outputs to this .npz file, or one to a .npy file.")
@click.option("--profile", is_flag=True, help="Print the time of each region and source node.")
@click.option("--shadow", "shadowed", is_flag=True, help="Compare regions with the reference target; fail beyond their tolerance.")
@click.option("--trace", type=click.Path(path_type=Path), help="Write the profile to this file as a Chrome trace.")
@click.option("--roofline", type=click.Path(path_type=Path), help="Write a roofline chart of the profile to this HTML file.")
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
    """Run MODEL (a package or a model file) once and print the outputs."""
    output_paths = list(filter(None, (output, trace, roofline)))
    if len({*output_paths}) < len(output_paths):
        raise click.UsageError("--output, --trace and --roofline need different files, got the same one")
    for path in output_paths:
        check_output(path, [model, *(Path(item.partition("=")[2] or item) for item in inputs)])
    if shadowed and is_package(model):
        raise click.UsageError(f"{model} is a package, which has no graph to compare: give the model that it was compiled from")
    executable = load_or_compile(model, targets, dims, as_json, precision, devices)
    if is_package(model):
        _check_sizes(model, executable, dims)
    arrays = make_inputs(executable.inputs, inputs, seed, dims)
    results = executable.run(arrays)
    if shadowed:
        compared = _shadow(model, resolve_targets(targets), dims, precision, arrays)
        runs = f"{compared} region run{'s' * (compared != 1)}"
        click.echo(f"shadow: {runs} compared with the reference target, all within tolerance", err=as_json)
    if output is not None:
        _save(output, results)
    measured = executable.profile(arrays) if profile or trace is not None or roofline is not None else None
    if measured is not None and trace is not None:
        measured.save_chrome_trace(trace)
    if measured is not None and roofline is not None:
        write_text(roofline, _roofline(measured, model.name))
    shown = measured if profile else None
    if as_json:
        outputs = {name: _summary(value) for name, value in results.items()}
        print_json({"outputs": outputs, **({"profile": shown.to_json()} if shown is not None else {})})
        return
    for name, value in results.items():
        echo(f"{name}: {_value_text(value)}")
    if shown is not None:
        echo(shown.table())


def _roofline(profile: Profile, title: str) -> str:
    """Render the roofline page of a profile."""
    from inlaid.plugins.registry import default_registry
    from inlaid_cli.roofline import roofline_page

    registry = default_registry()
    targets = dict.fromkeys(row.target for row in profile.rows())
    return roofline_page(profile, {name: registry.capabilities(registry.target(name)) for name in targets}, title)


def _shadow(model: Path, targets: tuple[str, ...], dims: dict[str, Any], precision: str, arrays: dict[str, Any]) -> int:
    """Compare each region with the reference target. Returns the number of compared region runs. Prints the regions that differ,
    worst first. If a region exceeds its tolerance, saves the inputs of the worst region and raises `CheckFailed`."""
    import inlaid
    from inlaid.driver.shadow import shadow
    from inlaid.settings import Settings

    comparison = shadow(inlaid.load(model, dims), arrays, targets, settings=Settings(precision=precision))
    for region in comparison.regions:
        if region.deviation.excess:
            click.echo(str(region), err=True)
    if comparison.difference is None:
        return comparison.compared
    path = Path(f"{model.stem}.shadow.npz")
    check_output(path, [model])
    comparison.difference.save(path)
    differing_count = sum(region.difference is not None for region in comparison.regions)
    extent_note = (
        f"; {differing_count} of {len(comparison.regions)} regions differ; this is the worst" if differing_count > 1 else ""
    )
    raise CheckFailed(f"{comparison.difference}{extent_note}", remedy=f"the inputs are in {path}")


def _check_sizes(model: Path, executable: Executable, dims: dict[str, Any]) -> None:
    """Check `--dim` for a package: it may only set sizes of random inputs. Raises `InputError`, and `UsageError` for bounds."""
    names = {each.name for spec in executable.inputs for dim in spec.shape for each in free_vars(dim) if isinstance(each, SizeVar)}
    for name, size in dims.items():
        if name not in names:
            raise InputError(f"the inputs of {model} have no symbolic dimension {name!r}", remedy=f"leave out --dim {name}")
        if not isinstance(size, int):
            raise click.UsageError(f"the dimensions of package {model} are already bounded: give {name!r} one size")


def _save(path: Path, results: dict[str, Any]) -> None:
    """Write arrays to an .npz file, or one to a .npy file, without changing the suffix of `path`. Raises `InputError` for more
    than one in a .npy file, and for results that are not numeric arrays."""
    unsupported = [name for name, value in results.items() if not isinstance(value, np.ndarray) or value.dtype == object]
    if unsupported:
        raise InputError(
            f"output {unsupported[0]} is a sequence, an optional or text, which .npz files cannot store", remedy=PYTHON
        )
    single = path.suffix == ".npy"
    if single and len(results) > 1:
        raise InputError(f"expected an .npz file for {len(results)} outputs, got {path}", remedy=f"use {path.with_suffix('.npz')}")
    with replacing(path) as file:
        np.save(file, *results.values()) if single else np.savez(file, **results)


def _summary(value: Any) -> dict[str, Any]:
    if not isinstance(value, np.ndarray):
        return {"type": type(value).__name__, "value": repr(value)[:200]}
    return {"dtype": value.dtype.name, "shape": list(value.shape), "first": [_plain(item) for item in value.reshape(-1)[:8]]}


def _plain(element: Any) -> Any:
    """Convert an element for JSON: numbers and booleans unchanged, other values as text."""
    return element.item() if isinstance(element, np.generic) else str(element)


def _value_text(value: Any) -> str:
    if not isinstance(value, np.ndarray):
        return repr(value)[:200]
    shown = ", ".join(str(item) for item in value.reshape(-1)[:8])
    return f"{value.dtype.name}{list(value.shape)} [{shown}{', ...' if value.size > 8 else ''}]"
