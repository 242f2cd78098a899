"""inlaid partition."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from inlaid_cli.common import (
    dims_option,
    echo,
    echo_warnings,
    json_option,
    model_argument,
    placement_option,
    precision_option,
    refuse_package,
    resolve_targets,
    target_option,
)
from inlaid_cli.json_output import print_json
from inlaid_runtime.execution.output import check_output, write_text

if TYPE_CHECKING:
    from inlaid.partitioning import Partitioned
    from inlaid.partitioning.annotate import Candidate


@click.command("partition")
@model_argument
@target_option()
@dims_option
@precision_option
@placement_option
@click.option("--explain", "explained", is_flag=True, help="Explain each operator's placement.")
@click.option("--measure", "measured", is_flag=True, help="Also compile and run the model, and print each region's time.")
@click.option("--html", type=click.Path(path_type=Path), help="Write an HTML page with a drawing of the graph and its regions.")
@click.option("--lock", type=click.Path(path_type=Path), help="Write a lock for `inlaid compile --lock`, and print what changed.")
@json_option
def partition_command(
    model: Path,
    targets: tuple[str, ...],
    dims: dict[str, Any],
    precision: str,
    placement: str,
    explained: bool,
    measured: bool,
    html: Path | None,
    lock: Path | None,
    as_json: bool,
) -> None:
    """Partition MODEL into regions, one target each, and print them."""
    import inlaid
    from inlaid.driver import build_regions, cut
    from inlaid.driver.measure import region_seconds, usual_inputs
    from inlaid.driver.report import build_report
    from inlaid.plugins.registry import default_registry
    from inlaid.settings import Settings
    from inlaid_runtime.execution.executable import Executable

    refuse_package(model)
    targets = resolve_targets(targets)
    if html is not None and html == lock:
        raise click.UsageError(f"--html and --lock need different files, got {html} for both")
    for path in filter(None, (html, lock)):
        check_output(path, [model])
    registry, settings = default_registry(), Settings(precision=precision, placement=placement)
    with echo_warnings():
        partitioned, candidates = cut(inlaid.load(model, dims), targets, registry, settings=settings)
        seconds = {}
        if measured:
            executable = Executable(build_regions(partitioned, candidates, registry, settings=settings), registry=registry)
            seconds = region_seconds(executable, usual_inputs(executable))
        report = build_report(partitioned, candidates, registry, settings, seconds, explained or as_json)
    if html is not None:
        from inlaid.partitioning.page import page

        write_text(html, page(report, model.name))
    differences = () if lock is None else _write_lock(lock, partitioned, candidates)
    if as_json:
        print_json({**report.to_json(), **({"lock_differences": list(differences)} if lock is not None else {})})
        return
    echo(report.to_text() if explained else report.summary())
    if differences:
        echo("\n".join(["", f"Differences from the previous {lock}:", *differences]))


def _write_lock(path: Path, partitioned: Partitioned, candidates: tuple[Candidate, ...]) -> tuple[str, ...]:
    """Write a lock file. Returns the differences from its previous contents. Raises `InputError` if the existing file is not a
    lock."""
    from inlaid.partitioning.lock import Lock

    now = Lock.from_partition(partitioned, candidates)
    differences = Lock.from_text(path.read_text(encoding="utf-8", errors="replace")).differences(now) if path.exists() else ()
    write_text(path, now.to_text())
    return differences
