"""inlaid bench."""

from __future__ import annotations

import dataclasses
import textwrap
from pathlib import Path
from typing import Any

import click

from inlaid_bench.comparison import PEERS, Comparison, Result, Timing, check_installed, compare_engines, with_threads
from inlaid_cli.common import (
    dims_option,
    echo,
    inputs_option,
    is_package,
    json_option,
    make_inputs,
    model_argument,
    precision_option,
    progress_bar,
    refuse_package_options,
    resolve_targets,
    seed_option,
    target_option,
)
from inlaid_cli.exit_codes import ExitCode
from inlaid_cli.json_output import print_json
from inlaid_runtime.artifact import TensorSpec

COLUMNS = 100
"""Greatest width of the table, in characters."""
HEADER = ("engine", "median ms", "least .. greatest", "ratio", "of rounds", "prepare s", "MiB", "differs")


def _names(context: click.Context, parameter: click.Parameter, value: str) -> tuple[str, ...]:
    return tuple(dict.fromkeys(filter(None, (name.strip() for name in value.split(",")))))


@click.command("bench")
@model_argument
@target_option()
@dims_option
@precision_option
@inputs_option
@seed_option
@click.option("--threads", type=click.IntRange(1), help="Threads per engine. Default: as the target says, else all cores.")
@click.option("--against", default="", callback=_names, metavar="PEER,...", help=f"Engines to compare with: {', '.join(PEERS)}.")
@click.option("--rounds", default=5, show_default=True, type=click.IntRange(1), help="Rounds; each times every engine.")
@click.option("--seconds", default=1.0, show_default=True, type=click.FloatRange(0), help="Time per engine and round.")
@json_option
def bench_command(
    model: Path,
    targets: tuple[str, ...],
    dims: dict[str, Any],
    precision: str,
    inputs: tuple[str, ...],
    seed: int,
    threads: int | None,
    against: tuple[str, ...],
    rounds: int,
    seconds: float,
    as_json: bool,
) -> None:
    """Time MODEL, a package or a model file, alone or against other engines.

    Each engine runs in a separate process; all but the timed one are stopped. The ratio is Inlaid's median time divided by the
    other engine's: below 1, Inlaid is faster. The range next to the ratio has the least and greatest ratio of a round. All engines
    use the same precision: the model's, or bfloat16 for engines that support it. The exit code is 1 if an engine of --against could
    not run.
    """
    from inlaid.plugins.registry import default_registry

    check_installed(against)
    refuse_package_options(model, "targets", "dims", "precision")
    if threads and is_package(model):
        raise click.UsageError(f"{model} is compiled for a fixed number of threads: leave out --threads")
    targets, threads = with_threads(resolve_targets(targets), threads, default_registry())
    specs = _read_inputs(model, dims)
    inputs_by_name = make_inputs(specs, inputs, seed)
    arrays = {spec.name: inputs_by_name[spec.name] for spec in specs}
    comparison = Comparison(model, arrays, targets, threads, against, dims, rounds, seconds, precision=precision)
    with progress_bar(as_json) as report:
        result = compare_engines(comparison, report)
    if as_json:
        peers = result.timings[1:]
        ratios = {
            "ratio": {item.label: result.ratio(item) for item in peers},
            "ratios": {item.label: result.ratios(item) for item in peers},
        }
        print_json({"threads": threads, **dataclasses.asdict(result), **ratios})
    else:
        echo(render(comparison, result))
    if result.missing:
        raise SystemExit(ExitCode.CHECK_FAILED)


def _read_inputs(model: Path, dims: dict[str, Any]) -> tuple[TensorSpec, ...]:
    """Return the inputs of a model, without compiling it."""
    if is_package(model):
        from inlaid_runtime import load

        return load(model).inputs
    import inlaid
    from inlaid_runtime.types import TensorType

    params = inlaid.load(model, dims).main.params
    return tuple(
        TensorSpec(item.name, item.type.shape, item.type.dtype)
        if isinstance(item.type, TensorType)
        else TensorSpec(item.name, (), None)
        for item in params
    )


def render(comparison: Comparison, result: Result) -> str:
    """Format the result as a table of at most `COLUMNS` characters, followed by the engines that could not run and the settings."""
    shapes = ", ".join(f"{name} {array.dtype.name}{list(array.shape)}" for name, array in comparison.inputs.items())
    plural = "s" if comparison.threads > 1 else ""
    threads = "" if is_package(comparison.model) else f"{comparison.threads} thread{plural}; "
    rows = [HEADER, *(_row(result, item) for item in result.timings)]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    name_width = max(widths[0], *(len(item.label) for item in result.missing), 0)
    lines = [
        _wrapped(f"{comparison.model.name}: {shapes}; {threads}{comparison.rounds} rounds of {comparison.seconds:g} s each"),
        "",
    ]
    for label, *cells in rows:
        lines.append("  ".join([f"{label:<{name_width}}", *map(str.rjust, cells, widths[1:])]).rstrip())
    lines += [_wrapped(f"{item.label:<{name_width}}  {item.reason}", name_width + 2) for item in result.missing]
    lines += ["", "Settings:", *(_wrapped(f"  {item.label} {item.version}: {item.settings}") for item in result.timings)]
    return "\n".join(lines)


def _wrapped(line: str, indent: int = 4) -> str:
    return textwrap.fill(line, COLUMNS, subsequent_indent=" " * indent, drop_whitespace=True)


def _row(result: Result, item: Timing) -> tuple[str, ...]:
    ratio = rounds = difference = ""
    if item is not result.inlaid:
        each = result.ratios(item)
        ratio, rounds, difference = f"{result.ratio(item):.2f}", f"{min(each):.2f} .. {max(each):.2f}", f"{item.difference:.0e}"
    spread = f"{_milliseconds(min(item.rounds))} .. {_milliseconds(max(item.rounds))}"
    return (
        item.label,
        _milliseconds(item.median),
        spread,
        ratio,
        rounds,
        f"{item.prepare_s:.2f}",
        f"{item.peak_mib:.0f}",
        difference,
    )


def _milliseconds(value: float) -> str:
    return f"{value:.3f}" if value < 100 else f"{value:.1f}"
