"""The worker process of `inlaid.driver.isolate`.

    python -m inlaid.driver.isolated FOLDER REQUESTS REPLIES

REQUESTS and REPLIES are file descriptors of pipes.
"""

from __future__ import annotations

import importlib.metadata
import json
import os
import resource
import sys
from dataclasses import asdict
from pathlib import Path
from typing import Any

from inlaid import ops
from inlaid.driver.context import DriverContext, Programs
from inlaid.driver.isolate import (
    BORDERS,
    CONSTANTS,
    ERROR,
    FAILED,
    REQUEST,
    RESULT,
    SETTINGS,
    STARTED,
    SUCCEEDED,
    TEXT,
    Request,
    WorkerSettings,
    borders_from_json,
)
from inlaid.driver.region import compile_region, request_borders, source_nodes
from inlaid.graph.ir import Function
from inlaid.graph.parse import parse
from inlaid.plugins import Region
from inlaid.plugins.registry import PluginRegistry
from inlaid_runtime.artifact.plan import Program, RegionInfo
from inlaid_runtime.cache import MemoryCache, caches
from inlaid_runtime.errors import InlaidError, Remedy, Unsupported
from inlaid_runtime.execution.output import write_text
from inlaid_runtime.execution.package import Package, read_package, write_package


def main(folder: Path, requests: int, replies: int) -> int:
    """Answer requests until the pipe closes. Each request is one line, the folder of a region; each reply is one byte."""
    for pipe in (requests, replies):
        os.set_inheritable(pipe, False)
    settings = WorkerSettings(**json.loads((folder / SETTINGS).read_text(encoding="utf-8")))
    for limit in (resource.RLIMIT_AS, resource.RLIMIT_FSIZE):
        resource.setrlimit(limit, (settings.memory, settings.memory))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    server = _Server(settings)
    os.write(replies, STARTED)
    with open(requests, "rb") as lines:
        for line in lines:
            os.write(replies, server.serve(Path(os.fsdecode(line[:-1]))))
    return 0


class _Server:
    """Answers requests. A region is kept between the request for its borders and its compilation; shared kernels are made once."""

    def __init__(self, settings: WorkerSettings) -> None:
        self._settings = settings
        self._registry = PluginRegistry.discover([importlib.metadata.EntryPoint(*plugin) for plugin in settings.plugins])
        disk_cache = caches(settings.keep).objects
        self._objects = MemoryCache() if disk_cache.folder is None else disk_cache
        self._programs: Programs = {}
        self._printed: dict[Any, Any] = {}
        self._functions: dict[Path, Function] = {}

    def serve(self, folder: Path) -> bytes:
        """Write the answer to a request, or an error, into its folder. Returns the reply, SUCCEEDED or FAILED."""
        try:
            self._answer(folder)
        except InlaidError as error:
            facts = {name: getattr(error, name) for name in ("message", "operator", "node", "region", "plugin", "remedy")}
            if isinstance(error.remedy, Remedy):
                facts["remedy"] = asdict(error.remedy)
            if isinstance(error.__cause__, MemoryError):
                facts["message"] = f"the code generator exceeded the memory limit of {self._settings.memory >> 20} MiB"
            facts["refused"] = isinstance(error, Unsupported)
            write_text(folder / ERROR, json.dumps(facts))
            return FAILED
        return SUCCEEDED

    def _answer(self, folder: Path) -> None:
        request = Request(**json.loads((folder / REQUEST).read_text(encoding="utf-8")))
        function = self._functions.pop(folder, None)
        if function is None:
            constants = read_package(folder / CONSTANTS).weights
            function = parse((folder / TEXT).read_text(encoding="utf-8"), ops.TABLE, constants)[request.symbol]
        target = self._registry.target(request.target)
        borders = None if request.borders is None else borders_from_json(request.borders)
        region = Region(request.symbol, function, target, borders)
        if request.asks_borders:
            self._functions[folder] = function
            region_borders = request_borders(region, self._registry)
            write_text(folder / BORDERS, json.dumps(None if region_borders is None else asdict(region_borders)))
            return
        context = DriverContext(
            target, self._registry, ops.TABLE, fusion=self._settings.fusion, objects=self._objects, programs=self._programs,
            printed=self._printed,
        )  # fmt: skip
        artifact = compile_region(region, context)
        info = RegionInfo(request.symbol, request.target, source_nodes(region))
        write_package(Package(Program({}, (info,)), (artifact,), {}), folder / RESULT)


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3])))
