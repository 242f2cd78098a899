"""Print loop programs as readable C99 functions.

A kernel is a function of its buffers and sizes. A kernel that checks indices returns int32_t: 1 if an index is out of range, else
0. Other kernels return void. Serial, parallel, vectorized and unrolled loops are all printed as serial loops.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from functools import partial

from inlaid.codegen import c_values
from inlaid.codegen.c import C_TYPES, c_type
from inlaid.codegen.c_expressions import WIDTH
from inlaid.codegen.c_statements import Emitter, Statements
from inlaid.codegen.c_values import ATOM, Text
from inlaid.passes.manager import UnitPass, run_passes
from inlaid.tensor import ir
from inlaid.tensor.analysis.ranges import Range, Ranges, narrow
from inlaid.tensor.math import expand_program
from inlaid.tensor.region import size_vars
from inlaid.tensor.transform.legalize import carrier, legalize
from inlaid_runtime import arith
from inlaid_runtime.errors import Unsupported
from inlaid_runtime.execution.c_source import spread
from inlaid_runtime.records import dataclass, field
from inlaid_runtime.types import DType

STACK_LIMIT = 1 << 16
"""Maximum bytes of one local buffer."""
_WORDS = """
    auto break case char const continue default do double else enum extern float for goto if inline int long register restrict
    return short signed sizeof static struct switch typedef union unsigned void volatile while asm
    ceil ceilf fabs fabsf floor floorf fma fmaf fmod fmodf rint rintf sqrt sqrtf trunc truncf memcpy
"""
"""C keywords, and library functions that kernels call."""


@dataclass(frozen=True)
class Dialect:
    """Variant of C: the index type, emitters of tensor intrinsics by name, and whether 8-bit kernels must not depend on <math.h>
    (`freestanding`)."""

    index: str = "int64_t"
    emitters: Mapping[str, Emitter] = field(default_factory=dict)
    freestanding: bool = False


PLAIN = Dialect()


@dataclass(frozen=True)
class KernelText:
    """A kernel in C. `checks`: it returns int32_t, 1 if an index is out of range."""

    text: str
    checks: bool


def stored_type(dtype: DType) -> str:
    """Return the C type of a buffer's elements. Types that C lacks are stored as integers of equal width."""
    return c_type(dtype if dtype.name in C_TYPES else carrier(dtype))


def print_kernel(
    program: ir.LoopProgram,
    name: str,
    dialect: Dialect = PLAIN,
    ranges: Mapping[int, Range] | None = None,
    shared: Collection[int] = (),
    names: Sequence[str] = (),
) -> KernelText:
    """Print a kernel as a static function `name`. `ranges` maps parameter numbers to value ranges; parameters in `shared` may alias
    others (no `restrict`); `names` overrides parameter names. Raises `Unsupported` for loops and intrinsics that C lacks."""
    return print_legalized(run_passes(kernel_passes(ranges), program), name, dialect, ranges, shared, names)


def print_legalized(
    program: ir.LoopProgram,
    name: str,
    dialect: Dialect = PLAIN,
    ranges: Mapping[int, Range] | None = None,
    shared: Collection[int] = (),
    names: Sequence[str] = (),
) -> KernelText:
    """Print a kernel after `kernel_passes`, as `print_kernel` does."""
    return _KernelPrinter(program, name, dialect, _parameter_ranges(program, ranges)).print(
        shared, names or [item.name for item in program.params]
    )


def kernel_passes(ranges: Mapping[int, Range] | None = None) -> tuple[UnitPass[ir.LoopProgram], ...]:
    """List the passes that legalize a kernel to C types and simplify it by `ranges` (see `print_kernel`)."""
    return (
        UnitPass("expand_math", expand_program),
        UnitPass("legalize", partial(legalize, native=c_values.NATIVE)),
        UnitPass("narrow", lambda program: narrow(program, _parameter_ranges(program, ranges))),
    )


def _parameter_ranges(program: ir.LoopProgram, ranges: Mapping[int, Range] | None) -> dict[ir.Buffer, Range]:
    return {program.params[number]: range_ for number, range_ in (ranges or {}).items()}


_DECLARATION = re.compile(r" *const \w+ (\w+) = ")


def without_unused(lines: Sequence[str]) -> list[str]:
    """Return the lines of a function without declarations of constants that no line reads. Names are unique in the function."""
    uses = Counter(word for line in lines for word in re.findall(r"\w+", line))
    live_lines = []
    for line in reversed(lines):
        match = _DECLARATION.match(line)
        if match and uses[match[1]] == 1:
            uses.subtract(re.findall(r"\w+", line))
        else:
            live_lines.append(line)
    return live_lines[::-1]


class _KernelPrinter(Statements):
    """Prints one kernel."""

    def __init__(self, program: ir.LoopProgram, name: str, dialect: Dialect, ranges: Mapping[ir.Buffer, Range]) -> None:
        super().__init__(program, dialect.index, _WORDS.split(), Ranges(program, ranges))
        self.name = name
        self.dialect = dialect
        self.emitters = dialect.emitters
        self.checks = False

    def print(self, shared: Collection[int], names: Sequence[str]) -> KernelText:
        params = []
        for number, buffer in enumerate(self.program.params):
            self.buffers[buffer] = self.unique(names[number])
            const = "const " if number < len(self.program.inputs) else ""
            params.append(f"{const}{c_type(buffer.dtype)} *{'restrict ' if number not in shared else ''}{self.buffers[buffer]}")
        for size, buffer in self.program.defines:
            self.names[size] = f"(*{self.buffers[buffer]})"
        for size in size_vars(self.program):
            self.names[size] = self.unique(size.name)
            params.append(f"{self.index_type} {self.names[size]}")
        self.statement(self.program.body)
        body = "\n".join(without_unused(self.lines))
        unused = [name for name in (param.split()[-1].lstrip("*") for param in params) if not re.search(rf"\b{name}\b", body)]
        body = "\n".join([*(f"    (void){name};" for name in unused), *([body] if body else [])])
        end = "    return 0;\n" if self.checks else ""
        kind = "int32_t" if self.checks else "void"
        head = spread(f"static {kind} {self.name}", params or ["void"], " {", WIDTH)
        return KernelText(f"{head}\n{body}\n{end}}}\n", self.checks)

    def alloc(self, buffer: ir.Buffer) -> None:
        size = arith.product(buffer.shape)
        if not isinstance(size, int) or size * buffer.dtype.bytes > STACK_LIMIT:
            limit = f"a constant size of at most {STACK_LIMIT} bytes"
            raise Unsupported(f"local buffer {buffer.name} must have {limit}, found {buffer.dtype} of shape {buffer.shape}")
        self.buffers[buffer] = self.unique(buffer.name)
        self.line(f"{c_type(buffer.dtype)} {self.buffers[buffer]}[{max(size, 1)}];")

    def check(self, name: str, low: arith.Dim, high: arith.Dim) -> None:
        self.checks = True
        self.line(f"if ({name} < {self.index(arith.wrap(low))} || {name} > {self.index(arith.wrap(high))}) return 1;")

    def expression(self, expr: ir.Expr) -> Text:
        if self.dialect.freestanding and isinstance(expr, ir.Unary) and expr.op == "floor" and expr.dtype.name == "float32":
            return Text(f"inlaid_floorf({self.value(expr.a).code})", ATOM)
        return super().expression(expr)
