"""inlaid compile."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from inlaid_cli.common import (
    PACKAGE,
    Report,
    dims_option,
    echo,
    echo_warnings,
    json_option,
    lock_option,
    model_argument,
    placement_option,
    precision_option,
    progress_bar,
    refuse_package,
    resolve_targets,
    target_option,
)
from inlaid_cli.json_output import print_json
from inlaid_cli.quantize import Quantizer, chosen, quantize_options
from inlaid_runtime.errors import FallbackWarning, InputError
from inlaid_runtime.execution.output import check_output

if TYPE_CHECKING:
    from inlaid.api import Compiled
    from inlaid.graph.ir import Module
    from inlaid.passes.manager import Timing
    from inlaid.plugins import Exported
    from inlaid.settings import Isolation


@click.command("compile")
@model_argument
@target_option()
@dims_option
@precision_option
@placement_option
@lock_option
@click.option(
    "--donate",
    multiple=True,
    metavar="INPUT",
    help="Let an output reuse the buffer of this input, such as a key-value cache updated in place. May be repeated.",
)
@quantize_options
@click.option("--isolate", is_flag=True, help="Run code generators in separate processes; if one fails, use the next target.")
@click.option(
    "--time-limit",
    type=click.FloatRange(min=0, min_open=True),
    metavar="SECONDS",
    help="With --isolate: time per region. Default: 300.",
)
@click.option("--memory-limit", type=click.IntRange(256), metavar="MIB", help="With --isolate: memory per region. Default: 4096.")
@click.option(
    "-o",
    "--output",
    help="Output. Default: the model's name with .inlaid. For a target that writes source files, such as microcontroller, any name "
    "without that suffix is a folder.",
)
@click.option("--timing", "timed", is_flag=True, help="Print the time of each stage and graph pass.")
@click.option("--no-cache", is_flag=True, help="Neither read nor write the compilation cache.")
@json_option
def compile_command(
    model: Path,
    targets: tuple[str, ...],
    dims: dict[str, Any],
    precision: str,
    placement: str,
    lock: Path | None,
    donate: tuple[str, ...],
    samples: Path | None,
    calibration: str | None,
    scales: str | None,
    arithmetic: str | None,
    borders: str | None,
    isolate: bool,
    time_limit: float | None,
    memory_limit: int | None,
    output: str | None,
    timed: bool,
    no_cache: bool,
    as_json: bool,
) -> None:
    """Compile MODEL into a package, or into source files for a target that writes them."""
    from inlaid.api import compile_file, read_lock
    from inlaid.settings import Settings

    refuse_package(model)
    targets = resolve_targets(targets)
    path = Path(output) if output else Path(f"{model.stem}{PACKAGE}")
    to_folder = output is not None and path.suffix != PACKAGE and _writes_folders(targets)
    if not to_folder:
        _check_package(output, path, model)
    passes = _pass_times() if timed else None
    isolation = _isolation(isolate, time_limit, memory_limit)
    quantization = chosen(samples, calibration, scales, arithmetic, borders)
    with echo_warnings() as caught_warnings, progress_bar(as_json) as report:
        stages = Stages(report)
        quantizer = Quantizer(samples, quantization, targets, stages) if samples is not None and quantization is not None else None
        compiled = compile_file(
            model,
            targets,
            dims=dims,
            progress=stages,
            instruments=[passes] if passes else (),
            cache=not no_cache,
            change=quantizer,
            settings=Settings(precision=precision, placement=placement, lock=read_lock(lock), isolation=isolation, donate=donate),
        )
        stages("save", 0, 0)
        exported = _export(compiled, path, model) if to_folder else None
        if exported is None:
            compiled.save(path)
        stages.finish()
    facts = {
        "package": str(path),
        "bytes": sum(file.stat().st_size for file in (exported.files if exported else (path,))),
        "weight_bytes": compiled.weight_bytes,
        "seconds": round(stages.total, 3),
        "regions": [{"target": region.target, "nodes": region.nodes} for region in compiled.regions],
    }
    if exported is not None:
        facts["firmware"] = dict(exported.facts)
    if quantizer is not None:
        facts["quantization"] = quantizer.reports[0].to_json()
    if isolation is not None:
        facts["fallbacks"] = [str(warning.message) for warning in caught_warnings if issubclass(warning.category, FallbackWarning)]
    if passes is not None:
        facts["stages"] = [{"name": name, "seconds": round(seconds, 6)} for name, seconds in stages.seconds]
        facts["passes"] = [{"name": name, "seconds": round(seconds, 6)} for name, seconds in passes.seconds]
    if as_json:
        print_json(facts)
        return
    echo(f"{path}: {facts['bytes']} bytes, compiled in {stages.total:.2f} s")
    for line in exported.lines if exported else ():
        echo(f"  {line}")
    for region in compiled.regions:
        echo(f"  {region.symbol} on {region.target}: {region.nodes} source nodes")
    if quantizer is not None:
        echo(quantizer.reports[0].to_text())
    if passes is not None:
        echo("\n".join(["", *map(_line, stages.seconds)]))
        if passes.seconds:  # a cached package runs none
            echo("\n".join(["", "graph passes, and those of regions:", *map(_line, passes.seconds)]))


def _check_package(output: str | None, path: Path, model: Path) -> None:
    """Raise `InputError` if no package can be written to `path`."""
    if output is not None and output.endswith(("/", os.sep)):
        raise InputError(
            f"expected a file for the package, got the folder {output}", remedy=f"give a file, such as -o {model.stem}{PACKAGE}"
        )
    check_output(path, [model])


def _writes_folders(targets: tuple[str, ...]) -> bool:
    # Imported here, since a model found in the cache does not need the compiler.
    from inlaid.driver.export import writes_folders

    return writes_folders(targets)


def _export(compiled: Compiled, folder: Path, model: Path) -> Exported:
    from inlaid.codegen.c_names import c_name
    from inlaid.driver.export import export_folder

    return export_folder(compiled.package, folder, c_name(model.stem))


def _isolation(isolate: bool, seconds: float | None, mebibytes: int | None) -> Isolation | None:
    """Return the limits on code generators, None if `isolate` is False. Raises `UsageError` for limits without isolation."""
    from inlaid.settings import Isolation

    if isolate:
        defaults = Isolation()
        return Isolation(seconds or defaults.seconds, defaults.memory if mebibytes is None else mebibytes << 20)
    if seconds is not None or mebibytes is not None:
        raise click.UsageError("--time-limit and --memory-limit apply to isolated code generators: add --isolate")
    return None


def _pass_times() -> Timing[Module]:
    from inlaid.passes.manager import Timing

    return Timing(lambda unit: "" if "main" in unit.functions else f"@{', '.join(unit.functions)}")


def _line(entry: tuple[str, float]) -> str:
    name, seconds = entry
    return f"  {name:<36} {seconds * 1e3:10.1f} ms"


class Stages:
    """Progress callback that records the duration of each stage and forwards to `then`."""

    def __init__(self, then: Report) -> None:
        self.seconds: list[tuple[str, float]] = []
        self._then = then
        self._stage = ""
        self._since = time.perf_counter()

    @property
    def total(self) -> float:
        """Seconds of all finished stages together."""
        return sum(seconds for _, seconds in self.seconds)

    def __call__(self, stage: str, completed: int, total: int) -> None:
        if stage != self._stage:
            self.finish()
            self._stage = stage
        self._then(stage, completed, total)

    def finish(self) -> None:
        """Record the end of the current stage."""
        now = time.perf_counter()
        if self._stage:
            self.seconds.append((self._stage, now - self._since))
        self._stage, self._since = "", now
