"""Verifies invariants of a partitioned module."""

from __future__ import annotations

from inlaid.graph import ir
from inlaid.partitioning.annotate import targeted
from inlaid.partitioning.outline import REGION_TARGET, Partitioned, called
from inlaid_runtime.distinct import DistinctArrays
from inlaid_runtime.errors import VerifyError
from inlaid_runtime.types import FunctionType


def verify_partition(before: ir.Module, after: Partitioned, entry: str = "main") -> None:
    """Check that types are unchanged, that every operator of the entry and of its callees is in exactly one region, that no
    constant changed, and that regions are closed. Cyclic dependences between regions cannot occur, since a region is a call and a
    graph of calls is acyclic. Raises `VerifyError`."""
    names = called(before, entry)
    for name in names:
        old, new = before[name], after.module[name]
        if old.type != new.type:
            raise VerifyError(f"partitioning changed the type of {name} from {old.type!r} to {new.type!r}")
        unplaced = [e for e in ir.post_order(new) if targeted(e)]
        if unplaced:
            raise VerifyError(f"{unplaced[0]!r} is in no region", node=str(unplaced[0].span or ""))
    guard_regions = {name for guard in after.guards for name in guard.regions}
    regions = [after.module[name] for name in after.regions if name not in guard_regions]
    count, expected = sum(map(_operators, regions)), sum(_operators(before[name]) for name in names)
    if count != expected:
        raise VerifyError(f"expected {expected} operator calls after partitioning, got {count}")
    for guard in after.guards:
        region, otherwise = after.module[guard.region], after.module[guard.otherwise]
        if region.type != otherwise.type:
            raise VerifyError(f"expected type {region.type!r} for the alternative of {guard.region}, got {otherwise.type!r}")
    arrays = DistinctArrays()
    for constant in _constants(*(before[name] for name in names)):
        arrays.add(constant.data)
    count = len(arrays)
    for constant in _constants(*(after.module[name] for name in (*names, *after.regions))):
        arrays.add(constant.data)
    if len(arrays) > count:
        raise VerifyError("partitioning changed a constant")
    for name in after.regions:
        _check_closed(name, after.module[name])


def _operators(function: ir.Function) -> int:
    return sum(map(targeted, ir.post_order(function)))


def _constants(*functions: ir.Function) -> list[ir.Constant]:
    return [e for e in ir.post_order(*functions) if isinstance(e, ir.Constant)]


def _check_closed(name: str, region: ir.Function) -> None:
    exprs = list(ir.post_order(region))
    params = {id(param) for e in exprs if isinstance(e, ir.Function) for param in e.params}
    free_vars = [e for e in exprs if isinstance(e, ir.Var) and id(e) not in params]
    if free_vars or region.attr(REGION_TARGET) is None or not isinstance(region.type, FunctionType):
        raise VerifyError(f"region {name} is not a closed function with a target")
