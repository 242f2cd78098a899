"""Regions compiled in another process, so that a code generator that crashes, hangs or exhausts memory costs one region.

The process, `inlaid.driver.isolated`, serves all regions of a compilation. Regions and artifacts travel as files of a scratch
folder, which are checked as any package is; pipes carry the name of a request's folder there, and a byte back.
"""

from __future__ import annotations

import contextlib
import json
import os
import select
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, nullcontext
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Any, TypeVar

from inlaid.artifact import Artifact
from inlaid.artifact.plan import Program
from inlaid.driver.region import source_nodes
from inlaid.errors import InlaidError, PackageError, PluginError, Remedy
from inlaid.graph.ir import Function, Module
from inlaid.graph.text import print_module
from inlaid.plugins import Border, Borders, Region
from inlaid.plugins.blame import describe, some
from inlaid.plugins.registry import PluginRegistry
from inlaid.runtime.package import Package, read_package, write_package
from inlaid.settings import Isolation, Settings
from inlaid.types import Layout

T = TypeVar("T")

SESSION, LOG = "session.json", "log"
"""Files of the scratch folder: what holds for all requests, and what the process prints."""
TEXT, CONSTANTS, REQUEST = "region.txt", "constants.inlaid", "request.json"
RESULT, BORDERS, ERROR = "result.inlaid", "borders.json", "error.json"
"""Files of a region's folder."""
READY, DONE, FAILED = b"r", b"0", b"1"
"""Replies: once, that the process has started; then, for each request, that a result was written, or an error."""
_QUOTED = 300
"""Bytes of the log's tail that an error quotes."""
_START, _END = 60.0, 10.0
"""Seconds that the process has to start, and to end once it has closed its pipe."""
_TICK = 0.05
"""Seconds between looks at whether the process still runs, which a child of its that holds the pipe open would hide."""


@dataclass(frozen=True)
class Session:
    """What holds for all requests: `memory` in bytes, `plugins` as names and values of entry points."""

    plugins: list[tuple[str, str]]
    fusion: bool
    keep: bool
    memory: int


@dataclass(frozen=True)
class Request:
    """What is asked about a region: its artifact with `borders`, or, if `asks_borders`, the borders that it should have."""

    symbol: str
    target: str
    borders: dict[str, Any] | None
    asks_borders: bool


class _Refused(PluginError):
    """The code generator refuses the region, and can be asked about others."""


class _TimeUp(PluginError):
    """No reply within the limit."""


class Isolated:
    """Compiles regions of a registry's targets in a process of their own, within the limits of `settings.isolation`; a context
    manager. The process starts on entry and serves one request after the other. After one that ends it, hangs or fails, the next
    request gets a new process; and what failed in a process that had served others is tried again in a new one, so that no region
    fails on account of another."""

    def __init__(self, registry: PluginRegistry, settings: Settings, keep: bool = True) -> None:
        assert settings.isolation is not None
        self._registry = registry
        self._limits: Isolation = settings.isolation
        plugins = [(point.name, point.value) for point in registry.entry_points]
        self._session = Session(plugins, settings.fusion, keep, self._limits.memory)
        self._written: dict[str, tuple[Function, Path]] = {}
        self._worker: _Worker | None = None

    def __enter__(self) -> Isolated:
        self._scratch = tempfile.TemporaryDirectory(prefix="inlaid-")
        self._folder = Path(self._scratch.name)
        (self._folder / SESSION).write_text(json.dumps(asdict(self._session)), encoding="utf-8")
        self._worker = _Worker(self._folder)
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._end()
        self._scratch.cleanup()

    def compile(self, region: Region) -> Artifact:
        """`compile_region` over there. Raises `PluginError`, with the names of the plugin, the region and the source nodes."""
        with self._blamed(region):
            folder = self._folder_of(region)
            artifact = self._ask(folder, region, False, partial(_artifact, folder / RESULT, region.symbol))
            del self._written[region.symbol]
            for file in folder.iterdir():  # the artifact's constants are mapped, and stay
                file.unlink()
            return artifact

    def borders(self, region: Region) -> Borders | None:
        """`borders_of` over there. Raises as `compile` does."""
        with self._blamed(region):
            folder = self._folder_of(region)
            return self._ask(folder, region, True, partial(_borders, folder / BORDERS))

    @contextlib.contextmanager
    def _blamed(self, region: Region) -> Iterator[None]:
        try:
            yield
        except InlaidError as error:
            error.plugin = error.plugin or self._registry.owner(region.target.kind)
            error.region = error.region or region.symbol
            error.node = error.node or some(source_nodes(region))
            raise

    def _folder_of(self, region: Region) -> Path:
        """The folder with the region's function, written once for its borders and its code."""
        function, folder = self._written.get(region.symbol, (None, self._folder))
        if function is not region.function:
            folder = Path(tempfile.mkdtemp(dir=self._folder))
            text, constants = print_module(Module({region.symbol: region.function}))
            (folder / TEXT).write_text(text, encoding="utf-8")
            write_package(Package(Program({}, ()), (), constants), folder / CONSTANTS)
            self._written[region.symbol] = region.function, folder
        return folder

    def _ask(self, folder: Path, region: Region, asks_borders: bool, read: Callable[[], T]) -> T:
        """Have a request answered in a region's folder, and read the answer. Raises `PluginError`."""
        borders = None if region.borders is None else asdict(region.borders)
        request = Request(region.symbol, str(region.target), borders, asks_borders)
        (folder / REQUEST).write_text(json.dumps(asdict(request)), encoding="utf-8")
        while True:
            worker = self._worker = self._worker or _Worker(self._folder)
            first = not worker.served
            try:
                worker.serve(folder, self._limits.seconds)
                return read()
            except _Refused:
                raise
            except PluginError as error:
                self._end()
                if first or isinstance(error, _TimeUp):
                    raise

    def _end(self) -> None:
        if self._worker is not None:
            self._worker.end()
            self._worker = None


def isolation(registry: PluginRegistry, settings: Settings, keep: bool = True) -> AbstractContextManager[Isolated | None]:
    """Where code generators run: None for this process, where settings ask for no isolation."""
    return nullcontext() if settings.isolation is None else Isolated(registry, settings, keep)


class _Worker:
    """One process: `served` requests it has answered, the failed ones not counted."""

    def __init__(self, folder: Path) -> None:
        variables = {"OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1"}  # the memory that more threads reserve counts as used
        environment = {**os.environ, **variables, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
        theirs, self._requests = os.pipe()
        self._replies, back = os.pipe()
        command = [sys.executable, "-P", "-m", "inlaid.driver.isolated", str(folder), str(theirs), str(back)]
        self.served, self._ready = 0, False
        self._log = folder / LOG
        try:
            with self._log.open("wb") as log:
                self._process = subprocess.Popen(
                    command, stdin=subprocess.DEVNULL, stdout=log, stderr=log,
                    env=environment, pass_fds=(theirs, back), start_new_session=True,
                )  # fmt: skip
        except BaseException:
            os.close(self._requests)
            os.close(self._replies)
            raise
        finally:
            os.close(theirs)
            os.close(back)

    def serve(self, folder: Path, seconds: float) -> None:
        """Have the request in a folder answered there, within some seconds. Raises `PluginError`."""
        said = self._log.stat().st_size
        if not self._ready:
            self._ready = self._reply(time.monotonic() + _START) == READY
        with contextlib.suppress(BrokenPipeError):
            os.write(self._requests, f"{folder}\n".encode())
        reply = self._reply(time.monotonic() + seconds)
        if reply is None:
            raise _TimeUp(f"the code generator took more than {seconds:g} s and was ended")
        if reply == FAILED:
            with contextlib.suppress(OSError, ValueError, TypeError):
                raise _error(json.loads((folder / ERROR).read_text(encoding="utf-8")))
        if reply != DONE:
            raise PluginError(f"the process of the code generator {self._how(reply)}{_quoted(self._log, said)}")
        self.served += 1

    def end(self) -> None:
        """End the process, and whatever it has started and left behind."""
        os.close(self._requests)
        os.close(self._replies)
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()

    def _reply(self, deadline: float) -> bytes | None:
        """The next reply, empty where the process ends without one; None where time is up."""
        while (left := deadline - time.monotonic()) > 0:
            ended = self._process.poll() is not None
            if select.select([self._replies], [], [], 0 if ended else min(left, _TICK))[0]:
                return os.read(self._replies, 1)
            if ended:
                return b""
        return None

    def _how(self, reply: bytes) -> str:
        """What the process did instead of replying soundly: as a rule it ended, the closing of its pipe being the first of that."""
        try:
            status = self._process.wait(0.0 if reply else _END)
        except subprocess.TimeoutExpired:
            return "gave no sound reply"
        return f"was ended by {_signal(-status)}" if status < 0 else f"left with exit status {status}"


def borders_from_json(data: dict[str, Any]) -> Borders:
    """The borders whose `asdict` was written as JSON."""

    def border(facts: dict[str, Any]) -> Border:
        blocks = tuple((int(axis), int(factor)) for axis, factor in facts["layout"]["blocks"])
        return Border(Layout(blocks), str(facts["dtype"]), float(facts["scale"]), int(facts["zero_point"]))

    return Borders(tuple(map(border, data["inputs"])), tuple(map(border, data["outputs"])))


def _error(facts: dict[str, Any]) -> PluginError:
    """The error that the process has written."""
    kind = _Refused if facts.pop("refused") else PluginError
    if isinstance(facts.get("remedy"), dict):
        facts["remedy"] = Remedy(**facts["remedy"])
    return kind(**facts)


def _signal(number: int) -> str:
    return signal.Signals(number).name if number in set(signal.Signals) else f"signal {number}"


def _borders(path: Path) -> Borders | None:
    """What the code generator asks for. Raises `PluginError`."""
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
        return None if found is None else borders_from_json(found)
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise PluginError(f"the code generator gave no sound borders: {describe(error)}") from error


def _artifact(path: Path, symbol: str) -> Artifact:
    """What the process made. Raises `PluginError`."""
    try:
        (artifact,) = read_package(path).artifacts
    except (PackageError, ValueError) as error:
        raise PluginError(f"the code generator gave no sound artifact: {error}") from error
    if artifact.symbol != symbol:
        raise PluginError(f"the code generator gave an artifact {artifact.symbol!r}")
    return artifact


def _quoted(log: Path, begin: int) -> str:
    """The tail of what the process printed from a byte of its log on."""
    with log.open("rb") as file:
        file.seek(max(log.stat().st_size - _QUOTED, begin))
        said = " ".join(file.read().decode("utf-8", "replace").split())
    return f', having said: "{said}"' if said else ""
