"""Target options, processors and artifact format, shared by compiler and runtime."""

from __future__ import annotations

from dataclasses import dataclass

from inlaid_microcontroller.boards import BOARDS, find_board
from inlaid_runtime.errors import TargetError

FORMAT = "c99-model"
FORMAT_VERSION = 2
"""Artifact format version, for the encoding in `inlaid_microcontroller.unit`."""


@dataclass(frozen=True)
class Cpu:
    """A processor. flags: compiler flags. dsp, mve: it has Arm's DSP and MVE instructions. hertz: clock of a typical part. cycles:
    approximate cycles of a multiply-add."""

    flags: tuple[str, ...]
    dsp: bool = False
    mve: bool = False
    hertz: float = 1e8
    cycles: float = 3.0


def _arm(name: str, *, hard: bool = True) -> tuple[str, ...]:
    return (f"-mcpu={name}", "-mthumb", f"-mfloat-abi={'hard' if hard else 'soft'}")


CPUS = {
    "cortex-m0plus": Cpu(_arm("cortex-m0plus", hard=False), hertz=6.4e7, cycles=6.0),
    "cortex-m3": Cpu(_arm("cortex-m3", hard=False)),
    "cortex-m4": Cpu(_arm("cortex-m4"), dsp=True, hertz=1.2e8, cycles=2.0),
    "cortex-m7": Cpu(_arm("cortex-m7"), dsp=True, hertz=2.16e8, cycles=1.0),
    "cortex-m33": Cpu(_arm("cortex-m33"), dsp=True, hertz=1.28e8, cycles=2.0),
    "cortex-m55": Cpu(_arm("cortex-m55"), dsp=True, mve=True, hertz=4e8, cycles=0.5),
    "rv32imc": Cpu(("-march=rv32imc_zicsr", "-mabi=ilp32"), hertz=1.6e8),
    "c99": Cpu(()),
}
"""Processors by name. Clocks and cycles are used only for estimates."""


@dataclass(frozen=True)
class MicrocontrollerOptions:
    """Options of target microcontroller. Raises `TargetError` for illegal values. cpu: the processor to compile for, `c99` for any.
    board: the emulated board to run on, "" for this machine. fast: bytes of a second, faster memory, which holds a part of the
    arena; 0 for none."""

    cpu: str = "c99"
    board: str = ""
    fast: int = 0

    def __post_init__(self) -> None:
        if self.cpu not in CPUS:
            raise TargetError(f"unknown cpu {self.cpu!r} of target microcontroller", remedy=f"choose one of {', '.join(CPUS)}")
        if self.fast < 0:
            raise TargetError(f"option fast of target microcontroller must be >= 0 bytes, got {self.fast}", remedy="0 means none")
        if self.board:
            board = find_board(self.board)
            if board is None:
                names = ", ".join(each.name for each in BOARDS)
                raise TargetError(f"unknown board {self.board!r} of target microcontroller", remedy=f"choose one of {names}")
            if self.cpu not in ("c99", board.cpu):
                raise TargetError(f"board {self.board}: expected cpu={board.cpu}, got {self.cpu}", remedy=f"set cpu={board.cpu}")
