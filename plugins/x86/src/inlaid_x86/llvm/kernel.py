"""Printer of one kernel: a loop program as an LLVM function.

A kernel is `i32 (buffers..., sizes..., context)` and returns 0, or the error code of a failed check. The body of a parallel loop is
outlined to a function, called back through the context. A vectorized loop is printed by widening its body (see `expressions`).
"""

from __future__ import annotations

import functools
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from types import MappingProxyType

from inlaid.tensor import ir
from inlaid.tensor.analysis.memory_scopes import places
from inlaid.tensor.region import size_vars
from inlaid.tensor.transform.rewrite import Rewriter
from inlaid_runtime import arith
from inlaid_runtime.errors import CompileError, Unsupported
from inlaid_x86.llvm.access import AccessGuard
from inlaid_x86.llvm.expressions import ExpressionPrinter
from inlaid_x86.llvm.function import FunctionPrinter
from inlaid_x86.llvm.indices import INDEX, IndexPrinter
from inlaid_x86.llvm.intrinsics import Emitter, MathEmitter, Operand, RegisterFile
from inlaid_x86.llvm.memory import CUT_BYTES
from inlaid_x86.llvm.values import Value, memory_type

STACK_LIMIT = 1 << 16
"""Maximum bytes of a local buffer on the stack."""
SHORT = 4
"""Maximum iterations of a remainder loop that LLVM need not vectorize."""


@dataclass(frozen=True)
class Polls:
    """How often a loop polls for signals. `operations`: symbolic number of operations of an iteration, or None. If given, the loop
    polls every `step` operations, counted over all such loops of a function; else every `step` iterations."""

    step: int
    operations: arith.Expr | None = None


NO_POLLS: Mapping[ir.For, Polls] = MappingProxyType({})


DEEPEST_NEST = 12
"""Number of nested loops above which LLVM runs few passes: the time of its usual ones grows with the cube of their number."""


def is_explicit(program: ir.LoopProgram, tensor: bool = False) -> bool:
    """Test whether every innermost loop of a kernel is vectorized, so that LLVM need not vectorize. tensor: accept innermost loops
    that store only by tensor intrinsics, except those of a register file."""
    stmts = list(ir.walk_stmts(program.body))
    tensor = tensor and not any(isinstance(stmt, ir.Alloc) and stmt.buffer.scope not in ("", "register") for stmt in stmts)
    return not any(
        isinstance(loop, ir.While)
        or (isinstance(loop, ir.For) and loop.kind in (ir.ForKind.SERIAL, ir.ForKind.PARALLEL) and _is_scalar(loop, tensor))
        for loop in stmts
    )


def is_deep(stmt: ir.Stmt, levels: int = DEEPEST_NEST) -> bool:
    """Test whether more than `levels` loops of a statement are nested."""
    if isinstance(stmt, ir.For):
        levels -= 1
    return levels < 0 or any(is_deep(part, levels) for part in ir.substatements(stmt))


def _is_scalar(loop: ir.For, tensor: bool) -> bool:
    """Test whether a loop is innermost and not `SHORT`; with `tensor`, whether it also stores elements."""
    if isinstance(loop.extent, arith.FloorMod) and (max_extent := arith.bounds(loop.extent)[1]) is not None and max_extent <= SHORT:
        return False
    body_stmts = list(ir.walk_stmts(loop.body))
    innermost = not any(isinstance(stmt, ir.For) and stmt.kind is not ir.ForKind.UNROLLED for stmt in body_stmts)
    return innermost and not (tensor and not any(isinstance(stmt, ir.Store) for stmt in body_stmts))


def _single_lane(loop: ir.For, lanes: int) -> ir.Stmt | None:
    """Rewrite a vectorized loop whose condition holds in only one lane to a scalar statement. Returns None for any other loop.

    Works around llvm/llvm-project#179489: LLVM 22 stores four bytes for one lane of a vector truncated to elements of one or two
    bytes.
    """
    match loop.body:
        case ir.If(condition=ir.Index(index=condition), then=then, otherwise=None):
            if arith.free_vars(condition) != {loop.var} or arith.reads_data(condition):
                return None
            active_lanes = [lane for lane in range(lanes) if arith.evaluate(condition, {loop.var: lane})]
            return Rewriter({loop.var: arith.Const(active_lanes[0])}).stmt(then) if len(active_lanes) == 1 else None
    return None


@functools.cache
def _ramp(lanes: int) -> str:
    """Return the text of a constant vector of the lane numbers."""
    return "<" + ", ".join(f"i64 {lane}" for lane in range(lanes)) + ">"


def _accumulates(loop: ir.For) -> bool:
    """Test whether a loop is innermost and stores to the same elements in every iteration."""
    stores = False
    for stmt in ir.walk_stmts(loop.body):
        if isinstance(stmt, ir.For) and stmt.kind is not ir.ForKind.UNROLLED:
            return False
        if isinstance(stmt, ir.Store):
            stores = True
            if any(loop.var in arith.free_vars(index) for index in stmt.indices):
                return False
    return stores


class KernelPrinter(ExpressionPrinter):
    """Prints a kernel and the outlined bodies of its parallel loops. polls: loops that poll, and how often."""

    def __init__(
        self,
        program: ir.LoopProgram,
        symbol: str,
        attributes: str,
        declarations: dict[str, str],
        intrinsics: Mapping[str, Emitter],
        files: Mapping[str, RegisterFile],
        math: Mapping[str, MathEmitter],
        check: bool = False,
        polls: Mapping[ir.For, Polls] = NO_POLLS,
    ) -> None:
        super().__init__(program.name, declarations, math)
        self.guard = AccessGuard(program) if check else None
        self.polls = polls
        self.intrinsics = intrinsics
        self.files = files
        self.registers = {buffer: number for file in files.values() for buffer, number in places(program, file.scope).items()}
        self.opened: dict[str, dict[int, ir.Buffer]] = {}
        self.program = program
        self.symbol = symbol
        self.attributes = attributes
        self.functions: list[str] = []
        self.context = "%context"
        self.budget = ""

    def print(self) -> list[str]:
        """Return the functions of the kernel, its entry last."""
        params = []
        for number, buffer in enumerate(self.program.params):
            self.pointers[buffer] = f"%b{number}"
            params.append(f"ptr noalias %b{number}")
        for size, buffer in self.program.defines:
            self._bind_cell(size, buffer)
        for number, size in enumerate(size_vars(self.program)):
            self.index.bind(size, Value(f"%n{number}", INDEX), size.lower)
            params.append(f"i64 %n{number}")
        with self._registers(self.program.body):
            self._statement(self.program.body)
        self.p.emit("ret i32 0")
        header = f"define hidden i32 @{self.symbol}({', '.join([*params, 'ptr %context'])}) {self.attributes}"
        self.functions.append(self.p.finish(header))
        return self.functions

    def _bind_cell(self, size: arith.SizeVar, buffer: ir.Buffer) -> None:
        self.index.cells[size] = self.pointers[buffer]
        self.index.analyzer = self.index.analyzer.inside({size: (size.lower, None)})

    # --- statements ---

    def _statement(self, stmt: ir.Stmt) -> None:
        match stmt:
            case ir.Seq(stmts=stmts):
                for item in stmts:
                    self._statement(item)
            case ir.Store(buffer=buffer, indices=indices, value=value):
                self.p.open_statement()
                self._store(buffer, self.positions.flat(buffer, indices), self._expr(value))
                self.p.close_statement()
                self.versions[buffer] = self.versions.get(buffer, 0) + 1
            case ir.For():
                self._for(stmt)
            case ir.If(condition=condition, then=then, otherwise=otherwise):
                self._if(condition, then, otherwise)
            case ir.Let():
                self._let(stmt)
            case ir.Alloc(buffer=buffer, body=body):
                self._alloc(buffer)
                self._statement(body)
            case ir.While(condition=condition, body=body):
                self._while(condition, body)
            case ir.Intrinsic(name="prefetch", regions=(region,)):
                self._prefetch(region)
            case ir.Intrinsic(name=name, regions=regions) if name in self.intrinsics:
                operands = (Operand(self, region, self.registers.get(region.buffer)) for region in regions)
                self.intrinsics[name](self.p, tuple(operands))
            case ir.Intrinsic(name=name):
                problem = f"kernel {self.name}: expected tensor intrinsics of this target, found {name!r}"
                raise Unsupported(problem, remedy="pass its emitter to inlaid.build, in instructions")
            case _:
                raise CompileError(f"kernel {self.name}: expected lowered statements, found a {type(stmt).__name__}")

    def _for(self, loop: ir.For) -> None:
        if loop.kind is ir.ForKind.VECTORIZED:
            self._vector_loop(loop)
        elif loop.kind is ir.ForKind.PARALLEL and self.lane is None:
            self._parallel_loop(loop)
        elif loop.kind is ir.ForKind.UNROLLED and isinstance(loop.extent, arith.Const):
            number = self.index.numbers.setdefault(loop.var, [0])
            for number[0] in range(loop.extent.value):
                self._statement(loop.body)
        elif loop.kind in (ir.ForKind.SERIAL, ir.ForKind.PARALLEL):
            with self.p.scope():
                extent = self.index.print(loop.extent)
            self._serial_loop(loop.var, Value("0", INDEX), extent, loop)
        else:
            raise Unsupported(f"loop {loop.var.name}: expected a loop kind of CPUs, found {loop.kind.value}")

    def _serial_loop(self, variable: arith.Var, start: Value, end: Value, loop: ir.For) -> None:
        polls = self.polls.get(loop)
        if polls is None or polls.step == 1 or polls.operations is not None:
            self._iterations(variable, start, end, loop, polls)
            return
        # Poll between chunks of the loop, so that the code of its iterations is unchanged.
        p = self.p
        head, piece, exit_label = p.fresh("pieces"), p.fresh("piece"), p.fresh("done")
        first, following = f"%{p.fresh('first')}", f"%{p.fresh('next')}"
        preheader, latch = p.block, p.fresh("latch")
        p.branch(head)
        p.label(head)
        p.emit(f"{first} = phi i64 [ {start.ref}, %{preheader} ], [ {following}, %{latch} ]")
        p.branch_if(p.op(f"icmp slt i64 {first}, {end.ref}", "i1"), piece, exit_label)
        p.label(piece)
        with p.scope():
            self._poll()
            last = p.op(f"add nsw i64 {first}, {polls.step}", INDEX)
            self.declarations["llvm.smin.i64"] = "declare i64 @llvm.smin.i64(i64, i64)"
            last = p.op(f"call i64 @llvm.smin.i64({last}, {end})", INDEX)
            self._iterations(variable, Value(first, INDEX), last, loop)
        p.branch(latch)
        p.label(latch)
        p.emit(f"{following} = add nsw i64 {first}, {polls.step}")
        p.branch(head)
        p.label(exit_label)

    def _count_operations(self, polls: Polls, operations: Value) -> None:
        """Print a poll that runs after at least `polls.step` operations since the last poll. Outlined functions also poll in their
        first iteration."""
        p = self.p
        if not self.budget:
            self.budget = f"%{p.fresh('budget')}"
            first = polls.step if self.context == "%context" else 0
            p.allocas += [f"  {self.budget} = alloca i64", f"  store i64 {first}, ptr {self.budget}"]
        left = p.op(f"sub nsw i64 {p.op(f'load i64, ptr {self.budget}', INDEX).ref}, {operations.ref}", INDEX)
        due, go = p.fresh("due"), p.fresh("go")
        p.emit(f"store {left}, ptr {self.budget}")
        p.branch_if(p.op(f"icmp slt {left}, 0", "i1"), due, go)
        p.label(due)
        p.emit(f"store i64 {polls.step}, ptr {self.budget}")
        self._poll()
        p.branch(go)
        p.label(go)

    def _poll(self) -> None:
        self.p.return_if_failed(self.p.op(f"call i32 @inlaid_poll(ptr {self.context})", "i32"))

    def _iterations(self, variable: arith.Var, start: Value, end: Value, loop: ir.For, polls: Polls | None = None) -> None:
        p = self.p
        operations = None
        if polls is not None and polls.operations is not None:
            with p.scope():
                operations = self.index.print(polls.operations)
        head, body, exit_label = p.fresh("loop"), p.fresh("body"), p.fresh("done")
        counter, following = f"%{p.fresh('i')}", f"%{p.fresh('next')}"
        preheader, latch = p.block, p.fresh("latch")
        p.open_loop()
        p.branch(head)
        p.label(head)
        p.emit(f"{counter} = phi i64 [ {start.ref}, %{preheader} ], [ {following}, %{latch} ]")
        more = p.op(f"icmp slt i64 {counter}, {end.ref}", "i1")
        p.branch_if(more, body, exit_label)
        p.label(body)
        high = self.index.analyzer.bounds(loop.extent)[1]
        with p.scope(), self.index.bound(variable, Value(counter, INDEX), 0, None if high is None else high - 1):
            self.epoch += 1  # the previous iteration may have stored to what was loaded before the loop
            if polls is not None and operations is not None:
                self._count_operations(polls, operations)
            elif polls is not None:
                self._poll()
            self._statement(loop.body)
        p.close_loop()
        self.epoch += 1
        p.branch(latch)
        p.label(latch)
        p.emit(f"{following} = add nsw i64 {counter}, 1")
        p.branch(head, "" if _accumulates(loop) else self._keep_rolled())
        p.label(exit_label)

    def _keep_rolled(self) -> str:
        """Return the metadata of a loop that LLVM must not unroll. Schedules unroll explicitly. Further unrolling helps only
        unscheduled reductions. In other loops it makes compilation two to four times slower without faster code. It makes short
        rows slower, since LLVM unrolls them before it can vectorize them."""
        self.declarations["!0"] = '!0 = !{!"llvm.loop.unroll.disable"}'
        name = f"!{len(self.declarations)}"
        self.declarations[name] = f"{name} = distinct !{{{name}, !0}}"
        return f", !llvm.loop {name}"

    def _vector_loop(self, loop: ir.For) -> None:
        if not isinstance(loop.extent, arith.Const) or self.lane is not None:
            raise CompileError(
                f"kernel {self.name}: expected an unnested vectorized loop of constant extent, found {loop.var.name}"
            )
        lanes = loop.extent.value
        if lanes == 0:
            return
        scalar_stmt = _single_lane(loop, lanes)
        if scalar_stmt is not None:
            self._statement(scalar_stmt)
            return
        ramp = _ramp(lanes)
        self.lane, self.lanes = loop.var, lanes
        self.p.open_statement()
        with self.index.bound(loop.var, Value(ramp, INDEX, lanes), 0, lanes - 1):
            self.strided.find_squares(loop.body)
            self.strided.find_combs(loop.body)
            self._statement(loop.body)
        self.p.close_statement()
        self.lane, self.lanes = None, 0
        self.private.clear()

    def _parallel_loop(self, loop: ir.For) -> None:
        """Outline the loop body as `i32 (closure, begin, end)`. The closure holds all pointers and indices in scope."""
        p, index = self.p, self.index
        with p.scope():
            extent = index.print(loop.extent)
        captured = [(variable, value) for variable, value in index.values.items() if value.ref.startswith("%") and not value.lanes]
        pointers = list(self.pointers.items())
        fields = [self.context, *(pointer for _, pointer in pointers)]
        kinds = ["ptr"] * len(fields) + ["i64"] * len(captured)
        closure = f"%{p.fresh('closure')}"
        struct = "{ " + ", ".join(kinds) + " }"
        p.allocas.append(f"  {closure} = alloca {struct}, align 8")
        for number, text in enumerate([*fields, *(value.ref for _, value in captured)]):
            slot = p.op(f"getelementptr inbounds {struct}, ptr {closure}, i64 0, i32 {number}", "ptr")
            p.emit(f"store {kinds[number]} {text}, ptr {slot.ref}")
        name = f"{self.symbol}.{p.fresh('parallel')}"
        status = p.op(f"call i32 @inlaid_parallel(ptr @{name}, ptr {closure}, i64 {extent.ref}, ptr {self.context})", "i32")
        p.return_if_failed(status)
        # This thread also ran iterations, which closed the registers.
        self._open_registers()
        self.epoch += 1
        self._outline(name, loop, struct, kinds, pointers, captured)

    def _outline(
        self,
        name: str,
        loop: ir.For,
        struct: str,
        kinds: list[str],
        pointers: list[tuple[ir.Buffer, str]],
        captured: list[tuple[arith.Expr, Value]],
    ) -> None:
        """Print the iterations [begin, end) as a function of the captured values, and a second function that unpacks the closure.
        Buffers are parameters of the first function, so that LLVM knows that they do not alias."""
        outer = (self.p, self.index, self.pointers, self.context, self.budget)
        self.p = FunctionPrinter(self.declarations)
        self.index = IndexPrinter(self.p, self._checked, self._choose)
        self.index.analyzer, self.index.numbers = outer[1].analyzer, outer[1].numbers
        self.index.values = {variable: value for variable, value in outer[1].values.items() if not value.ref.startswith("%")}
        names = [f"%c{number}" for number in range(len(kinds))]
        self.context, self.budget = names[0], ""
        self.pointers = {buffer: names[1 + number] for number, (buffer, _) in enumerate(pointers)}
        for size, buffer in self.program.defines:
            self._bind_cell(size, buffer)
        for number, (variable, _) in enumerate(captured):
            self.index.values[variable] = Value(names[1 + len(pointers) + number], INDEX)
        with self._registers(loop.body):
            self._serial_loop(loop.var, Value("%begin", INDEX), Value("%end", INDEX), loop)
        self.p.emit("ret i32 0")
        # The context is not `noalias`, since other threads write to it.
        buffers = set(names[1 : 1 + len(pointers)])
        params = [f"{kind} noalias {ref}" if ref in buffers else f"{kind} {ref}" for kind, ref in zip(kinds, names, strict=True)]
        head = f"define internal i32 @{name}.body({', '.join([*params, 'i64 %begin', 'i64 %end'])}) {self.attributes}"
        self.functions.append(self.p.finish(head))
        self.functions.append(self._read_closure(name, struct, kinds))
        self.p, self.index, self.pointers, self.context, self.budget = outer

    def _read_closure(self, name: str, struct: str, kinds: list[str]) -> str:
        """Print the callback of a parallel loop: it unpacks the closure and runs a range of iterations."""
        p = FunctionPrinter(self.declarations)
        loaded = []
        for number, kind in enumerate(kinds):
            slot = p.op(f"getelementptr inbounds {struct}, ptr %closure, i64 0, i32 {number}", "ptr")
            loaded.append(str(p.op(f"load {kind}, {slot}", kind)))
        status = p.op(f"call i32 @{name}.body({', '.join([*loaded, 'i64 %begin', 'i64 %end'])})", "i32")
        p.emit(f"ret {status}")
        return p.finish(f"define internal i32 @{name}(ptr %closure, i64 %begin, i64 %end) {self.attributes}")

    def _if(self, condition: ir.Expr, then: ir.Stmt, otherwise: ir.Stmt | None) -> None:
        p = self.p
        with p.scope():
            flag = self._expr(condition)
        if flag.lanes:
            self._masked(flag, then)
            if otherwise is not None:
                self._masked(self._not(flag), otherwise)
            return
        yes, no, merge_label = p.fresh("then"), p.fresh("else"), p.fresh("endif")
        p.branch_if(flag, yes, no if otherwise is not None else merge_label)
        for name, body in ((yes, then), (no, otherwise)):
            if body is not None:
                p.label(name)
                with p.scope():
                    self._statement(body)
                p.branch(merge_label)
        p.label(merge_label)

    def _masked(self, flag: Value, body: ir.Stmt) -> None:
        with self._under(flag), self.p.scope():
            self._statement(body)

    def _let(self, stmt: ir.Let) -> None:
        low = high = depth = None
        with self.p.scope():
            value = self._to_index(self._expr(stmt.value), stmt.value)
            if stmt.bounds is not None:
                value = self._check(value, *stmt.bounds)
        if stmt.bounds is not None:
            low, high = self.index.analyzer.bounds(stmt.bounds[0])[0], self.index.analyzer.bounds(stmt.bounds[1])[1]
        elif isinstance(stmt.value, ir.Index):
            low, high = self.index.analyzer.bounds(stmt.value.index)
            depth = self.index.hoist_depth(stmt.value.index)
        with self.p.scope(), self.index.bound(stmt.var, value, low, high, depth):
            self._statement(stmt.body)

    @contextmanager
    def _registers(self, body: ir.Stmt) -> Iterator[None]:
        """Print code that opens the register files of a function's buffers, then code that closes them after the context."""
        buffers: dict[str, dict[int, ir.Buffer]] = {}
        stack = [body]
        while stack:
            stmt = stack.pop()
            if isinstance(stmt, ir.Alloc) and stmt.buffer in self.registers:
                buffers.setdefault(stmt.buffer.scope, {})[self.registers[stmt.buffer]] = stmt.buffer
            if not isinstance(stmt, ir.For) or stmt.kind is not ir.ForKind.PARALLEL:  # a parallel body is outlined
                stack.extend(reversed(ir.substatements(stmt)))
        outer, self.opened = self.opened, buffers
        self._open_registers()
        yield
        for scope in buffers:
            self.files[scope].close(self.p)
        self.opened = outer

    def _open_registers(self) -> None:
        for scope, buffers in self.opened.items():
            self.files[scope].open(self.p, buffers, self.index.print)

    def _alloc(self, buffer: ir.Buffer) -> None:
        if buffer in self.registers:
            return
        size = arith.product(buffer.shape)
        if not isinstance(size, int) or size * buffer.dtype.bytes > STACK_LIMIT:
            raise CompileError(f"kernel {self.name}: {buffer.name} must have at most {STACK_LIMIT} bytes, got {buffer.shape}")
        count = max(size, 1)
        if self.lane is not None:
            # Every lane has a private copy; the copies of an element are adjacent.
            self.private.add(buffer)
            count *= self.lanes
        if buffer.scope == "register":
            count += CUT_BYTES // buffer.dtype.bytes
        if self.guard is not None:
            self.guard.allocate(buffer, count)
        self.pointers[buffer] = self.p.alloca(memory_type(buffer.dtype), count)

    def _while(self, condition: ir.Expr, body: ir.Stmt) -> None:
        if self.lane is not None:
            raise CompileError(f"kernel {self.name}: expected no while loop inside a vectorized loop, found one")
        p = self.p
        head, body_label, exit_label = p.fresh("while"), p.fresh("body"), p.fresh("done")
        p.branch(head)
        p.label(head)
        self.epoch += 1
        with p.scope():
            flag = self._expr(condition)
        p.branch_if(flag, body_label, exit_label)
        p.label(body_label)
        with p.scope():
            self._statement(body)
        self.epoch += 1
        p.branch(head)
        p.label(exit_label)

    def _prefetch(self, region: ir.BufferRegion) -> None:
        address = self.memory.address(region.buffer, self.positions.flat(region.buffer, tuple(first for first, _ in region.ranges)))
        self.declarations["llvm.prefetch.p0"] = "declare void @llvm.prefetch.p0(ptr, i32, i32, i32)"
        self.p.emit(f"call void @llvm.prefetch.p0(ptr {address}, i32 0, i32 3, i32 1)")
