"""What a region's border says: its inputs, outputs and dimensions."""

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
    """The signature of a region's function, over tensors. `defined` are the dimensions that the region itself works out, `needed`
    those that its code asks for besides those of its inputs and outputs. Raises `CompileError` for one without a bound."""
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
            raise CompileError(f"dimension {size!r} has no upper bound")
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
    """An artifact with what the operator calls of its region ask of sizes as constraints. Its signature gains the dimensions that
    these read and that only the types of its parameters show. A constraint on any other, which an operator or a loop inside works
    out, is left to that."""
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
    """Bytes of a buffer, with existential dimensions at their upper bounds: see `bounded`."""
    return arith.unwrap(arith.mul(arith.product(tuple(map(bounded, shape))), width))


def bounded(dim: Dim) -> Dim:
    """The greatest that a dimension can be over existential ones below their upper bounds. One without a bound stays: a region has
    it from its inputs, as any other size. Raises `CompileError` where there is no telling."""
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
        raise CompileError(f"extent {dim!r} has no upper bound, so that no buffer can be set aside for it")
    return arith.unwrap(found[1])
