"""Programs for boards: build a model's sources into one, and run it under QEMU."""

from __future__ import annotations

import shutil
import struct
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib import resources
from pathlib import Path

from inlaid.errors import KernelFault, TargetError
from inlaid_microcontroller.boards import INSTALL, Board, Memory

LIMIT = 120.0
"""Seconds after which a run is given up."""
FLAGS = ("-O2", "-std=c99", "-ffunction-sections", "-fdata-sections")
"""What a model's sources are compiled with."""
_HARNESS = ("-Os", "-std=gnu99", "-ffunction-sections", "-fno-tree-loop-distribute-patterns")
"""What startup code and harness are compiled with: small, and without calls of the library for loops, which no model needs."""
_FIXED = ("board.h", "harness.c", "board.ld")


@dataclass(frozen=True)
class Firmware:
    """A model as C: its files by name, the header that declares it, expressions for the address of each input and output and their
    sizes in bytes, and one that runs it and gives 0, or an error code."""

    files: Mapping[str, bytes]
    header: str
    inputs: tuple[tuple[str, int], ...]
    outputs: tuple[tuple[str, int], ...]
    call: str
    before: str = ""


@dataclass(frozen=True)
class Sizes:
    """Bytes of a program: `flash` what is stored (code, constants, initial values), `ram` its variables, the stack left out."""

    flash: int
    ram: int


@dataclass(frozen=True)
class Run:
    """One run of a program: what the model returned, its outputs, instructions, the most bytes of stack, and those of them that
    the model used. `log` is what the emulator wrote."""

    status: int
    outputs: tuple[bytes, ...]
    instructions: int
    stack: int
    model_stack: int
    log: str = ""


def missing(board: Board) -> str | None:
    """What has to be installed before programs can be built for a board and run; None where nothing is missing."""
    absent = [tool for tool in (board.compiler, board.emulator) if shutil.which(tool) is None]
    return f"{' and '.join(absent)} not found: {INSTALL}" if absent else None


def build(firmware: Firmware, board: Board, folder: Path, flags: Sequence[str] = FLAGS) -> Path:
    """Compile a model, the startup code of a board and the harness in a folder. The program's path. Raises `TargetError` where the
    compiler is missing, or refuses the sources."""
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
    """Run a program on a board with inputs, and with options for the emulator. Raises `KernelFault` where it does not come to its
    end within `limit` seconds, or the processor faults, and `ValueError` for inputs of other sizes."""
    if [len(data) for data in inputs] != [size for _, size in firmware.inputs]:
        raise ValueError(f"inputs are of {[size for _, size in firmware.inputs]} bytes, not {[len(data) for data in inputs]}")
    if problem := missing(board):
        raise TargetError(f"board {board.name} cannot be emulated: {problem}")
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        (folder / "in").write_bytes(b"".join(inputs))
        done = _emulated(board, program.resolve(), folder, limit, options)
        report = folder / "report"
        if not report.exists() or report.stat().st_size != 32:
            raise KernelFault(f"the program stopped on board {board.name} with exit status {done.returncode}")
        empty, taken, stack, below = struct.unpack("<4Q", report.read_bytes())
        outputs, data, at = [], (folder / "out").read_bytes(), 0
        for _, size in firmware.outputs:
            outputs.append(data[at : at + size])
            at += size
    return Run(done.returncode, tuple(outputs), round((taken - empty) / board.ticks), stack, below, done.stderr)


def sizes(program: Path) -> Sizes:
    """The sizes of a program, from its ELF file."""
    data = program.read_bytes()
    offset, entry, count = struct.unpack_from("<I", data, 32)[0], *struct.unpack_from("<HH", data, 46)
    flash = ram = 0
    for number in range(count):
        _, kind, flags, _, _, size, *_ = struct.unpack_from("<10I", data, offset + number * entry)
        if not flags & 2:  # takes no memory
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
    """What the harness includes."""
    lines = [f'#include "{firmware.header}"', "struct harness_part { void *at; uint32_t bytes; };", firmware.before]
    for name, parts in (("inputs", firmware.inputs), ("outputs", firmware.outputs)):
        lines.append(f"#define HARNESS_{name.upper()} {len(parts)}")
        entries = ", ".join(f"{{{address}, {size}}}" for address, size in parts)
        lines.append(f"#define harness_{name} ((const struct harness_part[]){{{entries}}})")
    lines.append(f"static inline int harness_run(void) {{ return {firmware.call}; }}")
    return "\n".join(lines) + "\n"


def _memory(board: Board) -> str:
    def part(name: str, of: Memory) -> str:
        return f"    {name} : ORIGIN = {of.origin:#x}, LENGTH = {of.length:#x}\n"

    return f"MEMORY {{\n{part('FLASH', board.flash)}{part('RAM', board.ram)}}}\n"


def _command(command: Sequence[str], folder: Path) -> None:
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    if done.returncode:
        raise TargetError(f"{command[0]} failed: {done.stderr.strip()[:2000]}")
