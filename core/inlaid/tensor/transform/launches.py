"""Splits a fork-join program into kernels and the host program that launches them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from typing import Protocol

from inlaid.tensor import ir
from inlaid.tensor.analysis.footprint import full_region, semantic_access, statement_accesses, statement_buffers
from inlaid.tensor.analysis.memory_scopes import SUBGROUP, places
from inlaid.tensor.lower import free_sizes
from inlaid.tensor.primitives.lookup import failed
from inlaid.tensor.transform.barriers import to_spmd
from inlaid.tensor.transform.lower_blocks import joined, mapped
from inlaid_runtime import arith
from inlaid_runtime.types import MemoryScope, dtype

_INT64 = dtype("int64")


@dataclass(frozen=True, slots=True)
class SpmdKernel:
    """A kernel in SPMD form. `grid` and `threads` are the extents of the block and thread axes, outermost first, in terms of sizes
    and host loop variables. `program` takes the host loop variables as scalars after its other inputs. `offsets` are byte offsets
    of buffers in the memory of threads, blocks and device."""

    program: ir.LoopProgram
    grid: Mapping[str, arith.Expr]
    threads: Mapping[str, arith.Expr]
    offsets: Mapping[ir.Buffer, int]


@dataclass(frozen=True, slots=True)
class SplitProgram:
    """A program split into host and kernels. In `host`, a launch is an intrinsic with the kernel's name on whole buffers. Its
    semantics is the kernel's program. Elements that the kernel does not write are preserved."""

    host: ir.LoopProgram
    kernels: Mapping[str, SpmdKernel]


class ToSpmd(Protocol):
    """Lowers a kernel to SPMD form: `to_spmd`, or a function that runs `to_spmd` as a pass."""

    def __call__(
        self, program: ir.LoopProgram, scopes: Sequence[MemoryScope], offsets: Mapping[ir.Buffer, int], subgroup: int, /
    ) -> ir.LoopProgram: ...


def split_launches(
    program: ir.LoopProgram, scopes: Sequence[MemoryScope], subgroup: int = 0, lower: ToSpmd = to_spmd
) -> SplitProgram:
    """Split a fork-join program into a host program and kernels.

        alloc s: { for b in n // 32, blockIdx.x: for t in 32, threadIdx.x: s[b * 32 + t] = ...; for c in n // 32, blockIdx.x: ... }
    becomes
        alloc s: { intrinsic "f_0" on read x[...], write s[...]; intrinsic "f_1" on read s[...], write y[...] }

    Each nest of blocks and threads becomes a kernel in SPMD form (see `to_spmd`, also for `subgroup`), with the buffers of blocks
    and threads around it. Statements next to such nests become a kernel of one thread. Serial loops and branches around nests stay
    on the host, which knows sizes but not data. A size that the program computes is loaded by kernels from the size's buffer, and
    launches must not depend on it. A program that computes sizes and has no threads is one kernel. The program must have
    no blocks or virtual threads. `lower` brings kernels to SPMD form.

    Raises `ScheduleError` if a launch depends on data or on a computed size, or if `to_spmd` or `places` raises it.
    """
    return _Splitter(program, scopes, subgroup, lower).split()


class _Splitter:
    def __init__(self, program: ir.LoopProgram, scopes: Sequence[MemoryScope], subgroup: int, lower: ToSpmd) -> None:
        self._program = program
        self._subgroup = subgroup
        self._lower = lower
        self._scopes = scopes
        self._kernel_scopes = {"register", SUBGROUP} | {scope.name for scope in scopes if scope.owner != "device"}
        offset_tables = [places(program, scope) for scope in scopes if scope.owner != "thread"]
        self._offsets = {buffer: offset for offsets in offset_tables for buffer, offset in offsets.items()}
        self._kernels: dict[str, SpmdKernel] = {}
        self._variables: dict[arith.Var, tuple[arith.Expr, arith.Expr] | None] = {}

    def split(self) -> SplitProgram:
        if self._program.defines and not _has_threads(self._program.body):
            return self._single_kernel()
        return SplitProgram(replace(self._program, body=self._host(self._program.body)), self._kernels)

    def _single_kernel(self) -> SplitProgram:
        """Make a kernel of one thread from the whole program."""
        program = replace(self._program, name=f"{self._program.name}_0")
        access = tuple(semantic_access(program))
        body = ir.Intrinsic(program.name, tuple(map(full_region, program.params)), access)
        return SplitProgram(replace(self._program, body=body), {program.name: SpmdKernel(program, {}, {}, self._offsets)})

    def _host(self, stmt: ir.Stmt) -> ir.Stmt:
        """Build the host program of a statement, with kernels replaced by launches."""
        if not _has_threads(stmt):
            return self._launch(stmt)
        match stmt:
            case ir.Seq(stmts=stmts):
                runs = groupby(stmts, _has_threads)
                return joined(
                    *(
                        part
                        for has_threads, run in runs
                        for part in (map(self._host, run) if has_threads else [self._launch(joined(*run))])
                    )
                )
            case ir.Alloc(buffer=buffer) if buffer.scope not in self._kernel_scopes:
                return mapped(stmt, self._host)
            case ir.For(kind=ir.ForKind.SERIAL) | ir.If() | ir.Let() | ir.While():
                values, indices = ir.statement_operands(stmt)
                self._check_sizes(stmt, *map(ir.free_vars, values), *map(arith.free_vars, indices))
                is_static = not any(map(arith.reads_data, map(arith.wrap, indices)))
                if not is_static or any(isinstance(node, ir.Load) for node in ir.walk_exprs(*values)):
                    raise failed(self._program, "a launch must not depend on data", stmt, "move the branch or loop inside the grid")
                if isinstance(stmt, ir.For):
                    self._variables[stmt.var] = (arith.ZERO, stmt.extent - 1)
                elif isinstance(stmt, ir.Let):
                    self._variables[stmt.var] = stmt.bounds
                return mapped(stmt, self._host)
        return self._launch(stmt)

    def _launch(self, stmt: ir.Stmt) -> ir.Stmt:
        """Make a kernel of a statement. Returns the intrinsic that launches the kernel, or an empty Seq if it writes nothing."""
        name = f"{self._program.name}_{len(self._kernels)}"
        local_buffers = {node.buffer for node in ir.walk_stmts(stmt) if isinstance(node, ir.Alloc)}
        accesses = [(region.buffer, access) for node in ir.walk_stmts(stmt) for region, access in statement_accesses(node)]
        written_buffers = dict.fromkeys(
            buffer for buffer, access in accesses if access & ir.AccessMode.WRITE and buffer not in local_buffers
        )
        if not written_buffers:
            return ir.Seq(())
        inputs = tuple(
            dict.fromkeys(buffer for buffer, _ in accesses if buffer not in local_buffers and buffer not in written_buffers)
        )
        variables = {var for node in ir.walk_stmts(stmt) for var in _variables(node)}
        scalars = {var: ir.Buffer(var.name, (), _INT64) for var in self._variables if var in variables}
        body = stmt
        for var, scalar in scalars.items():
            body = ir.Let(var, scalar[()], body, self._variables[var])
        defines = self._defines(stmt, (*inputs, *written_buffers))
        inputs = (*inputs, *(buffer for _, buffer in defines if buffer not in inputs and buffer not in written_buffers))
        outputs = tuple(
            sorted(written_buffers, key=[buffer for _, buffer in self._program.defines].__contains__)
        )  # size buffers come last
        kernel = ir.LoopProgram(name, (*inputs, *scalars.values()), outputs, body, defines, self._program.annotations)
        kernel = self._lower(replace(kernel, sizes=free_sizes(kernel)), self._scopes, self._offsets, self._subgroup)
        thread_offsets = [places(kernel, scope) for scope in self._scopes if scope.owner == "thread"]
        kernel_buffers = {buffer for node in ir.walk_stmts(kernel.body) for buffer in statement_buffers(node)}
        offsets = {
            buffer: offset
            for table in (self._offsets, *thread_offsets)
            for buffer, offset in table.items()
            if buffer in kernel_buffers
        }
        axes = [node for node in ir.walk_stmts(kernel.body) if isinstance(node, ir.For) and node.kind is ir.ForKind.THREAD]
        grid, threads = ({loop.thread: loop.extent for loop in axes if loop.over_threads is inner} for inner in (False, True))
        self._check_sizes(stmt, *map(arith.free_vars, (*grid.values(), *threads.values())))
        self._kernels[name] = SpmdKernel(kernel, grid, threads, offsets)
        regions = tuple(map(full_region, (*inputs, *outputs)))
        access = [
            mode for buffer, mode in zip(kernel.params, semantic_access(kernel), strict=True) if buffer not in scalars.values()
        ]
        return ir.Intrinsic(name, regions, tuple(access), tuple(ir.Index(_INT64, var) for var in scalars))

    def _defines(self, stmt: ir.Stmt, params: Sequence[ir.Buffer]) -> tuple[tuple[arith.SizeVar, ir.Buffer], ...]:
        """Return the computed sizes that a statement or the shapes of its buffers read, with the buffers that hold them."""
        shapes = (arith.free_vars(dim) for buffer in params for dim in buffer.shape)
        variables = frozenset().union(*shapes, *(frozenset(_variables(node)) for node in ir.walk_stmts(stmt)))
        return tuple((size, buffer) for size, buffer in self._program.defines if size in variables)

    def _check_sizes(self, stmt: ir.Stmt, *variables: frozenset[arith.Expr]) -> None:
        """Check that a launch depends on no computed size."""
        dependences = frozenset().union(*variables)
        for size, _ in self._program.defines:
            if size in dependences:
                problem = f"a launch must depend on sizes known before it, found {size}, which the program computes"
                raise failed(self._program, problem, stmt, "launch for its upper bound, and guard inside the kernel")


def _has_threads(stmt: ir.Stmt) -> bool:
    return any(isinstance(node, ir.For) and node.kind is ir.ForKind.THREAD for node in ir.walk_stmts(stmt))


def _variables(stmt: ir.Stmt) -> Iterator[arith.Expr]:
    """Yield the variables in a statement's operands, without its substatements."""
    values, indices = ir.statement_operands(stmt)
    for variables in (*map(ir.free_vars, values), *map(arith.free_vars, indices)):
        yield from variables
