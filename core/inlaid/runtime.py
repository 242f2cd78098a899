"""The runtime under the compiler's name: the objects of `inlaid_runtime`."""

from typing import TYPE_CHECKING, Any

import inlaid_runtime

if TYPE_CHECKING:
    from inlaid_runtime import Executable as Executable
    from inlaid_runtime import Package as Package
    from inlaid_runtime import Profile as Profile
    from inlaid_runtime import aligned_empty as aligned_empty
    from inlaid_runtime import load as load

__all__ = ["Executable", "Package", "Profile", "aligned_empty", "load"]


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module 'inlaid.runtime' has no attribute {name!r}")
    return getattr(inlaid_runtime, name)
