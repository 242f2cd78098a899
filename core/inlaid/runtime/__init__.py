"""Runtime for packages. Imports no compiler package."""

from inlaid.runtime.arrays import aligned_empty
from inlaid.runtime.executable import Executable, load
from inlaid.runtime.package import Package
from inlaid.runtime.profile import Profile

__all__ = ["Executable", "Package", "Profile", "aligned_empty", "load"]
