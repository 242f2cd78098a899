"""Explains why regions are not merged, and what would change if a target accepted an operator that it rejects.

Recounts regions by the rule of `outline` after some operators have changed their targets. Works on operator numbers only.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property

from inlaid.graph import ir
from inlaid.graph.operator import Operator
from inlaid.graph.scopes import analyse
from inlaid.partitioning.annotate import targeted
from inlaid.partitioning.flow import collect_values
from inlaid.partitioning.outline import Placement
from inlaid.plugins import Reject

LONGEST_PATH = 3
"""Maximum number of operators on a path between two regions. A change by which the target accepts a longer path is not
evaluated."""
MAX_CHANGES = 64
"""Maximum number of changes to evaluate. Each change needs a traversal of the model."""


@dataclass(frozen=True)
class Counted:
    """Number of regions, and of bytes that cross their borders. A value counts once for each region that reads it."""

    regions: int
    crossing: int


@dataclass(frozen=True)
class Change:
    """Effect if `target` accepted more operators: the operators by number, and the counts `before` and `after`."""

    target: int
    operators: tuple[int, ...]
    before: Counted
    after: Counted


@dataclass(frozen=True)
class SeparatingPath:
    """A path of operators, by number, that keeps two regions of one target apart, `earlier` and `later`."""

    earlier: str
    later: str
    through: tuple[int, ...]


@dataclass(frozen=True)
class Flow:
    """The operators of a placed function, by number: `homes` has their target numbers, `names` their names, `regions` their
    regions, and `rejected` the targets that reject them. `reads` has the operators of the same scope that each operator reads.
    `values` are triples of source (-1: the host), bytes and readers. If `plain`, no control flow is between operators, and the
    counts are exact."""

    homes: tuple[int, ...]
    names: tuple[str, ...]
    regions: tuple[str, ...]
    reads: tuple[tuple[int, ...], ...]
    values: tuple[tuple[int, int, tuple[int, ...]], ...]
    rejected: tuple[frozenset[int], ...] = field(repr=False)
    plain: bool

    @staticmethod
    def from_placement(placement: Placement) -> Flow:
        """Extract the flow of a placed function."""
        annotated = placement.annotated
        positions = annotated.positions
        count = len(annotated.calls)
        homes, regions = [0] * count, [""] * count
        for claim, region in zip(placement.claims, placement.regions, strict=True):
            for call in claim.members:
                homes[positions[id(call)]], regions[positions[id(call)]] = claim.target, region
        scopes = analyse(annotated.function)
        scope_ids = [id(scopes.expr_scopes.get(id(call))) for call in annotated.calls]
        reads: list[dict[int, None]] = [{} for _ in range(count)]
        values = []
        for value in collect_values(annotated.function):
            source = -1 if value.source is None else positions[id(value.source)]
            readers = tuple(positions[id(reader)] for reader in value.readers)
            values.append((source, value.size, readers))
            for reader in readers:
                if source >= 0 and scope_ids[source] == scope_ids[reader]:
                    reads[reader][source] = None
        names = tuple(call.callee.name for call in annotated.calls if isinstance(call.callee, Operator))
        verdicts = [annotated.verdicts[id(call)] for call in annotated.calls]
        rejected = tuple(frozenset(n for n, verdict in enumerate(item) if isinstance(verdict, Reject)) for item in verdicts)
        return Flow(
            tuple(homes),
            names,
            tuple(regions),
            tuple(map(tuple, reads)),
            tuple(values),
            rejected,
            _has_no_control_flow(annotated.function),
        )

    def levels(self, homes: Sequence[int]) -> list[int]:
        """Return the level of each operator: the greatest number of borders on a path to it."""
        levels: list[int] = []
        for number, sources in enumerate(self.reads):
            home, level = homes[number], 0
            for source in sources:
                level = max(level, levels[source] + (homes[source] != home))
            levels.append(level)
        return levels

    def count(self, homes: Sequence[int]) -> Counted:
        """Count the regions for a given assignment of targets."""
        keys = list(zip(self.levels(homes), homes, strict=True))
        crossing = 0
        for source, size, readers in self.values:
            reader_regions = {keys[reader] for reader in readers}
            crossing += size * (len(reader_regions) if source < 0 else len(reader_regions - {keys[source]}))
        return Counted(len(set(keys)), crossing)

    @cached_property
    def now(self) -> Counted:
        """Counts of the current placement."""
        return self.count(self.homes)

    def change(self, target: int, operators: Iterable[int]) -> Change | None:
        """Return the effect if a target accepted some operators as well; None if the counts would not improve."""
        numbers = tuple(operators)
        homes = list(self.homes)
        for number in numbers:
            homes[number] = target
        after = self.count(homes)
        if (after.regions, after.crossing) == (self.now.regions, self.now.crossing):
            return None
        is_improvement = after.regions <= self.now.regions and after.crossing <= self.now.crossing
        return Change(target, numbers, self.now, after) if is_improvement else None

    def borders(self) -> Iterator[SeparatingPath]:
        """Yield, for each region that follows another region of its target, a path that keeps the two apart."""
        levels = self.levels(self.homes)
        visited: set[str] = set()
        for number, later in enumerate(self.regions):
            latest = self._latest(number, levels)
            if later in visited or latest is None or levels[latest] == levels[number]:
                continue
            visited.add(later)
            path: list[int] = []
            while latest is not None and self.homes[latest] != self.homes[number]:
                path.append(latest)
                latest = self._latest(latest, levels)
            if latest is not None and path:
                yield SeparatingPath(self.regions[latest], later, tuple(reversed(path)))

    def _latest(self, number: int, levels: Sequence[int]) -> int | None:
        """Return the operator with the greatest level among those that operator `number` reads."""
        return max(self.reads[number], key=lambda source: (levels[source], -source), default=None)


def _has_no_control_flow(function: ir.Function) -> bool:
    wiring = (ir.Var, ir.Constant, ir.Tuple, ir.TupleItem)
    return all(expr is function or isinstance(expr, wiring) or targeted(expr) for expr in ir.post_order(function))


def changes(flow: Flow, targets: int) -> tuple[Change, ...]:
    """Evaluate changes by which a target accepts more: all operators of one name that it rejects, or the operators on a path
    between two of its regions, at most `LONGEST_PATH`. `targets` is the number of targets. Returns improvements, greatest first.
    Evaluates at most `MAX_CHANGES` changes, those of many operators first."""
    if not flow.plain:
        return ()
    change_keys: dict[tuple[int, tuple[int, ...]], None] = {}
    for target in range(targets):
        if target not in flow.homes:
            continue
        by_name: dict[str, list[int]] = {}
        for number, home in enumerate(flow.homes):
            if home != target and target in flow.rejected[number]:
                by_name.setdefault(flow.names[number], []).append(number)
        groups = sorted(by_name.values(), key=len, reverse=True)
        change_keys.update(((target, tuple(numbers)), None) for numbers in groups)
    homes = dict(zip(flow.regions, flow.homes, strict=True))
    for border in flow.borders():
        target = homes[border.later]
        if len(border.through) <= LONGEST_PATH and all(target in flow.rejected[number] for number in border.through):
            change_keys[target, border.through] = None
    evaluated_keys = itertools.islice(change_keys, MAX_CHANGES)
    improvements = [change for change in (flow.change(target, numbers) for target, numbers in evaluated_keys) if change is not None]
    return tuple(sorted(improvements, key=lambda item: (item.after.regions, item.after.crossing)))
