"""The primitive that pads the extents of a block: pad."""

from __future__ import annotations

from dataclasses import replace

from inlaid.tensor import ir
from inlaid.tensor.analysis.footprint import reads, writes
from inlaid.tensor.primitives.cache import find_copy_position
from inlaid.tensor.primitives.lookup import check_not_tensorized, failed, outer_block
from inlaid.tensor.transform.lower_blocks import joined
from inlaid.tensor.transform.paths import nest, rebuilt, unique_name, with_body
from inlaid.tensor.transform.rewrite import Rewriter
from inlaid_runtime import arith
from inlaid_runtime.arith import Var


def pad(program: ir.LoopProgram, block: str, multiples: tuple[int, ...], owned: tuple[str, ...] = ()) -> ir.LoopProgram:
    """Round the extents of a block up to multiples. Pads the operands with zeros, and crops the results.

        for i in 10: block b(v = i): c[v] = a[v] * 2
    pad("b", (4,)) gives
        for i in 12: block a_pad(v = i): a_pad[v] = select(v < 10, a[v], 0)
        for i in 12: block b(v = i): c_pad[v] = a_pad[v] * 2
        for i in 10: block c_cut(v = i): c[v] = c_pad[v]

    Inputs named in `owned` are not copied: their shape grows, and their owner pads them with zeros.

    A padded reduction must be a sum of products whose factors are all padded. Raises `ScheduleError` if the loops around the
    block are not simply its iteration variables, a padded variable is used other than as an index, zeros would change a sum, or an
    `owned` name is not an input.
    """
    path = outer_block(program, block)
    old = path[-1]
    assert isinstance(old, ir.Block)
    check_not_tensorized(program, old)
    if len(multiples) != len(old.iters) or any(multiple < 1 for multiple in multiples):
        raise failed(program, f"block {block} needs {len(old.iters)} positive multiples, one per variable, got {multiples}", old)
    top, site = find_copy_position(path, old.writes[0].buffer)
    if (
        old.predicate != arith.ONE
        or [binding for binding in old.bindings if binding != arith.ZERO] != [loop.var for loop in site.loops]
        or any(binding == arith.ZERO and multiple != 1 for binding, multiple in zip(old.bindings, multiples, strict=True))
        or any(not isinstance(stmt, ir.For) for stmt in path[len(top) - 1 : -1])
    ):
        raise failed(program, f"the loops around block {block} must be its iteration variables", old, "pad before other primitives")
    iters = tuple(
        ir.IterVar(item.var, arith.simplify(arith.ceildiv(item.extent, multiple) * multiple), item.kind)
        for item, multiple in zip(old.iters, multiples, strict=True)
    )
    padded_extents = {
        new.var: new.extent
        for item, new in zip(old.iters, iters, strict=True)
        if not arith.Analyzer().equal(item.extent, new.extent)
    }
    _check_sum(program, old, padded_extents)
    inputs = {buffer.name for buffer in program.inputs}
    if not inputs.issuperset(owned):
        raise failed(program, f"owned buffers must be inputs, got {', '.join(sorted({*owned} - inputs))}", old)
    before: list[ir.Stmt] = []
    after: list[ir.Stmt] = []
    padded_buffers: list[ir.Buffer] = []
    padded_copies: dict[ir.Buffer, ir.Buffer] = {}
    grown_inputs: dict[ir.Buffer, ir.Buffer] = {}
    for region in (*old.reads, *old.writes):
        buffer = region.buffer
        shape = _grown_shape(program, old, region, padded_extents)
        if shape == buffer.shape or buffer in padded_copies or buffer in grown_inputs:
            continue
        if buffer.name in owned:
            grown_inputs[buffer] = ir.Buffer(buffer.name, shape, buffer.dtype, buffer.scope)
            continue
        padded_copies[buffer] = new = ir.Buffer(f"{buffer.name}_pad", shape, buffer.dtype)
        padded_buffers.append(new)
        name = unique_name(program, f"{buffer.name}_pad")
        if region in old.writes:
            after.append(_copy(unique_name(program, f"{buffer.name}_cut"), new, buffer, buffer.shape, None))
        else:
            before.append(_copy(name, buffer, new, shape, buffer.shape))
    inner = _replaced(with_body(program, replace(old, iters=iters)), padded_copies).body
    # A variable bound to 0 has extent 1 and no loop.
    extents = [item.extent for item, binding in zip(iters, old.bindings, strict=True) if binding != arith.ZERO]
    loops = [(loop.var, extent) for loop, extent in zip(site.loops, extents, strict=True)]
    body: ir.Stmt = joined(*before, nest(loops, inner), *after)
    for new in reversed(padded_buffers):
        body = ir.Alloc(new, body)
    return _replaced(with_body(program, rebuilt(top, body)), grown_inputs)


def _replaced(program: ir.LoopProgram, buffers: dict[ir.Buffer, ir.Buffer]) -> ir.LoopProgram:
    """Replace each buffer by one that holds the same elements at the same indices."""
    return Rewriter(buffers=buffers).program(program)


def _grown_shape(
    program: ir.LoopProgram, block: ir.Block, region: ir.BufferRegion, padded_extents: dict[Var, arith.Expr]
) -> tuple[arith.Dim, ...]:
    """Return the shape of a buffer after padding the dimensions that padded iteration variables index."""
    shape = list(region.buffer.shape)
    for axis, (first, extent) in enumerate(region.ranges):
        variables = [var for var in padded_extents if var in arith.free_vars(first) | arith.free_vars(extent)]
        if not variables:
            continue
        if first is not variables[0]:
            raise failed(
                program, f"index {axis} of {region.buffer} must be the padded variable {variables[0]}, got {first!r}", block
            )
        shape[axis] = arith.unwrap(padded_extents[variables[0]])
    return tuple(shape)


def _check_sum(program: ir.LoopProgram, block: ir.Block, padded_extents: dict[Var, arith.Expr]) -> None:
    """Check that the zeros read along padded reduction variables leave the sum unchanged."""
    variables = {item.var for item in block.iters if item.kind is ir.IterKind.REDUCTION and item.var in padded_extents}
    if not variables:
        return
    store = block.body
    if isinstance(store, ir.Store) and isinstance(store.value, ir.Binary) and store.value.op == "add":
        for acc, term in ((store.value.a, store.value.b), (store.value.b, store.value.a)):
            if isinstance(acc, ir.Load) and acc.buffer is store.buffer and _vanishes(term, variables):
                return
    raise failed(program, f"block {block.name} must sum products of elements padded along {', '.join(map(repr, variables))}", block)


def _vanishes(term: ir.Expr, variables: set[Var]) -> bool:
    """Test whether a term is 0 in the padding: a product of loads, each indexed by every variable in `variables`."""
    match term:
        case ir.Load(indices=indices):
            return all(any(index is var for index in indices) for var in variables)
        case ir.Cast(a=a):
            return _vanishes(a, variables)
        case ir.Binary(op="mul", a=a, b=b):
            return _vanishes(a, variables) and _vanishes(b, variables)
    return False


def _copy(
    name: str, source: ir.Buffer, target: ir.Buffer, shape: tuple[arith.Dim, ...], valid_shape: tuple[arith.Dim, ...] | None
) -> ir.Stmt:
    """Build loops that copy a box of a buffer, and store zeros outside `valid_shape`."""
    loops = [(Var(f"i{axis}"), arith.wrap(extent)) for axis, extent in enumerate(shape)]
    iters = tuple(ir.IterVar(Var(f"v{axis}"), extent) for axis, (_, extent) in enumerate(loops))
    indices = tuple(item.var for item in iters)
    value: ir.Expr = ir.load(source, indices)
    if valid_shape is not None:
        condition: arith.Expr = arith.ONE
        for index, extent, limit in zip(indices, shape, valid_shape, strict=True):
            if extent != limit:
                condition = arith.logical_and(condition, arith.compare("<", index, limit))
        value = ir.select(condition, value, ir.const(0, source.dtype))
    store = ir.Store(target, indices, value)
    return nest(loops, ir.Block(name, iters, tuple(var for var, _ in loops), reads(store), writes(store), store))
