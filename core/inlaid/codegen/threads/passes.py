"""Passes that legalize SPMD kernels for a C-like language, in order."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial

from inlaid.codegen import c_values
from inlaid.codegen.launch_plan import ThreadKernel
from inlaid.codegen.threads.dialect import ThreadDialect
from inlaid.codegen.threads.exchange import shuffled
from inlaid.codegen.threads.float64_calls import float64_calls
from inlaid.codegen.threads.lanes import cut_lanes
from inlaid.codegen.threads.narrow_floats import as_functions
from inlaid.passes.manager import RunPasses, UnitPass
from inlaid.tensor import ir
from inlaid.tensor.analysis.ranges import narrow
from inlaid.tensor.math import expand_program
from inlaid.tensor.transform.flatten_nests import flatten_nests
from inlaid.tensor.transform.float64_operands import INTERMEDIATE_FLOAT64
from inlaid.tensor.transform.legalize import legalize
from inlaid.tensor.transform.rewrite import Rewriter
from inlaid_runtime.names import unique


def kernel_passes(dialect: ThreadDialect) -> tuple[UnitPass[ir.LoopProgram], ...]:
    """List the passes for a language. Kernels marked `INTERMEDIATE_FLOAT64` compute float64 in integers."""
    return (
        UnitPass("unique_names", unique_names),
        UnitPass("flatten_nests", flatten_nests),
        UnitPass("expand_math", lambda program: expand_program(program, wide=_may_use_float64(program))),
        UnitPass("legalize", lambda program: legalize(program, c_values.NATIVE, dialect.converted, wide=_may_use_float64(program))),
        UnitPass("float64_calls", lambda program: program if _may_use_float64(program) else float64_calls(program)),
        UnitPass("conversion_calls", partial(as_functions, converted=dialect.converted)),
        UnitPass("cut_lanes", partial(cut_lanes, lanes=dialect.lanes)),
        UnitPass("shuffles", shuffled),
        UnitPass("narrow", narrow),
        UnitPass("waits", dialect.with_waits),
    )


def legalized_kernels(
    kernels: Sequence[ThreadKernel], dialect: ThreadDialect, run: RunPasses[ir.LoopProgram]
) -> Iterator[ThreadKernel]:
    """Run `kernel_passes` on kernels. `run`: see `CompileContext.run_passes`. Offsets follow their buffers by name, since passes
    rebuild buffers."""
    passes = kernel_passes(dialect)
    for kernel in kernels:
        spmd = kernel.kernel
        names = {buffer: renamed.name for buffer, renamed in _renamed(spmd.program).items()}
        offsets = {names[buffer]: offset for buffer, offset in spmd.offsets.items() if buffer in names}
        program = run(passes, spmd.program)
        by_buffer = {buffer: offsets[buffer.name] for buffer in _allocated(program) if buffer.name in offsets}
        yield replace(kernel, kernel=replace(spmd, program=program, offsets=by_buffer))


def unique_names(program: ir.LoopProgram) -> ir.LoopProgram:
    """Rename allocated buffers uniquely."""
    return Rewriter(buffers=_renamed(program)).program(program)


def _renamed(program: ir.LoopProgram) -> dict[ir.Buffer, ir.Buffer]:
    names: set[str] = set()
    return {
        buffer: ir.Buffer(unique(buffer.name, names), buffer.shape, buffer.dtype, buffer.scope) for buffer in _allocated(program)
    }


def _allocated(program: ir.LoopProgram) -> dict[ir.Buffer, None]:
    """List the distinct buffers that a program allocates."""
    return dict.fromkeys(stmt.buffer for stmt in ir.walk_stmts(program.body) if isinstance(stmt, ir.Alloc))


def _may_use_float64(program: ir.LoopProgram) -> bool:
    return INTERMEDIATE_FLOAT64 not in program.annotations
