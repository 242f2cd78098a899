"""Printer of an exported library's function: region calls and copies in order."""

from __future__ import annotations

from inlaid.codegen.library import UNSUPPORTED_PROCESSOR, WEIGHTS, CallStep, CopyStep, LibraryFunction, Place
from inlaid_x86.llvm.function import FunctionPrinter
from inlaid_x86.llvm.region import CONTEXT, MESSAGE_BYTES, message_table

MISSING = "@inlaid_missing"
"""Global with the 1-based number of a required feature that the processor lacks, 0 if none. A constructor sets it."""


def print_library(function: LibraryFunction) -> list[str]:
    """Print the parts of a module that define the function and `MISSING`."""
    return _Function(function).print()


class _Function:
    def __init__(self, function: LibraryFunction) -> None:
        self.function = function
        self.globals = [f"{MISSING} = hidden global i32 0", f"@{WEIGHTS} = external hidden constant i8"]
        self.declarations = {"llvm.memcpy": "declare void @llvm.memcpy.p0.p0.i64(ptr, ptr, i64, i1)"}
        self.p = FunctionPrinter(self.declarations)

    def print(self) -> list[str]:
        function, p = self.function, self.p
        calls = [step for step in function.steps if isinstance(step, CallStep)]
        if function.requires:
            self._check_processor()
        self.inputs = p.alloca("ptr", max((len(step.inputs) for step in calls), default=1))
        self.outputs = p.alloca("ptr", max((len(step.outputs) for step in calls), default=1))
        self.context, self.status = p.alloca(CONTEXT, 1), p.alloca("i32", 1)
        p.emit(f"store {CONTEXT} zeroinitializer, ptr {self.context}")
        self.scratch = p.op(f"getelementptr i8, ptr %workspace, i64 {function.scratch}", "ptr").ref
        for number, step in enumerate(function.steps):
            if isinstance(step, CallStep):
                self._call(step, number)
            else:
                self._copy(step)
        p.emit("ret i32 0")
        if calls:
            p.label("failed")
            self._fail(p.op(f"load i32, ptr {self.status}", "i32").ref, self.context)
        arguments = [f"ptr %argument{number}" for number in range(function.arguments)]
        header = f"define i32 @{function.symbol}({', '.join([*arguments, 'ptr %workspace', 'ptr %message'])}) #1"
        return [*self.globals, p.finish(header), *self.declarations.values()]

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

    def _fail(self, status: str, message: str) -> None:
        """Print a return of an error code, and a copy of the message to the caller's buffer unless that is null."""
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
        for array, places in ((self.inputs, step.inputs), (self.outputs, step.outputs)):
            for index, place in enumerate(places):
                slot = p.op(f"getelementptr ptr, ptr {array}, i64 {index}", "ptr")
                p.emit(f"store ptr {self._address(place)}, ptr {slot.ref}")
        table = f"@inlaid_constants{number}"
        entries = ", ".join(f"ptr getelementptr (i8, ptr @{WEIGHTS}, i64 {place.number})" for place in step.constants)
        self.globals.append(f"{table} = private constant [{max(len(step.constants), 1)} x ptr] [{entries or 'ptr null'}]")
        self.declarations[step.symbol] = f"declare hidden i32 @{step.symbol}(ptr, ptr, ptr, ptr, ptr, ptr)"
        given = f"ptr {self.inputs}, ptr {self.outputs}, ptr {table}, ptr null, ptr {self.scratch}, ptr {self.context}"
        status = p.op(f"call i32 @{step.symbol}({given})", "i32")
        p.emit(f"store {status}, ptr {self.status}")
        fine = p.fresh("fine")
        p.branch_if(p.op(f"icmp eq {status}, 0", "i1"), fine, "failed")
        p.label(fine)

    def _copy(self, step: CopyStep) -> None:
        p, target, source = self.p, self._address(step.target), self._address(step.source)
        copy, copied = p.fresh("copy"), p.fresh("copied")
        p.branch_if(p.op(f"icmp eq ptr {target}, {source}", "i1"), copied, copy)
        p.label(copy)
        p.emit(f"call void @llvm.memcpy.p0.p0.i64(ptr {target}, ptr {source}, i64 {step.size}, i1 false)")
        p.branch(copied)
        p.label(copied)

    def _address(self, place: Place) -> str:
        if place.memory == "argument":
            return f"%argument{place.number}"
        base = "%workspace" if place.memory == "workspace" else f"@{WEIGHTS}"
        return self.p.op(f"getelementptr i8, ptr {base}, i64 {place.number}", "ptr").ref
