"""inlaid bench."""

from __future__ import annotations

import dataclasses
import statistics
from pathlib import Path
from typing import Any

import click

from inlaid.artifact import TensorSpec
from inlaid.cli.common import (
    dims_option,
    echo,
    given_or_default,
    inputs_option,
    is_package,
    json_option,
    make_inputs,
    model_argument,
    precision_option,
    progress_bar,
    refuse_given,
    seed_option,
    target_option,
)
from inlaid.cli.contest import PEERS, Contest, Result, Timing, compete, with_threads
from inlaid.cli.json_output import print_json


def _names(context: click.Context, parameter: click.Parameter, value: str) -> tuple[str, ...]:
    return tuple(dict.fromkeys(filter(None, (name.strip() for name in value.split(",")))))


@click.command("bench")
@model_argument
@target_option()
@dims_option
@precision_option
@inputs_option
@seed_option
@click.option("--threads", type=click.IntRange(1), help="Threads of every engine; default: the target's, else all processors.")
@click.option("--against", default="", callback=_names, metavar="PEER,...", help=f"Engines to compare with, of {', '.join(PEERS)}.")
@click.option("--rounds", default=5, show_default=True, type=click.IntRange(1), help="Rounds, in which the engines take turns.")
@click.option("--seconds", default=1.0, show_default=True, type=click.FloatRange(0), help="How long each runs in a round.")
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
    """Time MODEL, a package or an ONNX file, alone or against other engines.

    Each engine runs in its own process, all but the one being timed are stopped, and they take turns for several rounds. A ratio
    is Inlaid's time by the other's within one round: below 1, Inlaid is faster. All are held to one precision: the model's, or
    bfloat16 for those that can.
    """
    from inlaid.plugins.registry import default_registry

    refuse_given(model, "targets", "dims", "precision")
    if threads and is_package(model):
        raise click.UsageError(f"{model} runs on the threads that it was compiled for: leave --threads out")
    targets, threads = with_threads(given_or_default(targets), threads, default_registry())
    specs = _inputs_of(model, dims)
    made = make_inputs(specs, inputs, seed)
    arrays = {spec.name: made[spec.name] for spec in specs}
    contest = Contest(model, arrays, targets, threads, against, dims, rounds, seconds, precision=precision)
    with progress_bar(as_json) as report:
        result = compete(contest, report)
    if as_json:
        print_json({"threads": threads, **dataclasses.asdict(result), "ratios": _ratios(result)})
    else:
        echo(render(contest, result))


def _inputs_of(model: Path, dims: dict[str, Any]) -> tuple[TensorSpec, ...]:
    """The inputs of a model, without compiling it."""
    if is_package(model):
        from inlaid.runtime import load

        return load(model).inputs
    import inlaid
    from inlaid.types import TensorType

    params = inlaid.load(model, dims).main.params
    return tuple(
        TensorSpec(item.name, item.type.shape, item.type.dtype)
        if isinstance(item.type, TensorType)
        else TensorSpec(item.name, (), None)
        for item in params
    )


def _ratios(result: Result) -> dict[str, tuple[float, ...]]:
    return {item.label: result.ratios(item) for item in result.timings[1:]}


def render(contest: Contest, result: Result) -> str:
    """The result as a table, with what did not take part and the settings under it."""
    shapes = ", ".join(f"{name} {array.dtype.name}{list(array.shape)}" for name, array in contest.inputs.items())
    plural = "s" if contest.threads > 1 else ""
    threads = "" if is_package(contest.model) else f"{contest.threads} thread{plural}; "
    lines = [
        f"{contest.model.name}: {shapes}; {threads}{contest.rounds} rounds of {contest.seconds:g} s each",
        "",
        f"{'engine':<24}{'median ms':>11}{'least .. greatest':>20}{'ratio':>8}  {'ratio per round':<36}{'prepare s':>10}{'MiB':>7}"
        f"{'differs by':>12}",
    ]
    lines += [_row(result, item) for item in result.timings]
    lines += [f"{item.label:<24}{item.reason}" for item in result.missing]
    lines += ["", "Settings:", *(f"  {item.label} {item.version}: {item.settings}" for item in result.timings)]
    return "\n".join(lines)


def _row(result: Result, item: Timing) -> str:
    spread = f"{min(item.rounds):.3f} .. {max(item.rounds):.3f}"
    ratios = () if item is result.own else result.ratios(item)
    middle = f"{statistics.median(ratios):.2f}" if ratios else ""
    each = " ".join(f"{ratio:.2f}" for ratio in ratios)
    difference = f"{item.difference:.1e}" if ratios else ""
    return (
        f"{item.label:<24}{item.median:>11.3f}{spread:>20}{middle:>8}  {each:<36}{item.prepare_s:>10.2f}{item.peak_mib:>7.0f}"
        f"{difference:>12}"
    )
