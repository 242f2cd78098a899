"""What must hold of every partitioned module."""

from __future__ import annotations

from inlay.errors import VerifyError
from inlay.graph import ir
from inlay.graph.operator import Operator
from inlay.partitioning.outline import REGION_TARGET, Partitioned, called
from inlay.types import FunctionType


def verify_partition(before: ir.Module, after: Partitioned, entry: str = "main") -> None:
    """Check that types are unchanged, that every operator of the entry and of what it calls is in exactly one region, that no
    constant changed, and that regions are closed. That no two regions depend on one another needs no check: a region is a call,
    and a graph of calls has no cycle. Raises `VerifyError`."""
    names = called(before, entry)
    for name in names:
        old, new = before[name], after.module[name]
        if old.type != new.type:
            raise VerifyError(f"partitioning changed the type of {name} from {old.type!r} to {new.type!r}")
        stray = [e for e in ir.post_order(new) if isinstance(e, ir.Call) and isinstance(e.callee, Operator)]
        if stray:
            raise VerifyError(f"{stray[0]!r} is in no region", node=str(stray[0].span or ""))
    regions = [after.module[name] for name in after.regions]
    count, expected = sum(map(_operators, regions)), sum(_operators(before[name]) for name in names)
    if count != expected:
        raise VerifyError(f"partitioning made {count} operator calls of {expected}")
    kept = _digests(*(after.module[name] for name in names), *regions)
    if not kept <= _digests(*(before[name] for name in names)):
        raise VerifyError("partitioning changed a constant")
    for name, region in zip(after.regions, regions, strict=True):
        _closed(name, region)


def _operators(function: ir.Function) -> int:
    return sum(isinstance(e, ir.Call) and isinstance(e.callee, Operator) for e in ir.post_order(function))


def _digests(*functions: ir.Function) -> set[str]:
    return {e.digest() for e in ir.post_order(*functions) if isinstance(e, ir.Constant)}


def _closed(name: str, region: ir.Function) -> None:
    params = {id(param) for param in region.params}
    free = [e for e in ir.post_order(region) if isinstance(e, ir.Var) and id(e) not in params]
    if free or region.attr(REGION_TARGET) is None or not isinstance(region.type, FunctionType):
        raise VerifyError(f"region {name} is not a closed function with a target")
