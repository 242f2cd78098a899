"""Signatures of regions: inputs, outputs and dimensions."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import replace

from inlaid import arith
from inlaid.arith import Dim
from inlaid.artifact import Artifact, DimSource, Signature, TensorSpec
from inlaid.errors import CompileError
from inlaid.graph import ir as graph
from inlaid.graph.conditions import conditions_of
from inlaid.graph.unify import upper_bound
from inlaid.lowering.kernel import result_types, tensor_type
from inlaid.types import type_vars


def signature_of(
    function: graph.Function, defined: Collection[arith.SizeVar] = (), needed: frozenset[arith.Expr] = frozenset()
) -> Signature:
    """Build the signature of a region's function. `defined` are the dimensions that the region computes. `needed` are dimensions
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
    used = needed.union(*(type_vars(p.type) for p in function.params), type_vars(function.body.type))
    for variable in sorted(used, key=repr):
        if isinstance(variable, arith.SizeVar):
            dims.setdefault(variable, DimSource(variable.name))
    return Signature(inputs, outputs, tuple(dims.values()))


def constrained(artifact: Artifact, params: Iterable[graph.Var], calls: Iterable[graph.Call]) -> Artifact:
    """Add the size constraints of a region's operator calls to its artifact. The signature gains the dimensions that the
    constraints read and that occur only in parameter types. Constraints on dimensions that an operator or a nested loop computes
    are left to that operator or loop."""
    signature = artifact.signature
    dims = {source.name: source for source in signature.dims}
    shown: dict[str, DimSource] = {}
    for number, spec in enumerate(signature.inputs):
        for axis, dim in enumerate(spec.shape):
            if isinstance(dim, arith.SizeVar):
                shown.setdefault(dim.name, DimSource(dim.name, number, axis))
    for size in sorted(frozenset().union(*(type_vars(param.type) for param in params)), key=repr):
        if isinstance(size, arith.SizeVar) and not size.existential:
            shown.setdefault(size.name, DimSource(size.name))
    kept = []
    for constraint in conditions_of(calls):
        read = arith.free_vars(constraint.condition) | arith.free_vars(constraint.value)
        sizes = sorted((size for size in read if isinstance(size, arith.SizeVar)), key=repr)
        if all(size.name in dims or size.name in shown for size in sizes):
            for size in sizes:
                dims.setdefault(size.name, shown.get(size.name) or dims[size.name])
            kept.append(constraint)
    signature = replace(signature, dims=tuple(dims.values()))
    return replace(artifact, signature=signature, constraints=(*artifact.constraints, *kept)) if kept else artifact


def bound_bytes(shape: tuple[Dim, ...], width: int) -> Dim:
    """Return the size of a buffer in bytes, with existential dimensions at their upper bounds (see `bounded`)."""
    return arith.unwrap(arith.mul(arith.product(tuple(map(bounded, shape))), width))


def bounded(dim: Dim) -> Dim:
    """Return the upper bound of a dimension over its existential sizes. An existential size without a bound stays in the result:
    like any other size, it is defined by the region's inputs. Raises `CompileError` if no bound can be derived."""
    if isinstance(dim, int):
        return dim
    ranges: dict[arith.Expr, tuple[arith.Expr, arith.Expr]] = {}
    for variable in arith.free_vars(dim):
        if isinstance(variable, arith.SizeVar) and variable.existential:
            bound = upper_bound(variable)
            if bound is not None:
                ranges[variable] = (arith.wrap(variable.lower), arith.wrap(bounded(bound)))
    found = arith.limits(dim, ranges)
    if found is None:
        raise CompileError(f"extent {dim!r} must have an upper bound, so that its buffer can be allocated")
    return arith.unwrap(found[1])
