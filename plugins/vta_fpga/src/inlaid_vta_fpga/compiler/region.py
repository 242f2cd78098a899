"""A region as a stream: its layers' schedules, its map of DRAM, its instructions."""

from __future__ import annotations

from dataclasses import dataclass, field
from math import prod
from typing import Any

import numpy as np

from inlaid.lowering.steps import StepProgram
from inlaid_vta_fpga.compiler import stream
from inlaid_vta_fpga.compiler.kernels import PLANES, kernel
from inlaid_vta_fpga.compiler.legalise import Bias, Layer, Product, constant_vector, layers
from inlaid_vta_fpga.compiler.schedule import scheduled
from inlaid_vta_fpga.compiler.tiles import tile_of
from inlaid_vta_fpga.isa.config import PAGE_BYTES
from inlaid_vta_fpga.options import VtaOptions

Array = np.ndarray[Any, Any]


@dataclass
class DramMap:
    """Byte addresses, each on a page of its own. `inputs` and `outputs` by number; an output of int32 has an address for each byte
    plane. `constants` in the order that they are kept in."""

    end: int = PAGE_BYTES
    inputs: dict[int, int] = field(default_factory=dict)
    outputs: dict[int, tuple[int, ...]] = field(default_factory=dict)
    constants: dict[str, int] = field(default_factory=dict)

    def take(self, size: int) -> int:
        """The address of the next pages of `size` bytes."""
        start = self.end
        self.end += -(-size // PAGE_BYTES) * PAGE_BYTES
        return start


@dataclass(frozen=True)
class Compiled:
    """A region's stream and its map of DRAM."""

    stream: stream.Stream
    dram: DramMap


def lowered(program: StepProgram, options: VtaOptions) -> Compiled:
    """The stream of a region of steps. Constants are added to the program."""
    config = options.config
    outputs = frozenset(number for number, buffer in enumerate(program.buffers) if buffer.storage == "output")
    return assembled(program, layers(program.steps, outputs, config.block), options)


def assembled(program: StepProgram, found: list[Layer], options: VtaOptions) -> Compiled:
    """The stream of layers over the buffers of a program."""
    config, dram = options.config, DramMap()
    addresses: dict[int, tuple[int, ...]] = {}

    def constant(array: Array) -> int:
        buffer = program.buffers[program.constant(array)]
        if buffer.name not in dram.constants:
            dram.constants[buffer.name] = dram.take(array.nbytes)
        return dram.constants[buffer.name]

    def place(number: int) -> tuple[int, ...]:
        if number not in addresses:
            buffer = program.buffers[number]
            size = prod(int(dim) for dim in buffer.shape)  # type: ignore[arg-type]
            count = PLANES if buffer.dtype.name == "int32" else 1
            addresses[number] = tuple(dram.take(size) for _ in range(count))
            if buffer.storage == "input":
                dram.inputs[buffer.index] = addresses[number][0]
            elif buffer.storage == "output":
                dram.outputs[buffer.index] = addresses[number]
        return addresses[number]

    lowered_layers = []
    for number, layer in enumerate(found):
        products = [stage for stage in layer.stages if isinstance(stage, Product)]
        shapes = [_shape(program, stage.data) for stage in products]
        main = max(range(len(products)), key=lambda n: products[n].weights.size)
        tile = tile_of(layer, shapes[main], config, options.threads)
        loops = scheduled(kernel(layer, shapes, config.block, f"layer{number}"), tile, config.block)
        given = [constant(constant_vector(config.block))]
        for stage in layer.stages:
            if isinstance(stage, Bias):
                given.append(constant(stage.blocks))
            elif isinstance(stage, Product):
                given += [place(stage.data)[0], constant(stage.weights)]
        source = ", ".join(layer.nodes) or layer.name
        lowered_layers.append(stream.Scheduled(source, loops, (*given, *place(layer.output))))
    slots = 1 if options.threads > 1 or options.serial else 2
    return Compiled(stream.lower_region(lowered_layers, config, dram.end, slots=slots, serial=options.serial), dram)


def _shape(program: StepProgram, number: int) -> tuple[int, ...]:
    return tuple(int(dim) for dim in program.buffers[number].shape)  # type: ignore[arg-type]
