"""Lower loads of other threads' registers in a subgroup to shuffles."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace

from inlaid.codegen.threads.indices import flat_index
from inlaid.tensor import ir
from inlaid.tensor.analysis.footprint import Uses
from inlaid.tensor.analysis.memory_scopes import LANES, SUBGROUP
from inlaid.tensor.analysis.races import variable_bounds
from inlaid.tensor.transform.lower_blocks import joined, mapped
from inlaid.tensor.transform.rewrite import Rewriter
from inlaid_runtime import arith
from inlaid_runtime.errors import Unsupported
from inlaid_runtime.types import dtype

SHUFFLE = "shuffle"
"""Name of the shuffle call in printed kernels. Arguments: a value, the number of a thread along `LANES`, the extent of `LANES`."""
_INT32 = dtype("int32")


def shuffled(program: ir.LoopProgram) -> ir.LoopProgram:
    """Replace each buffer of scope `SUBGROUP` of an SPMD kernel by a register per thread.

        alloc p[32] in "subgroup": for t in 32, threadIdx.x: { p[t] = a; barrier over x; if t < 16: b = p[t] + p[t + 16] }
    becomes
        for t in 32, threadIdx.x: alloc p, q in "register": { p = a; q = shuffle(p, t + 16, 32); if t < 16: b = p + q }

    The thread that stores an element has it in its register. All threads reach the barrier before the read; a shuffle replaces it.
    A store between barrier and read would be a race. Raises `Unsupported` if an index does not determine the thread, or no single
    barrier precedes a read.
    """
    if not any(isinstance(stmt, ir.Alloc) and stmt.buffer.scope == SUBGROUP for stmt in ir.walk_stmts(program.body)):
        return program

    def nest(stmt: ir.Stmt, buffers: tuple[ir.Buffer, ...]) -> ir.Stmt:
        match stmt:
            case ir.Alloc(buffer=buffer, body=body) if buffer.scope == SUBGROUP:
                return nest(body, (*buffers, buffer))
            case ir.For(body=body) if not stmt.over_threads or _over_threads(body):
                return replace(stmt, body=nest(body, buffers))
            case ir.For(body=body):
                return replace(stmt, body=_Exchange(program, buffers).body(body))
        return mapped(stmt, lambda inner: nest(inner, buffers))

    return replace(program, body=nest(program.body, ()))


def _over_threads(stmt: ir.Stmt) -> bool:
    return isinstance(stmt, ir.For) and stmt.over_threads


@dataclass(frozen=True)
class _Register:
    """Register of a thread for a buffer: it holds the element at `first` plus `step` times the thread's number along `LANES`.
    `step` is 0 if only thread 0 has an element."""

    value: ir.Buffer
    first: arith.Expr
    step: int


@dataclass
class _BarrierReads:
    """A barrier, and the results of the shuffles that replace it, by buffer and thread."""

    barrier: ir.Barrier
    reads: dict[tuple[ir.Buffer, arith.Expr], ir.Buffer] = field(default_factory=dict)


class _Exchange:
    """Rewrites the body of the thread loops. `_last` is the last barrier; None if it is not known statically."""

    def __init__(self, program: ir.LoopProgram, buffers: Iterable[ir.Buffer]) -> None:
        loop = next(stmt for stmt in ir.walk_stmts(program.body) if isinstance(stmt, ir.For) and stmt.thread == LANES)
        assert isinstance(loop.extent, arith.Const), "to_spmd checks it"
        self._program = program
        self._lane, self._width = loop.var, loop.extent.value
        self._analyzer = arith.Analyzer(variable_bounds(program.body))
        self._buffers = tuple(buffers)
        self._registers: dict[ir.Buffer, _Register] = {}
        self._barriers: dict[ir.Stmt, _BarrierReads] = {}
        self._last: _BarrierReads | None = None

    def body(self, body: ir.Stmt) -> ir.Stmt:
        """Rewrite the statements inside the loops over threads."""
        self._find(body, arith.ONE)
        body = self._with_shuffles(self._stmt(body, arith.ONE))
        register_buffers = [register.value for register in self._registers.values()]
        read_buffers = [buffer for barrier_reads in self._barriers.values() for buffer in barrier_reads.reads.values()]
        # Threads that store nothing still execute the shuffles, so their registers must be initialized.
        body = joined(*(ir.Store(buffer, (), ir.const(0, buffer.dtype)) for buffer in register_buffers), body)
        for buffer in reversed([*register_buffers, *read_buffers]):
            body = ir.Alloc(buffer, body)
        return body

    # --- registers ---

    def _find(self, stmt: ir.Stmt, guard: arith.Expr) -> None:
        """Find the registers that statements store to."""
        if isinstance(stmt, ir.Store) and stmt.buffer in self._buffers:
            register = self._register(stmt, guard)
            previous = self._registers.setdefault(stmt.buffer, register)
            if register.step != previous.step or not self._analyzer.equal(register.first, previous.first):
                raise self._error(stmt.buffer, "expected one element for each thread, found several")
        if isinstance(stmt, ir.If):
            guard = _and(guard, stmt)
        for part in ir.substatements(stmt):
            self._find(part, guard)

    def _register(self, store: ir.Store, guard: arith.Expr) -> _Register:
        buffer = store.buffer
        first, step = self._split(flat_index(buffer, store.indices))
        if step != 1 and not self._is_first(guard):
            raise self._error(buffer, "adjacent threads must store adjacent elements, or only the first thread must store")
        value = ir.Buffer(buffer.name, (), buffer.dtype, "register")
        return _Register(value, first, step if step == 1 else 0)

    def _split(self, index: arith.Expr) -> tuple[arith.Expr, int]:
        """Split an index into (rest, coefficient of the thread's number)."""
        form = self._analyzer.linear(index)
        terms = dict(form.terms)
        step = terms.pop(self._lane, 0)
        return arith.Linear(terms, form.constant).expr(), step

    def _is_first(self, guard: arith.Expr) -> bool:
        """Test whether a guard admits only thread 0."""
        return any(part == arith.compare("==", self._lane, 0) for part in _conjuncts(guard))

    # --- statements ---

    def _stmt(self, stmt: ir.Stmt, guard: arith.Expr) -> ir.Stmt:
        match stmt:
            case ir.Barrier():
                self._last = self._barriers[stmt] = _BarrierReads(stmt)
                return stmt
            case ir.Store(buffer=buffer):
                rewritten = self._rewriter(guard).stmt(stmt)
                assert isinstance(rewritten, ir.Store)
                return ir.Store(self._registers[buffer].value, (), rewritten.value) if buffer in self._registers else rewritten
            case ir.If(condition=ir.Index()):
                inside = _and(guard, stmt)
                then = self._branch(stmt.then, inside)
                other = None if stmt.otherwise is None else self._branch(stmt.otherwise, guard)
                return ir.If(stmt.condition, then, other)
            case ir.Let(value=value):
                return replace(stmt, value=self._rewriter(guard).expr(value), body=self._stmt(stmt.body, guard))
            case ir.For():
                return replace(stmt, body=self._branch(stmt.body, guard))
            case ir.Seq() | ir.Alloc():
                return mapped(stmt, lambda part: self._stmt(part, guard))
        for buffer in self._registers:
            if buffer in Uses().buffers(stmt):
                raise self._error(buffer, f"expected only stores and loads, found {type(stmt).__name__}")
        return stmt

    def _branch(self, stmt: ir.Stmt, guard: arith.Expr) -> ir.Stmt:
        """Rewrite a statement that may run never or several times."""
        meets = ir.threads_meet(stmt, ())
        barrier_before = None if meets else self._last
        self._last = barrier_before
        rewritten = self._stmt(stmt, guard)
        self._last = barrier_before
        return rewritten

    def _rewriter(self, guard: arith.Expr) -> Rewriter:
        def load(node: ir.Expr) -> ir.Expr | None:
            if not isinstance(node, ir.Load) or node.buffer not in self._registers:
                return None
            return ir.load(self._read(node, guard), ())

        return Rewriter(expr=load)

    def _read(self, load: ir.Load, guard: arith.Expr) -> ir.Buffer:
        """Return the register that holds the value of a load."""
        register = self._registers[load.buffer]
        thread = self._analyzer.simplify(flat_index(load.buffer, load.indices) - register.first)
        substitution: dict[arith.Expr, arith.Expr] = {self._lane: arith.ZERO} if self._is_first(guard) else {}
        if self._analyzer.equal(arith.substitute(thread, substitution), arith.substitute(self._lane, substitution)):
            return register.value
        is_unstored = register.step == 0 and thread != arith.ZERO
        if is_unstored or not arith.free_vars(thread) <= {self._lane} or arith.reads_data(thread):
            raise self._error(load.buffer, f"expected an index that determines the thread, found thread {thread}")
        if self._last is None:
            raise self._error(load.buffer, "expected a barrier before the read, in the same branch or loop")
        key = (load.buffer, thread)
        if key not in self._last.reads:
            self._last.reads[key] = ir.Buffer(f"{load.buffer.name}_of", (), load.buffer.dtype, "register")
        return self._last.reads[key]

    def _with_shuffles(self, stmt: ir.Stmt) -> ir.Stmt:
        """Insert the shuffles at barriers."""
        barrier_reads = self._barriers.get(stmt)
        if barrier_reads is None:
            return mapped(stmt, self._with_shuffles)
        shuffles = []
        for (buffer, thread), read in barrier_reads.reads.items():
            args = (ir.load(self._registers[buffer].value, ()), ir.Index(_INT32, thread), ir.const(self._width, _INT32))
            shuffles.append(ir.Store(read, (), ir.CallIntrinsic(buffer.dtype, SHUFFLE, args)))
        return joined(*([] if barrier_reads.barrier.over else [stmt]), *shuffles)

    def _error(self, buffer: ir.Buffer, problem: str) -> Unsupported:
        return Unsupported(f"kernel {self._program.name}: buffer {buffer.name} in scope {SUBGROUP!r}: {problem}")


def _and(guard: arith.Expr, stmt: ir.If) -> arith.Expr:
    return arith.logical_and(guard, stmt.condition.index) if isinstance(stmt.condition, ir.Index) else guard


def _conjuncts(guard: arith.Expr) -> Iterable[arith.Expr]:
    if isinstance(guard, arith.And):
        for part in guard.operands:
            yield from _conjuncts(part)
    else:
        yield guard
