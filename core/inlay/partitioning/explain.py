"""Why every operator went where: the report of a partitioned model, as data and as text."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from inlay import arith
from inlay.graph import ir
from inlay.graph.operator import Operator
from inlay.partitioning.annotate import Candidate, mismatches
from inlay.partitioning.outline import Partitioned, Placement
from inlay.plugins import Accept, AcceptIf, Reject, Verdict
from inlay.types import TensorType, TupleType, Type


@dataclass(frozen=True)
class OperatorReport:
    """One operator: the source `node`, the `target` and `region` that it is in, the `composite` that it is part of, if any, and
    every target's verdict in order of priority."""

    node: str
    operator: str
    type: str
    target: str
    region: str
    composite: str
    verdicts: tuple[tuple[str, str], ...]


@dataclass(frozen=True)
class RegionReport:
    """One region: how many operators it has, the bytes that cross its border (None where dimensions are symbolic), and, where its
    target takes it under a condition alone, that, in `condition`."""

    name: str
    target: str
    operators: int
    bytes_in: int | None
    bytes_out: int | None
    condition: str = ""


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
            where = f", where {region.condition}; else other targets" if region.condition else ""
            lines.append(f"{region.name} on {region.target}: {_count(region.operators, 'operator')}, {crossing}{where}")
        return "\n".join(lines)

    def to_text(self) -> str:
        """The summary, then every operator with the target that takes it, and the reasons of those that did not."""
        lines = [self.summary()]
        if self.operators:
            lines.append("")
        for item in self.operators:
            part = f" as part of {item.composite}" if item.composite else ""
            lines.append(f"{item.operator} at {item.node or '?'}: {item.target}{part}")
            before = [name for name, _ in item.verdicts].index(item.target)
            lines += [f"    {target}: {verdict}" for target, verdict in item.verdicts[:before]]
        return "\n".join(lines)


def explain(partitioned: Partitioned, candidates: Sequence[Candidate]) -> Report:
    """The report of a partitioned module."""
    operators = tuple(item for placement in partitioned.placements for item in _operators(placement, candidates))
    regions = []
    conditions = {guard.region: repr(guard.constraint) for guard in partitioned.guards}
    spare = {name for guard in partitioned.guards for name in guard.regions}
    for name, number in partitioned.regions.items():
        if name in spare:
            continue
        function = partitioned.module[name]
        count = sum(isinstance(e, ir.Call) and isinstance(e.callee, Operator) for e in ir.post_order(function))
        inputs = _size([param.type for param in function.params])
        target, results = str(candidates[number].target), _size([function.body.type])
        regions.append(RegionReport(name, target, count, inputs, results, conditions.get(name, "")))
    return Report(operators, tuple(regions))


def _operators(placement: Placement, candidates: Sequence[Candidate]) -> Iterator[OperatorReport]:
    names = [str(candidate.target) for candidate in candidates]
    homes = {
        id(call): (claim, region)
        for claim, region in zip(placement.claims, placement.regions, strict=True)
        for call in claim.members
    }
    for call in placement.annotated.calls:
        assert isinstance(call.callee, Operator)
        claim, region = homes[id(call)]
        verdicts = {}
        for number, verdict in enumerate(placement.annotated.verdicts[id(call)]):
            words = _words(verdict)
            if isinstance(verdict, Reject):
                words = "; ".join((words, *mismatches(candidates[number], call)))
            verdicts[names[number]] = words
        composite = "" if claim.composite is None else claim.composite.name
        yield OperatorReport(
            str(call.span or ""), call.callee.name, repr(call.type), names[claim.target], region, composite, tuple(verdicts.items())
        )


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
