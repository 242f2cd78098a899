"""Memory of this process that nothing uses any more."""

from __future__ import annotations

import ctypes
import gc


def give_back() -> None:
    """Give what nothing refers to any more back to the system, where the C library can be asked to.

    What compiles refers to itself in places, and waits for the garbage collector; glibc keeps arrays of up to 32 MB for later once
    some of that size were freed: 190 MB after compiling ResNet-50. Takes a tenth of a second.
    """
    gc.collect()
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if trim is not None:
        trim(0)
