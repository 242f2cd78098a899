"""What the compile side and the run side share: the target's options, its processors, and the format of its artifacts."""

from __future__ import annotations

from dataclasses import dataclass

from inlaid.errors import TargetError
from inlaid_microcontroller.boards import BOARDS, find_board

FORMAT = "c99-model"
FORMAT_VERSION = 2
"""Of artifacts: what `inlaid_microcontroller.unit` writes. The version counts changes of that."""


@dataclass(frozen=True)
class Cpu:
    """A processor: how compilers are told of it, whether it has Arm's DSP and MVE instructions, hertz of a usual part, and cycles
    that a multiplication and addition takes it about."""

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
"""The processors by name. Clocks and cycles are for estimates alone."""


@dataclass(frozen=True)
class MicrocontrollerOptions:
    """cpu: the processor to compile for, or `c99` for any. board: the emulated board to run on; none: this machine. fast: bytes of
    a second, faster memory for a part of the arena, 0 for none. Raises `TargetError` for values that make no sense."""

    cpu: str = "c99"
    board: str = ""
    fast: int = 0

    def __post_init__(self) -> None:
        if self.cpu not in CPUS:
            raise TargetError(f"target microcontroller knows no cpu {self.cpu!r}", remedy=f"choose {', '.join(CPUS)}")
        if self.fast < 0:
            raise TargetError(f"target microcontroller cannot have {self.fast} bytes of fast memory", remedy="0 means none")
        if self.board:
            board = find_board(self.board)
            if board is None:
                known = ", ".join(each.name for each in BOARDS)
                raise TargetError(f"target microcontroller knows no board {self.board!r}", remedy=f"choose {known}")
            if self.cpu not in ("c99", board.cpu):
                raise TargetError(f"board {self.board} has a {board.cpu}, not a {self.cpu}", remedy=f"say cpu={board.cpu}")
