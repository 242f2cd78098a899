"""The order of the compiler's stages."""

from inlay.driver.compile import FALLBACK, Progress, candidates, compile_module, cut, module_after

__all__ = ["FALLBACK", "Progress", "candidates", "compile_module", "cut", "module_after"]
