"""Runtime module: loads x86 artifacts."""

from __future__ import annotations

import ctypes
from collections.abc import Mapping
from typing import Any

import numpy as np

from inlaid_runtime.artifact import Artifact
from inlaid_runtime.errors import KernelFault
from inlaid_runtime.execution.host import CFunctionKernel, HostRuntime
from inlaid_runtime.execution.mapped import map_image
from inlaid_runtime.plugins import Loaded
from inlaid_x86_runtime.cpu import host_features, refusal, remedy, threads
from inlaid_x86_runtime.options import FORMAT, FORMAT_VERSION, X86Options
from inlaid_x86_runtime.pool import MACHINE, pool


class X86Runtime(HostRuntime):
    """Runs regions of target x86 on a process-wide pool of as many threads as the target's options allow."""

    def __init__(self, options: X86Options) -> None:
        super().__init__(FORMAT, FORMAT_VERSION, host_features())
        self._threads = threads(options)

    def check(self, artifact: Artifact) -> str | None:
        """Return why the artifact cannot run on this machine, None if it can. Requests AMX permission if the code needs it."""
        reason = refusal(artifact.requires) or super().check(artifact)
        return f"{reason}; {remedy()}" if reason and not self.features.issuperset(artifact.requires) else reason

    def load(self, artifact: Artifact, constants: Mapping[str, np.ndarray[Any, Any]]) -> Loaded:
        """Load an artifact. Raises `KernelFault` if its code is damaged or the host forbids executable memory."""
        mapped = map_image(artifact.code, MACHINE, artifact.symbol)
        if artifact.symbol not in mapped.addresses:
            raise KernelFault(f"expected code that defines {artifact.symbol}, found damaged code", plugin="x86")
        keep: tuple[object, ...] = (mapped,)
        user = None
        if self._threads > 1:
            workers = pool(self._threads)
            pair = (ctypes.c_void_p * 2)(workers.run, workers.state)
            keep, user = (mapped, workers, pair), ctypes.addressof(pair)
        # Code uses unaligned vector loads, which cost nothing extra for aligned addresses.
        kernel = CFunctionKernel(artifact, mapped.addresses[artifact.symbol], list(constants.values()), keep, user)
        return kernel.loaded(alignment=1)
