"""Cycles of the convolutions of ResNet-18 on VTA's timing simulator, and of the whole network.

    python benchmarks/vta.py                              # print the tables
    python benchmarks/vta.py --write docs/benchmarks-vta.md
    python benchmarks/vta.py --layers --page timeline.html   # a timeline of C2, and all layers under the roofline

Layers C2 to C11 are those of Moreau et al., "VTA: An Open Hardware-Software Stack for Deep Learning" (2018), with bias, shift and
clip; each runs alone, from data and weights in DRAM to results in DRAM.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Iterator, Sequence
from dataclasses import fields
from functools import cache
from pathlib import Path

import numpy as np

import inlaid
import resnet18
from inlaid.lowering.steps import StepProgram
from inlaid.tensor.region import RegionBuffer
from inlaid_runtime.artifact import Signature
from inlaid_runtime.types import dtype
from inlaid_vta_fpga.compiler.legalize import AluStage, Layer, ProductStage, bias_blocks, pack_weights
from inlaid_vta_fpga.compiler.region import compile_layers
from inlaid_vta_fpga.image import Image
from inlaid_vta_fpga.isa.config import Config
from inlaid_vta_fpga.isa.encoding import Encoding
from inlaid_vta_fpga.isa.instructions import AluOp, Instruction
from inlaid_vta_fpga.options import VtaOptions
from inlaid_vta_fpga.simulators import sweep
from inlaid_vta_fpga.simulators.page import timeline_page
from inlaid_vta_fpga.simulators.timed import Timed
from inlaid_vta_fpga.simulators.timing import Timeline

LAYERS = {
    "C2": (56, 64, 64, 3, 1, 4),
    "C3": (56, 64, 128, 3, 2, 1),
    "C4": (56, 64, 128, 1, 2, 1),
    "C5": (28, 128, 128, 3, 1, 3),
    "C6": (28, 128, 256, 3, 2, 1),
    "C7": (28, 128, 256, 1, 2, 1),
    "C8": (14, 256, 256, 3, 1, 3),
    "C9": (14, 256, 512, 3, 2, 1),
    "C10": (14, 256, 512, 1, 2, 1),
    "C11": (7, 512, 512, 3, 1, 3),
}
"""Rows and columns, input channels, output channels, kernel, stride, and how often ResNet-18 has it."""
MODES = {
    "serial": VtaOptions(slots=1, serial=True),
    "one thread": VtaOptions(slots=1),
    "two threads": VtaOptions(threads=2, slots=1),
    "two places": VtaOptions(),
}
GOAL_CYCLES, STRETCH_CYCLES, TSIM_CYCLES = 7_450_000, 7_200_000, 7_729_601
BLOCK = 16
SWEPT, CHOICES = "C5", {"log_block": (3, 4, 5), "log_wgt_buff": (16, 18), "bus_bytes": (8, 16)}
"""The layer of the sweep, and the configurations that it is timed on, legal ones only."""


def compiled(name: str, options: VtaOptions) -> tuple[Image, dict[int, np.ndarray]]:
    """The code of a layer with seeded weights, and its constants by address."""
    size, inputs, outputs, kernel, stride, _ = LAYERS[name]
    block = options.config.block
    random = np.random.default_rng(0)
    weights = random.integers(-127, 128, (outputs, inputs, kernel, kernel)).astype(np.int8)
    product = ProductStage(0, pack_weights(weights, block), (stride, stride), (kernel // 2,) * 2)
    bias = bias_blocks(random.integers(-30_000, 30_000, outputs), block)
    clip = AluStage(AluOp.SHR, 9), AluStage(AluOp.MIN, 127), AluStage(AluOp.MAX, -128)
    shapes = (1, inputs // block, size, size, block), (1, outputs // block, size // stride, size // stride, block)
    sides = zip(("input", "output"), shapes, strict=True)
    buffers = [RegionBuffer(side, side, shape, dtype("int8"), 0) for side, shape in sides]  # type: ignore[arg-type]
    program = StepProgram(name, Signature((), ()), buffers=buffers)
    image = compile_layers(program, [Layer(name, (name,), 1, shapes[1][:4], False, (*bias, product, *clip))], options)
    arrays = zip(image.header.constants, program.constants.values(), strict=True)
    return image, {address: np.ascontiguousarray(array).view(np.uint8).reshape(-1) for address, array in arrays if address}


@cache
def timed(name: str, options: VtaOptions) -> Timeline:
    """A run of a layer on the timing simulator."""
    image, constants = compiled(name, options)
    return Timed(options.config).run(image.dram(constants), image.header.stream, image.header.count)


def gemm_cycles(name: str) -> int:
    """Micro-ops of a layer's products: the least cycles."""
    size, inputs, outputs, kernel, stride, _ = LAYERS[name]
    return (size // stride) ** 2 * outputs * inputs * kernel**2 // BLOCK**2


def table() -> Iterator[str]:
    """Each layer's cycles and utilization in each mode, as Markdown."""
    totals = dict.fromkeys(MODES, 0)
    best = 0.0
    yield f"| layer | times | GEMM cycles | {' | '.join(f'{mode}: cycles | of GEMM peak' for mode in MODES)} |"
    yield "|---|--:|--:|" + "--:|--:|" * len(MODES)
    for name, (*_, count) in LAYERS.items():
        least, cells = gemm_cycles(name), []
        for mode, options in MODES.items():
            cycles = timed(name, options).cycles or 0
            totals[mode] += count * cycles
            best = max(best, least / cycles)
            cells.append(f"{cycles:,} | {100 * least / cycles:.1f} %")
        yield f"| {name} | {count} | {least:,} | {' | '.join(cells)} |"
    least = sum(count * gemm_cycles(name) for name, (*_, count) in LAYERS.items())
    yield f"| all, weighted | | {least:,} | " + " | ".join(f"{t:,} | {100 * least / t:.1f} %" for t in totals.values()) + " |"
    yield ""
    total = totals["two places"]
    goals = f"wanted at most {GOAL_CYCLES:,}, stretch {STRETCH_CYCLES:,}; TVM's TSIM published {TSIM_CYCLES:,}"
    yield f"With two places: {total:,} cycles; {goals}."
    yield f"Best layer: {100 * best:.1f} % of GEMM's peak."


def instructions(name: str, config: Config) -> Sequence[Instruction]:
    """The stream of a layer for a core of that configuration."""
    option_names = {field.name for field in fields(VtaOptions)}
    options = VtaOptions(**{field.name: getattr(config, field.name) for field in fields(Config) if field.name in option_names})
    return Encoding(config).decode_program(compiled(name, options)[0].stream)


def configurations() -> Iterator[str]:
    """Cycles of one layer against the resources of each configuration, as Markdown."""
    points = sweep.sweep(lambda config: instructions(SWEPT, config), sweep.configurations(**CHOICES))
    yield f"## Configurations: {SWEPT} against resources"
    yield ""
    yield "Multipliers, memory and block RAMs are estimates (`inlaid_vta_fpga.simulators.sweep`). `*`: no other configuration is as"
    yield "good in cycles, multipliers, block RAMs and bus, and better in one."
    yield ""
    yield "```"
    yield sweep.table(points)
    yield "```"


def page() -> str:
    """All layers in all modes under the roofline, and C2 over time, as HTML."""
    runs = {mode: {name: timed(name, options) for name in LAYERS} for mode, options in MODES.items()}
    best = MODES["two places"]
    stream = instructions("C2", best.config)
    return timeline_page(runs, "ResNet-18 on VTA", timed("C2", best), stream, best.config, sources=["C2"] * len(stream))


def network() -> Iterator[str]:
    """Compilation and runs of int8 ResNet-18."""
    quantized = resnet18.quantized(resnet18.build())
    data = {"x": np.random.default_rng(7).normal(size=(1, 3, 224, 224)).astype(np.float32)}
    begin = time.process_time()
    executable = inlaid.compile(quantized, ["vta_fpga", "x86"], cache=False)
    seconds = time.process_time() - begin
    (actual,) = executable.run(data).values()
    begin = time.process_time()
    executable.run(data)
    run = time.process_time() - begin
    (expected,) = inlaid.compile(quantized, ["x86"]).run(data).values()
    cycles = inlaid.compile(quantized, ["vta_fpga:simulator=timing", "x86"]).profile(data)
    vta = sum(row.seconds for row in cycles.rows() if row.target.startswith("vta_fpga"))
    yield "| ResNet-18, int8, 224 by 224, targets `vta_fpga,x86` | |"
    yield "|---|--:|"
    yield f"| compilation, processor time | {seconds:.1f} s |"
    yield f"| a run, VTA on the functional simulator, processor time | {run:.1f} s |"
    yield f"| VTA's part at 100 MHz, by the timing simulator | {1000 * vta:.1f} ms |"
    yield f"| results equal to those of x86 alone | {'yes' if np.array_equal(actual, expected) else 'NO'} |"


def main() -> None:
    """Print or write the page."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--write", type=Path, help="write the page to this file")
    parser.add_argument("--page", type=Path, help="write a timeline and a roofline plot to this HTML file")
    parser.add_argument("--layers", action="store_true", help="the single layers alone")
    options = parser.parse_args()
    lines = [
        "# Benchmarks: VTA",
        "",
        "Written by `make bench-vta`. Cycles are those of the timing simulator for the default configuration (Pynq: 16 by 16",
        "blocks, a DRAM port of 8 bytes a cycle), whose constants the plugin's RTL core confirms; no board has run this.",
        "Serial: modules take turns. One thread: tokens order the modules, and each buffer has one place in SRAM. Two threads: two",
        "virtual threads with buffers of their own, so that loads of one run beside products of the other. Two places, the",
        "default: one thread, whose tiles take turns in two places, so that loads run ahead of products.",
        "",
        *table(),
        *([] if options.layers else ["", *network(), "", *configurations()]),
    ]
    text = "\n".join(lines) + "\n"
    if options.write:
        options.write.write_text(text)
    if options.page:
        options.page.write_text(page(), encoding="utf-8")
    print(text)


if __name__ == "__main__":
    main()
