"""Regions to CUDA C++, a cubin and a plan of launches."""

from __future__ import annotations

from inlaid.artifact import Artifact
from inlaid.codegen.launch_plan import thread_region
from inlaid.codegen.threads.kernel import print_thread_kernel, thread_source
from inlaid.plugins import Codegen, CompileContext
from inlaid.runtime.launch_code import encode_launches
from inlaid.tensor.region import RegionProgram, kernel_infos
from inlaid_cuda.capabilities import WARP, architecture, capabilities
from inlaid_cuda.dialect import DIALECT
from inlaid_cuda.nvrtc import compile_cached
from inlaid_cuda.options import FORMAT, FORMAT_VERSION, HOST, CudaOptions


class CudaCodegen(Codegen):
    """Compiles a region with neither driver nor device."""

    def __init__(self, options: CudaOptions) -> None:
        self.options = options
        self.scopes = capabilities(options).scopes

    def compile(self, unit: RegionProgram, context: CompileContext) -> Artifact:
        """The region as an artifact. Equal regions give equal bytes. Raises `CompileError` where NVRTC refuses the source,
        `TargetError` where it is not installed."""
        region = thread_region(unit, self.scopes, WARP)
        texts = []
        for number, kernel in enumerate(region.kernels):
            context.report("print", number, len(region.kernels))
            texts.append(print_thread_kernel(kernel, DIALECT))
        arch = architecture(self.options)
        source = thread_source(texts, DIALECT)
        # The host's compiler runs where the artifact is loaded.
        program = source.encode() if arch == HOST else compile_cached(source, unit.name, arch)
        return Artifact(
            symbol=unit.name,
            format=FORMAT,
            format_version=FORMAT_VERSION,
            code=encode_launches(region.reporting([text.reports for text in texts], [text.shared for text in texts]), program),
            signature=unit.signature,
            constants=unit.constants,
            workspace={"": region.workspace},
            aliases=unit.aliases,
            requires=(arch,),
            kernels=kernel_infos(unit),
        )
