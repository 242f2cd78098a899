"""The order of the compiler's stages."""

from inlay.driver.build import Progress, build_regions
from inlay.driver.compile import build_package, candidates, compile_module, cut, module_after
from inlay.driver.prepare import FALLBACK

__all__ = ["FALLBACK", "Progress", "build_package", "build_regions", "candidates", "compile_module", "cut", "module_after"]
