"""Runtime for packages. Imports no compiler package. Names are loaded on first use: looking a package up needs none of them."""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from inlaid.runtime.arrays import aligned_empty
    from inlaid.runtime.executable import Executable, load
    from inlaid.runtime.package import Package
    from inlaid.runtime.profile import Profile

__all__ = ["Executable", "Package", "Profile", "aligned_empty", "load"]

_HOMES = {"Executable": "executable", "Package": "package", "Profile": "profile", "aligned_empty": "arrays", "load": "executable"}


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'inlaid.runtime' has no attribute {name!r}")
    found = globals()[name] = getattr(importlib.import_module(f"inlaid.runtime.{_HOMES[name]}"), name)
    return found
