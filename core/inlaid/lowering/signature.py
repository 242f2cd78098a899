"""Signatures of regions: inputs, outputs and dimensions."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import replace

from inlaid.graph import ir as graph
from inlaid.graph.unify import upper_bound
from inlaid.lowering.kernels.kernel import result_types, tensor_type
from inlaid_runtime import arith
from inlaid_runtime.arith import Constraint, Dim
from inlaid_runtime.artifact import Artifact, DimSource, Signature, TensorSpec
from inlaid_runtime.errors import CompileError
from inlaid_runtime.types import type_vars


def build_signature(
    function: graph.Function, defined: Collection[arith.SizeVar] = (), read_dims: frozenset[arith.Expr] = frozenset()
) -> Signature:
    """Build the signature of a region's function. `defined` are the dimensions that the region computes. `read_dims` are dimensions
    that its code reads and that no input or output has. Raises `CompileError` for a defined dimension without an upper bound."""
    inputs = tuple(TensorSpec(p.name, tensor_type(p.type).shape, tensor_type(p.type).dtype) for p in function.params)
    types = result_types(function.body.type)
    outputs = tuple(TensorSpec(f"output{number}", type_.shape, type_.dtype) for number, type_ in enumerate(types))
    dims: dict[arith.Expr, DimSource] = {}
    for number, spec in enumerate(inputs):
        for axis, dim in enumerate(spec.shape):
            if isinstance(dim, arith.SizeVar) and dim not in dims:
                dims[dim] = DimSource(dim.name, number, axis)
    for size in defined:
        bound = upper_bound(size)
        if bound is None:
            raise CompileError(f"dimension {size!r}, which the region computes, must have an upper bound")
        for variable in sorted(arith.free_vars(bounded(bound)), key=repr):
            assert isinstance(variable, arith.SizeVar)
            dims.setdefault(variable, DimSource(variable.name))
        dims.setdefault(size, DimSource(size.name, None, 0, bounded(bound)))
    variables = read_dims.union(*(type_vars(p.type) for p in function.params), type_vars(function.body.type))
    for variable in sorted(variables, key=repr):
        if isinstance(variable, arith.SizeVar):
            dims.setdefault(variable, DimSource(variable.name))
    return Signature(inputs, outputs, tuple(dims.values()))


def constrained(artifact: Artifact, params: Iterable[graph.Var], conditions: Iterable[Constraint]) -> Artifact:
    """Add size constraints of a region's operator calls to its artifact and to the artifact's variants, after those that the code
    checks itself. The signature gains the dimensions that the constraints read and that occur only in parameter types. Constraints
    on dimensions that an operator or a nested loop computes are left to that operator or loop."""
    signature = artifact.signature
    dims = {source.name: source for source in signature.dims}
    param_dims: dict[str, DimSource] = {}
    for number, spec in enumerate(signature.inputs):
        for axis, dim in enumerate(spec.shape):
            if isinstance(dim, arith.SizeVar):
                param_dims.setdefault(dim.name, DimSource(dim.name, number, axis))
    for size in sorted(frozenset().union(*(type_vars(param.type) for param in params)), key=repr):
        if isinstance(size, arith.SizeVar):
            param_dims.setdefault(size.name, DimSource(size.name))
    checked_conditions = {constraint.condition for constraint in artifact.constraints}
    added = []
    for constraint in conditions:
        sizes = sorted((size for size in constraint.sizes if isinstance(size, arith.SizeVar)), key=repr)
        if constraint.condition not in checked_conditions and all(size.name in dims or size.name in param_dims for size in sizes):
            for size in sizes:
                dims.setdefault(size.name, param_dims.get(size.name) or dims[size.name])
            added.append(constraint)
    if not added:
        return artifact
    signature = replace(signature, dims=tuple(dims.values()))
    first, *variants = (
        replace(version, signature=signature, constraints=(*version.constraints, *added))
        for version in (artifact, *artifact.variants)
    )
    return replace(first, variants=tuple(variants))


def bound_bytes(shape: tuple[Dim, ...], width: int) -> Dim:
    """Return the size of a buffer in bytes, with existential dimensions at their upper bounds (see `bounded`)."""
    return arith.unwrap(arith.mul(arith.product(tuple(map(bounded, shape))), width))


def bounded(dim: Dim) -> Dim:
    """Return the upper bound of a dimension over its existential sizes. An existential size without a bound stays in the result:
    like any other size, it is defined by the region's inputs. Raises `CompileError` if no bound can be derived."""
    ranges: dict[arith.Expr, tuple[arith.Expr, arith.Expr]] = {}

    def greatest(dim: Dim) -> arith.Expr:
        limits = arith.limits(dim, ranges)
        if limits is None:
            raise CompileError(f"extent {dim!r} must have an upper bound, so that its buffer can be allocated")
        return limits[1]

    for node in arith.post_order(arith.wrap(dim), below=_bounds):
        bound = upper_bound(node) if isinstance(node, arith.SizeVar) and node.existential else None
        if bound is not None:
            assert isinstance(node, arith.SizeVar)
            ranges[node] = (arith.wrap(node.lower), greatest(bound))
    return arith.unwrap(greatest(dim))


def _bounds(node: arith.Expr) -> tuple[arith.Expr, ...]:
    """Return the operands of a node, or the bound of an existential size."""
    bound = upper_bound(node) if isinstance(node, arith.SizeVar) and node.existential else None
    return node.operands if bound is None else (arith.wrap(bound),)
