"""Runtime module: loads the library and regions that call it."""

import ctypes
import functools
from pathlib import Path

from inlaid_runtime.execution.c_source import CSourceRuntime

FORMAT, VERSION = "blas-c", 1


@functools.cache
def library():
    """Load OpenBLAS from its PyPI package."""
    import scipy_openblas32

    (file,) = Path(scipy_openblas32.get_lib_dir()).glob("*openblas.*")
    return ctypes.CDLL(str(file))


class BlasRuntime(CSourceRuntime):
    def __init__(self, threads):
        library().scipy_openblas_set_num_threads(threads)
        super().__init__(FORMAT, VERSION, ctypes.cast(library().scipy_cblas_sgemm, ctypes.c_void_p).value)
