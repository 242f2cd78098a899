"""Printing of kernels to LLVM text, and queueing of the text for compilation."""

from __future__ import annotations

from dataclasses import dataclass

from inlaid.plugins import CompileContext
from inlaid.tensor import ir
from inlaid_runtime.types import dtype
from inlaid_x86 import amx
from inlaid_x86.compilers import Compilers
from inlaid_x86.emit import EXPLICIT, FULL, KERNEL
from inlaid_x86.instructions import tensor_instructions
from inlaid_x86.interrupts import CHUNK, cycles, polled_loops
from inlaid_x86.llvm.kernel import is_deep, is_explicit
from inlaid_x86.llvm.region import Dialect, print_kernel
from inlaid_x86.llvm.values import FLUSHED, scalar_type
from inlaid_x86.machine import TRIPLE, data_layout
from inlaid_x86.passes import base_features, kernel_passes, math_functions
from inlaid_x86_runtime.cpu import features, vector_bits
from inlaid_x86_runtime.options import X86Options


@dataclass(frozen=True)
class Queued:
    """A kernel whose text is queued for compilation: its legalized program, predicted cycles, symbol, and the CPU features that it
    needs beyond those of all kernels."""

    kernel: ir.LoopProgram
    cycles: float
    symbol: str
    features: frozenset[str]


@dataclass(frozen=True)
class _Printed:
    """A printed kernel: its legalized program, predicted cycles and LLVM text."""

    kernel: ir.LoopProgram
    cycles: float
    text: str


class Kernels:
    """The kernels of one region. `attributes` are LLVM function attributes of all functions; `level` are the CPU features that all
    kernels may use."""

    def __init__(self, options: X86Options, attributes: str, context: CompileContext) -> None:
        available = features(options)
        self._context = context
        self._width = vector_bits(options)
        self._instructions = {item.intrinsic.name: item for item in (*tensor_instructions(available), *context.instructions)}
        emitters = {name: item.emitter for name, item in self._instructions.items()}
        files = amx.register_files(available)
        self.dialect = Dialect(TRIPLE, data_layout(), attributes, emitters, files, math_functions(options), options.check)
        self._passes = kernel_passes(options)
        self.level = base_features(options)
        self.compilers = Compilers(self.level, context.objects)
        self._queued: dict[ir.LoopProgram, Queued] = {}

    def add(self, kernel: ir.LoopProgram) -> Queued:
        """Print a kernel and queue its text. A kernel that was added before is not printed or queued again."""
        if kernel not in self._queued:
            printed_kernel = self._printed(kernel)
            intrinsic_names = {stmt.name for stmt in ir.walk_stmts(printed_kernel.kernel.body) if isinstance(stmt, ir.Intrinsic)}
            extensions = frozenset(
                name for item in intrinsic_names & self._instructions.keys() for name in self._instructions[item].extensions
            )
            extensions |= {feature for name, feature in FLUSHED.items() if scalar_type(dtype(name)) in printed_kernel.text}
            # With 16 registers, loops of VPMADDWD are up to 1.3 times as fast after all of LLVM's passes.
            skips_passes = is_explicit(printed_kernel.kernel, tensor=self._width == 512) or is_deep(printed_kernel.kernel.body)
            effort = EXPLICIT if skips_passes else FULL
            self._queued[kernel] = Queued(
                printed_kernel.kernel,
                printed_kernel.cycles,
                self.compilers.kernel(printed_kernel.text, effort, sorted(extensions)),
                extensions,
            )
        return self._queued[kernel]

    def _printed(self, kernel: ir.LoopProgram) -> _Printed:
        """Print a kernel, or return its text from the cache that all regions share."""
        key = (str(self._context.target), kernel)
        if key not in self._context.printed:
            legal = self._context.run_passes(self._passes, kernel)
            kernel_cycles = cycles(legal, self._width)
            polls = polled_loops(legal, self._width) if kernel_cycles >= CHUNK else {}
            self._context.printed[key] = _Printed(legal, kernel_cycles, print_kernel(legal, KERNEL, self.dialect, polls))
        printed: _Printed = self._context.printed[key]
        return printed
