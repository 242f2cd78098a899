"""Code size and maximum stack of a model, as reported by the processor's compiler."""

from __future__ import annotations

import re
import shutil
import subprocess
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from inlaid_microcontroller.boards import ARM, board_for
from inlaid_microcontroller.options import CPUS
from inlaid_runtime.cache import caches, digest
from inlaid_runtime.execution.output import write_files

FLAGS = ("-std=c99", "-O2", "-ffp-contract=off", "-fcallgraph-info=su", "-I.")
_ROOM = (("mem", 64), ("__", 80), ("", 192))
"""Stack bytes assumed for library functions, by prefix of the name: copies, emulated arithmetic, and mathematics. Libraries do not
report their stack. The maxima measured for newlib and picolibc are 16, 60 and 128."""
_ROOM_OF_M0 = (("mem", 64), ("__", 128), ("", 192))
"""`_ROOM` for Cortex-M0, on which library functions do nearly all arithmetic. Conversion of floats to 64 bits uses 104 bytes."""
_NODE = re.compile(r'node: \{ title: "([^"]+)" label: "[^"]*\\n(\d+) bytes \(([a-z,]+)\)')
_EDGE = re.compile(r'edge: \{ sourcename: "([^"]+)" targetname: "([^"]+)"')


@dataclass(frozen=True)
class Compiled:
    """Sizes in bytes. code: size of the code, including literal constants but not weights and libraries. stack: maximum stack,
    including the frame of the entry; None if the compiler cannot tell."""

    code: int
    stack: int | None


def compiled(files: Mapping[str, str], entry: str, cpu: str) -> Compiled | None:
    """Return the sizes reported by GCC at -O2; None if the processor's GCC is not installed or rejects the files. files: text of
    sources and headers by name."""
    files = {name: text for name, text in files.items() if not name.endswith("_weights.c")}
    board, flags = board_for(cpu), CPUS[cpu].flags
    compiler = board.compiler if board else ARM
    if not flags or shutil.which(compiler) is None:
        return None
    command = [compiler, *(board.flags if board else flags), *FLAGS]
    room = _ROOM_OF_M0 if cpu == "cortex-m0plus" else _ROOM
    store = caches().objects
    key = digest("toolchain", repr(room), *command, entry, *(part for item in sorted(files.items()) for part in item))
    cached = store.get(key)
    if cached is None:
        with tempfile.TemporaryDirectory() as scratch:
            cached = _compiled(files, command, Path(scratch), entry, room)
        store.put(key, cached)
    code, _, stack = cached.decode().partition(" ")
    return Compiled(int(code), int(stack) if stack else None) if code else None


def _compiled(files: Mapping[str, str], command: list[str], folder: Path, entry: str, room: tuple[tuple[str, int], ...]) -> bytes:
    """Return the code size, and the stack size if known, as text. Returns no text if the compiler rejects a file."""
    write_files({folder / name: [text.encode()] for name, text in files.items()})
    sources = sorted(name for name in files if name.endswith(".c"))
    objects = [f"{name}.o" for name in sources]
    size = command[0].removesuffix("gcc") + "size"
    steps = [*([*command, "-c", name, "-o", each] for name, each in zip(sources, objects, strict=True)), [size, "-t", *objects]]
    output = ""
    for step in steps:
        process = subprocess.run(step, cwd=folder, capture_output=True, text=True, check=False)
        if process.returncode:
            return b""
        output = process.stdout
    graph = "".join(path.read_text() for path in sorted(folder.glob("*.ci")))
    stack = _deepest(graph, entry, room)
    return f"{output.splitlines()[-1].split()[0]} {'' if stack is None else stack}".encode()


def _deepest(graph: str, entry: str, room: tuple[tuple[str, int], ...]) -> int | None:
    """Return the maximum stack in bytes of a call of `entry`. Returns None if a function is missing or recursive, calls through a
    pointer, or has a dynamic frame. room: stack of functions that are not in the graph, by prefix."""
    frames = {name: int(size) if kind in ("static", "dynamic,bounded") else None for name, size, kind in _NODE.findall(graph)}
    calls: dict[str, set[str]] = {}
    for source, target in _EDGE.findall(graph):
        calls.setdefault(source, set()).add(target)

    def max_stack(name: str, callers: tuple[str, ...]) -> int | None:
        if name in callers or name == "__indirect_call":
            return None
        if name not in frames:
            return next(size for begin, size in room if name.startswith(begin))
        frame, inner = frames[name], [max_stack(each, (*callers, name)) for each in calls.get(name, ())]
        return None if frame is None or None in inner else frame + max((each for each in inner if each is not None), default=0)

    return max_stack(entry, ()) if entry in frames else None
