"""Builds the report of a partitioned model: placement with reasons, costs, and changes that would improve it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from types import MappingProxyType

from inlaid.graph.operator import Operator
from inlaid.partitioning.advice import Flow, SeparatingPath, changes
from inlaid.partitioning.annotate import Candidate, Claim, in_full
from inlaid.partitioning.borders import Bordered
from inlaid.partitioning.cost import CostModel, byte_size
from inlaid.partitioning.outline import Partitioned, Placement, region_operators
from inlaid.partitioning.report import ChangeReport, OperatorReport, RegionReport, Report, duration
from inlaid.plugins import Accept, AcceptIf, Reject, Verdict
from inlaid_runtime import arith
from inlaid_runtime.types import TensorType, TupleType, Type


def explain(
    partitioned: Partitioned,
    candidates: Sequence[Candidate],
    costs: CostModel | None = None,
    measured: Mapping[str, float] = MappingProxyType({}),
    bordered: Bordered | None = None,
) -> Report:
    """Build the report on a partitioned module. `costs` adds predicted costs, and `measured` measured seconds by region name.
    `bordered` is the module with the conversions at region borders."""
    operators: list[OperatorReport] = []
    borders: dict[str, SeparatingPath] = {}
    advice: list[ChangeReport] = []
    seconds: dict[str, float] = {}
    for placement in partitioned.placements:
        first, flow = len(operators), Flow.from_placement(placement)
        for claim, region in zip(placement.claims, placement.regions, strict=True):
            seconds[region] = seconds.get(region, 0.0) + (0.0 if costs is None else costs.seconds(claim))
        borders.update((border.later, _shifted(border, first)) for border in flow.borders())
        operators += _operators(placement, flow, candidates, costs, first)
        for change in changes(flow, len(candidates)):
            names = {flow.names[number] for number in change.operators}
            advice.append(
                ChangeReport(
                    str(candidates[change.target].target),
                    names.pop() if len(names) == 1 else "",
                    tuple(number + first for number in change.operators),
                    change.before.regions,
                    change.after.regions,
                    change.before.crossing,
                    change.after.crossing,
                )
            )
    final = partitioned if bordered is None else bordered.partitioned
    conversion_names = [name for name in final.regions if name not in partitioned.regions]
    if costs is not None:
        seconds.update((name, costs.seconds(_region_claim(final, name))) for name in conversion_names)
        for name in partitioned.regions:
            if (bordered is None or name not in bordered.borders_by_region) and final.module[name] is not partitioned.module[name]:
                merged = costs.seconds(_region_claim(final, name)) - costs.seconds(_region_claim(partitioned, name))
                seconds[name] = max(seconds.get(name, 0.0) + merged, 0.0)
    region_report = partial(_region, final, candidates, costs, seconds, measured)
    conditions = {guard.region: repr(guard.constraint) for guard in partitioned.guards}
    guard_regions = {name for guard in partitioned.guards for name in guard.regions}
    regions = []
    for name in partitioned.regions:
        if name not in guard_regions:
            border = borders.get(name, SeparatingPath("", name, ()))
            count = len(region_operators(partitioned.module[name]))
            regions.append(
                replace(
                    region_report(name),
                    operators=count,
                    condition=conditions.get(name, ""),
                    earlier=border.earlier,
                    through=border.through,
                )
            )
    return Report(tuple(operators), tuple(regions), tuple(advice), tuple(map(region_report, conversion_names)))


def _region_claim(partitioned: Partitioned, name: str) -> Claim:
    """Return a claim that contains all operators of a region."""
    return Claim(partitioned.regions[name], tuple(reversed(region_operators(partitioned.module[name]))), Accept())


def _region(
    partitioned: Partitioned,
    candidates: Sequence[Candidate],
    costs: CostModel | None,
    seconds: Mapping[str, float],
    measured: Mapping[str, float],
    name: str,
) -> RegionReport:
    """Build the report of one region, without its relation to other regions."""
    function, number = partitioned.module[name], partitioned.regions[name]
    assert isinstance(function.body.type, TupleType)
    operand_types, results = [param.type for param in function.params], function.body.type.fields
    return RegionReport(
        name,
        str(candidates[number].target),
        len(region_operators(function)),
        _size(operand_types),
        _size(results),
        seconds=None if costs is None else seconds[name],
        transfer=None if costs is None else sum(costs.transfer(number, byte_size(type_)) for type_ in (*operand_types, *results)),
        measured=measured.get(name),
    )


def _shifted(border: SeparatingPath, first: int) -> SeparatingPath:
    return SeparatingPath(border.earlier, border.later, tuple(number + first for number in border.through))


def _operators(
    placement: Placement, flow: Flow, candidates: Sequence[Candidate], costs: CostModel | None, first: int
) -> Iterator[OperatorReport]:
    names = [str(candidate.target) for candidate in candidates]
    claims_and_regions = {
        id(call): (claim, region)
        for claim, region in zip(placement.claims, placement.regions, strict=True)
        for call in claim.members
    }
    single_claims = {(id(claim.root), claim.target): claim for claim in placement.annotated.claims if len(claim.members) == 1}
    numbers = {id(call): number for number, call in enumerate(placement.annotated.calls)}
    for number, call in enumerate(placement.annotated.calls):
        assert isinstance(call.callee, Operator)
        claim, region = claims_and_regions[id(call)]
        seconds = costs.seconds(claim) if costs is not None and claim.root is call else None
        verdicts = []
        for target, verdict in enumerate(placement.annotated.verdicts[id(call)]):
            text = _verdict_text(verdict)
            if isinstance(verdict, Reject):
                text = _verdict_text(in_full(verdict, call, candidates[target]))
            elif target < claim.target:
                conditional = isinstance(verdict, AcceptIf)
                text += (
                    ", which cost placement does not consider"
                    if conditional
                    else _loss_reason(single_claims.get((id(call), target)), costs)
                )
            verdicts.append((names[target], text))
        yield OperatorReport(
            first + number,
            str(call.span or ""),
            call.callee.name,
            repr(call.type),
            names[claim.target],
            region,
            "" if claim.composite is None else claim.composite.name,
            len(claim.members),
            first + numbers[id(claim.root)],
            tuple(first + source for source in flow.reads[number]),
            seconds,
            tuple(verdicts),
        )


def _loss_reason(claim: Claim | None, costs: CostModel | None) -> str:
    """Describe why an operator is not on a target that accepts it and has a higher priority."""
    if claim is None:
        return " together with operators that were placed elsewhere"
    seconds = "" if costs is None else f": {duration(costs.seconds(claim))} predicted there, without transfers"
    return f", but lost on cost{seconds}"


def _verdict_text(verdict: Verdict) -> str:
    match verdict:
        case Accept():
            return "accepted"
        case Reject(reason=reason):
            return f"rejected: {reason}"
        case AcceptIf(constraint=constraint):
            return f"accepted only if {constraint!r}"


def _size(types: Sequence[Type]) -> int | None:
    """Return the total bytes of values; None if a dimension is symbolic, or a value is not an array."""
    total = 0
    for type_ in types:
        size = _size(type_.fields) if isinstance(type_, TupleType) else _tensor_bytes(type_)
        if size is None:
            return None
        total += size
    return total


def _tensor_bytes(type_: Type) -> int | None:
    if not isinstance(type_, TensorType):
        return None
    count = arith.product(type_.shape)
    return count * type_.dtype.bytes if isinstance(count, int) else None
