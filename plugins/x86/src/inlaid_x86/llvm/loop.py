"""Printer of a region that is a loop: a C-ABI function that calls the body's function in each iteration.

States that are not updated in place are double-buffered between the result and the workspace. The first of the two buffers is
chosen so that the last iteration writes directly to the result if the trip count reaches its maximum.
"""

from __future__ import annotations

from inlaid.tensor.region import RegionLoop
from inlaid_runtime import arith
from inlaid_runtime.artifact import TensorSpec
from inlaid_runtime.errors import CompileError
from inlaid_x86.llvm.function import FunctionPrinter
from inlaid_x86.llvm.indices import INDEX, IndexPrinter
from inlaid_x86.llvm.region import CONTEXT, MESSAGE_BYTES, POLL, Dialect, message_table, open_polls
from inlaid_x86.llvm.values import Value

_FOREVER = (1 << 63) - 1

_UNEQUAL = "a loop must run as many iterations as its stacked outputs have rows"
"""Message of a loop whose trip count differs from the length of its outputs: the count is a value, the length a size."""

_ROUNDS = 64
"""Iterations between polls, a power of two. A long iteration polls inside the body."""


def print_loop(loop: RegionLoop, symbol: str, body: str, dialect: Dialect) -> str:
    """Print the LLVM module of a loop region's function. body: symbol of the body's function."""
    declarations = {body: f"declare i32 @{body}(ptr, ptr, ptr, ptr, ptr, ptr)", "inlaid_poll": POLL}
    text = _Driver(loop, body, declarations).print(symbol)
    return dialect.module(text, *declarations.values())


class _Driver:
    def __init__(self, loop: RegionLoop, body: str, declarations: dict[str, str]) -> None:
        self.loop = loop
        self.body = body
        self.p = FunctionPrinter(declarations)
        self.index = IndexPrinter(self.p, self._no_data, self._no_choice)
        self.kernels = len(loop.body.calls)

    def _no_data(self, node: arith.Opaque) -> Value:
        raise CompileError(f"region {self.loop.name}: expected sizes independent of data, found {node!r}")

    def _no_choice(self, *_: object) -> Value:
        raise CompileError(f"region {self.loop.name}: expected sizes independent of data, found a choice over data")

    def print(self, symbol: str) -> str:
        """Return the function's text."""
        p, loop = self.p, self.loop
        for number, dim in enumerate(loop.signature.dims):
            self.index.bind(arith.SizeVar(dim.name), p.op(f"load i64, ptr {self._slot('%dims', number, INDEX)}", INDEX), 0)
        controls = loop.trip_count + loop.condition
        first_slice = controls + loop.states
        inputs = [self._pointer("%inputs", number) for number in range(len(loop.signature.inputs))]
        outputs = [self._pointer("%outputs", number) for number in range(len(loop.signature.outputs))]
        limit = self._limit(inputs)
        lengths = [self.index.print(length) for length in self._lengths()]
        self._check_limit(limit, lengths)
        round_, keep = p.alloca(INDEX, 1), p.alloca("i8", 1)
        body_inputs = p.alloca("ptr", 1 + len(inputs) - controls)
        results = p.alloca("ptr", loop.may_stop + len(outputs))
        sizes = self._sizes()
        open_polls(p)
        self._open_clock()
        self._put(body_inputs, 0, round_)
        for number in range(first_slice + loop.scanned, len(inputs)):
            self._put(body_inputs, 1 + number - controls, inputs[number])
        if loop.may_stop:
            self._put(results, 0, keep)
        spare = [self._offset_pointer("%workspace", self.index.print(arith.wrap(offset))) for offset in loop.spare]
        p.emit(f"store i8 1, ptr {keep}")
        if loop.condition:
            condition = p.op(f"load i8, ptr {inputs[loop.trip_count]}", "i8")
            p.emit(f"store {condition}, ptr {keep}")
        names = ("round", "body", "poll", "stopped", "go", "fine", "failed", "done")
        head, body_label, poll, stopped, go, fine, failed, exit_label = map(p.fresh, names)
        preheader, last = p.block, [f"%{p.fresh('state')}" for _ in range(loop.states)]
        counter, following = f"%{p.fresh('i')}", f"%{p.fresh('next')}"
        written = [f"%{p.fresh('written')}" for _ in range(loop.states)]
        p.branch(head)
        p.label(head)
        p.emit(f"{counter} = phi i64 [ 0, %{preheader} ], [ {following}, %{fine} ]")
        for number, name in enumerate(last):
            first = outputs[number] if number in loop.in_place else inputs[controls + number]
            p.emit(f"{name} = phi ptr [ {first}, %{preheader} ], [ {written[number]}, %{fine} ]")
        more = p.op(f"icmp slt i64 {counter}, {limit.ref}", "i1")
        going = p.op(f"icmp ne {p.op(f'load i8, ptr {keep}', 'i8')}, 0", "i1")
        p.branch_if(p.op(f"and {more}, {going.ref}", "i1"), body_label, exit_label)
        # Values computed in the loop do not exist if no iteration runs.
        with p.scope():
            p.label(body_label)
            p.branch_if(p.op(f"icmp eq {p.op(f'and i64 {counter}, {_ROUNDS - 1}', INDEX)}, 0", "i1"), poll, go)
            p.label(poll)
            answer = p.op("call i32 @inlaid_poll(ptr %context)", "i32")
            p.branch_if(p.op(f"icmp ne {answer}, 0", "i1"), stopped, go)
            p.label(stopped)
            self._restore_clock()
            p.emit(f"ret {answer}")
            p.label(go)
            p.emit(f"store i64 {counter}, ptr {round_}")
            left = p.op(f"sub i64 {limit.ref}, {counter}", INDEX)
            odd = p.op(f"trunc {left} to i1", "i1")
            for number, name in enumerate(written):
                other = outputs[number] if number in loop.in_place else spare[number]
                p.emit(f"{name} = select {odd}, ptr {outputs[number]}, ptr {other}")
                self._put(body_inputs, 1 + number, last[number])
                self._put(results, loop.may_stop + number, name)
            for number in range(loop.scanned):
                position = first_slice + number
                self._put(
                    body_inputs, 1 + loop.states + number, self._slice(inputs[position], loop.signature.inputs[position], counter)
                )
            for number in range(loop.states, len(outputs)):
                self._put(results, loop.may_stop + number, self._slice(outputs[number], loop.signature.outputs[number], counter))
            status = self._call(body_inputs, results, sizes)
            p.branch_if(p.op(f"icmp ne {status}, 0", "i1"), failed, fine)
            p.label(failed)
            self._restore_clock()
            p.emit(f"ret {status}")
            p.label(fine)
            self._add_times()
            p.emit(f"{following} = add i64 {counter}, 1")
            p.branch(head)
        p.label(exit_label)
        for number, name in enumerate(last):
            self._settle(name, outputs[number], loop.signature.outputs[number])
        self._close_clock()
        if self._stops:
            for length in lengths:
                self._return_if(p.op(f"icmp ne i64 {counter}, {length.ref}", "i1"))
        p.emit("ret i32 0")
        return p.finish(
            f"define i32 @{symbol}(ptr %inputs, ptr %outputs, ptr %constants, ptr %dims, ptr %workspace, ptr %context) #2"
        )

    # --- places ---

    def _slot(self, array: str, number: int, kind: str = "ptr") -> str:
        return self.p.op(f"getelementptr inbounds {kind}, ptr {array}, i64 {number}", "ptr").ref

    def _pointer(self, array: str, number: int) -> str:
        return self.p.op(f"load ptr, ptr {self._slot(array, number)}", "ptr").ref

    def _put(self, array: str, number: int, pointer: str) -> None:
        self.p.emit(f"store ptr {pointer}, ptr {self._slot(array, number)}")

    def _offset_pointer(self, pointer: str, offset: Value) -> str:
        return self.p.op(f"getelementptr inbounds i8, ptr {pointer}, {offset}", "ptr").ref

    def _bytes(self, spec: TensorSpec, axes: int = 0) -> Value:
        """Print the size in bytes of a tensor, or of its slice at one index of the first `axes` axes."""
        assert spec.dtype is not None
        return self.index.print(arith.mul(arith.product(spec.shape[axes:]), spec.dtype.bytes))

    def _slice(self, pointer: str, spec: TensorSpec, counter: str) -> str:
        return self._offset_pointer(pointer, self.p.op(f"mul {self._bytes(spec, 1)}, {counter}", INDEX))

    def _sizes(self) -> str:
        """Print the array of the body's symbolic dimensions; return its address."""
        dims = self.loop.body.signature.dims
        array = self.p.alloca(INDEX, max(len(dims), 1))
        for number, dim in enumerate(dims):
            value = self.index.print(arith.SizeVar(dim.name))
            self.p.emit(f"store {value}, ptr {self._slot(array, number, INDEX)}")
        return array

    # --- rounds ---

    def _limit(self, inputs: list[str]) -> Value:
        """Print the maximum trip count."""
        p, loop = self.p, self.loop
        limits = []
        if loop.trip_count:
            limits.append(p.op(f"load i64, ptr {inputs[0]}", INDEX))
        if loop.scanned:
            spec = loop.signature.inputs[loop.trip_count + loop.condition + loop.states]
            limits.append(self.index.print(arith.wrap(spec.shape[0])))
        if len(limits) < 2:
            return limits[0] if limits else Value(str(_FOREVER), INDEX)
        fewer = p.op(f"icmp slt {limits[0]}, {limits[1].ref}", "i1")
        return p.op(f"select {fewer}, {limits[0]}, {limits[1]}", INDEX)

    @property
    def _stops(self) -> bool:
        """Whether the loop may end before its maximum trip count."""
        return self.loop.condition or self.loop.may_stop

    def _lengths(self) -> list[arith.Expr]:
        """Return the distinct lengths of the stacked outputs."""
        stacked = self.loop.signature.outputs[self.loop.states :]
        return [*dict.fromkeys(arith.wrap(spec.shape[0]) for spec in stacked)]

    def _check_limit(self, limit: Value, lengths: list[Value]) -> None:
        """Print checks that no iteration writes past the end of a stacked output, and that every row is written."""
        p = self.p
        for length in lengths:
            negative = p.op(f"icmp slt {limit}, 0", "i1")
            count = p.op(f"select {negative}, i64 0, {limit}", INDEX)
            self._return_if(p.op(f"icmp {'sgt' if self._stops else 'ne'} {count}, {length.ref}", "i1"))

    def _return_if(self, bad: Value) -> None:
        """Print code that returns an error if the condition `bad` holds."""
        p = self.p
        failed, fine = p.fresh("unequal"), p.fresh("equal")
        p.branch_if(bad, failed, fine)
        p.label(failed)
        p.declarations["message"] = f"@message = private constant {message_table([_UNEQUAL])}"
        p.declarations["llvm.memcpy"] = "declare void @llvm.memcpy.p0.p0.i64(ptr, ptr, i64, i1)"
        p.emit(f"call void @llvm.memcpy.p0.p0.i64(ptr %context, ptr @message, i64 {MESSAGE_BYTES}, i1 false)")
        p.emit("ret i32 1")
        p.label(fine)

    def _call(self, inputs: str, results: str, sizes: str) -> Value:
        arguments = ", ".join(f"ptr {name}" for name in (inputs, results, "%constants", sizes, "%workspace", "%context"))
        return self.p.op(f"call i32 @{self.body}({arguments})", "i32")

    def _settle(self, last: str, result: str, spec: TensorSpec) -> None:
        """Print a copy of the final state in `last` to `result`. The copy is skipped at run time if both are the same address."""
        p = self.p
        copy, settled = p.fresh("copy"), p.fresh("settled")
        p.branch_if(p.op(f"icmp ne ptr {last}, {result}", "i1"), copy, settled)
        p.label(copy)
        p.declarations["llvm.memcpy"] = "declare void @llvm.memcpy.p0.p0.i64(ptr, ptr, i64, i1)"
        with p.scope():
            p.emit(f"call void @llvm.memcpy.p0.p0.i64(ptr {result}, ptr {last}, {self._bytes(spec)}, i1 false)")
        p.branch(settled)
        p.label(settled)

    # --- times ---

    def _open_clock(self) -> None:
        """Print code that redirects the times which the body records to a local array, since a region records each kernel once. The
        times are summed by kernel. If profiling is off, no times are recorded."""
        p = self.p
        self.field = p.op(f"getelementptr inbounds {CONTEXT}, ptr %context, i64 0, i32 2", "ptr").ref
        self.clock = p.op(f"load ptr, ptr {self.field}", "ptr").ref
        self.off = p.op(f"icmp eq ptr {self.clock}, null", "i1")
        self.recorded, self.totals = (p.alloca(INDEX, self.kernels + 1) for _ in range(2))
        for number in range(self.kernels + 1):
            for array in (self.recorded, self.totals):
                p.emit(f"store i64 0, ptr {self._slot(array, number, INDEX)}")
        target = p.op(f"select {self.off}, ptr null, ptr {self.recorded}", "ptr")
        p.emit(f"store {target}, ptr {self.field}")

    def _add_times(self) -> None:
        p = self.p
        for number in range(self.kernels):
            start, stop = (p.op(f"load i64, ptr {self._slot(self.recorded, number + end, INDEX)}", INDEX) for end in (0, 1))
            total = self._slot(self.totals, number + 1, INDEX)
            sofar = p.op(f"load i64, ptr {total}", INDEX)
            more = p.op(f"add {sofar}, {p.op(f'sub {stop}, {start.ref}', INDEX).ref}", INDEX)
            p.emit(f"store {more}, ptr {total}")

    def _restore_clock(self) -> None:
        self.p.emit(f"store ptr {self.clock}, ptr {self.field}")

    def _close_clock(self) -> None:
        p = self.p
        self._restore_clock()
        noting, noted = p.fresh("noting"), p.fresh("noted")
        p.branch_if(self.off, noted, noting)
        p.label(noting)
        time = Value("0", INDEX)
        for number in range(self.kernels + 1):
            time = p.op(f"add {time}, {p.op(f'load i64, ptr {self._slot(self.totals, number, INDEX)}', INDEX).ref}", INDEX)
            p.emit(f"store {time}, ptr {self._slot(self.clock, number, INDEX)}")
        p.branch(noted)
        p.label(noted)
