"""Functions that build a model's sources as a program for a board and run the program under QEMU."""

from __future__ import annotations

import shutil
import struct
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib import resources
from pathlib import Path

from inlaid_microcontroller.boards import INSTALL, Board, Memory
from inlaid_runtime.errors import KernelFault, TargetError

LIMIT = 120.0
"""Timeout of a run in seconds."""
FLAGS = ("-O2", "-std=c99", "-ffunction-sections", "-fdata-sections")
"""Compiler flags for a model's sources."""
_HARNESS = ("-Os", "-std=gnu99", "-ffunction-sections", "-fno-tree-loop-distribute-patterns")
"""Compiler flags for startup code and harness: optimize for size, and do not replace loops by library calls."""
_FIXED = ("board.h", "harness.c", "board.ld")


@dataclass(frozen=True)
class Firmware:
    """A model as C. files: contents by name. header: name of the file that declares the model. inputs, outputs: for each one, a C
    expression of its address, and its size in bytes. call: C expression that runs the model; its value is 0 or an error code.
    before: declarations that the expressions need."""

    files: Mapping[str, bytes]
    header: str
    inputs: tuple[tuple[str, int], ...]
    outputs: tuple[tuple[str, int], ...]
    call: str
    before: str = ""


@dataclass(frozen=True)
class Sizes:
    """Sizes of a program in bytes. flash: code, constants and initial values. ram: variables, without the stack."""

    flash: int
    ram: int


@dataclass(frozen=True)
class Run:
    """Result of one run. status: return value of the model. instructions: number that the model executed. stack, model_stack:
    maximum stack bytes of the program and of the model. log: output of the emulator."""

    status: int
    outputs: tuple[bytes, ...]
    instructions: int
    stack: int
    model_stack: int
    log: str = ""


def missing(board: Board) -> str | None:
    """Return which tools for a board are missing and how to install them; None if all are installed."""
    absent = [tool for tool in (board.compiler, board.emulator) if shutil.which(tool) is None]
    return f"{' and '.join(absent)} not found: {INSTALL}" if absent else None


def build(firmware: Firmware, board: Board, folder: Path, flags: Sequence[str] = FLAGS) -> Path:
    """Compile a model, a board's startup code and the harness to a program in `folder`. Returns the program's path. Raises
    `TargetError` if the compiler is missing or rejects the sources."""
    if problem := missing(board):
        raise TargetError(f"board {board.name} cannot be emulated: {problem}")
    for name, content in firmware.files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(content)
    for name in (*_FIXED, board.startup):
        (folder / name).write_bytes(resources.files(__package__).joinpath(name).read_bytes())
    (folder / "harness_model.h").write_text(_model_header(firmware))
    (folder / "link.ld").write_text(_memory(board) + (folder / "board.ld").read_text())
    sources = [name for name in firmware.files if name.endswith((".c", ".S"))]
    common = [board.compiler, *board.flags, "-I."]
    defines = [f"-DBOARD_COUNTER_BITS={board.counter_bits}"]
    objects = []
    for source, options in (
        *((name, tuple(flags)) for name in sources),
        *((name, _HARNESS) for name in ("harness.c", board.startup)),
    ):
        objects.append(f"{source}.o")
        _command([*common, *options, *defines, "-c", source, "-o", objects[-1]], folder)
    program = folder / "program.elf"
    link = ["-nostartfiles", "-T", "link.ld", "-Wl,--gc-sections", "-Wl,--no-warn-rwx-segments", "-Wl,-Map=program.map"]
    _command([*common, *link, *objects, "-lm", "-o", program.name], folder)
    return program


def run(
    firmware: Firmware,
    program: Path,
    board: Board,
    inputs: Sequence[bytes],
    limit: float = LIMIT,
    options: Sequence[str] = (),
) -> Run:
    """Run a program on a board with inputs. options: arguments of the emulator. Raises `KernelFault` after `limit` seconds and on a
    processor fault. Raises `ValueError` for inputs of the wrong number or size."""
    if [len(data) for data in inputs] != [size for _, size in firmware.inputs]:
        raise ValueError(f"expected inputs of {[size for _, size in firmware.inputs]} bytes, got {[len(data) for data in inputs]}")
    if problem := missing(board):
        raise TargetError(f"board {board.name} cannot be emulated: {problem}")
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        (folder / "in").write_bytes(b"".join(inputs))
        process = _emulated(board, program.resolve(), folder, limit, options)
        report = folder / "report"
        if not report.exists() or report.stat().st_size != 32:
            raise KernelFault(f"the program stopped on board {board.name} with exit status {process.returncode}")
        empty_ticks, model_ticks, stack, model_stack = struct.unpack("<4Q", report.read_bytes())
        outputs, data, offset = [], (folder / "out").read_bytes(), 0
        for _, size in firmware.outputs:
            outputs.append(data[offset : offset + size])
            offset += size
    return Run(
        process.returncode, tuple(outputs), round((model_ticks - empty_ticks) / board.ticks), stack, model_stack, process.stderr
    )


def sizes(program: Path) -> Sizes:
    """Read the sizes of a program from its ELF file."""
    data = program.read_bytes()
    offset, entry, count = struct.unpack_from("<I", data, 32)[0], *struct.unpack_from("<HH", data, 46)
    flash = ram = 0
    for number in range(count):
        _, kind, flags, _, _, size, *_ = struct.unpack_from("<10I", data, offset + number * entry)
        if not flags & 2:  # not SHF_ALLOC: occupies no memory
            continue
        flash += size if kind != 8 else 0
        ram += size if flags & 1 else 0
    return Sizes(flash, ram)


def _emulated(board: Board, program: Path, folder: Path, limit: float, options: Sequence[str]) -> subprocess.CompletedProcess[str]:
    machine = board.name
    command = [board.emulator, "-M", machine, "-nographic", "-monitor", "none", "-serial", "none"]
    command += ["-semihosting-config", "enable=on,target=native", "-icount", f"shift={board.shift}"]
    command += [*(("-bios", "none") if board.emulator.endswith("riscv32") else ()), "-kernel", str(program), *options]
    try:
        return subprocess.run(
            command, cwd=folder, capture_output=True, text=True, timeout=limit, check=False, stdin=subprocess.DEVNULL
        )
    except subprocess.TimeoutExpired as error:
        raise KernelFault(f"the program ran for more than {limit:g} s on board {board.name}") from error


def _model_header(firmware: Firmware) -> str:
    """Return the text of the header through which the harness calls the model."""
    lines = [f'#include "{firmware.header}"', "struct harness_part { void *at; uint32_t bytes; };", firmware.before]
    for name, parts in (("inputs", firmware.inputs), ("outputs", firmware.outputs)):
        lines.append(f"#define HARNESS_{name.upper()} {len(parts)}")
        entries = ", ".join(f"{{{address}, {size}}}" for address, size in parts)
        lines.append(f"#define harness_{name} ((const struct harness_part[]){{{entries}}})")
    lines.append(f"static inline int harness_run(void) {{ return {firmware.call}; }}")
    return "\n".join(lines) + "\n"


def _memory(board: Board) -> str:
    def part(name: str, memory: Memory) -> str:
        return f"    {name} : ORIGIN = {memory.origin:#x}, LENGTH = {memory.length:#x}\n"

    return f"MEMORY {{\n{part('FLASH', board.flash)}{part('RAM', board.ram)}}}\n"


def _command(command: Sequence[str], folder: Path) -> None:
    process = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    if process.returncode:
        raise TargetError(f"{command[0]} failed: {process.stderr.strip()[:2000]}")
