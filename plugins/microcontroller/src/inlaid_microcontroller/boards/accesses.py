"""Count of a model's loads and stores on an emulated board, taken by a QEMU plugin."""

from __future__ import annotations

import re
import subprocess
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from importlib import resources
from pathlib import Path

from inlaid_microcontroller.boards import Board
from inlaid_microcontroller.boards.emulate import Firmware, missing, run
from inlaid_runtime.errors import TargetError
from inlaid_runtime.execution.c_source import MISSING, REMEDY, find_compiler, link_shared

_SOURCE = "accesses.c"
_PRINTED = re.compile(r"^accesses (\d+) (\d+)$", re.MULTILINE)


@dataclass(frozen=True)
class Accesses:
    """Numbers of loads and stores. An instruction that loads or stores several registers counts once per register."""

    loads: int
    stores: int


def uncounted(board: Board) -> str | None:
    """Return why accesses cannot be counted on a board; None if they can."""
    if problem := missing(board):
        return problem
    if board.counter_bits != 32:
        return f"accesses cannot be counted on board {board.name}: the emulator does not report vector accesses"
    if find_compiler() is None:
        return f"{MISSING}: {REMEDY}"
    process = subprocess.run([board.emulator, "-plugin", "help"], capture_output=True, text=True, check=False)
    return f"accesses cannot be counted: this {board.emulator} has no plugins" if "invalid option" in process.stderr else None


def count_accesses(firmware: Firmware, program: Path, board: Board, inputs: Sequence[bytes]) -> Accesses:
    """Count the accesses of one run of the model. Raises `TargetError` if accesses cannot be counted, and the errors of `run`."""
    if problem := uncounted(board):
        raise TargetError(problem)
    with tempfile.TemporaryDirectory() as scratch:
        folder, plugin = Path(scratch), Path(scratch) / "accesses.so"
        (folder / _SOURCE).write_bytes(resources.files(__package__).joinpath(_SOURCE).read_bytes())
        link_shared([_SOURCE], plugin, folder, ("-O2",))
        log = run(firmware, program, board, inputs, options=("-plugin", str(plugin))).log
    # The plugin prints the counts whenever the harness reads the timer: twice in a row, then after the model. The accesses between
    # the first two reads are the harness's own, and are subtracted from those between the last two.
    (loads_at_first, stores_at_first), (loads_at_second, stores_at_second), (loads_at_end, stores_at_end) = (
        (int(first), int(second)) for first, second in _PRINTED.findall(log)
    )
    return Accesses(loads_at_end - 2 * loads_at_second + loads_at_first, stores_at_end - 2 * stores_at_second + stores_at_first)
