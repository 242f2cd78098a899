"""Code generator: compiles regions to linked x86-64 images."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial

from inlaid.codegen.library import LibraryCodegen, LibraryFunction
from inlaid.plugins import CompileContext
from inlaid.tensor.ir import LoopProgram
from inlaid.tensor.region import RegionLoop, RegionProgram, kernel_infos
from inlaid_runtime.artifact import Artifact
from inlaid_x86.interrupts import checkpoints
from inlaid_x86.kernels import Kernels
from inlaid_x86.library import library_objects
from inlaid_x86.linking import X86_64, link_image
from inlaid_x86.llvm.loop import print_loop
from inlaid_x86.llvm.region import print_entry
from inlaid_x86.machine import feature_text
from inlaid_x86.passes import kernel_passes
from inlaid_x86_runtime.cpu import vector_bits
from inlaid_x86_runtime.options import FORMAT, FORMAT_VERSION, X86Options


class X86Codegen(LibraryCodegen):
    """Compiles a region to ELF objects and links them into an image. There is one object per kernel, one for the C-ABI function,
    and, if the region is a loop, one for the loop body."""

    architecture = X86_64

    def __init__(self, options: X86Options) -> None:
        self.options = options
        self._kernels: Kernels | None = None

    @contextmanager
    def compiling(self, context: CompileContext) -> Iterator[Callable[[LoopProgram], object]]:
        """Print kernels and start LLVM on them while later kernels are lowered."""
        kernels = Kernels(self.options, self._attributes(), context)
        with kernels.compilers:
            self._kernels = kernels
            try:
                yield kernels.add
            finally:
                self._kernels = None

    def legalized(self, unit: RegionProgram | RegionLoop, context: CompileContext) -> tuple[LoopProgram, ...]:
        """Return the kernels after the passes that precede printing."""
        region = unit.body if isinstance(unit, RegionLoop) else unit
        passes = kernel_passes(self.options)
        return tuple(context.run_passes(passes, kernel) for kernel in region.kernels)

    def compile(self, unit: RegionProgram | RegionLoop, context: CompileContext) -> Artifact:
        """Compile a region to an artifact. Compilation is deterministic: equal regions give equal bytes."""
        if self._kernels is None:
            with self.compiling(context):
                return self.compile(unit, context)
        kernels = self._kernels
        loop = unit if isinstance(unit, RegionLoop) else None
        region = unit.body if isinstance(unit, RegionLoop) else unit
        queued_kernels = []
        for number, kernel in enumerate(region.kernels):
            context.report("print", number, len(region.kernels))
            queued_kernels.append(kernels.add(kernel))
        symbols = [item.symbol for item in queued_kernels]
        polls = checkpoints([queued_kernels[call.kernel].cycles for call in region.calls])
        polls = frozenset() if polls is None and loop is not None else polls
        legal = replace(region, kernels=tuple(item.kernel for item in queued_kernels))
        kernels.compilers.entry(print_entry(legal, region.name, symbols, kernels.dialect, polls), region.name)
        if loop is not None:
            kernels.compilers.entry(print_loop(loop, loop.name, region.name, kernels.dialect), loop.name)
        objects = kernels.compilers.finish(partial(context.report, "compile"))
        members = [objects[name] for name in dict.fromkeys((unit.name, region.name, *symbols))]
        return Artifact(
            symbol=unit.name,
            format=FORMAT,
            format_version=FORMAT_VERSION,
            code=link_image(members, (unit.name,), feature_text(kernels.level), self._attributes(), context.objects),
            signature=unit.signature,
            constants=region.constants,
            workspace={"": unit.workspace},
            aliases=unit.aliases,
            requires=tuple(sorted({*kernels.level, *(name for item in queued_kernels for name in item.features)})),
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
