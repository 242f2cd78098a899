"""Loading and running x86 artifacts."""

from __future__ import annotations

import ctypes
from collections.abc import Mapping
from typing import Any

import numpy as np

from inlaid.artifact import Artifact
from inlaid.artifact.objects import X86_64, unpack
from inlaid.errors import KernelFault
from inlaid.runtime.host import CFunctionKernel, HostRuntime
from inlaid_x86.cpu import host_features, refusal, remedy, threads
from inlaid_x86.loader import link
from inlaid_x86.options import FORMAT, FORMAT_VERSION, X86Options


class X86Runtime(HostRuntime):
    """Runs regions on the threads of the process-wide pool of the size that the target's options ask for."""

    def __init__(self, options: X86Options) -> None:
        super().__init__(FORMAT, FORMAT_VERSION, host_features())
        self._threads = threads(options)

    def check(self, artifact: Artifact) -> str | None:
        """None when the artifact can run here, else the reason why not. Asks the kernel for what it grants on request only."""
        reason = refusal(artifact.requires) or super().check(artifact)
        return f"{reason}; {remedy()}" if reason and not self.features.issuperset(artifact.requires) else reason

    def load(self, artifact: Artifact, constants: Mapping[str, np.ndarray[Any, Any]]) -> CFunctionKernel:
        """The artifact ready to run. Raises `KernelFault` when its code cannot be linked."""
        try:
            objects = unpack(artifact.code, X86_64)
        except ValueError as error:
            raise KernelFault(f"the code of {artifact.symbol} cannot be loaded: {error}", plugin="x86") from error
        linked = link(objects, artifact.symbol, (artifact.symbol,))
        keep: tuple[object, ...] = (linked,)
        user = None
        if self._threads > 1:
            from inlaid_x86.pool import pool

            workers = pool(self._threads)
            pair = (ctypes.c_void_p * 2)(workers.run, workers.state)
            keep, user = (linked, workers, pair), ctypes.addressof(pair)
        # Vector loads are unaligned ones, which cost nothing more where the address is aligned after all.
        return CFunctionKernel(artifact, linked.addresses[artifact.symbol], list(constants.values()), keep, user, alignment=1)
