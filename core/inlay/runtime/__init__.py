"""Runs packages. Needs no compiler package: what it loads is code and data."""

from inlay.runtime.arrays import aligned_empty
from inlay.runtime.executable import Executable, load
from inlay.runtime.package import Package
from inlay.runtime.profile import Profile

__all__ = ["Executable", "Package", "Profile", "aligned_empty", "load"]
