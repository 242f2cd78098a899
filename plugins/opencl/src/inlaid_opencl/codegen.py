"""Code generator: compiles regions to OpenCL C and a launch plan."""

from __future__ import annotations

from collections.abc import Sequence

from inlaid.codegen.launch_plan import ThreadKernel, ThreadRegion, thread_region
from inlaid.codegen.threads.kernel import print_region
from inlaid.codegen.threads.passes import legalized_kernels
from inlaid.plugins import Codegen, CompileContext
from inlaid.tensor.region import RegionProgram, kernel_infos
from inlaid_opencl.capabilities import capabilities
from inlaid_opencl.dialect import DIALECT
from inlaid_opencl.needs import code_requirements
from inlaid_opencl.options import FORMAT, FORMAT_VERSION, OpenCLOptions
from inlaid_runtime.artifact import Artifact
from inlaid_runtime.execution.launch_code import encode_launches


class OpenCLCodegen(Codegen["RegionProgram"]):
    """Generates OpenCL C. Needs no device, since the driver compiles the source when a region is loaded."""

    def __init__(self, options: OpenCLOptions) -> None:
        target_capabilities = capabilities(options)
        self.scopes = target_capabilities.scopes
        self.subgroup = (
            target_capabilities.threads.subgroup
            if target_capabilities.threads is not None and target_capabilities.threads.shuffles
            else 0
        )

    def legalized(self, unit: RegionProgram, context: CompileContext) -> Sequence[ThreadKernel]:
        """Return the kernels after the passes that precede printing."""
        return tuple(legalized_kernels(self._threads(unit, context).kernels, DIALECT, context.run_passes))

    def compile(self, unit: RegionProgram, context: CompileContext) -> Artifact:
        """Compile a region to an artifact. Equal regions give equal bytes."""
        region = self._threads(unit, context)
        plan, source = print_region(region, DIALECT, context.run_passes, context.report)
        return Artifact(
            symbol=unit.name,
            format=FORMAT,
            format_version=FORMAT_VERSION,
            code=encode_launches(plan, source.encode()),
            signature=unit.signature,
            constants=unit.constants,
            workspace={"": region.workspace},
            aliases=unit.aliases,
            requires=code_requirements(region.kernels, source),
            kernels=kernel_infos(unit),
        )

    def _threads(self, unit: RegionProgram, context: CompileContext) -> ThreadRegion:
        return thread_region(unit, self.scopes, self.subgroup, context.run_passes)
