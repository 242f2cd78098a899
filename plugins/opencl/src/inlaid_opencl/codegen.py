"""Regions to OpenCL C and a plan of launches."""

from __future__ import annotations

from inlaid.artifact import Artifact
from inlaid.codegen.launch_plan import thread_region
from inlaid.codegen.threads.kernel import print_thread_kernel, thread_source
from inlaid.plugins import Codegen, CompileContext
from inlaid.runtime.launch_code import encode_launches
from inlaid.tensor.region import RegionProgram, kernel_infos
from inlaid_opencl.capabilities import capabilities
from inlaid_opencl.dialect import DIALECT
from inlaid_opencl.needs import needs_of
from inlaid_opencl.options import FORMAT, FORMAT_VERSION, OpenCLOptions


class OpenCLCodegen(Codegen):
    """Compiles a region without a device: the driver compiles the source where it is loaded."""

    def __init__(self, options: OpenCLOptions) -> None:
        able = capabilities(options)
        self.scopes = able.scopes
        self.subgroup = able.threads.subgroup if able.threads is not None and able.threads.shuffles else 0

    def compile(self, unit: RegionProgram, context: CompileContext) -> Artifact:
        """The region as an artifact. Equal regions give equal bytes."""
        region = thread_region(unit, self.scopes, self.subgroup)
        texts = []
        for number, kernel in enumerate(region.kernels):
            context.report("print", number, len(region.kernels))
            texts.append(print_thread_kernel(kernel, DIALECT))
        source = thread_source(texts, DIALECT)
        return Artifact(
            symbol=unit.name,
            format=FORMAT,
            format_version=FORMAT_VERSION,
            code=encode_launches(region.reporting([text.reports for text in texts]), source.encode()),
            signature=unit.signature,
            constants=unit.constants,
            workspace={"": region.workspace},
            aliases=unit.aliases,
            requires=needs_of(region.kernels, source),
            kernels=kernel_infos(unit),
        )
