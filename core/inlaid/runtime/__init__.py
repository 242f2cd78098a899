"""Runtime for packages. Imports no compiler package."""

from typing import TYPE_CHECKING, Any

from inlaid.runtime.arrays import aligned_empty
from inlaid.runtime.executable import Executable, load
from inlaid.runtime.package import Package

if TYPE_CHECKING:
    from inlaid.runtime.profile import Profile

__all__ = ["Executable", "Package", "Profile", "aligned_empty", "load"]


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})


def __getattr__(name: str) -> Any:
    if name == "Profile":  # on first use: a program that takes no profile loads faster
        from inlaid.runtime.profile import Profile

        return Profile
    raise AttributeError(f"module 'inlaid.runtime' has no attribute {name!r}")
