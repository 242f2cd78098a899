"""The report on a partitioned model as one page of HTML, with the graph drawn; it needs nothing but a browser."""

from __future__ import annotations

import json
from importlib.resources import files

from inlaid.partitioning.layered import draw
from inlaid.partitioning.report import Report

DATA = "/*DATA*/"
"""What stands in the template for the report."""


def page(report: Report, title: str) -> str:
    """The page of a report: its operators as a graph coloured by target, each with its verdicts and costs, and the regions."""
    drawing = draw([item.reads for item in report.operators])
    targets = list(dict.fromkeys(name for item in report.operators for name, _ in item.verdicts))
    regions = {region.name: number for number, region in enumerate(report.regions)}
    data = {
        "title": title,
        "summary": report.summary().split("\n", 1)[0],
        "seconds": report.seconds,
        "targets": targets,
        "regions": report.to_json()["regions"],
        "conversions": report.to_json()["conversions"],
        "changes": [{"text": report.change(item), "operators": list(item.operators)} for item in report.changes],
        "nodes": [
            {
                "operator": item.operator,
                "node": item.node,
                "type": item.type,
                "target": targets.index(item.target),
                "region": regions.get(item.region, -1),
                "composite": item.composite if item.parts > 1 else "",
                "seconds": item.seconds,
                "verdicts": [verdict for _, verdict in item.verdicts],
                "x": round(drawing.columns[item.number], 3),
                "y": drawing.layers[item.number],
            }
            for item in report.operators
        ],
        "edges": [[source, reader, [round(column, 3) for column in path]] for source, reader, path in drawing.edges],
    }
    text = json.dumps(data, separators=(",", ":")).replace("<", "\\u003c")  # names may hold the end of a script
    template = files("inlaid.partitioning").joinpath("page.html").read_text(encoding="utf-8")
    return template.replace(DATA, text)
