"""The compiler driver, which knows the order of all stages."""

from inlaid.driver.build import Progress, build_regions
from inlaid.driver.compile import after_step, build_package, candidates_for, compile_module, cut
from inlaid.driver.prepare import FALLBACK

__all__ = ["FALLBACK", "Progress", "after_step", "build_package", "build_regions", "candidates_for", "compile_module", "cut"]
