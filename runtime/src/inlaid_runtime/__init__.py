"""Inlaid's runtime: runs compiled packages where no compiler is installed.

    import inlaid_runtime

    executable = inlaid_runtime.load("model.inlaid")
    outputs = executable.run({"input": array})

Names are loaded on first use: looking up a compiled package needs none of them.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from inlaid_runtime.errors import InlaidError as InlaidError
    from inlaid_runtime.execution.arrays import aligned_empty as aligned_empty
    from inlaid_runtime.execution.executable import Executable as Executable
    from inlaid_runtime.execution.executable import load as load
    from inlaid_runtime.execution.package import Package as Package
    from inlaid_runtime.execution.profile import Profile as Profile

__version__ = "0.1.0"

_HOMES = {
    "Executable": "inlaid_runtime.execution.executable",
    "InlaidError": "inlaid_runtime.errors",
    "Package": "inlaid_runtime.execution.package",
    "Profile": "inlaid_runtime.execution.profile",
    "aligned_empty": "inlaid_runtime.execution.arrays",
    "load": "inlaid_runtime.execution.executable",
}

__all__ = ["__version__", *_HOMES]

if not TYPE_CHECKING:  # type checkers see the names above, and report unknown ones

    def __getattr__(name: str) -> Any:
        if name not in _HOMES:
            raise AttributeError(f"module 'inlaid_runtime' has no attribute {name!r}")
        value = globals()[name] = getattr(importlib.import_module(_HOMES[name]), name)
        return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
