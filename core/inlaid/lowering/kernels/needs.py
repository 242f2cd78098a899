"""What the kernel of an operator needs of a target, decided before the operator is placed."""

from __future__ import annotations

from functools import lru_cache

from inlaid.graph import ir as graph
from inlaid.graph.attrs import attr_vars
from inlaid.graph.operator import Attrs, Operator
from inlaid.lowering.kernels.bodies import call_body
from inlaid.lowering.kernels.kernel import KernelSource, build, thread_grid
from inlaid.ops.threads.grid import Grid
from inlaid.plugins.contract import Capabilities
from inlaid.tensor import ir
from inlaid.tensor.analysis.memory_scopes import BUILT_IN, check_scopes
from inlaid.tensor.math import expand_program
from inlaid.tensor.transform.float64_operands import INTERMEDIATE_FLOAT64, mark_intermediate_float64
from inlaid.tensor.transform.legalize import EXPONENT_ONLY, FORMATS, NARROW_INTEGERS, legalize
from inlaid.tensor.transform.lower_blocks import flatten_blocks
from inlaid_runtime import arith
from inlaid_runtime.errors import InlaidError, ScheduleError
from inlaid_runtime.records import dataclass
from inlaid_runtime.types import DTYPES, Type, type_vars

_NATIVE = frozenset(DTYPES).difference(FORMATS, (EXPONENT_ONLY,), NARROW_INTEGERS)
"""Element types with arithmetic in C-like languages. Values of the other types are computed in these."""


@dataclass(frozen=True)
class KernelRequirements:
    """Requirements of an operator's kernel. dtypes: names of element types. block: threads of the largest block at the least sizes,
    1 without threads. scoped_program: the kernel without blocks if it allocates buffers in memory scopes of targets, else None."""

    dtypes: frozenset[str]
    block: int
    scoped_program: ir.LoopProgram | None


def unmet_need(call: graph.Call, capabilities: Capabilities) -> str | None:
    """Explain why a target with these capabilities cannot run the kernel of an operator call; None if it can, or if the kernel
    cannot be built, which lowering reports. Schedules stay within the capabilities and need no check."""
    grid = thread_grid(capabilities)
    params, body = call_body(call)
    assert isinstance(body, graph.Call) and isinstance(body.callee, Operator)
    operands = tuple(param.type for param in params)
    in_integers = capabilities.threads is not None and not capabilities.full_rate_float64
    updates = capabilities.in_place and body.callee.update is not None
    sizes = frozenset().union(*map(type_vars, (*operands, body.type)), attr_vars(body.attrs))
    bounds = tuple(sorted(((repr(size), arith.bounds(size)) for size in sizes), key=repr))  # sizes of one name are equal
    for in_place in (False, True) if updates else (False,):
        try:
            needs = _needs(body.callee, body.attrs, operands, body.type, grid, in_place, in_integers, bounds)
        except InlaidError:
            return None
        reason = _unmet(needs, capabilities, grid)
        if reason is not None:
            return reason
    return None


def _unmet(needs: KernelRequirements, capabilities: Capabilities, grid: Grid | None) -> str | None:
    excess = sorted(needs.dtypes.difference(capabilities.dtypes))
    if excess:
        return f"its kernel computes in {', '.join(excess)}, not among the target's element types"
    if grid is not None and needs.block > grid.block:
        return f"its kernel needs {needs.block} threads in a block, the target has {grid.block}"
    if needs.scoped_program is not None:
        try:
            check_scopes(needs.scoped_program, capabilities.scopes)
        except ScheduleError as error:
            return f"its kernel exceeds the target's memory: {error.message}"
    return None


@lru_cache(1024)  # a key has sizes of a model, so that the number of keys has no bound
def _needs(
    operator: Operator,
    attrs: Attrs,
    operands: tuple[Type, ...],
    result: Type,
    grid: Grid | None,
    in_place: bool,
    in_integers: bool,
    bounds: tuple[tuple[str, tuple[int | None, int | None]], ...],
) -> KernelRequirements:
    """Determine what the kernel of a call needs. `bounds`, the bounds of its sizes by name, serve only as a part of the cache
    key."""
    params = tuple(graph.var(f"x{number}", type_) for number, type_ in enumerate(operands))
    body = graph.Call(result, None, operator, params, attrs)
    program = build(KernelSource(operator.name, params, body, in_place), grid)
    scopes = {stmt.buffer.scope for stmt in ir.walk_stmts(program.body) if isinstance(stmt, ir.Alloc)}
    scoped_program = None if scopes.issubset(BUILT_IN) else flatten_blocks(program)
    return KernelRequirements(
        _dtypes(mark_intermediate_float64(program) if in_integers else program), _block(program.body), scoped_program
    )


def _dtypes(program: ir.LoopProgram) -> frozenset[str]:
    """Return the names of the element types of buffers and values, and of the floats that mathematical functions and conversions to
    narrow types are computed in. Booleans count only in buffers, since every language has conditions. The integers that these
    expansions add are bits of floats, which `legalize` expects of every code generator. Intermediate float64 is computed in uint64
    if the program is marked so."""
    buffers = [*program.params, *(stmt.buffer for stmt in ir.walk_stmts(program.body) if isinstance(stmt, ir.Alloc))]
    values = {value.dtype for value in ir.values_in(program.body)}
    wide = INTERMEDIATE_FLOAT64 not in program.annotations
    expansion = legalize(expand_program(program, wide=wide), _NATIVE, wide=wide)
    floats = set() if expansion is program else {value.dtype for value in ir.values_in(expansion.body) if value.dtype.is_float}
    names = {*(buffer.dtype.name for buffer in buffers), *(dtype.name for dtype in values | floats if dtype.name != "bool")}
    return frozenset(names if wide else {"uint64" if name == "float64" else name for name in names})


def _block(stmt: ir.Stmt) -> int:
    """Return the number of threads of the largest block at the least sizes."""
    threads = max(map(_block, ir.substatements(stmt)), default=1)
    if isinstance(stmt, ir.For) and stmt.kind is ir.ForKind.THREAD and stmt.thread.startswith("threadIdx"):
        least, _ = arith.bounds(stmt.extent)
        return threads * max(least or 1, 1)
    return threads
