"""Wraps the operators of a composite into one call of a marked function."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType

from inlaid.graph import ir
from inlaid.graph.operator import Attrs, Operator
from inlaid.graph.transform import substitute, transform
from inlaid.partitioning.annotate import Claim
from inlaid.plugins.contract import COMPOSITE
from inlaid_runtime.records import dataclass
from inlaid_runtime.types import FunctionType


@dataclass(frozen=True)
class Composed:
    """A function whose composites are calls of global functions. `composites` has these functions by name, `claims` the claims by
    id of the call that stands for them."""

    function: ir.Function
    claims: Mapping[int, Claim]
    composites: Mapping[str, ir.Function]


def compose(function: ir.Function, claims: Sequence[Claim]) -> Composed:
    """Wrap each claim of several operators in one call. Returns the same objects if no claim is a composite."""
    if not any(claim.composite for claim in claims):
        return Composed(function, {id(claim.root): claim for claim in claims}, {})
    by_member = {id(call): claim for claim in claims for call in claim.members}
    functions: dict[str, ir.Function] = {}
    claims_by_call: dict[int, Claim] = {}
    replacements: dict[int, ir.Expr] = {}

    def visit(old: ir.Expr, new: ir.Expr) -> ir.Expr:
        claim = by_member.get(id(old))
        if claim is not None and claim.root is old:
            if claim.composite is not None:
                new = _call(claim, f"{claim.composite.name}{len(functions)}", functions, replacements)
            claims_by_call[id(new)] = claim
        replacements[id(old)] = new
        return new

    changed = transform(function, visit)
    assert isinstance(changed, ir.Function)
    return Composed(changed, claims_by_call, functions)


def _call(claim: Claim, name: str, functions: dict[str, ir.Function], replacements: Mapping[int, ir.Expr]) -> ir.Call:
    """Call a composite's function on the values that its members read from outside. Constants stay inside."""
    function, inputs = enclosed(claim)
    functions[name] = function
    args = tuple(replacements.get(id(expr), expr) for expr in inputs)
    type_ = FunctionType(tuple(param.type for param in function.params), function.body.type)
    return ir.Call(function.body.type, claim.root.span, ir.global_var(name, type_), args, Attrs())


def enclosed(claim: Claim) -> tuple[ir.Function, tuple[ir.Expr, ...]]:
    """Convert a claim to a function. Returns the function and the values that it reads from outside. Constants stay inside."""
    member_ids = {id(call) for call in claim.members}
    memo: dict[int, ir.Expr] = {}
    params: list[ir.Var] = []
    inputs: list[ir.Expr] = []
    stack: list[ir.Expr] = [claim.root]
    while stack:
        expr = stack[-1]
        if id(expr) in memo:
            stack.pop()
        elif id(expr) in member_ids or (isinstance(expr, ir.TupleItem) and id(expr.tuple) in member_ids):
            missing_children = [child for child in reversed(ir.children(expr)) if id(child) not in memo]
            if missing_children:
                stack.extend(missing_children)
            else:
                memo[id(expr)] = ir.rebuild(expr, tuple(memo[id(child)] for child in ir.children(expr)))
        elif isinstance(expr, ir.Constant):
            memo[id(expr)] = expr
        else:
            param = ir.var(f"x{len(params)}", expr.type, span=expr.span)
            params.append(param)
            inputs.append(expr)
            memo[id(expr)] = param
    attrs = () if claim.composite is None else ((COMPOSITE, claim.composite.name),)
    return ir.function(tuple(params), memo[id(claim.root)], attrs), tuple(inputs)


def alone(function: ir.Function, claim: Claim) -> ir.Function:
    """Return a function that consists of one claim, with a composite wrapped as in a region."""
    if claim.composite is None:
        return function
    inner, inputs = enclosed(claim)
    return ir.function(function.params, ir.Call(inner.body.type, claim.root.span, inner, inputs, Attrs()))


def dissolve(function: ir.Function, composites: Mapping[str, ir.Function] = MappingProxyType({})) -> ir.Function:
    """Inline composites: calls of a function literal, and calls of `composites` by name. Returns the same object if there are
    none."""

    def visit(old: ir.Expr, new: ir.Expr) -> ir.Expr:
        if not isinstance(new, ir.Call):
            return new
        callee: ir.Expr | Operator | None = new.callee
        if isinstance(callee, ir.GlobalVar):
            callee = composites.get(callee.name)
        if not isinstance(callee, ir.Function) or callee.attr(COMPOSITE) is None:
            return new
        return substitute(callee.body, dict(zip(callee.params, new.args, strict=True)))

    changed = transform(function, visit)
    assert isinstance(changed, ir.Function)
    return changed
