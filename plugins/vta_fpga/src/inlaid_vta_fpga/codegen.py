"""Regions to artifacts."""

from __future__ import annotations

from dataclasses import replace

from inlaid.plugins import Artifact, Border, Borders, Codegen, CompileContext, KernelInfo, Region
from inlaid.types import Layout, TensorType
from inlaid_vta_fpga.compiler.region import lowered
from inlaid_vta_fpga.image import Header, Image
from inlaid_vta_fpga.isa.config import PAGE_BYTES
from inlaid_vta_fpga.isa.encoding import Encoding
from inlaid_vta_fpga.isa.instructions import Gemm
from inlaid_vta_fpga.options import FORMAT, FORMAT_VERSION, VtaOptions


class VtaCodegen(Codegen):
    """Lowers regions of quantised layers to instruction streams."""

    def __init__(self, options: VtaOptions) -> None:
        self._options = options

    def form(self, type_: TensorType) -> Border:
        """Channels in blocks: N C H W as N C/16 H W 16, N C as N C/16 16; row-major order for anything else."""
        if type_.dtype.name not in ("int8", "int32") or type_.rank not in (2, 4):
            return Border()
        return Border(Layout(((1, self._options.config.block),)))

    def borders(self, region: Region) -> Borders | None:
        """Inputs and results in blocks of channels."""
        return region.stored_as(self.form)

    def compile(self, unit: Region, context: CompileContext) -> Artifact:
        """The artifact of a region: its stream, micro-ops and map of DRAM. Raises `Unsupported` and `ScheduleError`."""
        program = context.steps(unit, self.form)
        compiled = lowered(program, self._options)
        instructions, dram = compiled.stream.instructions, compiled.dram
        stream = Encoding(self._options.config).encode_program(instructions)
        uops = compiled.stream.uops.astype("<u4").tobytes()
        dram.end = max(dram.end, compiled.stream.uops_at)
        dram.take(len(uops))
        at = dram.take(len(stream))
        header = Header(
            self._options.config,
            dram.end,
            at,
            len(instructions),
            compiled.stream.uops_at,
            len(compiled.stream.uops),
            tuple(dram.inputs.get(number, PAGE_BYTES) for number in range(len(program.signature.inputs))),
            tuple(dram.outputs[number] for number in range(len(program.signature.outputs))),
            tuple(dram.constants.get(name, 0) for name in program.constants),
        )
        products = sum((i.uop_end - i.uop_begin) * i.iter_out * i.iter_in for i in instructions if isinstance(i, Gemm) and not i.reset)
        nodes = tuple(dict.fromkeys(node for step in program.steps for node in step.nodes))
        info = KernelInfo(unit.symbol, nodes, 2 * products * self._options.config.block**2)
        return replace(program.artifact(FORMAT, FORMAT_VERSION, Image(header, stream, uops).to_bytes()), kernels=(info,))
