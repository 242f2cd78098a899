"""Printer of an exported library's function: region calls and copies in order."""

from __future__ import annotations

from collections.abc import Callable
from typing import NoReturn

from inlaid.codegen.library import (
    INVALID_SIZE,
    TEAM_ALIGNMENT,
    UNSUPPORTED_PROCESSOR,
    WEIGHTS,
    CallStep,
    CopyStep,
    LibraryFunction,
    MemoryAddress,
)
from inlaid_runtime import arith
from inlaid_runtime.arith import Dim
from inlaid_runtime.errors import CompileError
from inlaid_x86.llvm.function import FunctionPrinter
from inlaid_x86.llvm.indices import INDEX, IndexPrinter
from inlaid_x86.llvm.region import CONTEXT, MESSAGE_BYTES, message_table
from inlaid_x86.llvm.values import Value

MISSING = "@inlaid_missing"
"""Global variable: 1-based number of a required feature that the processor lacks, 0 if it has all features. A constructor sets
it."""


_TEAM = """\
declare hidden i32 @inlaid_pool_run(ptr, ptr, ptr, i64)
declare hidden void @inlaid_pool_worker(ptr, i64)
declare void @llvm.memset.p0.i64(ptr, i8, i64, i1)

; A pair of pointers, as regions expect it in their context, and the pool from byte {alignment} on.
define void @{prefix}_team(ptr %team, i32 %threads) #1 {{
  %count = sext i32 %threads to i64
  %units = add i64 %count, 3
  %bytes = mul i64 %units, {alignment}
  call void @llvm.memset.p0.i64(ptr %team, i8 0, i64 %bytes, i1 false)
  %pool = getelementptr i8, ptr %team, i64 {alignment}
  %state = getelementptr i8, ptr %team, i64 8
  %active = getelementptr i8, ptr %pool, i64 12
  %number = getelementptr i8, ptr %pool, i64 44
  store ptr @inlaid_pool_run, ptr %team
  store ptr %pool, ptr %state
  store i32 1073741824, ptr %active
  store i32 %threads, ptr %number
  ret void
}}

define void @{prefix}_worker(ptr %team, i64 %self) #1 {{
  %pool = getelementptr i8, ptr %team, i64 {alignment}
  call void @inlaid_pool_worker(ptr %pool, i64 %self)
  ret void
}}"""
"""LLVM text: declarations of the thread pool's functions (see `inlaid_x86.pool_text`), and functions that set up a team of threads
and run a worker."""


def print_library(function: LibraryFunction) -> list[str]:
    """Print the parts of a module that define the library's function and `MISSING`."""
    parts = _Function(function).print()
    return [*parts, _TEAM.format(prefix=function.prefix, alignment=TEAM_ALIGNMENT)] if function.threads else parts


class _Function:
    def __init__(self, function: LibraryFunction) -> None:
        self.function = function
        self.globals = [f"{MISSING} = hidden global i32 0", f"@{WEIGHTS} = external hidden constant i8"]
        self.declarations = {"llvm.memcpy": "declare void @llvm.memcpy.p0.p0.i64(ptr, ptr, i64, i1)"}
        self.p = FunctionPrinter(self.declarations)
        self.index = IndexPrinter(self.p, self._no_data, self._no_choice)
        for number, size in enumerate(function.sizes):
            self.index.bind(size, Value(f"%size{number}", INDEX), size.lower)

    def _no_data(self, node: arith.Opaque) -> Value:
        raise CompileError(f"expected library sizes independent of data, found {node!r}", plugin="x86")

    def _no_choice(self, flag: Value, then: Callable[[], Value], otherwise: Callable[[], Value]) -> NoReturn:
        raise CompileError("expected library sizes independent of data, found a choice over data", plugin="x86")

    def print(self) -> list[str]:
        function, p = self.function, self.p
        calls = [step for step in function.steps if isinstance(step, CallStep)]
        if function.requires:
            self._check_processor()
        if function.checks:
            self._check_sizes()
        self.inputs = p.alloca("ptr", max((len(step.inputs) for step in calls), default=1))
        self.outputs = p.alloca("ptr", max((len(step.outputs) for step in calls), default=1))
        self.context, self.status = p.alloca(CONTEXT, 1), p.alloca("i32", 1)
        self.dims = p.alloca(INDEX, max((len(step.dims) for step in calls), default=1))
        p.emit(f"store {CONTEXT} zeroinitializer, ptr {self.context}")
        if function.threads:
            user = p.op(f"getelementptr {CONTEXT}, ptr {self.context}, i64 0, i32 1", "ptr")
            p.emit(f"store ptr %team, {user}")
        self.scratch = p.op(f"getelementptr i8, ptr %workspace, i64 {function.scratch}", "ptr").ref
        for number, step in enumerate(function.steps):
            if isinstance(step, CallStep):
                self._call(step, number)
            else:
                self._copy(step)
        p.emit("ret i32 0")
        if calls:
            p.label("failed")
            code = p.op(f"load i32, ptr {self.status}", "i32")
            refused = p.op(f"icmp slt {code}, 0", "i1")  # `inlaid_runtime.execution.host.VIOLATION` or less
            self._fail(p.op(f"select {refused}, i32 {INVALID_SIZE}, {code}", "i32").ref, self.context)
        arguments = [f"{INDEX} %size{number}" for number in range(len(function.sizes))]
        arguments += [f"ptr %argument{number}" for number in range(function.arguments)]
        arguments += ["ptr %workspace", "ptr %message"]
        if not function.threads:
            return [
                *self.globals,
                p.finish(f"define i32 @{function.symbol}({', '.join(arguments)}) #1"),
                *self.declarations.values(),
            ]
        on_team = f"@{function.prefix}_run_on"
        serial = f"define i32 @{function.symbol}({', '.join(arguments)}) #1 {{\n"
        serial += f"  %status = call i32 {on_team}({', '.join(['ptr null', *arguments])})\n  ret i32 %status\n}}"
        body = p.finish(f"define i32 {on_team}({', '.join(['ptr %team', *arguments])}) #1")
        return [*self.globals, body, serial, *self.declarations.values()]

    def _check_processor(self) -> None:
        p = self.p
        texts = [f"expected a processor with {name}, found one without; export for its cpu" for name in self.function.requires]
        self.globals.append(f"@inlaid_messages = private constant {message_table(texts)}")
        missing = p.op(f"load i32, ptr {MISSING}", "i32")
        p.branch_if(p.op(f"icmp eq {missing}, 0", "i1"), "supported", "unsupported")
        p.label("unsupported")
        number = p.op(f"sub {missing}, 1", "i32")
        text = p.op(f"getelementptr [{MESSAGE_BYTES} x i8], ptr @inlaid_messages, {number}", "ptr")
        self._fail(str(UNSUPPORTED_PROCESSOR), text.ref)
        p.label("supported")

    def _check_sizes(self) -> None:
        """Print checks that return `INVALID_SIZE` if a size condition fails. Values are not memoized across blocks."""
        p, checks = self.p, self.function.checks
        self.globals.append(f"@inlaid_sizes = private constant {message_table([check.message for check in checks])}")
        for number, check in enumerate(checks):
            fine, wrong = p.fresh("fits"), p.fresh("misfits")
            holds = self._size(check.condition)
            p.branch_if(p.op(f"icmp ne {holds}, 0", "i1"), fine, wrong)
            p.label(wrong)
            text = p.op(f"getelementptr [{MESSAGE_BYTES} x i8], ptr @inlaid_sizes, i64 {number}", "ptr")
            self._fail(str(INVALID_SIZE), text.ref)
            p.label(fine)

    def _size(self, size: Dim) -> Value:
        """Print the value of an expression over the sizes."""
        return self.index.print(arith.wrap(size))

    def _fail(self, status: str, message: str) -> None:
        """Print a copy of the message to the caller's buffer, unless the buffer is null, and a return of the error code."""
        p = self.p
        copy, leave = p.fresh("copy"), p.fresh("leave")
        p.branch_if(p.op("icmp eq ptr %message, null", "i1"), leave, copy)
        p.label(copy)
        p.emit(f"call void @llvm.memcpy.p0.p0.i64(ptr %message, ptr {message}, i64 {MESSAGE_BYTES}, i1 false)")
        p.branch(leave)
        p.label(leave)
        p.emit(f"ret i32 {status}")

    def _call(self, step: CallStep, number: int) -> None:
        p = self.p
        for array, addresses in ((self.inputs, step.inputs), (self.outputs, step.outputs)):
            for index, address in enumerate(addresses):
                slot = p.op(f"getelementptr ptr, ptr {array}, i64 {index}", "ptr")
                p.emit(f"store ptr {self._address(address)}, ptr {slot.ref}")
        table = f"@inlaid_constants{number}"
        entries = ", ".join(f"ptr getelementptr (i8, ptr @{WEIGHTS}, i64 {address.number})" for address in step.constants)
        self.globals.append(f"{table} = private constant [{max(len(step.constants), 1)} x ptr] [{entries or 'ptr null'}]")
        self.declarations[step.symbol] = f"declare hidden i32 @{step.symbol}(ptr, ptr, ptr, ptr, ptr, ptr)"
        for index, dim in enumerate(step.dims):
            slot = p.op(f"getelementptr {INDEX}, ptr {self.dims}, i64 {index}", "ptr")
            p.emit(f"store {self._size(dim)}, {slot}")
        dims = self.dims if step.dims else "null"
        arguments = f"ptr {self.inputs}, ptr {self.outputs}, ptr {table}, ptr {dims}, ptr {self.scratch}, ptr {self.context}"
        status = p.op(f"call i32 @{step.symbol}({arguments})", "i32")
        p.emit(f"store {status}, ptr {self.status}")
        fine = p.fresh("fine")
        p.branch_if(p.op(f"icmp eq {status}, 0", "i1"), fine, "failed")
        p.label(fine)

    def _copy(self, step: CopyStep) -> None:
        p, target, source = self.p, self._address(step.target), self._address(step.source)
        copy, copied, size = p.fresh("copy"), p.fresh("copied"), self._size(step.size)
        p.branch_if(p.op(f"icmp eq ptr {target}, {source}", "i1"), copied, copy)
        p.label(copy)
        p.emit(f"call void @llvm.memcpy.p0.p0.i64(ptr {target}, ptr {source}, {size}, i1 false)")
        p.branch(copied)
        p.label(copied)

    def _address(self, address: MemoryAddress) -> str:
        if address.memory == "argument":
            return f"%argument{address.number}"
        base = "%workspace" if address.memory == "workspace" else f"@{WEIGHTS}"
        return self.p.op(f"getelementptr i8, ptr {base}, i64 {address.number}", "ptr").ref
