"""inlaid conformance."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click
from rich.console import Console
from rich.table import Table

from inlaid_cli.common import echo, json_option, progress_bar
from inlaid_cli.exit_codes import ExitCode
from inlaid_conformance.time_limit import CASE_LIMIT
from inlaid_runtime.cores import usable_cores
from inlaid_runtime.errors import InputError

if TYPE_CHECKING:
    from inlaid_conformance.report import Report


@click.command("conformance")
@click.option("--target", required=True, help="The target, such as acme or acme:cores=2.")
@click.option(
    "--report",
    "path",
    type=click.Path(dir_okay=False, path_type=Path),
    help="Write the results to this JSON file, and next to it as Markdown and as an SVG badge.",
)
@click.option(
    "--only", multiple=True, metavar="PREFIX", help="Run only cases with this id prefix, such as codegen or operators/agrees[conv."
)
@click.option(
    "--examples", default=2, show_default=True, type=click.IntRange(1), help="Random examples per operator and element type."
)
@click.option(
    "--jobs", default=usable_cores, show_default="one per usable core", type=click.IntRange(1), help="Parallel processes."
)
@click.option(
    "--limit",
    default=CASE_LIMIT,
    show_default=True,
    type=click.FloatRange(0, min_open=True),
    help="Seconds after which a case fails, for a slow simulator or a device that may block.",
)
@json_option
@click.pass_obj
def conformance_command(
    debug: bool | None,
    target: str,
    path: Path | None,
    only: tuple[str, ...],
    examples: int,
    jobs: int,
    limit: float,
    as_json: bool,
) -> None:
    """Check that a target's plugin fulfills the plugin contract.

    The levels are plugin, annotations, codegen, operators, runtime, devices, models and package. The exit code is 1 if a case
    fails. With --debug, failed cases have tracebacks.
    """
    from inlaid.plugins.registry import default_registry
    from inlaid_conformance import report as reports
    from inlaid_conformance.suite import cases, chosen, run_in_processes
    from inlaid_conformance.target_under_test import TargetUnderTest

    registry = default_registry()
    if all(problem.plugin != target.partition(":")[0] for problem in registry.problems()):
        registry.target(target)  # an unknown name is a usage error; a plugin that does not load fails the suite
    tested = TargetUnderTest(target, registry, examples)
    selection = chosen(tested, only)
    if not selection:
        raise InputError(f"no case id starts with {' or '.join(only)}", remedy="leave out --only to run all cases")
    with progress_bar(as_json) as progress:
        results = run_in_processes(tested, selection, jobs, lambda count: progress("check", count, len(selection)), limit)
    report = reports.make_report(tested, results, complete=len(selection) == len(cases(tested)))
    written = reports.write_report(report, path) if path is not None else ()
    if debug:
        for result in report.failures:
            click.echo(f"{result.id}:\n{result.trace}", err=True)
    if as_json:
        click.echo(reports.as_json(report))
    else:
        _show(report)
        if written:
            echo(f"wrote {', '.join(map(str, written))}")
    if report.failures:
        raise SystemExit(ExitCode.CHECK_FAILED)


def _show(report: Report) -> None:
    from inlaid_conformance.case import LEVELS
    from inlaid_conformance.report import COLUMNS, badge_text

    for result in report.failures:
        echo(f"{result.id}: {result.reason}")
    for name, claim in report.unexercised:
        echo(f"warning: {name}: accepted by the rules, but exercised by no case: {claim}")
    table = Table("level", title=f"{report.target}: {badge_text(report)}", title_justify="left")
    for column in COLUMNS:
        table.add_column(column, justify="right")
    for level in LEVELS:
        counts = report.counts(level)
        table.add_row(level, *(str(counts[column] or "") for column in COLUMNS))
    Console().print(table)
