"""Symbolic sizes of an exported library: parameters of its function, with upper bounds for which memory is planned."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from inlaid.codegen.library import SizeCheck
from inlaid_runtime import arith
from inlaid_runtime.arith import Constraint, Dim, SizeVar, free_vars
from inlaid_runtime.artifact import Artifact
from inlaid_runtime.artifact.plan import Invoke, Plan, Value
from inlaid_runtime.errors import Remedy, Unsupported, dims_setting


class LibrarySizes:
    """The symbolic dimensions of a plan's inputs, in order of appearance. `largest` has their upper bounds."""

    def __init__(self, plan: Plan) -> None:
        self._plan = plan
        dims = [dim for _, number in plan.inputs for dim in plan.values[number].shape if not isinstance(dim, int)]
        named = [var for dim in dims for var in sorted(free_vars(dim), key=repr) if isinstance(var, SizeVar)]
        self.variables: tuple[SizeVar, ...] = tuple(dict.fromkeys(named))
        self.largest: dict[arith.Expr, int] = {variable: _upper(variable) for variable in self.variables}
        self._ranges: dict[arith.Expr, tuple[arith.Expr, arith.Expr]] = {
            variable: (arith.Const(variable.lower), arith.Const(self.largest[variable])) for variable in self.variables
        }
        for name, number in plan.outputs:
            self.at_largest(byte_count(plan.values[number]), f"the output {name}")
        for number, value in enumerate(plan.values):
            if value.storage == "dynamic":
                raise Unsupported(f"value {number} of the plan must have a bounded size, so that its memory can be planned")
            size = byte_count(value)
            # Memory is planned for the largest sizes. The plan also holds for smaller ones if no value is larger at them.
            if value.storage == "arena" and self.upper_bound(size, "a value") != self.at_largest(size, "a value"):
                raise Unsupported(
                    f"the size of a value of shape {value.shape} must be largest at the upper bounds of its dimensions"
                )

    def at_largest(self, dim: Dim, what: str) -> int:
        """Evaluate an expression with all sizes at their upper bounds. `what` names the expression in errors."""
        if isinstance(dim, int):
            return dim
        if unknown_sizes := sorted(repr(variable) for variable in free_vars(dim) if variable not in self.largest):
            raise Unsupported(f"{what} must have a size over dimensions of inputs, got {dim!r}: {unknown_sizes[0]} depends on data")
        return arith.evaluate(dim, self.largest)

    def upper_bound(self, dim: Dim, what: str) -> int:
        """Compute an upper bound of an expression over all sizes. The bound need not be attained."""
        self.at_largest(dim, what)
        limits = arith.limits(dim, self._ranges)
        upper = None if limits is None else arith.unwrap(limits[1])
        if not isinstance(upper, int):
            raise Unsupported(f"{what} must have a size with a known upper bound, got {dim!r}")
        return upper

    def region_dims(self, artifact: Artifact, invoke: Invoke) -> dict[arith.Expr, arith.Expr]:
        """Return the dimensions of a region that its caller knows, as expressions over the sizes."""
        dims: dict[arith.Expr, arith.Expr] = {}
        for source in artifact.signature.dims:
            if source.input is None and source.upper is not None:
                continue  # the region computes it
            if source.input is not None:
                dim: Dim = self._plan.values[invoke.inputs[source.input]].shape[source.axis]
            else:
                dim = SizeVar(source.name)
            self.at_largest(dim, f"dimension {source.name}")
            dims[SizeVar(source.name)] = arith.wrap(dim)
        return dims

    def scratch(self, artifact: Artifact, invoke: Invoke) -> int:
        """Compute an upper bound of the scratch memory of a region, in bytes."""
        workspace = arith.wrap(artifact.workspace.get("", 0))
        return self.upper_bound(arith.unwrap(arith.substitute(workspace, self.region_dims(artifact, invoke))), artifact.symbol)

    def checks(self, artifacts: Mapping[str, Artifact]) -> Iterator[SizeCheck]:
        """Yield the conditions on the sizes: their bounds, then the constraints of the plan and of regions. The code of a region
        checks those on sizes that it computes."""
        for variable in self.variables:
            lower, upper = variable.lower, self.largest[variable]
            inside = arith.compare(">=", variable, lower) & arith.compare("<=", variable, upper)
            yield SizeCheck(inside, f"{variable.name} must be {lower} to {upper}")
        checks: dict[tuple[Dim, str], SizeCheck] = {}
        for constraint in self._plan.constraints:
            self._add_check(checks, constraint, constraint.condition)
        for item in self._plan.instructions:
            if isinstance(item, Invoke):
                artifact = artifacts[item.symbol]
                sizes = self.region_dims(artifact, item)
                for constraint in artifact.constraints:
                    if constraint.sizes <= sizes.keys():
                        condition = arith.unwrap(arith.substitute(arith.wrap(constraint.condition), sizes))
                        self._add_check(checks, constraint, condition)
        yield from checks.values()

    def _add_check(self, checks: dict[tuple[Dim, str], SizeCheck], constraint: Constraint, condition: Dim) -> None:
        """Add the check of a constraint, with its condition over the sizes of the library."""
        self.at_largest(condition, constraint.what)
        checks.setdefault((condition, constraint.statement), SizeCheck(condition, constraint.statement))


def byte_count(value: Value) -> Dim:
    """Return the size of a value in bytes, as an expression over the symbolic sizes."""
    size: arith.Expr = arith.Const(1 if value.dtype is None else value.dtype.bytes)
    for dim in value.shape:
        size = arith.mul(size, dim)
    return arith.unwrap(size)


def _upper(variable: SizeVar) -> int:
    if isinstance(variable.upper, int):
        return variable.upper
    raise Unsupported(
        f"dimension {variable.name} has no upper bound, for which memory is planned",
        remedy=Remedy.join("bound or fix it: ", dims_setting({variable.name: (max(variable.lower, 1), 64)})),
    )
