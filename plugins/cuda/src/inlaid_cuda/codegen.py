"""Code generator: compiles regions to a launch plan and to a cubin with PTX."""

from __future__ import annotations

from collections.abc import Sequence

from inlaid.codegen.launch_plan import ThreadKernel, ThreadRegion, thread_region
from inlaid.codegen.threads.kernel import print_region
from inlaid.codegen.threads.passes import legalized_kernels
from inlaid.plugins import Codegen, CompileContext
from inlaid.tensor.region import RegionProgram, kernel_infos
from inlaid_cuda.capabilities import WARP, architecture, capabilities, compiler
from inlaid_cuda.dialect import DIALECT
from inlaid_cuda.needs import code_requirements
from inlaid_cuda.nvrtc import compile_cached
from inlaid_cuda.options import FORMAT, FORMAT_VERSION, HOST, CudaOptions
from inlaid_runtime.artifact import Artifact
from inlaid_runtime.execution.launch_code import encode_launches


class CudaCodegen(Codegen["RegionProgram"]):
    """Generates CUDA C++ and compiles it by NVRTC. Needs no driver or device."""

    def __init__(self, options: CudaOptions) -> None:
        self.options = options
        self.scopes = capabilities(options).scopes

    def legalized(self, unit: RegionProgram, context: CompileContext) -> Sequence[ThreadKernel]:
        """Return the kernels after the passes that precede printing."""
        return tuple(legalized_kernels(self._threads(unit, context).kernels, DIALECT, context.run_passes))

    def compile(self, unit: RegionProgram, context: CompileContext) -> Artifact:
        """Compile a region to an artifact. Equal regions give equal bytes. Raises `CompileError` if NVRTC rejects the source, and
        `TargetError` if no NVRTC is installed whose code the driver of device 0 loads."""
        region = self._threads(unit, context)
        plan, source = print_region(region, DIALECT, context.run_passes, context.report)
        arch = architecture(self.options)
        requires: tuple[str, ...]
        if arch == HOST:  # the source is compiled at load
            program, requires = source.encode(), (HOST,)
        else:
            library = compiler(self.options)
            program, requires = compile_cached(library, source, unit.name, arch), code_requirements(arch, library.cuda)
        return Artifact(
            symbol=unit.name,
            format=FORMAT,
            format_version=FORMAT_VERSION,
            code=encode_launches(plan, program),
            signature=unit.signature,
            constants=unit.constants,
            workspace={"": region.workspace},
            aliases=unit.aliases,
            requires=requires,
            kernels=kernel_infos(unit),
        )

    def _threads(self, unit: RegionProgram, context: CompileContext) -> ThreadRegion:
        return thread_region(unit, self.scopes, WARP, context.run_passes)
