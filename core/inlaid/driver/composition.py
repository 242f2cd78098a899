"""The schedules and linkers that the compiler uses for every target. Of the core, only this module imports `inlaid.schedules` and
`inlaid.codegen`, the packages that targets share."""

from __future__ import annotations

from typing import TYPE_CHECKING

from inlaid.schedules.choose_convolution import choose_convolution
from inlaid.schedules.default import shared_rules, shared_transforms

if TYPE_CHECKING:
    from inlaid.codegen.shared_library import SharedLibrary
    from inlaid.plugins.registry import PluginRegistry
    from inlaid_runtime.execution.executable import Executable

__all__ = ["build_library", "choose_convolution", "shared_rules", "shared_transforms"]


def build_library(executable: Executable, name: str, registry: PluginRegistry) -> SharedLibrary:
    """Prepare the export of a model as a shared library. `name` is the prefix of its C names once it is a C identifier."""
    from inlaid.codegen.shared_library import SharedLibrary  # on use: compiling needs no linker

    return SharedLibrary(executable, name, registry)
