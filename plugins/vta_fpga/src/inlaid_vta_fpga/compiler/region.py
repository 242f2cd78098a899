"""Compilation of a region to an image. Schedules the layers, maps DRAM, and builds the instruction stream."""

from __future__ import annotations

from math import prod
from typing import Any

import numpy as np

from inlaid.lowering.steps import StepProgram
from inlaid.passes.manager import RunPasses, run_passes
from inlaid.tensor.ir import LoopProgram
from inlaid_runtime.errors import CompileError
from inlaid_vta_fpga.checker import check
from inlaid_vta_fpga.compiler.kernels import PLANES, kernel
from inlaid_vta_fpga.compiler.legalize import BiasStage, Layer, ProductStage, constant_vector, layers
from inlaid_vta_fpga.compiler.schedule import schedule_kernel
from inlaid_vta_fpga.compiler.stream import Scheduled, Stream, lower_region
from inlaid_vta_fpga.compiler.tiles import choose_tile
from inlaid_vta_fpga.image import Header, Image
from inlaid_vta_fpga.isa.config import PAGE_BYTES
from inlaid_vta_fpga.isa.encoding import Encoding
from inlaid_vta_fpga.options import VtaOptions

Array = np.ndarray[Any, Any]


def lower_steps(program: StepProgram, options: VtaOptions, run: RunPasses[LoopProgram] = run_passes) -> Image:
    """Compile the steps of a region to an image and add constants to the program. Raises `Unsupported` for a step that no layer
    implements, and for a layer of which no tile fits the buffers."""
    outputs = frozenset(number for number, buffer in enumerate(program.buffers) if buffer.storage == "output")
    return compile_layers(program, layers(program.steps, outputs, options.config.block), options, run)


def compile_layers(
    program: StepProgram, layers: list[Layer], options: VtaOptions, run: RunPasses[LoopProgram] = run_passes
) -> Image:
    """Compile layers, which use the buffers of `program`, to an image. The checker verifies its stream. `run`: see
    `CompileContext.run_passes`."""
    dram, config = _Dram(program), options.config
    scheduled, slots = [], options.slots
    for number, layer in enumerate(layers):
        products = [stage for stage in layer.stages if isinstance(stage, ProductStage)]
        shapes = [_sizes(program.buffers[stage.data].shape) for stage in products]
        main = max(range(len(products)), key=lambda n: products[n].weights.size)
        tile = choose_tile(layer, shapes[main], config, options.threads)
        # If a layer has too few tiles for all threads, a second slot in SRAM lets loads run ahead instead.
        slots = max(slots, options.threads // tile.threads)
        loops = schedule_kernel(kernel(layer, shapes, config.block, f"layer{number}"), tile, config.block, run)
        buffers = [dram.constant(constant_vector(config.block))]
        for stage in layer.stages:
            if isinstance(stage, BiasStage):
                buffers.append(dram.constant(stage.blocks))
            elif isinstance(stage, ProductStage):
                buffers += [dram.buffer(stage.data)[0], dram.constant(stage.weights)]
        scheduled.append(Scheduled(", ".join(layer.nodes) or layer.name, loops, (*buffers, *dram.buffer(layer.output))))
    return dram.image(lower_region(scheduled, config, dram.end, slots=slots, serial=options.serial), options)


class _Dram:
    """The DRAM map: page-aligned byte addresses of the program's buffers and constants."""

    def __init__(self, program: StepProgram) -> None:
        self.end = PAGE_BYTES
        self._program = program
        self._buffers: dict[int, tuple[int, ...]] = {}

    def take(self, size: int) -> int:
        """Allocate pages for `size` bytes. Returns their address."""
        start = self.end
        self.end += -(-max(size, 1) // PAGE_BYTES) * PAGE_BYTES
        return start

    def constant(self, array: Array) -> int:
        """Add a constant array to the region. Returns its address."""
        return self.buffer(self._program.constant(array))[0]

    def buffer(self, number: int) -> tuple[int, ...]:
        """Return the address of an int8 buffer, or of the four byte planes of an int32 buffer."""
        if number not in self._buffers:
            buffer = self._program.buffers[number]
            size = prod(_sizes(buffer.shape))
            self._buffers[number] = tuple(self.take(size) for _ in range(PLANES if buffer.dtype.name == "int32" else 1))
        return self._buffers[number]

    def image(self, stream: Stream, options: VtaOptions) -> Image:
        """Check a stream and build its image. Raises `CompileError` if the checker finds violations."""
        addresses_by_storage: dict[str, dict[int, tuple[int, ...]]] = {"input": {}, "output": {}, "constant": {}, "arena": {}}
        for number, buffer in enumerate(self._program.buffers):
            addresses_by_storage[buffer.storage][buffer.index] = self._buffers.get(number, (0,))
        uops = stream.uops.astype("<u4").tobytes()
        self.end = max(self.end, stream.uops_at)
        self.take(len(uops))
        dram = np.zeros(self.end, np.uint8)
        dram[stream.uops_at : stream.uops_at + len(uops)] = np.frombuffer(uops, np.uint8)
        violations = check(stream.instructions, dram, options.config, stream.sources)
        if violations:
            raise CompileError(f"expected a legal stream, found {violations[0]}", region=self._program.name)
        code = Encoding(options.config).encode_program(stream.instructions)
        code_address = self.take(len(code))
        inputs, outputs, constants = (
            tuple(addresses_by_storage[storage][index] for index in range(len(addresses_by_storage[storage])))
            for storage in ("input", "output", "constant")
        )
        counts = len(stream.instructions), stream.uops_at, len(stream.uops)
        buffer_addresses = tuple(addresses[0] for addresses in inputs), outputs, tuple(addresses[0] for addresses in constants)
        return Image(Header(options.config, self.end, code_address, *counts, *buffer_addresses), code, uops)


def _sizes(shape: tuple[Any, ...]) -> tuple[int, ...]:
    return tuple(int(dim) for dim in shape)
