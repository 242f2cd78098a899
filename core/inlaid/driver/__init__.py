"""The compiler driver, which knows the order of all stages. Names are loaded on first use: exporting needs few of them."""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from inlaid.driver.build import Progress, build_regions
    from inlaid.driver.compile import build_package, candidates_for, compile_module, cut
    from inlaid.driver.observe import after_step, pass_effects
    from inlaid.driver.prepare import FALLBACK

__all__ = [
    "FALLBACK",
    "Progress",
    "after_step",
    "build_package",
    "build_regions",
    "candidates_for",
    "compile_module",
    "cut",
    "pass_effects",
]

_HOMES = {"FALLBACK": "prepare", "Progress": "build", "build_regions": "build", "after_step": "observe", "pass_effects": "observe"}


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module 'inlaid.driver' has no attribute {name!r}")
    return getattr(importlib.import_module(f"inlaid.driver.{_HOMES.get(name, 'compile')}"), name)
