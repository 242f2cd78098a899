"""Code generator: compiles regions to artifacts."""

from __future__ import annotations

from dataclasses import replace

from inlaid.lowering.steps import StepProgram
from inlaid.plugins import Artifact, Border, Borders, Codegen, CompileContext, KernelInfo, Region
from inlaid_runtime.types import Layout, TensorType
from inlaid_vta_fpga.compiler.region import lower_steps
from inlaid_vta_fpga.image import Image
from inlaid_vta_fpga.options import FORMAT, FORMAT_VERSION, VtaOptions


class VtaCodegen(Codegen["Region"]):
    """Lowers regions of quantized layers to instruction streams."""

    def __init__(self, options: VtaOptions) -> None:
        self._options = options

    def form(self, type_: TensorType) -> Border:
        """Choose the layout of a tensor: N C/16 H W 16 for N C H W, N C/16 16 for N C, row-major for other ranks."""
        if type_.dtype.name not in ("int8", "int32") or type_.rank not in (2, 4):
            return Border()
        return Border(Layout(((1, self._options.config.block),)))

    def borders(self, region: Region) -> Borders | None:
        """Choose channel-blocked layouts for the inputs and results of a region."""
        return region.stored_as(self.form)

    def legalized(self, unit: Region, context: CompileContext) -> tuple[StepProgram, Image]:
        """Return the steps and the image of a region, whose kernels the passes lower."""
        program = context.steps(unit, self.form)
        return program, lower_steps(program, self._options, context.run_passes)

    def compile(self, unit: Region, context: CompileContext) -> Artifact:
        """Compile a region to an artifact. Raises `Unsupported` for unsupported steps, and `ScheduleError` for a statement that no
        VTA instruction implements."""
        program, image = self.legalized(unit, context)
        nodes = tuple(dict.fromkeys(node for step in program.steps for node in step.nodes))
        return replace(program.artifact(FORMAT, FORMAT_VERSION, image.to_bytes()), kernels=(KernelInfo(unit.symbol, nodes),))
