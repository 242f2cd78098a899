"""Runtime module: runs regions in the DRAM of a simulator or a board."""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping, Sequence
from math import prod
from typing import Any

import numpy as np

from inlaid_runtime.errors import TargetError, Unsupported
from inlaid_runtime.execution.host import HostRuntime
from inlaid_runtime.plugins import Artifact, DeviceStatus, KernelTime, Loaded, TensorSpec
from inlaid_vta_fpga.image import Image
from inlaid_vta_fpga.isa.config import Config
from inlaid_vta_fpga.options import CLOCK_HZ, FORMAT, FORMAT_VERSION, PYNQ, RTL, TIMING, VtaOptions
from inlaid_vta_fpga.simulators.device import Device, Report

Array = np.ndarray[Any, Any]


def create_device(options: VtaOptions, config: Config) -> Device:
    """Create the device that the options select, for a configuration. Raises `TargetError` if the device is not available."""
    if options.simulator == TIMING:
        from inlaid_vta_fpga.simulators.timed import Timed

        return Timed(config)
    if options.simulator == RTL:
        from inlaid_vta_fpga.simulators.rtl.device import RtlDevice

        return RtlDevice(config)
    if options.simulator == PYNQ:
        from inlaid_vta_fpga.pynq import Pynq

        return Pynq(config)
    from inlaid_vta_fpga.simulators.functional import Functional

    return Functional(config)


def probe(options: VtaOptions) -> DeviceStatus:
    """Report whether the device selected by the options is available."""
    if options.simulator == RTL:
        from inlaid_vta_fpga.simulators.rtl.build import find_tools

        try:
            find_tools()
        except TargetError as error:
            return DeviceStatus(False, str(error))
    if options.simulator == PYNQ:
        from inlaid_vta_fpga.pynq import status

        return status()
    return DeviceStatus(True, f"{options.simulator} simulator")


class VtaRuntime(HostRuntime):
    """Loads streams for the device selected by the options."""

    def __init__(self, options: VtaOptions) -> None:
        super().__init__(FORMAT, FORMAT_VERSION)
        self._options = options

    def load(self, artifact: Artifact, constants: Mapping[str, Array]) -> Loaded:
        """Load a region. Raises `Unsupported` for damaged code, and `TargetError` if the device is not available."""
        image = Image.from_bytes(artifact.code)
        kernel = VtaKernel(artifact, image, list(constants.values()), create_device(self._options, image.header.config))
        return Loaded(kernel, profile=kernel.profile)


class VtaKernel:
    """A loaded region. Each run copies the caller's buffers to a private DRAM image and results back. `report`: counters of the
    last run."""

    report: Report | None = None

    def __init__(self, artifact: Artifact, image: Image, constants: Sequence[Array], device: Device) -> None:
        header, signature = image.header, artifact.signature
        sides = ((header.inputs, signature.inputs), (header.outputs, signature.outputs), (header.constants, constants))
        if any(len(header_addresses) != len(tensors) for header_addresses, tensors in sides):
            raise Unsupported(f"expected {FORMAT} code that matches its signature, found different inputs, outputs or constants")
        self._image, self._device = image, device
        self._lock = threading.Lock()
        self._free: list[Array] = []
        self._constants: dict[int, Array] = {}
        try:
            for address, tensor in zip(header.inputs, signature.inputs, strict=True):
                if address:
                    image.check_dram_range(address, _elements(tensor))
            for addresses, tensor in zip(header.outputs, signature.outputs, strict=True):
                if tensor.dtype is None or len(addresses) != tensor.dtype.bytes:
                    raise ValueError(f"expected an address for each byte of {tensor.dtype}, found {len(addresses)}")
                for address in addresses:
                    image.check_dram_range(address, _elements(tensor))
            for address, array in zip(header.constants, constants, strict=True):
                if address:
                    image.check_dram_range(address, array.nbytes)
                    self._constants[address] = np.ascontiguousarray(array).view(np.uint8).reshape(-1)
        except ValueError as error:
            raise Unsupported(f"malformed {FORMAT} code: {error}", remedy="compile the model again") from error

    def invoke(self, inputs: Sequence[Array], outputs: Sequence[Array], workspace: Array, dims: Array) -> None:
        """Run the region (see `inlaid.plugins.Kernel`). Raises `KernelFault` for an illegal stream."""
        self._run(inputs, outputs)

    def profile(self, inputs: Sequence[Array], outputs: Sequence[Array], workspace: Array, dims: Array) -> Sequence[KernelTime]:
        """Run the region and return its time. It is measured by the clock of the device, or as wall time of the simulator if the
        device has no clock."""
        begin = time.perf_counter()
        cycles = self._run(inputs, outputs).cycles
        return [KernelTime(0, 0.0, time.perf_counter() - begin if cycles is None else cycles / CLOCK_HZ)]

    def _run(self, inputs: Sequence[Array], outputs: Sequence[Array]) -> Report:
        header = self._image.header
        with self._lock:
            dram = self._free.pop() if self._free else None
        if dram is None:
            dram = self._image.dram(self._constants)
        for address, array in zip(header.inputs, inputs, strict=True):
            if address:
                dram[address : address + array.size] = np.ascontiguousarray(array).view(np.uint8).reshape(-1)
        with self._lock:
            report = self.report = self._device.run(dram, header.stream, header.count)
        for addresses, array in zip(header.outputs, outputs, strict=True):
            _read(dram, addresses, array)
        with self._lock:
            self._free.append(dram)
        return report


def _elements(tensor: TensorSpec) -> int:
    return prod(dim for dim in tensor.shape if isinstance(dim, int))


def _read(dram: Array, addresses: tuple[int, ...], array: Array) -> None:
    """Copy a result out of DRAM and interleave its byte planes."""
    planes = np.empty((array.size, len(addresses)), np.uint8)
    for plane, address in enumerate(addresses):
        planes[:, plane] = dram[address : address + array.size]
    array[...] = planes.view(array.dtype).reshape(array.shape)
