"""Graph passes before partitioning."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from inlaid.driver.target_passes import target_passes
from inlaid.graph import ir
from inlaid.graph.ir import Module
from inlaid.ops.shape import transpose
from inlaid.partitioning.annotate import Candidate, annotate
from inlaid.partitioning.assignment import by_priority
from inlaid.partitioning.compose import compose, dissolve
from inlaid.partitioning.outline import partition
from inlaid.passes.decompose import decompose
from inlaid.passes.manager import Instrument, Pass, PassManager
from inlaid.passes.pipeline import graph_passes
from inlaid.passes.shorten_sequences import shorten_sequences
from inlaid.passes.simplify import simplify
from inlaid.passes.sink_transposes import sink_transposes
from inlaid.plugins import Accept, Phase, Reject
from inlaid.plugins.registry import PluginRegistry
from inlaid.settings import AS_MODEL

LANE = 32
"""Bits of a vector lane that holds a float32 or an integer accumulator."""
FALLBACK = "reference"
"""Target for operators that no listed target accepts."""


def model_passes(
    candidates: Sequence[Candidate], fallback: str, registry: PluginRegistry, precision: str = AS_MODEL
) -> tuple[Pass[Module], ...]:
    """List the graph passes for targets; see `inlaid.passes.pipeline.graph_passes`."""
    listed = [candidate for candidate in candidates if candidate.target.kind != fallback] or list(candidates)
    return graph_passes(
        partial(_decompose, candidates=listed),
        partial(_computes_integers, candidates=listed),
        partial(_sink, candidates=candidates, fallback=fallback),
        partial(
            shorten_sequences,
            accepts=partial(_computes_sizes, first=listed[0], registry=registry),
            costs=registry.capabilities(listed[0].target).core.costs,
        ),
        [step for candidate in candidates for step in target_passes(candidate.target, Phase.BEFORE_PARTITION, registry)],
        max([1, *(registry.capabilities(candidate.target).vector_bits // LANE for candidate in listed)]),
        precision,
    )


def prepare(
    module: Module,
    candidates: Sequence[Candidate],
    fallback: str,
    registry: PluginRegistry,
    instruments: Sequence[Instrument[Module]] = (),
    precision: str = AS_MODEL,
) -> Module:
    """Run the graph passes on a module; see `model_passes`. `instruments` observe the passes."""
    return PassManager(model_passes(candidates, fallback, registry, precision), instruments).run(module)


def _computes_integers(product: ir.Call, integers: ir.Call, candidates: Sequence[Candidate]) -> bool:
    """Test whether a product of integers should replace a float one: always, unless targets accept only the float product."""

    def accepted(call: ir.Call) -> bool:
        return any(isinstance(candidate.judge(call), Accept) for candidate in candidates)

    return accepted(integers) or not accepted(product)


def _computes_sizes(call: ir.Call, first: Candidate, registry: PluginRegistry) -> bool:
    """Test whether the first target runs loops in its regions, and accepts a call whose sizes the run computes."""
    return registry.capabilities(first.target).control_flow and isinstance(first.judge(call), Accept)


def _sink(function: ir.Function, candidates: Sequence[Candidate], fallback: str) -> ir.Function:
    """Move transposes that a listed target rejects, if the model then has fewer regions. Targets that accept transposes fold them
    into layouts or kernels, so that the benefit of moving them is unknown here."""
    listed = [candidate for candidate in candidates if candidate.target.kind != fallback]

    def refused(call: ir.Call) -> bool:
        return any(isinstance(candidate.judge(call), Reject) for candidate in listed)

    if not any(isinstance(expr, ir.Call) and expr.callee is transpose and refused(expr) for expr in ir.post_order(function)):
        return function
    function = simplify(function)
    composed = (claim for claim in annotate(function, listed).claims if claim.composite is not None)
    composite_members = {id(member) for claim in composed for member in claim.members}
    sunk = sink_transposes(function, lambda call: id(call) not in composite_members and refused(call))
    return sunk if sunk is not function and _regions(sunk, candidates) < _regions(function, candidates) else function


def _regions(function: ir.Function, candidates: Sequence[Candidate]) -> int:
    return len(partition(ir.Module({"main": function}), candidates).regions)


def _decompose(function: ir.Function, candidates: Sequence[Candidate]) -> ir.Function:
    """Decompose operators that no target accepts whole, alone or in a composite."""

    def keep(call: ir.Call) -> bool:
        return any(isinstance(candidate.judge(call), Accept) for candidate in candidates)

    if not any(candidate.composites for candidate in candidates):
        return decompose(function, keep)
    composed = compose(
        function, tuple(claim for claim in by_priority(annotate(function, candidates)) if claim.composite is not None)
    )
    return dissolve(decompose(composed.function, keep), composed.composites)
