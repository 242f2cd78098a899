"""Ahead-of-time export of a model for programs without Python: as a shared library and a C header, or as files of a target."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from inlaid.driver.composition import build_library
from inlaid.plugins import Exported as Files
from inlaid.plugins.registry import PluginRegistry, default_registry
from inlaid_runtime.errors import EXPLAIN, InputError, Remedy, Unsupported
from inlaid_runtime.execution.executable import Executable
from inlaid_runtime.execution.output import check_output, write_files
from inlaid_runtime.execution.package import Package
from inlaid_runtime.plugins.blame import blame
from inlaid_runtime.records import dataclass

EXPORT = Remedy("inlaid.driver.export.export_library(executable, path)", "inlaid export")


@dataclass(frozen=True)
class ExportedLibrary:
    """The written files, the workspace of a call in bytes, the bounds of symbolic sizes, and whether the program may provide
    threads."""

    library: Path
    header: Path
    workspace: int
    sizes: Mapping[str, tuple[int, int]]
    threads: bool


def export_library(
    executable: Executable, path: Path, name: str | None = None, registry: PluginRegistry | None = None
) -> ExportedLibrary:
    """Write the shared library `path`, and a header with the same stem next to it.

    `name` is the prefix of the C names; default: the stem of the path without "lib". Symbolic sizes become parameters, and need
    upper bounds, for which the workspace is planned. Parallel code runs on threads that the program provides. Raises `Unsupported`
    unless the model is native code without control flow and with bounded sizes, `CompileError` for code that cannot be linked,
    `InputError` for a path that is a folder or a device, and `OutputError` for files that cannot be written.
    """
    header = path.with_suffix(".h")
    check_output(path)
    check_output(header)
    if path == header:
        raise InputError(f"expected a library path, got the header's path {path}", remedy="use the suffix .so")
    library = build_library(executable, path.stem.removeprefix("lib") if name is None else name, registry or default_registry())
    chunks = library.link(path.name)
    write_files({path: chunks, header: [library.header().encode()]})
    bounds = {size.name: (size.lower, library.sizes.largest[size]) for size in library.sizes.variables}
    return ExportedLibrary(path, header, library.workspace, bounds, library.threads)


def writes_folders(targets: Sequence[str], registry: PluginRegistry | None = None) -> bool:
    """Test whether one of the targets exports files for programs without Inlaid. Raises `TargetError` if one is not installed."""
    registry = registry or default_registry()
    return any(registry.exporter(registry.target(text)) is not None for text in targets)


def export_folder(package: Package, folder: Path, name: str, registry: PluginRegistry | None = None) -> Files:
    """Export a model as files for programs without Inlaid, with the first of its targets that has an exporter.

    `name` is the model's name, a C identifier. Raises `Unsupported` if no target has an exporter or the model needs Inlaid at run
    time, and `InputError` for a folder that cannot be created.
    """
    registry = registry or default_registry()
    targets = list(dict.fromkeys(region.target for region in package.program.regions))
    for text in targets:
        target = registry.target(text)
        exporter = registry.exporter(target)
        if exporter is None:
            continue
        try:
            folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise InputError(f"cannot create the folder {folder}: {error.strerror}") from error
        with blame(registry.owner(target.kind), "the exporter"):
            return exporter.export(package, lambda: Executable(package, registry=registry), folder, name)
    nodes = [node for region in package.program.regions for node in region.nodes]
    raise Unsupported(
        f"expected a target that exports files, got {', '.join(targets) or 'none'}",
        node=nodes[0] if nodes else None,
        remedy=Remedy.join("see ", EXPLAIN, "; or save a package, such as model.inlaid, and export it as a library: ", EXPORT),
    )
