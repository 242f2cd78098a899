"""Primitives that change the memory layout of buffers: transform_layout, storage_align."""

from __future__ import annotations

from dataclasses import replace

from inlaid.tensor import ir
from inlaid.tensor.analysis.digits import is_determined
from inlaid.tensor.analysis.footprint import writes
from inlaid.tensor.primitives.cache import find_copy_position
from inlaid.tensor.primitives.lookup import block_path, check_not_tensorized, failed, named_buffer, writers
from inlaid.tensor.transform.lower_blocks import joined
from inlaid.tensor.transform.paths import Ranges, nest, rebuilt, remapped, sites, unique_name, with_body
from inlaid_runtime import arith
from inlaid_runtime.arith import Var

ALIGNMENTS = "storage_align"
"""Key of the program annotation that lists (buffer, axis, factor, offset); `tensor.transform.align` reads it."""


def transform_layout(program: ir.LoopProgram, buffer: str, layout: str, fill: int | float | None = None) -> ir.LoopProgram:
    """Change the layout of a buffer: move its elements to the indices that an index map gives.

        c[v, w] = a[v, w] + 1
    transform_layout("c", "(i, j) -> (i, (j // 4), (j % 4))") gives
        c[v, w // 4, w % 4] = a[v, w] + 1

    A parameter of the program changes its shape; its owner must pack or unpack it. If a factor does not divide the extent, the
    buffer gets padding elements; `fill` stores a value to them, in a separate block before the buffer is written. Raises
    `ScheduleError` if two elements would have the same index, or `fill` is given for an input.
    """
    old = named_buffer(program, buffer)
    index_map = arith.parse_index_map(layout)
    if len(index_map.variables) != len(old.shape):
        raise failed(program, f"{layout} must map {len(old.shape)} indices, the dimensions of {buffer}")
    ranges: Ranges = {var: (0, arith.unwrap(arith.wrap(dim) - 1)) for var, dim in zip(index_map.variables, old.shape, strict=True)}
    for var, dim in zip(index_map.variables, old.shape, strict=True):
        if not is_determined(var, arith.wrap(dim), index_map.results, ranges):
            raise failed(program, f"{layout} must be injective on {buffer}: elements that differ in {var} get the same index")
    for site in sites(program.body):
        if site.reads(old) or site.writes(old):
            check_not_tensorized(program, site.block)
    try:
        new = ir.Buffer(old.name, index_map.shape(old.shape), old.dtype, old.scope)
    except ValueError as error:
        raise failed(program, str(error)) from error
    program = remapped(program, {old: (new, index_map)})
    if fill is None or arith.Analyzer().equal(arith.product(new.shape), arith.product(old.shape)):
        return program
    if new in program.inputs:
        raise failed(program, f"fill must be None for input {buffer}, which its owner fills")
    return _filled(program, old, new, index_map, fill)


def _filled(
    program: ir.LoopProgram, old: ir.Buffer, new: ir.Buffer, index_map: arith.IndexMap, fill: int | float
) -> ir.LoopProgram:
    """Insert a block before the first writer of a buffer that stores `fill` to its padding elements."""
    loops = [(Var(f"i{axis}"), arith.wrap(extent)) for axis, extent in enumerate(new.shape)]
    iters = tuple(ir.IterVar(Var(f"v{axis}"), extent) for axis, (_, extent) in enumerate(loops))
    var_by_result = dict(zip(index_map.results, (item.var for item in iters), strict=True))
    is_padding: arith.Expr = arith.ZERO
    for var, dim in zip(index_map.variables, old.shape, strict=True):
        for result in index_map.results:
            if isinstance(result, arith.FloorDiv) and result.operands[0] is var:
                low = var_by_result.get(var % result.operands[1])
                if low is None:
                    raise failed(program, f"cannot invert {index_map!r} to find the padding of {new}")
                is_padding = arith.logical_or(
                    is_padding, arith.compare("<=", dim, var_by_result[result] * result.operands[1] + low)
                )
    store = ir.Store(new, tuple(item.var for item in iters), ir.const(fill, new.dtype))
    bindings = tuple(var for var, _ in loops)
    loop_by_iter: dict[arith.Expr, arith.Expr] = {item.var: var for item, (var, _) in zip(iters, loops, strict=True)}
    name = unique_name(program, f"{new.name}_fill")
    block = ir.Block(name, iters, bindings, (), writes(store), store, None, arith.substitute(is_padding, loop_by_iter))
    top, _ = find_copy_position(block_path(program, writers(program, new)[0].block.name), new)
    return with_body(program, rebuilt(top, joined(nest(loops, block), top[-1])))


def storage_align(program: ir.LoopProgram, buffer: str, axis: int, factor: int, offset: int = 0) -> ir.LoopProgram:
    """Make the stride of an intermediate buffer along an axis `offset` elements more than a multiple of `factor`.

        alloc t[8, 30]
    storage_align("t", 0, 32, 1) gives, once buffers have their final sizes (`tensor.transform.align`),
        alloc t[8, 33]

    Raises `ScheduleError` for parameters and for the last axis, whose stride is always one element.
    """
    target = named_buffer(program, buffer)
    if target in program.params:
        raise failed(program, f"expected an intermediate buffer, got parameter {buffer}, whose memory the caller provides")
    if not 0 <= axis < len(target.shape) - 1 or factor < 1 or not 0 <= offset < factor:
        raise failed(program, f"{buffer} needs an axis before the last and 0 <= offset < factor, got {axis}, {offset}, {factor}")
    alignments = dict(program.annotations).get(ALIGNMENTS, ())
    annotations = tuple(pair for pair in program.annotations if pair[0] != ALIGNMENTS)
    return replace(program, annotations=(*annotations, (ALIGNMENTS, (*alignments, (buffer, axis, factor, offset)))))
