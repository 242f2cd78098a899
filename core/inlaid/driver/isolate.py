"""A region compiled in a process of its own, so that a code generator that crashes, hangs or eats memory costs one region.

What goes there and comes back are files: the region as text with its constants beside it, and a package with one artifact, which is
checked as any package is.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from inlaid.artifact import Artifact
from inlaid.artifact.plan import Program
from inlaid.driver.region import source_nodes
from inlaid.errors import InlaidError, PackageError, PluginError, Remedy
from inlaid.graph.ir import Module
from inlaid.graph.text import print_module
from inlaid.plugins import Border, Borders, Region
from inlaid.plugins.blame import describe, some
from inlaid.plugins.registry import PluginRegistry
from inlaid.runtime.package import Package, read_package, write_package
from inlaid.settings import Settings
from inlaid.types import Layout

REQUEST, TEXT, CONSTANTS, LOG = "request.json", "region.txt", "constants.inlaid", "log"
RESULT, BORDERS, ERROR = "result.inlaid", "borders.json", "error.json"
"""The files of the folder that both processes see."""
_QUOTED = 300
"""How many of the last bytes that a process printed are told."""


@dataclass(frozen=True)
class Request:
    """What the other process is asked, besides the region: `memory` in bytes, `plugins` as names and values of entry points;
    `asked`: for the borders that the region should have, not to compile it with those given."""

    symbol: str
    target: str
    plugins: list[tuple[str, str]]
    fusion: bool
    keep: bool
    memory: int
    borders: dict[str, Any] | None
    asked: bool


def compile_isolated(region: Region, registry: PluginRegistry, settings: Settings, keep: bool = True) -> Artifact:
    """`compile_region` in a process of its own, within the limits of `settings.isolation`. Raises `PluginError`, with the names of
    the plugin, the region and the source nodes."""
    with _asked(region, registry, settings, keep, asked=False) as folder:
        return _artifact(folder, region.symbol)


def borders_isolated(region: Region, registry: PluginRegistry, settings: Settings) -> Borders | None:
    """`borders_of` in a process of its own. Raises as `compile_isolated` does."""
    with _asked(region, registry, settings, keep=False, asked=True) as folder:
        try:
            found = json.loads((folder / BORDERS).read_text(encoding="utf-8"))
            return None if found is None else borders_from_json(found)
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise PluginError(f"the code generator gave no sound borders: {describe(error)}") from error


def borders_from_json(data: dict[str, Any]) -> Borders:
    """The borders whose `asdict` was written as JSON."""

    def border(facts: dict[str, Any]) -> Border:
        blocks = tuple((int(axis), int(factor)) for axis, factor in facts["layout"]["blocks"])
        return Border(Layout(blocks), str(facts["dtype"]), float(facts["scale"]), int(facts["zero_point"]))

    return Borders(tuple(map(border, data["inputs"])), tuple(map(border, data["outputs"])))


@contextlib.contextmanager
def _asked(region: Region, registry: PluginRegistry, settings: Settings, keep: bool, asked: bool) -> Iterator[Path]:
    """The folder in which a process has left its answer. Errors get the names of the plugin, the region and the source nodes."""
    limits = settings.isolation
    assert limits is not None
    with tempfile.TemporaryDirectory(prefix="inlaid-") as scratch:
        folder = Path(scratch)
        text, constants = print_module(Module({region.symbol: region.function}))
        (folder / TEXT).write_text(text, encoding="utf-8")
        write_package(Package(Program({}, ()), (), constants), folder / CONSTANTS)
        plugins = [(point.name, point.value) for point in registry.entry_points]
        borders = None if region.borders is None else asdict(region.borders)
        request = Request(region.symbol, str(region.target), plugins, settings.fusion, keep, limits.memory, borders, asked)
        (folder / REQUEST).write_text(json.dumps(asdict(request)), encoding="utf-8")
        try:
            _check(folder, _run(folder, limits.seconds))
            yield folder
        except InlaidError as error:
            error.plugin = error.plugin or registry.owner(region.target.kind)
            error.region = error.region or region.symbol
            error.node = error.node or some(source_nodes(region))
            raise


def _run(folder: Path, seconds: float) -> int:
    """The exit status of the process: negative, the signal that ended it. Raises `PluginError` where time is up. Whatever the
    process has started and left behind is ended with it."""
    variables = {"OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1"}  # the memory that more threads reserve counts as used
    environment = {**os.environ, **variables, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    command = [sys.executable, "-P", "-m", "inlaid.driver.isolated", str(folder)]
    with (folder / LOG).open("wb") as log:
        process = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, env=environment, start_new_session=True
        )
        try:
            return process.wait(seconds)
        except subprocess.TimeoutExpired:
            raise PluginError(f"the code generator took more than {seconds:g} s and was ended") from None
        finally:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()


def _check(folder: Path, status: int) -> None:
    """Raises the error that the process reports, as `PluginError`, or says how it ended where it could not even do that."""
    if status == 1:
        with contextlib.suppress(OSError, ValueError, TypeError):
            facts: dict[str, Any] = json.loads((folder / ERROR).read_text(encoding="utf-8"))
            if isinstance(facts.get("remedy"), dict):
                facts["remedy"] = Remedy(**facts["remedy"])
            raise PluginError(**facts)
    if status:
        how = f"was ended by {_signal(-status)}" if status < 0 else f"left with exit status {status}"
        raise PluginError(f"the process of the code generator {how}{_quoted(folder / LOG)}")


def _signal(number: int) -> str:
    return signal.Signals(number).name if number in set(signal.Signals) else f"signal {number}"


def _artifact(folder: Path, symbol: str) -> Artifact:
    """What the process made. Raises `PluginError`."""
    try:
        (artifact,) = read_package(folder / RESULT).artifacts
    except (PackageError, ValueError) as error:
        raise PluginError(f"the code generator gave no sound artifact: {error}") from error
    if artifact.symbol != symbol:
        raise PluginError(f"the code generator gave an artifact {artifact.symbol!r}")
    return artifact


def _quoted(log: Path) -> str:
    with log.open("rb") as file:
        file.seek(max(log.stat().st_size - _QUOTED, 0))
        said = " ".join(file.read().decode("utf-8", "replace").split())
    return f', having said: "{said}"' if said else ""
