"""Why every operator went where: the report of a partitioned model, as data and as text."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from inlay import arith
from inlay.graph import ir
from inlay.graph.operator import Operator
from inlay.partitioning.annotate import Annotation, Candidate
from inlay.partitioning.outline import Partitioned
from inlay.plugins import Accept, AcceptIf, Reject, Verdict
from inlay.types import TensorType, TupleType, Type


@dataclass(frozen=True)
class OperatorReport:
    """One operator: the source `node`, the `target` that takes it, and every target's verdict in order of priority."""

    node: str
    operator: str
    type: str
    target: str
    verdicts: tuple[tuple[str, str], ...]


@dataclass(frozen=True)
class RegionReport:
    """One region: how many operators it has, and the bytes that cross its border (None where dimensions are symbolic)."""

    name: str
    target: str
    operators: int
    bytes_in: int | None
    bytes_out: int | None


@dataclass(frozen=True)
class Report:
    """A partitioned model, explained."""

    operators: tuple[OperatorReport, ...]
    regions: tuple[RegionReport, ...]

    def to_json(self) -> dict[str, Any]:
        """The report as plain data."""
        return {
            "operators": [{**asdict(item), "verdicts": dict(item.verdicts)} for item in self.operators],
            "regions": [asdict(item) for item in self.regions],
        }

    def summary(self) -> str:
        """How many operators went where, and the regions, as lines of text."""
        counts: dict[str, int] = {}
        for item in self.operators:
            counts[item.target] = counts.get(item.target, 0) + 1
        lines = [f"{_count(len(self.operators), 'operator')} in {_count(len(self.regions), 'region')}"]
        lines += [f"  {target}: {_count(count, 'operator')}" for target, count in counts.items()]
        if self.regions:
            lines.append("")
        for region in self.regions:
            crossing = f"{_bytes(region.bytes_in)} in, {_bytes(region.bytes_out)} out"
            lines.append(f"{region.name} on {region.target}: {_count(region.operators, 'operator')}, {crossing}")
        return "\n".join(lines)

    def to_text(self) -> str:
        """The summary, then every operator with the target that takes it, and the reasons of those that did not."""
        lines = [self.summary()]
        if self.operators:
            lines.append("")
        for item in self.operators:
            lines.append(f"{item.operator} at {item.node or '?'}: {item.target}")
            lines += [f"    {target}: {verdict}" for target, verdict in item.verdicts if verdict != "accepted"]
        return "\n".join(lines)


def explain(partitioned: Partitioned, candidates: Sequence[Candidate]) -> Report:
    """The report of a partitioned module."""
    operators = tuple(_operator(annotation, candidates) for annotation in partitioned.annotations)
    regions = []
    for name, number in partitioned.regions.items():
        function = partitioned.module[name]
        count = sum(isinstance(e, ir.Call) and isinstance(e.callee, Operator) for e in ir.post_order(function))
        inputs = _size([param.type for param in function.params])
        regions.append(RegionReport(name, str(candidates[number].target), count, inputs, _size([function.body.type])))
    return Report(operators, tuple(regions))


def _operator(annotation: Annotation, candidates: Sequence[Candidate]) -> OperatorReport:
    call = annotation.call
    assert isinstance(call.callee, Operator)
    names = [str(candidate.target) for candidate in candidates]
    # Targets after the one that took the operator were not needed.
    asked = zip(names[: annotation.target + 1], annotation.verdicts, strict=False)
    verdicts = tuple((name, _words(verdict)) for name, verdict in asked)
    return OperatorReport(str(call.span or ""), call.callee.name, repr(call.type), names[annotation.target], verdicts)


def _words(verdict: Verdict) -> str:
    match verdict:
        case Accept():
            return "accepted"
        case Reject(reason=reason):
            return f"rejected: {reason}"
        case AcceptIf(constraint=constraint):
            return f"accepted only where {constraint!r}"


def _size(types: Sequence[Type]) -> int | None:
    total = 0
    for type_ in types:
        if isinstance(type_, TupleType):
            size = _size(type_.fields)
        else:
            size = _tensor_bytes(type_)
        if size is None:
            return None
        total += size
    return total


def _tensor_bytes(type_: Type) -> int | None:
    if not isinstance(type_, TensorType):
        return None
    count = arith.product(type_.shape)
    return count * type_.dtype.bytes if isinstance(count, int) else None


def _count(number: int, what: str) -> str:
    return f"{number} {what}" if number == 1 else f"{number} {what}s"


def _bytes(size: int | None) -> str:
    return "a varying number of bytes" if size is None else f"{size} bytes"
