"""Models on microcontrollers beside TensorFlow Lite Micro with CMSIS-NN: instructions, memory and flash, under QEMU.

    python benchmarks/micro.py --models FOLDER [--cpus cortex-m4,...] [--write docs/benchmarks-micro.md]

FOLDER has the int8 models of MLPerf Tiny under their names in mlcommons/tiny. Instructions are counted exactly, and are the same in
every run: no quiet machine is needed. They are not cycles.
"""

from __future__ import annotations

import argparse
import hashlib
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

import inlaid
from inlaid_microcontroller.boards import BOARDS, Board, board_for
from inlaid_microcontroller.boards.accesses import Accesses, count_accesses, uncounted
from inlaid_microcontroller.boards.emulate import FLAGS, build, missing, run, sizes
from inlaid_microcontroller.boards.kernel import build_firmware
from inlaid_microcontroller.export import example, firmware
from inlaid_microcontroller.toolchain import compiled


@dataclass(frozen=True)
class Figures:
    """Instructions of one inference, and bytes: of variables with the arena and the most of the stack, and of what is stored in
    flash; loads and stores. 0 where it is not known."""

    instructions: int
    ram: int = 0
    flash: int = 0
    loads: int = 0
    stores: int = 0


@dataclass(frozen=True)
class Model:
    """A model's file, the start of the SHA-256 of its output for the test input, what TensorFlow Lite Micro with CMSIS-NN takes on
    each processor, and what to reach on Cortex-M4."""

    file: str
    sha256: str
    baseline: dict[str, Figures]
    goal: Figures


MODELS = {
    "AD": Model(
        "ad01_int8.tflite",
        "6fe2a85d8a42",
        {
            "cortex-m4": Figures(582_892, 4_116, 304_968, 127_910, 7_730),
            "cortex-m7": Figures(583_180, 4_116, 302_472),
            "cortex-m55": Figures(285_495, 6_424, 297_004),
        },
        Figures(500_000, 1_600, 276_000),
    ),
    "KWS": Model(
        "kws_ref_model.tflite",
        "65142cdba251",
        {
            "cortex-m4": Figures(7_697_711, 24_316, 107_200, 1_672_929, 240_108),
            "cortex-m7": Figures(7_643_486, 24_300, 105_580),
            "cortex-m55": Figures(1_814_167, 28_932, 98_588),
        },
        Figures(5_400_000, 14_000, 40_000),
    ),
    "IC": Model(
        "pretrainedResnet_quant.tflite",
        "ddb1e5b1cdb3",
        {
            "cortex-m4": Figures(29_863_915, 56_492, 149_564, 7_502_112, 1_706_079),
            "cortex-m7": Figures(30_026_821, 56_476, 148_140),
            "cortex-m55": Figures(4_912_624, 56_584, 139_892),
        },
        Figures(23_000_000, 45_000, 96_000),
    ),
    "VWW": Model(
        "vww_96_int8.tflite",
        "8e7aad98000b",
        {
            "cortex-m4": Figures(24_101_518, 102_204, 386_552, 5_250_318, 859_578),
            "cortex-m7": Figures(24_025_133, 102_188, 384_932),
            "cortex-m55": Figures(6_558_369, 102_388, 377_940),
        },
        Figures(12_500_000, 52_000, 90_000),
    ),
}
"""Baselines: tflite-micro 90b983c2 with CMSIS-NN 4ab83cc3 and its registrations for int8, GCC 12.2, QEMU 7.2, the same input and
the same way of counting. RAM is arena, .data, .bss and the most of the stack; flash is the model's file and the code. Of Cortex-M7
and M55 the sizes add up parts that were measured: arena, stack, 560 bytes of other variables (AD: 456), code, and the file."""
PARTS = {"instructions": "instructions", "ram": "RAM, bytes", "flash": "flash, bytes", "loads": "loads", "stores": "stores"}
"""The figures that are printed, and what they are called."""
EXACT = "the output is that of TensorFlow Lite Micro to the byte"


def measure(path: Path, model: Model, cpu: str, board: Board) -> Figures:
    """One inference on a board. Raises RuntimeError for a wrong output, and for more stack than the model's manifest says."""
    executable = inlaid.compile(path, [f"microcontroller:cpu={cpu}"])
    printed = firmware(executable, "model")
    source, inputs = build_firmware(printed), [example(spec).tobytes() for spec in executable.inputs]
    with tempfile.TemporaryDirectory() as scratch:
        program = build(source, board, Path(scratch))
        execution = run(source, program, board, inputs)
        program_sizes = sizes(program)
        counted = count_accesses(source, program, board, inputs) if uncounted(board) is None else Accesses(0, 0)
    stack_report = compiled(printed.files(), "model_run", cpu)
    bound = stack_report and stack_report.stack
    if bound is not None and execution.model_stack > bound:
        raise RuntimeError(f"{path.name} on {cpu} takes {execution.model_stack} bytes of stack, and its bound is {bound}")
    text = f"out {b''.join(execution.outputs).hex()}\n"
    if execution.status or not hashlib.sha256(text.encode()).hexdigest().startswith(model.sha256):
        raise RuntimeError(f"{path.name} on {cpu} gives a wrong output: {text[:60].strip()}...")
    return Figures(execution.instructions, program_sizes.ram + execution.stack, program_sizes.flash, counted.loads, counted.stores)


def main() -> int:
    """Measure, print and write."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--models", type=Path, required=True)
    parser.add_argument("--cpus", default="cortex-m4,cortex-m7,cortex-m55,cortex-m3,rv32imc")
    parser.add_argument("--write", type=Path)
    arguments = parser.parse_args()
    boards = {cpu: board for cpu in arguments.cpus.split(",") if (board := board_for(cpu)) is not None}
    problems = [problem for board in boards.values() if (problem := missing(board))]
    if problems or not boards:
        print(problems[0] if problems else f"processors: {', '.join(board.cpu for board in BOARDS)}", file=sys.stderr)
        return 1
    figures_by_cpu: dict[str, dict[str, Figures]] = {}
    for cpu, board in boards.items():
        figures_by_cpu[cpu] = {}
        for name, model in MODELS.items():
            figures_by_cpu[cpu][name] = measure(arguments.models / model.file, model, cpu, board)
            print(f"{cpu} {name}: {figures_by_cpu[cpu][name]}", flush=True)
    text = page(figures_by_cpu)
    print(text)
    if arguments.write is not None:
        arguments.write.write_text(text)
    return 0


def page(figures_by_cpu: dict[str, dict[str, Figures]]) -> str:
    """The figures as Markdown."""
    lines = [
        "# Microcontrollers: instructions and memory",
        "",
        "The int8 models of MLPerf Tiny on emulated boards, one inference of each, beside TensorFlow Lite Micro with CMSIS-NN",
        f"and its registrations for int8. In every row {EXACT}. `make bench-micro` prints this page.",
        "",
        f"Made {datetime.now(UTC):%Y-%m-%d} with {', '.join(_versions(figures_by_cpu))}; models are compiled with",
        f"`{' '.join(FLAGS)}`.",
        "",
        "Instructions are exact and the same in every run; they are not cycles. RAM is the arena with inputs and outputs, all",
        "other variables and the most of the stack. Flash is the whole program: the board's startup code and what",
        "measures are in both. Loads and stores count each register that an instruction moves, and are counted on boards without",
        "vectors. Baselines: tflite-micro 90b983c2, CMSIS-NN 4ab83cc3, same compiler, emulator, input and counting.",
    ]
    for cpu, rows in figures_by_cpu.items():
        lines += ["", f"## {cpu}, {board.name}" if (board := board_for(cpu)) else f"## {cpu}", ""]
        lines += ["| model | figure | Inlaid | baseline | ratio | goal | |", "|---|---|---|---|---|---|---|"]
        for name, figures in rows.items():
            baseline, goal = MODELS[name].baseline.get(cpu), MODELS[name].goal if cpu == "cortex-m4" else None
            if cpu == "cortex-m55" and baseline is not None:
                goal = Figures(baseline.instructions)
            for part, title in PARTS.items():
                if not (figure := getattr(figures, part)):
                    continue
                other, limit = (0 if each is None else getattr(each, part) for each in (baseline, goal))
                ratio = f"{figure / other:.2f}" if other else ""
                verdict = "" if not limit else "reached" if figure <= limit else f"missed by {figure - limit:,}"
                cells = (name, title, f"{figure:,}", f"{other:,}" if other else "", ratio, f"{limit:,}" if limit else "", verdict)
                lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def _versions(figures_by_cpu: dict[str, dict[str, Figures]]) -> list[str]:
    """The first lines in which compilers and emulators say what they are."""
    boards = [board for cpu in figures_by_cpu if (board := board_for(cpu)) is not None]
    tools: Sequence[str] = list(dict.fromkeys(tool for board in boards for tool in (board.compiler, board.emulator)))
    texts = [subprocess.run([tool, "--version"], capture_output=True, text=True, check=True).stdout for tool in tools]
    return list(dict.fromkeys(text.splitlines()[0] for text in texts))


if __name__ == "__main__":
    sys.exit(main())
