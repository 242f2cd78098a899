"""Asynchronous copies to shared memory: a loop pass and the instructions that it inserts (PTX `cp.async`, from sm_80 on).

A thread continues while its copies are pending, and waits for them before barriers (see `waits`). The pass changes only stores to
buffers that are read only by collective instructions: a barrier always separates such a read from a store by one thread.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from inlaid.codegen.c_statements import Emitter, RegionPointer
from inlaid.codegen.threads.indices import flat_index
from inlaid.tensor import ir
from inlaid.tensor.analysis.races import variable_bounds
from inlaid.tensor.primitives import TensorIntrin
from inlaid.tensor.transform.paths import nest
from inlaid.tensor.transform.rewrite import Rewriter
from inlaid_cuda.capabilities import SHARED
from inlaid_runtime import arith
from inlaid_runtime.arith import Var
from inlaid_runtime.types import dtype

BYTES = (16, 8, 4)
"""Sizes in bytes that one instruction can copy."""
TYPES = ("float16", "bfloat16", "float32", "int8", "uint8")


def copies() -> tuple[TensorIntrin, ...]:
    """Return the intrinsics d[i] = s[i] on contiguous elements, one for each element type and number of elements."""
    intrinsics = []
    for element in TYPES:
        for count in (bytes_ // dtype(element).bytes for bytes_ in BYTES):
            i = Var("i")
            source, target = ir.Buffer("s", (count,), dtype(element)), ir.Buffer("d", (count,), dtype(element), SHARED)
            body = nest([(i, arith.wrap(count))], ir.Store(target, (i,), ir.load(source, (i,))))
            intrinsics.append(TensorIntrin(f"cuda.copy.{element}.{count}", ir.LoopProgram("copy", (source,), (target,), body)))
    return tuple(intrinsics)


COPIES: Mapping[str, TensorIntrin] = {item.name: item for item in copies()}


def copy_asynchronously(program: ir.LoopProgram) -> ir.LoopProgram:
    """Replace vector stores that copy global to shared memory, optionally under a uniform condition, by asynchronous copies.

    for i in 8, vectorized: s[i] = select(c, x[n + i], 0)
    becomes
    if c: cuda.copy.float16.8 on read x[n +: 8], write s[0 +: 8]
    else: for i in 8, vectorized: s[i] = 0
    """
    read_buffers = {node.buffer for node in ir.values_in(program.body) if isinstance(node, ir.Load)}
    for stmt in ir.walk_stmts(program.body):
        if isinstance(stmt, ir.Intrinsic) and not stmt.over:
            read_buffers.update(region.buffer for region in stmt.regions)
    analyzer = arith.Analyzer(variable_bounds(program.body))

    def replace_store(stmt: ir.Stmt) -> ir.Stmt | None:
        match stmt:
            case ir.For(kind=ir.ForKind.VECTORIZED, body=ir.Store(buffer=buffer) as store) if (
                buffer.scope == SHARED and buffer not in read_buffers
            ):
                return _copied(stmt, store, analyzer)
        return None

    return Rewriter(stmt=replace_store).program(program)


def _copied(loop: ir.For, store: ir.Store, analyzer: arith.Analyzer) -> ir.Stmt | None:
    """Return the copy that replaces a vectorized store; None if the store is not a plain copy or its alignment cannot be proven."""
    condition, value = None, store.value
    if isinstance(value, ir.Select) and isinstance(value.otherwise, ir.Const):
        condition, value = value.condition, value.then
    if not isinstance(value, ir.Load) or value.buffer.scope or not isinstance(loop.extent, arith.Const):
        return None
    if condition is not None and (
        loop.var in condition.free_vars() or any(isinstance(node, ir.Load) for node in ir.walk_exprs(condition))
    ):
        return None
    count = loop.extent.value
    intrinsic = COPIES.get(f"cuda.copy.{value.buffer.dtype.name}.{count}")
    regions = [
        _run(buffer, indices, loop, analyzer) for buffer, indices in ((value.buffer, value.indices), (store.buffer, store.indices))
    ]
    if intrinsic is None or regions[0] is None or regions[1] is None:
        return None
    copy = intrinsic.on(regions[0], regions[1])
    if condition is None:
        return copy
    assert isinstance(store.value, ir.Select)
    zeros = ir.For(loop.var, loop.extent, ir.Store(store.buffer, store.indices, store.value.otherwise), loop.kind)
    return ir.If(condition, copy, zeros)


def _run(buffer: ir.Buffer, indices: Sequence[arith.Expr], loop: ir.For, analyzer: arith.Analyzer) -> ir.BufferRegion | None:
    """Return the region of a buffer that the lanes of a loop access; None unless it is contiguous and aligned to its size."""
    *outer_indices, last = indices
    step = arith.affine(analyzer.simplify(last), loop.var)
    if any(loop.var in arith.free_vars(index) for index in outer_indices) or step is None or step[0] != arith.ONE:
        return None
    first = (*outer_indices, arith.substitute(last, {loop.var: arith.ZERO}))
    if any(map(arith.reads_data, first)) or analyzer.simplify(flat_index(buffer, first) % loop.extent) != arith.ZERO:
        return None
    extents = (*(arith.ONE for _ in outer_indices), loop.extent)
    return ir.BufferRegion(buffer, tuple(zip(map(analyzer.simplify, first), extents, strict=True)))


def emitters() -> Mapping[str, Emitter]:
    """Return the emitters of copies, keyed by intrinsic name."""
    return dict.fromkeys(COPIES, _call)


def _call(places: Sequence[RegionPointer], args: Sequence[str]) -> Sequence[str]:
    source, target = places
    count = source.region.ranges[-1][1]
    assert isinstance(count, arith.Const)
    bytes_ = count.value * source.region.buffer.dtype.bytes
    return [f"inlaid_copy<{bytes_}>({source.pointer}, {target.pointer});"]
