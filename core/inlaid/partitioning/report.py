"""Report on a partitioned model, as data and as text."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from inlaid_runtime.markup import frame

SHOWN = 12
"""Maximum number of changes in the text. The data has all changes."""
_UNITS = ((1.0, "s"), (1e-3, "ms"), (1e-6, "us"), (1e-9, "ns"))
NODES = 3
"""Maximum number of operators that the text names for a change or a path."""


@dataclass(frozen=True)
class OperatorReport:
    """One operator. `composite` is the composite that contains it, if any, with the number of its operators (`parts`) and of its
    root operator (`root`; a single operator is its own root). `reads` are the numbers of the operators that it reads. `seconds` is
    the predicted time of its claim; None without a prediction, and for operators of a composite other than the root. `verdicts` has
    a pair (target, verdict) for each target, in order of priority."""

    number: int
    node: str
    operator: str
    type: str
    target: str
    region: str
    composite: str
    parts: int
    root: int
    reads: tuple[int, ...]
    seconds: float | None
    verdicts: tuple[tuple[str, str], ...]

    @property
    def name(self) -> str:
        """Name and source node of the operator."""
        return f"{self.operator} at {self.node or '?'}"


@dataclass(frozen=True)
class RegionReport:
    """One region. `bytes_in` and `bytes_out` cross its border; None if a dimension is symbolic. Its target accepts it only under
    `condition`, if not empty. `seconds` and `transfer` are predicted times of its operators and transfers; `measured` is a measured
    time. `earlier` is a region of the same target, from which a path through the operators `through` leads to this one: merged, the
    two would close a cycle. `generic` describes the reducing kernels with the generic schedule that take most of the time."""

    name: str
    target: str
    operators: int
    bytes_in: int | None
    bytes_out: int | None
    condition: str = ""
    seconds: float | None = None
    transfer: float | None = None
    measured: float | None = None
    earlier: str = ""
    through: tuple[int, ...] = ()
    generic: tuple[str, ...] = ()


@dataclass(frozen=True)
class ChangeReport:
    """Effect if `target` accepted `operators`, by number, that it rejects: the number of regions, and of bytes that cross borders,
    now and then (`_then`). `operator` is the name that the operators share, or ""."""

    target: str
    operator: str
    operators: tuple[int, ...]
    regions: int
    regions_then: int
    crossing: int
    crossing_then: int


@dataclass(frozen=True, repr=False)
class Report:
    """A partitioned model, explained. `conversions` are the regions that convert values at borders of other regions."""

    operators: tuple[OperatorReport, ...]
    regions: tuple[RegionReport, ...]
    changes: tuple[ChangeReport, ...] = ()
    conversions: tuple[RegionReport, ...] = ()

    @property
    def seconds(self) -> float:
        """Predicted seconds of all regions and transfers; 0 without a prediction."""
        return sum((region.seconds or 0.0) + (region.transfer or 0.0) for region in (*self.regions, *self.conversions))

    def __repr__(self) -> str:
        targets = ", ".join(dict.fromkeys(region.target for region in self.regions)) or "no target"
        predicted = f", predicted {duration(self.seconds)}" if self.seconds else ""
        return (
            f"<Report {_count(len(self.operators), 'operator')} in {_count(len(self.regions), 'region')} on {targets}{predicted}>"
        )

    def __str__(self) -> str:
        return self.to_text()

    def _repr_html_(self) -> str:
        from inlaid.partitioning.page import page

        return frame(page(self, repr(self)[1:-1]))

    def to_json(self) -> dict[str, Any]:
        """Return the report as plain data."""
        return {
            "operators": [{**asdict(item), "reads": list(item.reads), "verdicts": dict(item.verdicts)} for item in self.operators],
            "regions": [{**asdict(item), "through": list(item.through), "generic": list(item.generic)} for item in self.regions],
            "changes": [{**asdict(item), "operators": list(item.operators)} for item in self.changes],
            "conversions": [
                {**asdict(item), "through": list(item.through), "generic": list(item.generic)} for item in self.conversions
            ],
        }

    def summary(self) -> str:
        """Format the number of operators per target, and the regions, as lines of text."""
        counts: dict[str, int] = {}
        for item in self.operators:
            counts[item.target] = counts.get(item.target, 0) + 1
        between = f", {_count(len(self.conversions), 'conversion')} at their borders" if self.conversions else ""
        lines = [f"{_count(len(self.operators), 'operator')} in {_count(len(self.regions), 'region')}{between}"]
        lines += [f"  {target}: {_count(count, 'operator')}" for target, count in counts.items()]
        if self.regions:
            lines.append("")
        lines += [self._region(region) for region in self.regions]
        lines += [self._region(region, "a conversion") for region in self.conversions]
        return "\n".join(lines)

    def to_text(self) -> str:
        """Format the summary, the changes, and every operator with its target and the reasons of targets that did not get it."""
        lines = [self.summary()]
        slow = [f"{region.name} with the generic schedule: {kernel}" for region in self.regions for kernel in region.generic]
        if slow:
            lines += ["", *slow]
        separations = list(self._separations())
        if separations:
            lines += ["", *separations]
        if self.changes:
            lines += ["", *(self.change(item) for item in self.changes[:SHOWN])]
        if self.operators:
            lines.append("")
        for item in self.operators:
            part = f" as part of {item.composite}" if item.parts > 1 else ""
            lines.append(f"{item.name}: {item.target}{part}")
            lines += [f"    {target}: {verdict}" for target, verdict in item.verdicts if _explains_placement(item, target, verdict)]
        return "\n".join(lines)

    def change(self, item: ChangeReport) -> str:
        """Describe a change."""
        regions = f"{_count(item.regions_then, 'region')} instead of {item.regions}"
        crossing = f"{item.crossing_then} bytes instead of {item.crossing} across borders"
        return f"If {item.target} accepted {self._operator_names(item.operators, item.operator)}: {regions}, {crossing}"

    def _region(self, region: RegionReport, what: str = "") -> str:
        crossing = f"{_bytes(region.bytes_in)} in, {_bytes(region.bytes_out)} out"
        where = f", if {region.condition}; otherwise on other targets" if region.condition else ""
        cost = f"; predicted {duration(region.seconds)}" if region.seconds else ""
        cost += f" and {duration(region.transfer)} for transfers" if region.seconds and region.transfer else ""
        cost += "" if region.measured is None else f", measured {duration(region.measured)}"
        return f"{region.name} on {region.target}: {what or _count(region.operators, 'operator')}, {crossing}{where}{cost}"

    def _separations(self) -> Iterator[str]:
        """Explain why regions are not merged with earlier regions of their targets."""
        sufficient_changes = {change.operators for change in self.changes}
        for region in self.regions:
            if not region.earlier:
                continue
            if region.through in sufficient_changes:
                what = "One operator, {}, keeps" if len(region.through) == 1 else "{} keep"
                yield f"{what.format(self._operator_names(region.through))} {region.earlier} and {region.name} apart"
            else:
                yield f"{region.name} would close a cycle with {region.earlier} through {self._operator_names(region.through)}"

    def _operator_names(self, numbers: Sequence[int], operator: str = "") -> str:
        """Name some operators, with their source nodes."""
        if operator:
            nodes = ", ".join(self.operators[number].node or "?" for number in numbers[:NODES])
            more = f" and {len(numbers) - NODES} more" if len(numbers) > NODES else ""
            return f"{operator} at {nodes}{more}"
        names = [self.operators[number].name for number in numbers[:NODES]]
        return ", ".join(names) + (f" and {len(numbers) - NODES} more" if len(numbers) > NODES else "")


def _explains_placement(item: OperatorReport, target: str, verdict: str) -> bool:
    """Test whether a target's verdict explains the placement: the target has a higher priority, or lost on cost."""
    names = [name for name, _ in item.verdicts]
    return names.index(target) < names.index(item.target) or (target != item.target and "lost on cost" in verdict)


def _count(number: int, what: str) -> str:
    return f"{number} {what}" if number == 1 else f"{number} {what}s"


def _bytes(size: int | None) -> str:
    return "a varying number of bytes" if size is None else f"{size} bytes"


def duration(seconds: float) -> str:
    """Format a time to three digits with a unit."""
    scale, unit = next(((scale, unit) for scale, unit in _UNITS if seconds >= 0.9995 * scale), _UNITS[-1])
    return f"{seconds / scale:.3g} {unit}"
