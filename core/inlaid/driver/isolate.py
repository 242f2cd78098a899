"""Compiles regions in a worker process, so that a code generator that crashes, hangs or exhausts memory fails only its region.

The worker, `inlaid.driver.isolated`, serves all regions of a compilation. Regions and artifacts are exchanged as files in a scratch
folder, and verified like packages. A pipe carries the folder of each request to the worker; another pipe carries a one-byte reply.
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

from inlaid.driver.region import source_nodes
from inlaid.graph.ir import Function, Module
from inlaid.graph.text import print_module
from inlaid.plugins import Border, Borders, Region
from inlaid.plugins.registry import PluginRegistry
from inlaid.settings import Isolation, Settings
from inlaid_runtime.artifact import Artifact
from inlaid_runtime.artifact.plan import Program
from inlaid_runtime.errors import InlaidError, PackageError, PluginError, Remedy
from inlaid_runtime.execution.output import write_text
from inlaid_runtime.execution.package import Package, read_package, write_package
from inlaid_runtime.plugins.blame import describe, summarize_nodes
from inlaid_runtime.types import Layout

T = TypeVar("T")

SETTINGS, LOG = "session.json", "log"
"""Files of the scratch folder: the settings, and the worker's log."""
TEXT, CONSTANTS, REQUEST = "region.txt", "constants.inlaid", "request.json"
RESULT, BORDERS, ERROR = "result.inlaid", "borders.json", "error.json"
"""Files of a region's folder."""
STARTED, SUCCEEDED, FAILED = b"r", b"0", b"1"
"""Replies of the worker: STARTED once after the start; then SUCCEEDED or FAILED for each request."""
_QUOTED = 300
"""Number of trailing bytes of the log that an error quotes."""
_START, _END = 60.0, 10.0
"""Seconds for the worker to start, and to exit after its pipe is closed."""
_TICK = 0.05
"""Seconds between checks that the worker is alive. A closed pipe does not suffice: a child of the worker may hold it open."""


@dataclass(frozen=True)
class WorkerSettings:
    """Settings of all requests: `memory` limit in bytes, `plugins` as (name, value, group) of their entry points."""

    plugins: list[tuple[str, str, str]]
    fusion: bool
    keep: bool
    memory: int


@dataclass(frozen=True)
class Request:
    """A request for a region. The answer is the artifact for `borders`, or, if `asks_borders` is set, the region's borders."""

    symbol: str
    target: str
    borders: dict[str, Any] | None
    asks_borders: bool


class _Refused(PluginError):
    """Raised if the code generator rejected the region; the worker stays usable."""


class _TimeUp(PluginError):
    """Raised if the worker sends no reply within the time limit."""


class Isolated:
    """Compiles regions in a worker process, within the limits of `settings.isolation`. A context manager: the worker starts on
    entry and serves one request at a time. After a request that crashes, hangs or fails, the next request gets a new worker. A
    request that fails in a worker after others is repeated in a new worker, so that no region fails because of another."""

    def __init__(self, registry: PluginRegistry, settings: Settings, keep: bool = True) -> None:
        assert settings.isolation is not None
        self._registry = registry
        self._limits: Isolation = settings.isolation
        plugins = [(point.name, point.value, point.group) for point in registry.entry_points]
        self._worker_settings = WorkerSettings(plugins, settings.fusion, keep, self._limits.memory)
        self._written: dict[str, tuple[Function, Path]] = {}
        self._worker: _Worker | None = None

    def __enter__(self) -> Isolated:
        self._scratch = tempfile.TemporaryDirectory(prefix="inlaid-")
        self._folder = Path(self._scratch.name)
        write_text(self._folder / SETTINGS, json.dumps(asdict(self._worker_settings)))
        self._worker = _Worker(self._folder)
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._end()
        self._scratch.cleanup()

    def compile(self, region: Region) -> Artifact:
        """Run `compile_region` in the worker. Raises `PluginError`, naming the plugin, the region and the source nodes."""
        with self._blamed(region):
            folder = self._request_folder(region)
            artifact = self._ask(folder, region, False, partial(_artifact, folder / RESULT, region.symbol))
            del self._written[region.symbol]
            for file in folder.iterdir():  # the artifact's constants are mapped and stay valid
                file.unlink()
            return artifact

    def borders(self, region: Region) -> Borders | None:
        """Run `request_borders` in the worker. Raises as `compile` does."""
        with self._blamed(region):
            folder = self._request_folder(region)
            return self._ask(folder, region, True, partial(_borders, folder / BORDERS))

    @contextlib.contextmanager
    def _blamed(self, region: Region) -> Iterator[None]:
        try:
            yield
        except InlaidError as error:
            error.plugin = error.plugin or self._registry.owner(region.target.kind)
            error.region = error.region or region.symbol
            error.node = error.node or summarize_nodes(source_nodes(region))
            raise

    def _request_folder(self, region: Region) -> Path:
        """Return the region's folder, which contains the region's function and is shared by both requests."""
        function, folder = self._written.get(region.symbol, (None, self._folder))
        if function is not region.function:
            folder = Path(tempfile.mkdtemp(dir=self._folder))
            text, constants = print_module(Module({region.symbol: region.function}))
            write_text(folder / TEXT, text)
            write_package(Package(Program({}, ()), (), constants), folder / CONSTANTS)
            self._written[region.symbol] = region.function, folder
        return folder

    def _ask(self, folder: Path, region: Region, asks_borders: bool, read_answer: Callable[[], T]) -> T:
        """Send the worker a request in a region's folder, and read the answer. Raises `PluginError`."""
        borders = None if region.borders is None else asdict(region.borders)
        request = Request(region.symbol, str(region.target), borders, asks_borders)
        write_text(folder / REQUEST, json.dumps(asdict(request)))
        while True:
            worker = self._worker = self._worker or _Worker(self._folder)
            first = not worker.served
            try:
                worker.serve(folder, self._limits.seconds)
                return read_answer()
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
    """Create the worker if the settings ask for isolation; otherwise None, and code generators run in this process."""
    return nullcontext() if settings.isolation is None else Isolated(registry, settings, keep)


class _Worker:
    """A worker process. `served` counts the requests that it has answered successfully."""

    def __init__(self, folder: Path) -> None:
        variables = {
            "OPENBLAS_NUM_THREADS": "1",
            "OMP_NUM_THREADS": "1",
        }  # each thread reserves memory, which counts against the limit
        environment = {**os.environ, **variables, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
        request_end, self._requests = os.pipe()
        self._replies, reply_end = os.pipe()
        command = [sys.executable, "-P", "-m", "inlaid.driver.isolated", str(folder), str(request_end), str(reply_end)]
        self.served, self._started = 0, False
        self._log = folder / LOG
        try:
            with self._log.open("wb") as log:
                self._process = subprocess.Popen(
                    command, stdin=subprocess.DEVNULL, stdout=log, stderr=log,
                    env=environment, pass_fds=(request_end, reply_end), start_new_session=True,
                )  # fmt: skip
        except BaseException:
            os.close(self._requests)
            os.close(self._replies)
            raise
        finally:
            os.close(request_end)
            os.close(reply_end)

    def serve(self, folder: Path, seconds: float) -> None:
        """Send the worker the request in a folder, and wait at most `seconds` for the reply. Raises `PluginError`."""
        log_size = self._log.stat().st_size
        if not self._started:
            self._started = self._reply(time.monotonic() + _START) == STARTED
        with contextlib.suppress(BrokenPipeError):
            os.write(self._requests, f"{folder}\n".encode())
        reply = self._reply(time.monotonic() + seconds)
        if reply is None:
            raise _TimeUp(f"the code generator took more than {seconds:g} s and was killed")
        if reply == FAILED:
            with contextlib.suppress(OSError, ValueError, TypeError):
                raise _error(json.loads((folder / ERROR).read_text(encoding="utf-8")))
        if reply != SUCCEEDED:
            raise PluginError(f"the process of the code generator {self._how(reply)}{_quoted(self._log, log_size)}")
        self.served += 1

    def end(self) -> None:
        """End the process and its children."""
        os.close(self._requests)
        os.close(self._replies)
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()

    def _reply(self, deadline: float) -> bytes | None:
        """Read the next reply. Returns b"" if the process exits without a reply, None after the deadline."""
        while (remaining := deadline - time.monotonic()) > 0:
            ended = self._process.poll() is not None
            if select.select([self._replies], [], [], 0 if ended else min(remaining, _TICK))[0]:
                return os.read(self._replies, 1)
            if ended:
                return b""
        return None

    def _how(self, reply: bytes) -> str:
        """Describe what the process did instead of sending a valid reply. Usually it exited, which closes the pipe first."""
        try:
            status = self._process.wait(0.0 if reply else _END)
        except subprocess.TimeoutExpired:
            return "gave no valid reply"
        return f"was killed by {_signal(-status)}" if status < 0 else f"exited with status {status}"


def borders_from_json(data: dict[str, Any]) -> Borders:
    """Rebuild borders from their `asdict` form after a round trip through JSON."""

    def border(facts: dict[str, Any]) -> Border:
        blocks = tuple((int(axis), int(factor)) for axis, factor in facts["layout"]["blocks"])
        return Border(Layout(blocks), str(facts["dtype"]), float(facts["scale"]), int(facts["zero_point"]))

    return Borders(tuple(map(border, data["inputs"])), tuple(map(border, data["outputs"])))


def _error(facts: dict[str, Any]) -> PluginError:
    """Recreate the error that the worker wrote to a file."""
    kind = _Refused if facts.pop("refused") else PluginError
    if isinstance(facts.get("remedy"), dict):
        facts["remedy"] = Remedy(**facts["remedy"])
    return kind(**facts)


def _signal(number: int) -> str:
    return signal.Signals(number).name if number in set(signal.Signals) else f"signal {number}"


def _borders(path: Path) -> Borders | None:
    """Read the borders that the code generator asks for. Raises `PluginError`."""
    try:
        fields = json.loads(path.read_text(encoding="utf-8"))
        return None if fields is None else borders_from_json(fields)
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise PluginError(f"the code generator gave no valid borders: {describe(error)}") from error


def _artifact(path: Path, symbol: str) -> Artifact:
    """Read the artifact that the process wrote. Raises `PluginError`."""
    try:
        (artifact,) = read_package(path).artifacts
    except (PackageError, ValueError) as error:
        raise PluginError(f"the code generator gave no valid artifact: {error}") from error
    if artifact.symbol != symbol:
        raise PluginError(f"expected an artifact named {symbol!r}, got {artifact.symbol!r}")
    return artifact


def _quoted(log: Path, begin: int) -> str:
    """Quote the tail of the worker's output since position `begin` of the log."""
    with log.open("rb") as file:
        file.seek(max(log.stat().st_size - _QUOTED, begin))
        output = " ".join(file.read().decode("utf-8", "replace").split())
    return f', with output: "{output}"' if output else ""
