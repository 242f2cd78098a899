"""Loading and running x86 artifacts."""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Mapping
from typing import Any
from weakref import WeakSet

import numpy as np

from inlay.artifact import Artifact
from inlay.artifact.objects import X86_64, unpack
from inlay.errors import Unsupported
from inlay.runtime.host import CFunctionKernel, HostRuntime
from inlay_x86.cpu import host_features, refusal, threads
from inlay_x86.loader import Linked, link
from inlay_x86.options import FORMAT, FORMAT_VERSION, X86Options


class X86Runtime(HostRuntime):
    """Runs regions on the threads of the process-wide pool of the size that the target's options ask for."""

    def __init__(self, options: X86Options) -> None:
        super().__init__(FORMAT, FORMAT_VERSION, host_features())
        self._threads = threads(options)
        self._lock = threading.Lock()
        self._live: WeakSet[Linked] = WeakSet()

    def check(self, artifact: Artifact) -> str | None:
        """None when the artifact can run here, else the reason why not. Asks the kernel for what it grants on request only."""
        return refusal(artifact.requires) or super().check(artifact)

    def live_bytes(self) -> int:
        """Bytes of object code that living kernels of this module have loaded. Weights are the caller's, threads the process's."""
        with self._lock:
            return sum(linked.size for linked in self._live)

    def load(self, artifact: Artifact, constants: Mapping[str, np.ndarray[Any, Any]]) -> CFunctionKernel:
        """The artifact ready to run. Raises `Unsupported` when its code cannot be linked."""
        try:
            objects = unpack(artifact.code, X86_64)
        except ValueError as error:
            raise Unsupported(f"the code of {artifact.symbol} cannot be loaded: {error}", plugin="x86") from error
        linked = link(objects, artifact.symbol, (artifact.symbol,))
        with self._lock:
            self._live.add(linked)
        keep: tuple[object, ...] = (linked,)
        user = None
        if self._threads > 1:
            from inlay_x86.pool import pool

            workers = pool(self._threads)
            pair = (ctypes.c_void_p * 2)(workers.run, workers.state)
            keep, user = (linked, workers, pair), ctypes.addressof(pair)
        # Vector loads are unaligned ones, which cost nothing more where the address is aligned after all.
        return CFunctionKernel(artifact, linked.addresses[artifact.symbol], list(constants.values()), keep, user, alignment=1)
