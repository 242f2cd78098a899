"""Code generator: compiles regions to linked x86-64 images."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial

from inlaid.artifact import Artifact
from inlaid.codegen.library import LibraryCodegen, LibraryFunction
from inlaid.plugins import CompileContext
from inlaid.tensor import ir
from inlaid.tensor.math import expand_program
from inlaid.tensor.region import RegionLoop, RegionProgram, kernel_infos
from inlaid.tensor.transform.legalise import legalise
from inlaid_x86 import amx
from inlaid_x86.compilers import Compilers
from inlaid_x86.conversions import expand_conversions
from inlaid_x86.cpu import features, vector_bits
from inlaid_x86.emit import EXPLICIT, FULL, KERNEL
from inlaid_x86.fork import serialize_short_loops
from inlaid_x86.instruction_sets import extensions
from inlaid_x86.instructions import tensor_instructions
from inlaid_x86.interrupts import CHUNK, checkpoints, cycles, polled_loops
from inlaid_x86.library import library_objects
from inlaid_x86.linking import X86_64, link_image
from inlaid_x86.llvm.kernel import is_explicit
from inlaid_x86.llvm.loop import print_loop
from inlaid_x86.llvm.region import Dialect, print_entry, print_kernel
from inlaid_x86.llvm.values import CONVERTED, NATIVE
from inlaid_x86.machine import TRIPLE, data_layout, feature_text
from inlaid_x86.options import FORMAT, FORMAT_VERSION, X86Options
from inlaid_x86.scale import math_emitters


class X86Codegen(LibraryCodegen):
    """Compiles a region to ELF objects and links them into an image. There is one object per kernel, one for the C-ABI function,
    and, if the region is a loop, one for the loop body."""

    architecture = X86_64

    def __init__(self, options: X86Options) -> None:
        self.options = options
        self.features = features(options)

    def compile(self, unit: RegionProgram | RegionLoop, context: CompileContext) -> Artifact:
        """Compile a region to an artifact. Compilation is deterministic: equal regions give equal bytes."""
        loop = unit if isinstance(unit, RegionLoop) else None
        region = unit.body if isinstance(unit, RegionLoop) else unit
        width = vector_bits(self.options)
        instructions = {each.intrinsic.name: each for each in (*tensor_instructions(self.features), *context.instructions)}
        emitted, tiles = {name: each.emitter for name, each in instructions.items()}, amx.register_files(self.features)
        math, check = math_emitters(self.features), self.options.check
        dialect = Dialect(TRIPLE, data_layout(), self._attributes(), emitted, tiles, math, check)
        level = tuple(name for name in self.features if name not in extensions(self.features))
        required = set(level)
        with Compilers(level, context.objects) as compilers:
            kernels, lengths = [], []
            symbols = []
            for number, kernel in enumerate(region.kernels):
                context.report("print", number, len(region.kernels))
                key = (str(context.target), kernel)
                if key not in context.printed:
                    context.printed[key] = _printed(kernel, level, dialect, width)
                known: _Printed = context.printed[key]
                kernels.append(known.kernel)
                lengths.append(known.cycles)
                more = {name for used in _intrinsics(known.kernel) & instructions.keys() for name in instructions[used].extensions}
                required |= more
                # With 16 registers, loops of VPMADDWD are up to 1.3 times as fast after all of LLVM's passes.
                effort = EXPLICIT if is_explicit(known.kernel, tensor=width == 512) else FULL
                symbols.append(compilers.kernel(known.text, effort, sorted(more)))
            polls = checkpoints([lengths[call.kernel] for call in region.calls])
            polls = frozenset() if polls is None and loop is not None else polls
            compilers.entry(print_entry(replace(region, kernels=tuple(kernels)), region.name, symbols, dialect, polls), region.name)
            if loop is not None:
                compilers.entry(print_loop(loop, loop.name, region.name, dialect), loop.name)
            objects = compilers.finish(partial(context.report, "compile"))
        members = [objects[name] for name in dict.fromkeys((unit.name, region.name, *symbols))]
        return Artifact(
            symbol=unit.name,
            format=FORMAT,
            format_version=FORMAT_VERSION,
            code=link_image(members, (unit.name,), feature_text(level), self._attributes(), context.objects),
            signature=unit.signature,
            constants=region.constants,
            workspace={"": unit.workspace},
            aliases=unit.aliases,
            requires=tuple(sorted(required)),
            kernels=kernel_infos(region),
        )

    @property
    def threads(self) -> bool:
        """True if kernels may use more than one thread."""
        return self.options.threads != 1

    def library_objects(self, function: LibraryFunction) -> Sequence[bytes]:
        """Compile the objects of an exported library's function; implements `inlaid.codegen.library.LibraryCodegen`."""
        return library_objects(function)

    def _attributes(self) -> str:
        """Return LLVM function attributes that keep 512-bit vectors whole. By default, LLVM splits them in two for many CPUs."""
        width = vector_bits(self.options)
        return f'"prefer-vector-width"="{width}" "min-legal-vector-width"="{width}"'


@dataclass(frozen=True)
class _Printed:
    """A printed kernel: its legalised program, predicted cycles and LLVM text."""

    kernel: ir.LoopProgram
    cycles: float
    text: str


def _printed(kernel: ir.LoopProgram, level: tuple[str, ...], dialect: Dialect, width: int) -> _Printed:
    converted = frozenset(name for name, feature in CONVERTED.items() if feature in level)
    legal = legalise(expand_program(kernel, frozenset(dialect.math)), NATIVE, converted)
    kernel = serialize_short_loops(expand_conversions(legal, level), width)
    length = cycles(kernel, width)
    return _Printed(kernel, length, print_kernel(kernel, KERNEL, dialect, polled_loops(kernel, width) if length >= CHUNK else {}))


def _intrinsics(kernel: ir.LoopProgram) -> set[str]:
    """Return the names of the tensor intrinsics that a kernel uses."""
    return {stmt.name for stmt in ir.walk_stmts(kernel.body) if isinstance(stmt, ir.Intrinsic)}
