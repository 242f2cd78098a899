"""A worker process: makes and uses the mutants whose numbers it reads, under limits of time and memory.

It reads lines "kind number" or "kind @file", writes "start ..." before each mutant, and "end {outcome as JSON}" after it.
"""

from __future__ import annotations

import faulthandler
import json
import resource
import signal
import sys
import tempfile
import traceback
import warnings
from pathlib import Path
from random import Random
from types import FrameType
from typing import IO, Any

from tests.conformance.relations.guards import Guards, guard_host_memory

MEMORY = 4 << 30
"""Bytes of address space that a mutant may add to the worker's."""
SECONDS = 10
"""Seconds of processor time of a mutant."""
_LOOPS = {("executor.py", "_loop"), ("interp.py", "_loop"), ("host.py", "_signals")}
"""Functions that repeat a model's loop, or that a native loop calls to be interrupted. A mutant that the limit of time ends in them
is a legally endless loop."""


class TimeLimit(BaseException):
    """The mutant takes too long."""


def _end(number: int, frame: FrameType | None) -> None:
    raise TimeLimit


def _outcome(error: BaseException) -> dict[str, str]:
    from inlaid_runtime.errors import InlaidError, InternalError, PluginError

    text = f"{type(error).__name__}: {error}"
    where = "".join(traceback.format_tb(error.__traceback__)[-6:])
    frames = traceback.extract_tb(error.__traceback__)
    if isinstance(error, TimeLimit):
        loops = any((Path(frame.filename).name, frame.name) in _LOOPS for frame in frames)
        return {"outcome": "loop" if loops else "hang", "text": text, "where": where}
    inside = error.__cause__
    if isinstance(error, (InternalError, PluginError)) and inside is not None and not isinstance(inside, InlaidError):
        return {"outcome": "internal", "text": text, "where": "".join(traceback.format_tb(inside.__traceback__)[-4:])}
    if isinstance(error, InlaidError):
        return {"outcome": "refused", "text": text, "where": ""}
    return {"outcome": "internal", "text": text, "where": where}


def main(corpus: str, error_file: str) -> None:
    """Use mutants until the input ends."""
    answers = sys.stdout
    sys.stdout = sys.stderr
    from tests.fuzz.kinds import kinds

    kinds_by_name = kinds(Path(corpus))
    guards = _prepare()
    warnings.simplefilter("ignore")
    signal.signal(signal.SIGPROF, _end)
    with tempfile.TemporaryDirectory(prefix="inlaid-fuzz-") as folder, Path(error_file).open("wb") as errors:
        faulthandler.enable(errors)
        for line in sys.stdin:
            name, _, number = line.strip().rpartition(" ")
            _say(answers, f"start {name} {number}")
            kind = kinds_by_name[name]
            file = Path(number[1:]) if number.startswith("@") else None
            data = kind.mutant(int(number)) if file is None else file.read_bytes()
            rng = Random(number if file is None else file.stem.rpartition("-")[2])
            try:
                signal.setitimer(signal.ITIMER_PROF, SECONDS)
                kind.use(data, rng, Path(folder))
                signal.setitimer(signal.ITIMER_PROF, 0)
                outcome = {"outcome": "ran", "text": "", "where": ""}
            except BaseException as error:
                signal.setitimer(signal.ITIMER_PROF, 0)
                outcome = _outcome(error)
            problem = guards.check()
            if problem is not None:
                outcome = {"outcome": "crash", "text": problem, "where": outcome["text"]}
            _say(answers, f"end {json.dumps(outcome)}")


def _say(answers: IO[str], text: str) -> None:
    answers.write(f"{text}\n")
    answers.flush()


class _Guards(Guards):
    """Guards that report a lack of memory as the runtime does."""

    def empty(self, shape: tuple[int, ...], dtype: Any, alignment: int = 1) -> Any:
        from inlaid_runtime.errors import OutOfMemory

        try:
            return super().empty(shape, dtype, alignment)
        except (OSError, ValueError, OverflowError) as error:
            raise OutOfMemory(f"cannot allocate an array of shape {shape}") from error


def _prepare() -> Guards:
    """Import what mutants use, put arrays and buffers between guard pages, and limit the memory."""
    import inlaid_runtime.execution  # noqa: F401

    guards = _Guards()
    guard_host_memory(guards)
    _prepare_devices(guards)
    size = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (size + MEMORY, resource.RLIM_INFINITY))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    return guards


def _prepare_devices(guards: Guards) -> None:
    """Put buffers of OpenCL devices in guarded host memory. Build each OpenCL program once: mutants of launch plans leave it as it
    is, and a build takes a hundred times as long as the rest."""
    try:
        import pyopencl as cl

        import inlaid_opencl.device as device_module
        import inlaid_opencl.runtime as module
    except ImportError:
        return

    def create(self: Any, size: int, flags: int = 0) -> Any:
        host = guards.empty((size,), "uint8", 64)
        return cl.Buffer(self.context, cl.mem_flags.READ_WRITE | cl.mem_flags.USE_HOST_PTR, hostbuf=host)

    device_module.OpenCLDevice._create = create
    build: Any = module.build
    programs: dict[tuple[str, str], Any] = {}

    def build_once(source: str, symbol: str, device: Any) -> Any:
        key = source, symbol
        if key not in programs:
            if len(programs) >= 64:
                programs.clear()
            programs[key] = build(source, symbol, device)
        return programs[key]

    module.build = build_once


if __name__ == "__main__":
    main(*sys.argv[1:])
