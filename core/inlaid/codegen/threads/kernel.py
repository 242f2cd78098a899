"""Print SPMD kernels in a C-like language."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from inlaid.codegen.c import c_type
from inlaid.codegen.c_expressions import WIDTH
from inlaid.codegen.c_indices import helpers
from inlaid.codegen.launch_plan import AXES, ThreadKernel, ThreadRegion
from inlaid.codegen.threads.dialect import ThreadDialect
from inlaid.codegen.threads.float64_calls import FLOAT64_CALL
from inlaid.codegen.threads.float64_functions import FUNCTIONS
from inlaid.codegen.threads.indices import flat_index, index_type
from inlaid.codegen.threads.passes import legalized_kernels
from inlaid.codegen.threads.registers import MAX_NAMES, RegisterNames, choose_width
from inlaid.codegen.threads.shared import declarations, shared_by_threads
from inlaid.codegen.threads.vectors import VECTOR_BYTES, Wide
from inlaid.codegen.threads.wide import WideExpressions
from inlaid.passes.manager import RunPasses, run_passes
from inlaid.tensor import ir
from inlaid.tensor.analysis.ranges import Ranges
from inlaid.tensor.region import size_vars
from inlaid_runtime import arith
from inlaid_runtime.errors import CompileError, Unsupported
from inlaid_runtime.execution.c_source import spread
from inlaid_runtime.execution.launches import Descriptor, LaunchPlan

_WORD_BYTES = 4


@dataclass(frozen=True)
class ThreadKernelText:
    """Text of a kernel. `reports`: its last parameter is a pointer to an int32, to which it writes 1 if an index is out of range.
    `index` is the type of its indices. `shared`: bytes of dynamic shared memory. `descriptors`: its descriptor parameters, passed
    by value before the report pointer."""

    text: str
    reports: bool
    index: str
    shared: int = 0
    descriptors: tuple[Descriptor, ...] = ()


def print_thread_kernel(kernel: ThreadKernel, dialect: ThreadDialect) -> ThreadKernelText:
    """Run `kernel_passes` on a kernel and print it. Its parameters are, in order: base pointer and byte offset of each buffer,
    scalars, sizes, descriptors, and the report pointer if it reports. Raises `Unsupported` for intrinsics that the language
    lacks."""
    (legal,) = legalized_kernels((kernel,), dialect, run_passes)
    return print_legalized(legal, dialect)


def print_legalized(kernel: ThreadKernel, dialect: ThreadDialect) -> ThreadKernelText:
    """Print a kernel after `legalized_kernels`, as `print_thread_kernel` does."""
    program = kernel.kernel.program
    ranges = Ranges(program)
    return _ThreadKernelPrinter(kernel, program, dialect, index_type(program, ranges), ranges).print()


def print_region(
    region: ThreadRegion, dialect: ThreadDialect, run: RunPasses[ir.LoopProgram], report: Callable[[str, int, int], None]
) -> tuple[LaunchPlan, str]:
    """Print the kernels of a region. Returns its launch plan and source file. `run` and `report` are `run_passes` and `report` of a
    `CompileContext`."""
    texts = []
    for number, kernel in enumerate(legalized_kernels(region.kernels, dialect, run)):
        report("print", number, len(region.kernels))
        texts.append(print_legalized(kernel, dialect))
    descriptors = [text.descriptors for text in texts]
    plan = region.completed([text.reports for text in texts], [text.shared for text in texts], descriptors)
    return plan, thread_source(texts, dialect)


def thread_source(texts: Sequence[ThreadKernelText], dialect: ThreadDialect) -> str:
    """Join kernels to a source file: prelude, helper functions that they use, kernels."""
    kernels = "\n".join(item.text for item in texts)
    words = set(re.findall(r"\w+", kernels))
    called: list[str] = []
    functions = {f"inlaid_{FLOAT64_CALL}_{name}": text for name, text in FUNCTIONS.items()}
    for name, text in reversed([*dialect.helpers.items(), *functions.items()]):  # later ones call earlier ones
        if name in words:
            called.append(text)
            words.update(re.findall(r"\w+", text))
    parts = [dialect.prelude, *dict.fromkeys(reversed(called))]
    index = "int64_t" if any(item.index == "int64_t" for item in texts) else "int32_t"
    parts += [part for part in (helpers(kernels, index),) if part]
    return "\n".join([*parts, kernels])


class _ThreadKernelPrinter(WideExpressions):
    """Prints one kernel. `leave` is the jump out of a statement with a bad index; `bodies` maps buffers to the bodies of their
    allocations; `shared` maps shared buffers to their byte offsets."""

    def __init__(
        self,
        kernel: ThreadKernel,
        program: ir.LoopProgram,
        dialect: ThreadDialect,
        index: str,
        ranges: Ranges,
    ) -> None:
        super().__init__(program, dialect, index, ranges)
        self.kernel = kernel
        self.sizes = size_vars(program)
        self.emitters = dialect.emitters
        self.reports = False
        self.waits = any(isinstance(stmt, ir.Barrier) for stmt in ir.walk_stmts(program.body))
        self.descriptors: dict[Descriptor, str] = {}
        self.bodies: dict[ir.Buffer, ir.Stmt] = {}
        self.leave = "return;"
        self.report_name = self.unique("report")
        self.shared = shared_by_threads(program, kernel.kernel.offsets)
        for buffer in self.shared:
            self.buffers[buffer] = self.unique(buffer.name)
            self.spaces[buffer], self.bases[buffer] = dialect.shared, math.gcd(self.shared[buffer], VECTOR_BYTES)

    def print(self) -> ThreadKernelText:
        """Print the kernel."""
        program, device = self.program, f"{self.dialect.device} ".lstrip()
        inputs = program.inputs[: len(program.inputs) - self.kernel.scalars]
        params = []
        for number, buffer in enumerate((*inputs, *program.outputs)):
            base, offset = self.unique(f"b{number}"), self.unique(f"o{number}")
            # Compilers may move accesses by restrict pointers across barriers, as if no other thread wrote there.
            qualifier = "" if self.waits and number >= len(inputs) else "restrict "
            params += [f"{device}uint8_t *{qualifier}{base}", f"int64_t {offset}"]
            kind = f"{device}{'const ' if number < len(inputs) else ''}{c_type(buffer.dtype)} *"
            self.buffers[buffer] = self.unique(buffer.name)
            self.spaces[buffer], self.bases[buffer] = self.dialect.device, VECTOR_BYTES
            self.line(f"{kind}{self.buffers[buffer]} = ({kind.strip()})({base} + {offset});")
        for buffer in program.inputs[len(inputs) :]:
            self.buffers[buffer] = self.unique(buffer.name)
            params.append(f"int64_t {self.buffers[buffer]}")
        for size, buffer in program.defines:
            self.names[size] = f"(({self.index_type})*{self.buffers[buffer]})"
        for size in self.sizes:
            name = self.unique(size.name)
            params.append(f"int64_t {name}")
            self.names[size] = name if self.index_type == "int64_t" else f"({self.index_type}){name}"
        names = {buffer: self.buffers[buffer] for buffer in self.shared}
        lines, dynamic_bytes = declarations(self.shared, names, self.unique("arena"), self.dialect)
        for line in lines:
            self.line(line)
        self.statement(program.body)
        params += map(self.dialect.descriptor_parameter, self.descriptors.values())
        if self.reports:
            params.append(f"{device}int32_t *{self.report_name}")
        head = spread(self.dialect.head(self.kernel.name, self._threads()), params or ["void"], " {", WIDTH)
        body = "\n".join(self.lines)
        return ThreadKernelText(f"{head}\n{body}\n}}\n", self.reports, self.index_type, dynamic_bytes, tuple(self.descriptors))

    def _threads(self) -> tuple[int, int, int] | None:
        """Return the static block size; None if an extent is symbolic."""
        extents = [self.kernel.kernel.threads.get(f"threadIdx.{axis}", arith.ONE) for axis in AXES]
        block_extents = [extent.value for extent in map(arith.simplify, extents) if isinstance(extent, arith.Const)]
        return (block_extents[0], block_extents[1], block_extents[2]) if len(block_extents) == len(AXES) else None

    # --- statements ---

    def statement(self, stmt: ir.Stmt) -> None:
        if self.waits and _checks(stmt):
            # A thread with a bad index must still reach later barriers; inside a statement with a barrier, all threads return.
            outer = self.leave
            self.leave = "return;" if any(isinstance(node, ir.Barrier) for node in ir.walk_stmts(stmt)) else "break;"
            with self.block("do"):
                self._statement(stmt)
            self.lines[-1] += " while (0);"
            self.leave = outer
        else:
            self._statement(stmt)

    def _statement(self, stmt: ir.Stmt) -> None:
        match stmt:
            case ir.Barrier():
                self.texts = {}
                self.line(f"{self.dialect.barrier};")
            case ir.For(kind=ir.ForKind.THREAD, var=var, thread=thread, body=body):
                self.texts = {}
                name = self.unique(var.name)
                self.line(f"const {self.index_type} {name} = ({self.index_type}){self.dialect.position(thread)};")
                self.names[var] = name
                self.statement(body)
            case ir.For(kind=ir.ForKind.VECTORIZED):
                self._vector_loop(stmt)
            case ir.While() if self.lane is not None:
                raise CompileError(f"kernel {self.program.name}: a vectorized loop must not contain a while loop")
            case ir.Alloc(buffer=buffer, body=body):
                self.bodies[buffer] = body
                super().statement(stmt)
            case _:
                super().statement(stmt)

    def _vector_loop(self, loop: ir.For) -> None:
        if self.lane is not None or not isinstance(loop.extent, arith.Const):
            raise CompileError(
                f"kernel {self.program.name}: vectorized loop {loop.var.name} must be innermost and of constant extent"
            )
        self.lane, self.lanes = loop.var, loop.extent.value
        with self.block(""):
            self.texts = {}
            self.statement(loop.body)
        self.lane, self.lanes = None, 0
        self.private.clear()
        self.wide_names.clear()

    def further_arguments(self, stmt: ir.Intrinsic) -> Sequence[str]:
        text = self.dialect.descriptor(stmt)
        if not text:
            return ()
        descriptor = Descriptor(self.program.params.index(stmt.regions[0].buffer), text)
        if descriptor not in self.descriptors:
            self.descriptors[descriptor] = self.unique("descriptor")
        return (self.descriptors[descriptor],)

    def store(self, stmt: ir.Store) -> None:
        if self.lane is None:
            super().store(stmt)
        else:
            self.store_lanes(stmt)

    def choice(self, condition: ir.Expr, then: ir.Stmt, otherwise: ir.Stmt | None) -> None:
        if self.lane is None:
            super().choice(condition, then, otherwise)
            return
        self.texts = {}
        flag = self.value(condition)
        if not isinstance(flag, Wide):
            super().choice(condition, then, otherwise)
            return
        with self.under(flag):
            self.statement(then)
        if otherwise is not None:
            with self.under(self.vectors.opposite(flag)):
                self.statement(otherwise)

    def let(self, stmt: ir.Let) -> None:
        match stmt.value:
            case ir.Load(buffer=buffer) if buffer in self.program.inputs[len(self.program.inputs) - self.kernel.scalars :]:
                name = self.buffers[buffer]
                self.names[stmt.var] = name if self.index_type == "int64_t" else f"({self.index_type}){name}"
                self.statement(stmt.body)
                return
        if self.lane is None:
            super().let(stmt)
            return
        self.texts = {}
        value = self.value(stmt.value)
        if not isinstance(value, Wide) and self.mask is None:
            super().let(stmt)
            return
        wide = self.wide_narrowed(stmt.value)
        if stmt.bounds is not None and not self.inside(stmt.value, *stmt.bounds):
            wide = self.check_lanes(wide, *stmt.bounds)
        self.wide_names[stmt.var] = wide
        self.statement(stmt.body)

    # --- checks ---

    def check(self, name: str, low: arith.Dim, high: arith.Dim) -> None:
        self.report(f"{name} < {self.index(arith.wrap(low))} || {name} > {self.index(arith.wrap(high))}")

    def report(self, failed: str) -> None:
        self.reports = True
        self.line(f"if ({failed}) {{")
        self.line(f"    *{self.report_name} = 1;")
        self.line(f"    {self.leave}")
        self.line("}")

    # --- local memory ---

    def corner(self, region: ir.BufferRegion) -> str:
        buffer = region.buffer
        if buffer.scope not in self.dialect.dealt:
            return super().corner(region)
        first = self.ranges.indices.simplify(flat_index(buffer, tuple(first for first, _ in region.ranges)))
        if not isinstance(first, arith.Const):
            raise Unsupported(f"buffer {buffer.name} in scope {buffer.scope!r}: expected a constant index, found {first!r}")
        return f"{self.buffers[buffer]}[{self._words(buffer, first.value)}]"

    def _words(self, buffer: ir.Buffer, elements: int) -> int:
        """Return the 32-bit words per thread of `elements` distributed elements."""
        return elements * buffer.dtype.bytes // (_WORD_BYTES * self.dialect.dealt[buffer.scope])

    def alloc(self, buffer: ir.Buffer) -> None:
        if buffer in self.shared:
            return  # declared at the head of the kernel
        name = self.buffers[buffer] = self.unique(buffer.name)
        kind, size = c_type(buffer.dtype), arith.product(buffer.shape)
        if not isinstance(size, int):
            raise Unsupported(f"local buffer {buffer.name} must have a constant size, got shape {buffer.shape}")
        self.spaces[buffer] = ""
        if buffer.scope in self.dialect.dealt:
            self.line(f"uint32_t {name}[{self._words(buffer, size)}];")
            return
        self.named.pop(buffer, None)  # stale if peeling, unrolling or `cut_lanes` has copied the allocation
        if self.lane is not None:
            self.private.add(buffer)
            size *= self.lanes
        elif self._declare_names(buffer, name):
            return
        self.line(f"{kind} {name}[{max(size, 1)}];")

    def _declare_names(self, buffer: ir.Buffer, name: str) -> bool:
        """Declare the elements of a buffer as scalar or vector variables; False if an index is not constant."""
        width, end = choose_width(buffer, self.bodies[buffer], self.dialect.lanes)
        if not width or (end > MAX_NAMES and buffer.scope != "register"):
            return False
        count = -(-end // width)
        names = tuple(self.unique(f"{name}_{number}") for number in range(count))
        kind = c_type(buffer.dtype) if width == 1 else self.dialect.vector(buffer.dtype, width)
        self.line(f"{kind} {', '.join(names)};")
        self.named[buffer] = RegisterNames(names, width)
        return True


def _checks(stmt: ir.Stmt) -> bool:
    """Test whether a statement, substatements excluded, has checked indices."""
    values, indices = ir.statement_operands(stmt)
    if isinstance(stmt, ir.Let) and stmt.bounds is not None:
        return True
    nodes = ir.walk_exprs(*values)
    return any(map(arith.reads_data, (*map(arith.wrap, indices), *(index for node in nodes for index in ir.index_operands(node)))))
