"""Report of a run as JSON (`report.schema.json`), as Markdown, and as an SVG badge."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from inlaid import __version__
from inlaid.plugins import DeviceStatus, Tolerance
from inlaid_conformance.case import LEVELS, Outcome, Result
from inlaid_conformance.target_under_test import TargetUnderTest
from inlaid_runtime.execution.output import check_output, write_files
from inlaid_runtime.plugins.target import PLUGIN_API_VERSION

FORMAT = "inlaid-conformance-2"
NOT_CLAIMED = "not claimed"
COLUMNS = (*(outcome.value for outcome in (Outcome.PASSED, Outcome.FAILED, Outcome.EXPECTED, Outcome.SKIPPED)), NOT_CLAIMED)
"""Categories of the counts: the outcomes, and a separate category of skipped cases that the target does not accept."""


@dataclass(frozen=True)
class Report:
    """Results of a run. `complete`: every case of the suite has run, and examples covered everything that the rules accept."""

    target: str
    plugin: str
    distribution: str
    version: str
    device: DeviceStatus
    tolerances: tuple[Tolerance, ...]
    results: tuple[Result, ...]
    complete: bool

    @property
    def failures(self) -> tuple[Result, ...]:
        """The failed cases."""
        return tuple(result for result in self.results if result.outcome is Outcome.FAILED)

    @property
    def unexercised(self) -> tuple[tuple[str, str], ...]:
        """Parts that the rules accept but for which no example was found, each with the id of its case."""
        return tuple((result.id, claim) for result in self.results for claim in result.unexercised)

    def counts(self, level: str) -> Counter[str]:
        """Return the number of cases of a level, by category of `COLUMNS`."""
        return Counter(result_column(result) for result in self.results if result.level == level)


def result_column(result: Result) -> str:
    """Return the category of a result."""
    return result.outcome.value if result.claimed else NOT_CLAIMED


def make_report(tested: TargetUnderTest, results: Sequence[Result], complete: bool) -> Report:
    """Create the report of a run."""
    if tested.problem is not None:
        name = tested.text.partition(":")[0]
        device: DeviceStatus = DeviceStatus(False, "the plugin is unusable")
        tolerances: tuple[Tolerance, ...] = ()
    else:
        name, device = tested.plugin, tested.device
        # What the plugin fails to answer is among the failures.
        failed = any(result.outcome is Outcome.FAILED and result.level == "plugin" for result in results)
        tolerances = () if failed else tested.conformance.tolerances
    info = next((info for info in tested.registry.plugins() if info.name == name), None)
    origin = ("", "") if info is None else (info.distribution, info.version)
    complete = complete and device.available and not any(result.unexercised for result in results)
    return Report(tested.text, name, *origin, device, tolerances, tuple(results), complete)


def as_json(report: Report) -> str:
    """Format the report as JSON, one line per result, so that two reports can be compared by line."""
    levels = [{"level": level, **{column: report.counts(level)[column] for column in COLUMNS}} for level in LEVELS]
    head: dict[str, Any] = {
        "format": FORMAT,
        "inlaid": __version__,
        "contract": PLUGIN_API_VERSION,
        "target": report.target,
        "plugin": {"name": report.plugin, "distribution": report.distribution, "version": report.version},
        "device": asdict(report.device),
        "conforms": not report.failures,
        "complete": report.complete,
    }
    lists = {
        "levels": levels,
        "tolerances": [asdict(item) for item in report.tolerances],
        "results": [_as_item(result) for result in report.results],
    }
    lines = [f'  "{key}": {json.dumps(value)}' for key, value in head.items()]
    for key, items in lists.items():
        inner = ",\n".join(f"    {json.dumps(item)}" for item in items)
        lines.append(f'  "{key}": [\n{inner}\n  ]' if items else f'  "{key}": []')
    return "{\n" + ",\n".join(lines) + "\n}\n"


def _as_item(result: Result) -> dict[str, Any]:
    return {name: value for name, value in asdict(result).items() if name != "trace"}


def as_markdown(report: Report, badge: str) -> str:
    """Format the report as Markdown. `badge` is the name of the badge's file in the same folder."""
    plugin = f"{report.plugin} {report.version}".strip() + (f" ({report.distribution})" if report.distribution else "")
    lines = [
        f"# Conformance of `{report.target}`", "", f"![{badge_text(report)}]({badge})", "",
        f"Plugin {plugin}, Inlaid {__version__}, contract version {PLUGIN_API_VERSION}.",
        f"Device: {report.device.detail or 'no details'}.",
        "", f"| level | {' | '.join(COLUMNS)} |", f"|---|{'---:|' * len(COLUMNS)}",
    ]  # fmt: skip
    lines += [f"| {level} | {' | '.join(str(report.counts(level)[column]) for column in COLUMNS)} |" for level in LEVELS]
    for title, outcome in (("Failures", Outcome.FAILED), ("Expected failures", Outcome.EXPECTED)):
        results = [result for result in report.results if result.outcome is outcome]
        if results:
            lines += ["", f"## {title}", "", *(f"* `{result.id}`: {_inline(result.reason)}" for result in results)]
    if report.unexercised:
        lines += [
            "",
            "## Accepted by rules, but never exercised",
            "",
            *(f"* `{name}`: {_inline(claim)}" for name, claim in report.unexercised),
        ]
    if report.tolerances:
        lines += [
            "",
            "## Tolerances that the plugin declares",
            "",
            "| element type | operator | relative | absolute | steps |",
            "|---|---|---|---|---|",
        ]
        lines += [
            f"| {item.dtype} | {item.operator or 'all'} | {item.relative:g} | {item.absolute:g} | {item.steps} |"
            for item in report.tolerances
        ]
    lines += _operators(report)
    return "\n".join(lines) + "\n"


def _operators(report: Report) -> list[str]:
    """List for each operator the element types that agree with the reference, and why the other element types were not tried."""
    elements_by_operator: dict[str, list[str]] = {}
    rejections: dict[str, Counter[str]] = {}
    exercised_operators: list[str] = []
    failed_subjects = {result.id.partition("[")[2] for result in report.failures}
    for result in report.results:
        if result.id.startswith("operators/agrees["):
            operator, _, element = result.id.partition("[")[2][:-1].rpartition("-")
            if not result.claimed:
                rejections.setdefault(operator, Counter())[result.reason] += 1
            elif result.outcome is Outcome.PASSED and not {f"{operator}-{element}]", f"{operator}]"} & failed_subjects:
                elements_by_operator.setdefault(operator, []).append(element)
        elif result.id.startswith("operators/exercised[") and result.outcome is Outcome.PASSED:
            exercised_operators.append(result.id.partition("[")[2][:-1])
    for operator in exercised_operators:
        elements_by_operator.setdefault(operator, ["some, found by search"])
    lines = (
        ["", "## Operators", "", "| operator | element types that agree with the reference |", "|---|---|"]
        if elements_by_operator
        else []
    )
    lines += [f"| {operator} | {', '.join(elements)} |" for operator, elements in elements_by_operator.items()]
    missing = {operator: reasons for operator, reasons in rejections.items() if operator not in elements_by_operator}
    if missing:
        lines += ["", "## Operators that are not supported", ""]
        lines += [f"* {operator}: {_inline(reasons.most_common(1)[0][0])}" for operator, reasons in missing.items()]
    return lines


def _inline(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|").replace("<", "&lt;")


def badge_text(report: Report) -> str:
    """Return the text of the badge."""
    if report.failures:
        return f"{len(report.failures)} failing"
    passed = sum(result.outcome is Outcome.PASSED for result in report.results)
    return f"{passed} passed" if report.complete else f"{passed} passed, incomplete"


def as_svg(report: Report) -> str:
    """Render the badge."""
    label, text = "Inlaid conformance", badge_text(report)
    color = "#c0392b" if report.failures else "#2e7d32" if report.complete else "#8a6d00"
    left, right = (round(len(part) * 6.6) + 14 for part in (label, text))
    return f"""\
<svg xmlns="http://www.w3.org/2000/svg" width="{left + right}" height="20" role="img" aria-label="{label}: {text}">
  <title>{label}: {text}</title>
  <clipPath id="r"><rect width="{left + right}" height="20" rx="3"/></clipPath>
  <g clip-path="url(#r)">
    <rect width="{left}" height="20" fill="#444"/>
    <rect x="{left}" width="{right}" height="20" fill="{color}"/>
  </g>
  <g fill="#fff" text-anchor="middle" font-family="Verdana,DejaVu Sans,sans-serif" font-size="11">
    <text x="{left / 2:g}" y="14">{label}</text>
    <text x="{left + right / 2:g}" y="14">{text}</text>
  </g>
</svg>
"""


def write_report(report: Report, path: Path) -> tuple[Path, Path, Path]:
    """Write the JSON to a path, and the Markdown and the badge next to it with the same stem. Raises `InputError` for a path that
    is a folder or a device, and `OutputError`."""
    paths = path, path.with_suffix(".md"), path.with_suffix(".svg")
    texts = as_json(report), as_markdown(report, paths[2].name), as_svg(report)
    for file in paths:
        check_output(file)
    write_files({file: [text.encode()] for file, text in zip(paths, texts, strict=True)})
    return paths
