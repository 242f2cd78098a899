"""Printer of a region: one module per kernel, and one for the C-ABI function that calls them in order.

    int32 region(const void* const* inputs, void* const* outputs, const void* const* constants,
                 int64* dims, void* workspace, context* context)

The function returns 0 if all kernels succeed. If a kernel fails, it copies the message to the context and returns the error code.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial

from inlaid.tensor import ir
from inlaid.tensor.region import KernelCall, Predicate, RegionBuffer, RegionProgram, size_vars
from inlaid_runtime import arith
from inlaid_runtime.arith import substitute
from inlaid_runtime.errors import CompileError
from inlaid_runtime.execution.host import VIOLATION
from inlaid_x86.llvm import access
from inlaid_x86.llvm.function import FunctionPrinter
from inlaid_x86.llvm.indices import INDEX, IndexPrinter
from inlaid_x86.llvm.intrinsics import Emitter, MathEmitter, RegisterFile
from inlaid_x86.llvm.kernel import NO_POLLS, KernelPrinter, Polls
from inlaid_x86.llvm.values import Value

CONTEXT = "%inlaid.context"
CONTEXT_TYPE = "{ [256 x i8], ptr, ptr, ptr, [3 x i64] }"
"""The context of the C ABI: an error message; a pointer to the function that runs parallel loops and its first argument, or null to
run them serially; the array of recorded times, or null; the function that checks for signals, or null; and three words private to
the region: time of the last signal check, the thread that entered the region, and a stop flag."""
INTERVAL = 30_000_000
"""Cycles between two calls of Python to check for signals: 6 ms at 5 GHz, 15 ms at 2 GHz."""
INTERRUPTED = -1
"""Status of a region that a signal interrupted."""
MESSAGE_BYTES = 256
ENTRY_ATTRIBUTES = "attributes #2 = { nounwind noinline optnone }\n"
"""Attributes that turn optimization off for entry functions, which only call kernels. Optimization takes superlinear time."""

_PARALLEL = """\
define weak_odr hidden i32 @inlaid_parallel(ptr %body, ptr %closure, i64 %extent, ptr %context) #1 {
entry:
  %slot = getelementptr inbounds %inlaid.context, ptr %context, i64 0, i32 1
  %user = load ptr, ptr %slot
  %serial = icmp eq ptr %user, null
  br i1 %serial, label %alone, label %together
alone:
  %status = call i32 %body(ptr %closure, i64 0, i64 %extent)
  ret i32 %status
together:
  %run = load ptr, ptr %user
  %argument = getelementptr inbounds { ptr, ptr }, ptr %user, i64 0, i32 1
  %pool = load ptr, ptr %argument
  %result = call i32 %run(ptr %pool, ptr %body, ptr %closure, i64 %extent)
  ret i32 %result
}"""


_THREAD = "ptr addrspace(257) null, align 8"
"""Operand that loads %fs:0, a word that identifies the thread (ELF Handling For Thread-Local Storage, 3.4.6)."""
_POLL = f"""\
define weak_odr hidden i32 @inlaid_poll(ptr %context) #1 {{
entry:
  %p.stop = getelementptr inbounds %inlaid.context, ptr %context, i64 0, i32 4, i64 2
  %stop = load atomic i64, ptr %p.stop monotonic, align 8
  %stopped = icmp ne i64 %stop, 0
  br i1 %stopped, label %leave, label %look
look:
  %p.polled = getelementptr inbounds %inlaid.context, ptr %context, i64 0, i32 4, i64 0
  %polled = load atomic i64, ptr %p.polled monotonic, align 8
  %now = call i64 @llvm.readcyclecounter()
  %passed = sub i64 %now, %polled
  %due = icmp ugt i64 %passed, {INTERVAL}
  br i1 %due, label %ask, label %fine
ask:
  %p.thread = getelementptr inbounds %inlaid.context, ptr %context, i64 0, i32 4, i64 1
  %entered = load i64, ptr %p.thread
  %thread = load i64, {_THREAD}
  %own = icmp eq i64 %thread, %entered
  %p.signalled = getelementptr inbounds %inlaid.context, ptr %context, i64 0, i32 3
  %signalled = load ptr, ptr %p.signalled
  %given = icmp ne ptr %signalled, null
  %may = and i1 %own, %given
  br i1 %may, label %call, label %fine
call:
  %answer = call i32 %signalled()
  %later = call i64 @llvm.readcyclecounter()
  store atomic i64 %later, ptr %p.polled monotonic, align 8
  %raised = icmp ne i32 %answer, 0
  br i1 %raised, label %halt, label %fine
halt:
  store atomic i64 1, ptr %p.stop monotonic, align 8
  br label %leave
leave:
  ret i32 {INTERRUPTED}
fine:
  ret i32 0
}}"""
POLL = "declare hidden i32 @inlaid_poll(ptr) cold"


@dataclass(frozen=True)
class Dialect:
    """Properties shared by all modules of a target. triple, layout: LLVM's target triple and data layout. attributes: function
    attributes, such as `"target-cpu"="x86-64"`. intrinsics, math: emitters of tensor intrinsics and mathematical functions. files:
    register files by scope. check: bounds-check every access, and every buffer against its memory."""

    triple: str
    layout: str
    attributes: str
    intrinsics: Mapping[str, Emitter] = field(default_factory=dict)
    files: Mapping[str, RegisterFile] = field(default_factory=dict)
    math: Mapping[str, MathEmitter] = field(default_factory=dict)
    check: bool = False

    def module(self, *parts: str) -> str:
        """Join functions, declarations and other parts to the text of a module."""
        head = f'target triple = "{self.triple}"\ntarget datalayout = "{self.layout}"\n{CONTEXT} = type {CONTEXT_TYPE}'
        attributes = (
            f"attributes #0 = {{ nounwind noinline {self.attributes} }}",
            f"attributes #1 = {{ nounwind {self.attributes} }}",
            ENTRY_ATTRIBUTES,
        )
        return "\n\n".join([head, *parts, *attributes])


def print_kernel(kernel: ir.LoopProgram, name: str, dialect: Dialect, polls: Mapping[ir.For, Polls] = NO_POLLS) -> str:
    """Print the LLVM module of a kernel, whose function `name` is visible to other modules. The text depends only on the arguments.
    polls: see `KernelPrinter`."""
    declarations = {"inlaid_parallel": "declare hidden i32 @inlaid_parallel(ptr, ptr, i64, ptr)"}
    if polls:
        declarations["inlaid_poll"] = POLL
    parts = (dialect.intrinsics, dialect.files, dialect.math, dialect.check, polls)
    printer = KernelPrinter(kernel, name, "#0", declarations, *parts)
    return dialect.module(*printer.print(), *declarations.values())


def print_entry(
    region: RegionProgram, symbol: str, kernels: Sequence[str], dialect: Dialect, checkpoints: Collection[int] | None = None
) -> str:
    """Print the LLVM module of a region's C-ABI function and of helpers shared by kernels. kernels: symbols of the kernels.
    checkpoints: numbers of the calls after which the function polls; None if neither the function nor a kernel polls."""
    declarations: dict[str, str] = {}
    entry, messages = _Entry(region, symbol, kernels, declarations, dialect.check, checkpoints).print()
    if checkpoints is not None:
        messages.append(_POLL)
        declarations["llvm.readcyclecounter"] = "declare i64 @llvm.readcyclecounter()"
    return dialect.module(*messages, _PARALLEL, entry, *declarations.values())


def open_polls(p: FunctionPrinter) -> None:
    """Print the start of polling: record the entering thread and clear the stop flag."""
    poll_fields = [p.op(f"getelementptr inbounds {CONTEXT}, ptr %context, i64 0, i32 4, i64 {number}", "ptr") for number in (1, 2)]
    thread = p.op(f"load i64, {_THREAD}", INDEX)
    p.emit(f"store {thread}, {poll_fields[0]}")
    p.emit(f"store i64 0, {poll_fields[1]}")


def _no_data(region: str, node: arith.Opaque) -> Value:
    raise CompileError(f"region {region}: expected sizes independent of data, found {node!r}")


def _no_choice(region: str, flag: Value, then: Callable[[], Value], otherwise: Callable[[], Value]) -> Value:
    raise CompileError(f"region {region}: expected sizes independent of data, found a choice over data")


class _Entry:
    """Printer of the C-ABI function."""

    def __init__(
        self,
        region: RegionProgram,
        symbol: str,
        kernels: Sequence[str],
        declarations: dict[str, str],
        check: bool,
        checkpoints: Collection[int] | None,
    ) -> None:
        self.checkpoints = checkpoints
        self.region = region
        self.check = check
        self.symbol = symbol
        self.violations = 0
        self.kernels = kernels
        self.declarations = declarations
        self.p = FunctionPrinter(declarations)
        # Bound methods would be a reference cycle, which keeps the region's constants in memory.
        self.index = IndexPrinter(self.p, partial(_no_data, region.name), partial(_no_choice, region.name))

    def print(self) -> tuple[str, list[str]]:
        """Return the function and the globals of its messages."""
        p = self.p
        upper_bounds: dict[arith.Expr, arith.Expr] = {}
        self.slots: dict[arith.Expr, str] = {}
        for number, dim in enumerate(self.region.signature.dims):
            slot = p.op(f"getelementptr inbounds i64, ptr %dims, i64 {number}", "ptr").ref
            variable = arith.SizeVar(dim.name)
            self.slots[variable] = slot
            if dim.input is None and dim.upper is not None:
                upper_bounds[variable] = arith.wrap(dim.upper)
            else:
                self.index.bind(variable, p.op(f"load i64, ptr {slot}", INDEX), 0)
        self.bounds = upper_bounds
        if self.checkpoints is not None:
            open_polls(p)
        self._open_clock()
        self._note_time(0)
        for predicates, group in itertools.groupby(enumerate(self.region.calls), key=lambda item: item[1].predicates):
            if predicates:
                self._branch(predicates, list(group))
            else:
                self._calls(group)
        messages = [self._message(call, number) for number, call in enumerate(self.region.calls)]
        p.emit("ret i32 0")
        header = f"define i32 @{self.symbol}(ptr %inputs, ptr %outputs, ptr %constants, ptr %dims, ptr %workspace, ptr %context) #2"
        return p.finish(header), messages

    def _branch(self, predicates: tuple[Predicate, ...], calls: Sequence[tuple[int, KernelCall]]) -> None:
        """Print calls that run only if all predicates hold. The recorded time of a skipped call is 0."""
        p = self.p
        then_label, skipped, joined = map(p.fresh, ("taken", "skipped", "joined"))
        flag = self._flag(predicates[0])
        for predicate in predicates[1:]:
            # This may read memory that no branch has written yet; the value is then unused.
            flag = p.op(f"and {flag}, {self._flag(predicate).ref}", "i1")
        p.branch_if(flag, then_label, skipped)
        with p.scope():
            p.label(then_label)
            self._calls(calls)
            p.branch(joined)
        p.label(skipped)
        time = p.op(f"load i64, {self._time_slot(calls[0][0])}", INDEX)
        for number, _ in calls:
            p.emit(f"store {time}, {self._time_slot(number + 1)}")
        p.branch(joined)
        p.label(joined)

    def _flag(self, predicate: Predicate) -> Value:
        """Print a test of a predicate, as i1."""
        p = self.p
        if isinstance(predicate.condition, arith.Expr):
            return self.index.condition(predicate.condition if predicate.holds else arith.logical_not(predicate.condition))
        value = p.op(f"load i8, ptr {self._buffer(self.region.buffers[predicate.condition])}", "i8")
        return p.op(f"icmp {'ne' if predicate.holds else 'eq'} {value}, 0", "i1")

    def _calls(self, calls: Iterable[tuple[int, KernelCall]]) -> None:
        """Print numbered calls in order."""
        for number, call in calls:
            self._call(call, number)
            self._note_time(number + 1)
            if self.checkpoints is not None and number in self.checkpoints:
                self.p.return_if_failed(self.p.op("call i32 @inlaid_poll(ptr %context)", "i32"))

    def _call(self, call: KernelCall, number: int) -> None:
        p = self.p
        kernel = self.region.kernels[call.kernel]
        pointers = [self._buffer(self.region.buffers[buffer]) for buffer in (*call.inputs, *call.outputs)]
        if len(call.inputs) != len(kernel.inputs) or len(call.sizes) != len(size_vars(kernel)):
            raise CompileError(f"region {self.region.name}: call {number} does not match the parameters of kernel {kernel.name}")
        pointers += [self.slots[variable] for variable in call.defines]
        args = [f"ptr {pointer}" for pointer in pointers] + [str(self.index.print(size)) for size in call.sizes]
        if self.check:
            self._check_sizes(call, number)
        name = self.kernels[call.kernel]
        self.declarations[name] = f"declare hidden i32 @{name}({', '.join(arg.split()[0] for arg in [*args, 'ptr %context'])})"
        status = p.op(f"call i32 @{name}({', '.join([*args, 'ptr %context'])})", "i32")
        self._return_if(p.op(f"icmp ne {status}, 0", "i1"), status, number)
        for variable in call.defines:
            self.index.bind(variable, p.op(f"load i64, ptr {self.slots[variable]}", INDEX), 0)
        for row, check in enumerate(call.checks, len(self._texts(call))):
            is_violated = self.index.condition(arith.logical_not(arith.wrap(check.condition)))
            self._return_if(is_violated, Value(str(VIOLATION - self.violations), "i32"), number, row)
            self.violations += 1

    def _check_sizes(self, call: KernelCall, number: int) -> None:
        """Print checks that return an error if a buffer of a call is smaller than its kernel assumes, or exceeds its memory."""
        for size, limit in access.size_checks(self.region, call, self.bounds):
            # Proving is slow for offsets with shared subexpressions, which it visits once per path.
            has_max = any(isinstance(node, arith.Max) for node in arith.walk(limit))
            if has_max or not arith.prove(arith.compare("<=", size, limit)):
                overflow = self.p.op(f"icmp sgt {self.index.print(size)}, {self.index.print(limit).ref}", "i1")
                self._return_if(overflow, Value("-1", "i32"), number)

    def _return_if(self, bad: Value, status: Value, number: int, row: int | None = None) -> None:
        """Print code that returns a status and a message of a call if the condition `bad` holds: message number `row`, or by
        default that of the status."""
        p = self.p
        failed, fine = p.fresh("failed"), p.fresh("fine")
        p.branch_if(bad, failed, fine)
        p.label(failed)
        if row is None:
            rows = len(self._texts(self.region.calls[number]))
            has_message = p.op(f"icmp ult {status}, {rows}", "i1")
            message_index = p.op(f"select {has_message}, {status}, i32 0", "i32")
        else:
            message_index = Value(str(row), "i32")
        text = p.op(f"getelementptr inbounds [{MESSAGE_BYTES} x i8], ptr @message{number}, {message_index}", "ptr")
        self.declarations["llvm.memcpy"] = "declare void @llvm.memcpy.p0.p0.i64(ptr, ptr, i64, i1)"
        p.emit(f"call void @llvm.memcpy.p0.p0.i64(ptr %context, {text}, i64 {MESSAGE_BYTES}, i1 false)")
        p.emit(f"ret {status}")
        p.label(fine)

    def _open_clock(self) -> None:
        """Print a load of the array of times. If null, times go to one variable, which is cheaper than a branch per call."""
        p = self.p
        dummy_slot = p.op("alloca i64", "ptr")
        field = p.op("getelementptr inbounds %inlaid.context, ptr %context, i64 0, i32 2", "ptr")
        clock = p.op(f"load ptr, {field}", "ptr")
        off = p.op(f"icmp eq {clock}, null", "i1")
        self.clock = p.op(f"select {off}, {dummy_slot}, {clock}", "ptr")
        self.step = p.op(f"select {off}, i64 0, i64 1", INDEX)
        self.declarations["llvm.readcyclecounter"] = "declare i64 @llvm.readcyclecounter()"

    def _note_time(self, number: int) -> None:
        slot = self._time_slot(number)
        time = self.p.op("call i64 @llvm.readcyclecounter()", INDEX)
        self.p.emit(f"store {time}, {slot}")

    def _time_slot(self, number: int) -> Value:
        """Return the address of the time recorded after `number` calls."""
        index = self.p.op(f"mul {self.step}, {number}", INDEX)
        return self.p.op(f"getelementptr inbounds i64, {self.clock}, {index}", "ptr")

    def _texts(self, call: KernelCall) -> list[str]:
        """Return the messages of a call's error codes, in order of the codes."""
        kernel = self.region.kernels[call.kernel]
        where = f" at {', '.join(call.nodes)}" if call.nodes else ""
        index = f"an index is out of range in kernel {kernel.name}{where}"
        if not self.check:
            return [index, index]
        return [f"a buffer of kernel {kernel.name}{where} is larger than its memory", index, *access.messages(kernel, where)]

    def _message(self, call: KernelCall, number: int) -> str:
        texts = [*self._texts(call), *(check.statement for check in call.checks)]
        return f"@message{number} = private constant {message_table(texts)}"

    def _buffer(self, buffer: RegionBuffer) -> str:
        if buffer.storage == "arena":
            offset = self.index.print(substitute(arith.wrap(buffer.offset), self.bounds))
            return self.p.op(f"getelementptr inbounds i8, ptr %workspace, {offset}", "ptr").ref
        key = (buffer.storage, buffer.index)
        base: Value | None = self.p.recall(key)
        if base is None:
            slot = self.p.op(f"getelementptr inbounds ptr, ptr %{buffer.storage}s, i64 {buffer.index}", "ptr")
            base = self.p.remember(key, self.p.op(f"load ptr, {slot}", "ptr"), lasting=True)
        if buffer.offset == 0:
            return base.ref
        offset = self.index.print(arith.wrap(buffer.offset))
        return self.p.op(f"getelementptr inbounds i8, {base}, {offset}", "ptr").ref


def message_table(texts: Sequence[str]) -> str:
    """Return the text of a typed constant array of messages, each padded to `MESSAGE_BYTES`."""
    rows = []
    for text in texts:
        raw = text.encode()[: MESSAGE_BYTES - 1]
        padded = raw + bytes(MESSAGE_BYTES - len(raw))
        escaped = "".join(chr(byte) if 32 <= byte < 127 and byte not in (34, 92) else f"\\{byte:02X}" for byte in padded)
        rows.append(f'[{MESSAGE_BYTES} x i8] c"{escaped}"')
    return f"[{len(rows)} x [{MESSAGE_BYTES} x i8]] [{', '.join(rows)}]"
