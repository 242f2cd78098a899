"""Loading and running CUDA artifacts."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from inlaid.artifact import Artifact
from inlaid.plugins import Loaded
from inlaid.runtime.host import HostRuntime
from inlaid.runtime.launch_code import decode_launches
from inlaid_cuda.device import CudaDevice, Devices
from inlaid_cuda.kernels import RegionKernel
from inlaid_cuda.needs import missing
from inlaid_cuda.options import FORMAT, FORMAT_VERSION


class CudaRuntime(HostRuntime):
    """Runs regions on device `number`. Raises `TargetError` where there is none of that number."""

    def __init__(self, devices: Devices, number: int) -> None:
        super().__init__(FORMAT, FORMAT_VERSION)
        self._device = devices.open(number)

    def check(self, artifact: Artifact) -> str | None:
        """Explain why the device cannot run an artifact, with a remedy; None if it can."""
        return super().check(replace(artifact, requires=())) or missing(artifact.requires, self._device.facts)

    def load(self, artifact: Artifact, constants: Mapping[str, np.ndarray[Any, Any]]) -> Loaded:
        """The artifact on the device.

        Raises `Unsupported` for damaged code and for code of another architecture, `OutOfMemory` where there is no room for the
        constants."""
        plan, program = decode_launches(artifact)
        kernel = RegionKernel(self._device, artifact, plan, program, constants)
        return Loaded(launching=kernel, timed_launch=kernel.timed_launch)

    def device(self) -> CudaDevice:
        """The device that regions run on."""
        return self._device

    def live_bytes(self) -> int:
        """Bytes of device memory that this process has allocated."""
        return self._device.live
