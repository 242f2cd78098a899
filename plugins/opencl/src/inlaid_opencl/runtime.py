"""Runtime module: loads and runs OpenCL artifacts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from inlaid_opencl.device import OpenCLDevice, open_device
from inlaid_opencl.kernels import RegionKernel
from inlaid_opencl.needs import missing
from inlaid_opencl.options import FORMAT, FORMAT_VERSION
from inlaid_opencl.programs import build
from inlaid_opencl.sessions import RegionCode
from inlaid_runtime.artifact import Artifact
from inlaid_runtime.errors import Unsupported
from inlaid_runtime.execution.driver_devices import DriverRuntime
from inlaid_runtime.execution.launch_code import decode_launches
from inlaid_runtime.plugins import Loaded


class OpenCLRuntime(DriverRuntime[OpenCLDevice]):
    """Runs regions on device `number` of this machine. Raises `TargetError` if the number is out of range."""

    def __init__(self, number: int) -> None:
        super().__init__(FORMAT, FORMAT_VERSION, open_device(number))

    def missing(self, requires: Sequence[str]) -> str | None:
        lacking = missing(requires, self._device.device)
        return lacking and f"{lacking}; compile with the option kind of the device, or choose another by devices="

    def load(self, artifact: Artifact, constants: Mapping[str, np.ndarray[Any, Any]]) -> Loaded:
        """Build an artifact for the device. Raises `Unsupported` for damaged code, `CompileError` if the driver rejects the source,
        and `OutOfMemory` if the constants do not fit."""
        plan, source = decode_launches(artifact)
        try:
            program = build(source.decode(), artifact.symbol, self._device)
        except UnicodeDecodeError as error:
            raise Unsupported(f"the code of {artifact.symbol} is damaged: {error}", remedy="compile the model again") from error
        kernel = RegionKernel(RegionCode(artifact, plan, program, self._device), constants)
        return Loaded(launching=kernel, timed_launch=kernel.timed_launch)
