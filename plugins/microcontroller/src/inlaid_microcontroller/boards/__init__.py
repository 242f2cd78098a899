"""Boards emulated by QEMU, with their compilers, flags and machines.

QEMU's option `-icount` advances the emulated clock by a fixed time per instruction, so the clock counts instructions. The counts
are exact and deterministic. They are counts of instructions, not of cycles.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction

INSTALL = (
    "apt-get install gcc-arm-none-eabi libnewlib-arm-none-eabi qemu-system-arm qemu-system-misc"
    " gcc-riscv64-unknown-elf picolibc-riscv64-unknown-elf"
)
"""Command that installs all compilers and emulators on Debian."""

ARM = "arm-none-eabi-gcc"
"""Compiler for Arm processors."""


@dataclass(frozen=True)
class Memory:
    """A range of addresses, in bytes."""

    origin: int
    length: int


@dataclass(frozen=True)
class Board:
    """An emulated board. cpu: value of the target's option `cpu`. emulator: QEMU's program. startup: file of the startup code.
    shift: QEMU's `-icount shift`. ticks: steps of the board's counter per instruction. counter_bits: width of the board's
    counter."""

    name: str
    cpu: str
    emulator: str
    compiler: str
    flags: tuple[str, ...]
    startup: str
    flash: Memory
    ram: Memory
    shift: int
    ticks: Fraction
    counter_bits: int = 32


def _cortex(name: str, cpu: str, hard: bool = True) -> Board:
    flags = (f"-mcpu={cpu}", "-mthumb", "-mfloat-abi=hard" if hard else "-mfloat-abi=soft", "--specs=nano.specs")
    size = 4 << 20
    flash, ram = Memory(0, size), Memory(0x20000000, size)
    # The timer counts at 25 MHz, and an emulated instruction takes 64 ns.
    return Board(name, cpu, "qemu-system-arm", ARM, flags, "cortex_m.c", flash, ram, 6, Fraction(64 * 25, 1000))


_M55 = Board(
    "mps3-an547",
    "cortex-m55",
    "qemu-system-arm",
    ARM,
    ("-mcpu=cortex-m55", "-mthumb", "-mfloat-abi=hard", "--specs=nano.specs"),
    "cortex_m.c",
    Memory(0, 512 << 10),
    Memory(0x20000000, 512 << 10),
    6,
    Fraction(64 * 32, 1000),
    64,
)
_RISCV = Board(
    "virt",
    "rv32imc",
    "qemu-system-riscv32",
    "riscv64-unknown-elf-gcc",
    ("-march=rv32imac", "-misa-spec=2.2", "-mabi=ilp32", "--specs=picolibc.specs", "-msmall-data-limit=0"),
    "riscv.c",
    Memory(0x80000000, 4 << 20),
    Memory(0x80400000, 4 << 20),
    0,
    Fraction(1),
    64,
)
BOARDS = (
    _cortex("mps2-an385", "cortex-m3", hard=False),
    _cortex("mps2-an386", "cortex-m4"),
    _cortex("mps2-an500", "cortex-m7"),
    _M55,
    _RISCV,
)
"""All boards, ordered by processor."""


def find_board(name: str) -> Board | None:
    """Return the board named `name`; None for an unknown name."""
    return next((board for board in BOARDS if board.name == name), None)


def board_for(cpu: str) -> Board | None:
    """Return the board whose processor is `cpu`; None if no board has it."""
    return next((board for board in BOARDS if board.cpu == cpu), None)
