"""Renders the report on a partitioned model as a self-contained HTML page with a drawing of the graph."""

from __future__ import annotations

import json
from importlib.resources import files

from inlaid.partitioning.layered import draw
from inlaid.partitioning.report import OperatorReport, Report

DATA = "/*DATA*/"
"""Placeholder for the report in the template."""


def page(report: Report, title: str) -> str:
    """Render a report: the operators as a graph colored by target, with verdicts and costs, and the regions. A composite is one
    node."""
    groups: dict[int, list[OperatorReport]] = {}
    for item in report.operators:
        groups.setdefault(item.root, []).append(item)
    roots = sorted(groups)  # in topological order, since only the root's result leaves a composite
    node_numbers = {item.number: number for number, root in enumerate(roots) for item in groups[root]}
    reads = [
        list(
            dict.fromkeys(node_numbers[source] for item in groups[root] for source in item.reads if node_numbers[source] != number)
        )
        for number, root in enumerate(roots)
    ]
    drawing = draw(reads)
    targets = list(dict.fromkeys(name for item in report.operators for name, _ in item.verdicts))
    regions = {region.name: number for number, region in enumerate(report.regions)}
    report_data = report.to_json()
    data = {
        "title": title,
        "summary": report.summary().split("\n", 1)[0],
        "seconds": report.seconds,
        "targets": targets,
        "regions": report_data["regions"],
        "conversions": report_data["conversions"],
        "changes": [
            {"text": report.change(item), "nodes": list(dict.fromkeys(node_numbers[number] for number in item.operators))}
            for item in report.changes
        ],
        "nodes": [
            {
                "name": root.composite if root.parts > 1 else root.operator,
                "type": root.type,
                "target": targets.index(root.target),
                "region": regions.get(root.region, -1),
                "seconds": root.seconds,
                "parts": [
                    {"operator": item.operator, "node": item.node, "verdicts": [verdict for _, verdict in item.verdicts]}
                    for item in groups[root.number]
                ],
                "x": round(drawing.columns[number], 3),
                "y": drawing.layers[number],
            }
            for number, root in enumerate(report.operators[root] for root in roots)
        ],
        "edges": [[source, reader, [round(column, 3) for column in path]] for source, reader, path in drawing.edges],
    }
    text = json.dumps(data, separators=(",", ":")).replace("<", "\\u003c")  # names may contain "</script>"
    template = files("inlaid.partitioning").joinpath("page.html").read_text(encoding="utf-8")
    return template.replace(DATA, text)
