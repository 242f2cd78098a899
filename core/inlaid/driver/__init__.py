"""The order of the compiler's stages."""

from inlaid.driver.build import Progress, build_regions
from inlaid.driver.compile import build_package, candidates, compile_module, cut, module_after
from inlaid.driver.prepare import FALLBACK

__all__ = ["FALLBACK", "Progress", "build_package", "build_regions", "candidates", "compile_module", "cut", "module_after"]
