"""Graph passes before partitioning."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from inlaid.graph import ir
from inlaid.graph.ir import Module
from inlaid.ops.shape import transpose
from inlaid.partitioning.annotate import Candidate, annotate
from inlaid.partitioning.assignment import by_priority
from inlaid.partitioning.compose import compose, dissolve
from inlaid.partitioning.outline import partition
from inlaid.passes.bind_invariants import bind_invariants
from inlaid.passes.dead_channels import remove_dead_channels
from inlaid.passes.decompose import decompose
from inlaid.passes.early_elementwise import early_elementwise
from inlaid.passes.integer_products import integer_products
from inlaid.passes.lower_precision import lower_precision
from inlaid.passes.manager import FunctionPass, Instrument, PassManager
from inlaid.passes.pipeline import CONSTRAINTS, GraphPass, canonical
from inlaid.passes.simplify import simplify
from inlaid.passes.sink_transposes import sink_transposes
from inlaid.plugins import Accept, Phase, Reject
from inlaid.plugins.registry import PluginRegistry
from inlaid.settings import AS_MODEL
from inlaid_runtime.errors import InputError

LANE = 32
"""Bits of an integer accumulator."""
FALLBACK = "reference"
"""Target for operators that no listed target accepts."""

PRECISIONS = {AS_MODEL: (), "bf16": (FunctionPass("lower_precision", lower_precision, ("graph_form",)),)}
"""Passes for each precision: the model's precision, or float32 products in bfloat16."""


def graph_passes(
    candidates: Sequence[Candidate], fallback: str, registry: PluginRegistry, precision: str = AS_MODEL
) -> tuple[GraphPass, ...]:
    """Return the graph passes in order:

    keep the conditions on sizes that the model states, since later passes may remove what states them; canonicalize; decompose
    operators that only the fallback accepts whole, and move element-wise operators before data movement; lower the precision;
    remove dead channels while vectors stay full; canonicalize again, which folds expressions that these passes introduce; hoist
    loop invariants; run the targets' passes; and move transposes to where they do not split regions. Raises `InputError` for an
    unknown precision.
    """
    if precision not in PRECISIONS:
        raise InputError(f"unknown precision {precision!r}", remedy=f"choose from {', '.join(PRECISIONS)}")
    listed = [candidate for candidate in candidates if candidate.target.kind != fallback] or list(candidates)
    target_passes = [step for candidate in candidates for step in registry.passes(candidate.target, Phase.BEFORE_PARTITION)]
    decomposed = FunctionPass("decompose", partial(_decompose, candidates=listed))
    lanes = max([1, *(registry.capabilities(candidate.target).vector_bits // LANE for candidate in listed)])
    return (
        *CONSTRAINTS,
        *canonical(stored_weights=True),
        decomposed,
        FunctionPass("early_elementwise", early_elementwise, ("graph_form",)),
        *PRECISIONS[precision],
        FunctionPass("dead_channels", partial(remove_dead_channels, lanes=lanes), ("narrow_integers",)),
        *canonical(integer_products=partial(integer_products, accepts=partial(_computes_integers, candidates=listed))),
        FunctionPass("bind_invariants", bind_invariants, ("graph_form",)),
        *target_passes,
        FunctionPass("sink_transposes", partial(_sink, candidates=candidates, fallback=fallback), ("graph_form",)),
    )


def prepare(
    module: Module,
    candidates: Sequence[Candidate],
    fallback: str,
    registry: PluginRegistry,
    instruments: Sequence[Instrument[Module]] = (),
    precision: str = AS_MODEL,
) -> Module:
    """Run the graph passes on a module; see `graph_passes`. `instruments` observe the passes."""
    return PassManager(graph_passes(candidates, fallback, registry, precision), instruments).run(module)


def _computes_integers(product: ir.Call, integers: ir.Call, candidates: Sequence[Candidate]) -> bool:
    """Test whether a product of integers is wanted in place of a float one: unless targets accept the float product alone."""

    def accepted(call: ir.Call) -> bool:
        return any(isinstance(candidate.judge(call), Accept) for candidate in candidates)

    return accepted(integers) or not accepted(product)


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
