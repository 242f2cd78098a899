"""Sizes that a plan inherits from its caller.

A branch or a loop body can use all sizes of the enclosing plan. The caller passes the sizes that the shapes of the inputs do not
determine.
"""

from __future__ import annotations

from collections.abc import Mapping

from inlaid_runtime import arith
from inlaid_runtime.arith import SizeVar
from inlaid_runtime.artifact import Signature
from inlaid_runtime.artifact.plan import Branch, Call, Instruction, Invoke, Loop, Plan
from inlaid_runtime.artifact.touched import written_by


def inherited_sizes(plans: Mapping[str, Plan], signatures: Mapping[str, Signature]) -> dict[str, frozenset[arith.Expr]]:
    """Compute the sizes that each plan, its regions or its callees read before inputs or instructions determine them."""
    sizes_by_plan: dict[str, frozenset[arith.Expr]] = dict.fromkeys(plans, frozenset())
    changed = True
    while changed:
        changed = False
        for name, plan in plans.items():
            plan_sizes = _undetermined_sizes(plan, signatures, sizes_by_plan)
            if plan_sizes != sizes_by_plan[name]:
                sizes_by_plan[name], changed = plan_sizes, True
    return sizes_by_plan


def _undetermined_sizes(
    plan: Plan, signatures: Mapping[str, Signature], inherited: Mapping[str, frozenset[arith.Expr]]
) -> frozenset[arith.Expr]:
    """Compute `inherited_sizes` of one plan, given the inherited sizes of its callees."""
    determined_sizes: set[arith.Expr] = {
        dim for _, number in plan.inputs for dim in plan.values[number].shape if isinstance(dim, SizeVar)
    }
    sizes = {size for value in plan.values for dim in (*value.shape, value.offset) for size in arith.free_vars(dim)}
    for size in (plan.workspace, *plan.arenas.values()):
        sizes |= arith.free_vars(size)
    undetermined_sizes: set[arith.Expr] = {
        size for size in sizes - determined_sizes if isinstance(size, SizeVar) and not size.existential
    }
    for instruction in plan.instructions:
        if isinstance(instruction, Invoke):
            undetermined_sizes |= _region_parameters(signatures[instruction.symbol]) - determined_sizes
        for callee in _callees(instruction):
            undetermined_sizes |= inherited[callee] - determined_sizes
        shapes = [plan.values[number].shape for number in written_by(instruction)]
        determined_sizes |= {dim for shape in shapes for dim in shape if isinstance(dim, SizeVar) and dim.existential}
        undetermined_sizes |= {size for shape in shapes for dim in shape for size in arith.free_vars(dim)} - determined_sizes
    undetermined_sizes |= {size for constraint in plan.constraints for size in constraint.sizes} - determined_sizes
    return frozenset(undetermined_sizes)


def _region_parameters(signature: Signature) -> set[arith.Expr]:
    """Return the dimensions that the plan passes to a region."""
    return {SizeVar(source.name) for source in signature.dims if source.input is None and source.upper is None}


def _callees(instruction: Instruction) -> tuple[str, ...]:
    match instruction:
        case Call(plan=name) | Loop(body=name):
            return (name,)
        case Branch(then=then, otherwise=otherwise):
            return then, otherwise
    return ()
