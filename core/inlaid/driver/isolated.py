"""The process in which `inlaid.driver.isolate` has a region compiled: `python -m inlaid.driver.isolated FOLDER`."""

from __future__ import annotations

import importlib.metadata
import json
import resource
import sys
from dataclasses import asdict
from pathlib import Path

from inlaid import ops
from inlaid.artifact.plan import Program, RegionInfo
from inlaid.cache import caches
from inlaid.driver.context import DriverContext
from inlaid.driver.isolate import BORDERS, CONSTANTS, ERROR, REQUEST, RESULT, TEXT, Request, borders_from_json
from inlaid.driver.region import borders_of, compile_region, source_nodes
from inlaid.errors import InlaidError, Remedy
from inlaid.graph.parse import parse
from inlaid.plugins import Region
from inlaid.plugins.hookspecs import GROUP
from inlaid.plugins.registry import PluginRegistry
from inlaid.runtime.package import Package, read_package, write_package


def main(folder: Path) -> int:
    """Answer the request in a folder; the exit status: 1 where an error is written there."""
    request = Request(**json.loads((folder / REQUEST).read_text(encoding="utf-8")))
    for limit in (resource.RLIMIT_AS, resource.RLIMIT_FSIZE):
        resource.setrlimit(limit, (request.memory, request.memory))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    try:
        _answer(request, folder)
    except InlaidError as error:
        facts = {name: getattr(error, name) for name in ("message", "operator", "node", "region", "plugin", "remedy")}
        if isinstance(error.remedy, Remedy):
            facts["remedy"] = asdict(error.remedy)
        if isinstance(error.__cause__, MemoryError):
            facts["message"] = f"the code generator asked for more than {request.memory >> 20} MiB of memory"
    else:
        return 0
    (folder / ERROR).write_text(json.dumps(facts), encoding="utf-8")
    return 1


def _answer(request: Request, folder: Path) -> None:
    constants = read_package(folder / CONSTANTS).weights
    function = parse((folder / TEXT).read_text(encoding="utf-8"), ops.TABLE, constants)[request.symbol]
    registry = PluginRegistry.discover([importlib.metadata.EntryPoint(*plugin, GROUP) for plugin in request.plugins])
    target = registry.target(request.target)
    borders = None if request.borders is None else borders_from_json(request.borders)
    region = Region(request.symbol, function, target, borders)
    if request.asked:
        found = borders_of(region, registry)
        (folder / BORDERS).write_text(json.dumps(None if found is None else asdict(found)), encoding="utf-8")
        return
    context = DriverContext(target, registry, ops.TABLE, fusion=request.fusion, objects=caches(request.keep).objects)
    artifact = compile_region(region, context)
    info = RegionInfo(request.symbol, request.target, source_nodes(region))
    write_package(Package(Program({}, (info,)), (artifact,), {}), folder / RESULT)


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
