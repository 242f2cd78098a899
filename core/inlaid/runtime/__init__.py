"""Runs packages. Needs no compiler package: what it loads is code and data."""

from inlaid.runtime.arrays import aligned_empty
from inlaid.runtime.executable import Executable, load
from inlaid.runtime.package import Package
from inlaid.runtime.profile import Profile

__all__ = ["Executable", "Package", "Profile", "aligned_empty", "load"]
