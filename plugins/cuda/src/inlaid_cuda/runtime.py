"""Runtime module: loads and runs CUDA artifacts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from inlaid_cuda.device import CudaDevice, Devices
from inlaid_cuda.images import Images
from inlaid_cuda.kernels import RegionKernel
from inlaid_cuda.needs import choose, missing
from inlaid_cuda.options import FORMAT, FORMAT_VERSION
from inlaid_runtime.artifact import Artifact
from inlaid_runtime.errors import Unsupported
from inlaid_runtime.execution.driver_devices import DriverRuntime
from inlaid_runtime.execution.launch_code import decode_launches
from inlaid_runtime.plugins import Loaded


class CudaRuntime(DriverRuntime[CudaDevice]):
    """Runs regions on device `number`. Raises `TargetError` if the number is out of range."""

    def __init__(self, devices: Devices, number: int) -> None:
        super().__init__(FORMAT, FORMAT_VERSION, devices.open(number))

    def missing(self, requires: Sequence[str]) -> str | None:
        return missing(requires, self._device.facts)

    def load(self, artifact: Artifact, constants: Mapping[str, np.ndarray[Any, Any]]) -> Loaded:
        """Load an artifact on the device. Raises `Unsupported` for damaged code and code for another architecture, `OutOfMemory` if
        the constants do not fit."""
        plan, program = decode_launches(artifact)
        if self._device.facts.architecture:  # the emulation loads source
            try:
                images = Images.decode(program)
            except ValueError as error:
                raise Unsupported(f"the code of {artifact.symbol} is damaged: {error}", remedy="compile the model again") from error
            program = images.ptx if choose(artifact.requires, self._device.facts).ptx else images.cubin
        kernel = RegionKernel(self._device, artifact, plan, program, constants)
        return Loaded(launching=kernel, timed_launch=kernel.timed_launch)
