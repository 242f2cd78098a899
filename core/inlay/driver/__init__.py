"""The order of the compiler's stages."""

from inlay.driver.build import Progress, build_regions
from inlay.driver.compile import FALLBACK, build_package, candidates, compile_module, cut, module_after

__all__ = ["FALLBACK", "Progress", "build_package", "build_regions", "candidates", "compile_module", "cut", "module_after"]
