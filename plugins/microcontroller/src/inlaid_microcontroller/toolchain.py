"""What the compiler of a processor says of a model: the bytes of its code, and the stack that it takes, along the deepest calls."""

from __future__ import annotations

import re
import shutil
import subprocess
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from inlaid.cache import caches, digest
from inlaid_microcontroller.boards import ARM, board_for
from inlaid_microcontroller.options import CPUS

FLAGS = ("-std=c99", "-O2", "-ffp-contract=off", "-fcallgraph-info=su", "-I.")
_ROOM = (("mem", 64), ("__", 80), ("", 192))
"""Bytes for a function of libraries, by what its name begins with: copies, arithmetic that the processor lacks, and mathematics.
Libraries do not say what they take; of newlib and picolibc it was measured to be 16, 60 and 128 at most."""
_ROOM_OF_M0 = (("mem", 64), ("__", 128), ("", 192))
"""The same where nearly all arithmetic is the library's: from floats to 64 bits it takes 104."""
_NODE = re.compile(r'node: \{ title: "([^"]+)" label: "[^"]*\\n(\d+) bytes \(([a-z,]+)\)')
_EDGE = re.compile(r'edge: \{ sourcename: "([^"]+)" targetname: "([^"]+)"')


@dataclass(frozen=True)
class Compiled:
    """Bytes of `code`, with the constants that stand in it, but without weights and libraries; and of `stack` from the call of the
    entry on, its own included, None where the compiler cannot tell."""

    code: int
    stack: int | None


def compiled(files: Mapping[str, str], entry: str, cpu: str) -> Compiled | None:
    """What GCC says at -O2; None where the processor's GCC is not installed, or does not take the files. These are the sources and
    headers by name."""
    files = {name: text for name, text in files.items() if not name.endswith("_weights.c")}
    board, flags = board_for(cpu), CPUS[cpu].flags
    compiler = board.compiler if board else ARM
    if not flags or shutil.which(compiler) is None:
        return None
    command = [compiler, *(board.flags if board else flags), *FLAGS]
    room = _ROOM_OF_M0 if cpu == "cortex-m0plus" else _ROOM
    store = caches().objects
    key = digest("toolchain", repr(room), *command, entry, *(part for item in sorted(files.items()) for part in item))
    known = store.get(key)
    if known is None:
        with tempfile.TemporaryDirectory() as scratch:
            known = _compiled(files, command, Path(scratch), entry, room)
        store.put(key, known)
    code, _, stack = known.decode().partition(" ")
    return Compiled(int(code), int(stack) if stack else None) if code else None


def _compiled(files: Mapping[str, str], command: list[str], folder: Path, entry: str, room: tuple[tuple[str, int], ...]) -> bytes:
    """The bytes of code and of stack, the latter where it is known; nothing where the compiler takes a file not."""
    for name, text in files.items():
        (folder / name).write_text(text)
    sources = sorted(name for name in files if name.endswith(".c"))
    objects = [f"{name}.o" for name in sources]
    size = command[0].removesuffix("gcc") + "size"
    steps = [*([*command, "-c", name, "-o", each] for name, each in zip(sources, objects, strict=True)), [size, "-t", *objects]]
    said = ""
    for step in steps:
        done = subprocess.run(step, cwd=folder, capture_output=True, text=True, check=False)
        if done.returncode:
            return b""
        said = done.stdout
    graph = "".join(path.read_text() for path in sorted(folder.glob("*.ci")))
    stack = _deepest(graph, entry, room)
    return f"{said.splitlines()[-1].split()[0]} {'' if stack is None else stack}".encode()


def _deepest(graph: str, entry: str, room: tuple[tuple[str, int], ...]) -> int | None:
    """The most that calls from a function on take; None for a function that is not there, calls in circles and through pointers,
    and frames of sizes that are not known. `room` is for functions that are not in the graph."""
    frames = {name: int(size) if kind in ("static", "dynamic,bounded") else None for name, size, kind in _NODE.findall(graph)}
    calls: dict[str, set[str]] = {}
    for source, target in _EDGE.findall(graph):
        calls.setdefault(source, set()).add(target)

    def below(name: str, above: tuple[str, ...]) -> int | None:
        if name in above or name == "__indirect_call":
            return None
        if name not in frames:
            return next(size for begin, size in room if name.startswith(begin))
        own, inner = frames[name], [below(each, (*above, name)) for each in calls.get(name, ())]
        return None if own is None or None in inner else own + max((each for each in inner if each is not None), default=0)

    return below(entry, ()) if entry in frames else None
