"""Runtime module: loads programs, keeps their constants in device memory, and enqueues them."""

import json
import weakref

import numpy as np

from inlaid_acme.device import AcmeDevice
from inlaid_acme.hardware import FORMAT, FORMAT_VERSION
from inlaid_acme.simulator import Accelerator
from inlaid_runtime.errors import TargetError, Unsupported
from inlaid_runtime.execution.host import HostRuntime
from inlaid_runtime.plugins import DeviceTensor, Loaded

DEVICES = (AcmeDevice(),)
"""The devices of this machine, shared by all regions that are loaded on them."""


class AcmeRuntime(HostRuntime):
    def __init__(self, number=0):
        super().__init__(FORMAT, FORMAT_VERSION)
        if not 0 <= number < len(DEVICES):
            raise TargetError(f"acme needs a device number from 0 to {len(DEVICES) - 1}, got {number}")
        self._device = DEVICES[number]

    def device(self):
        return self._device

    def live_bytes(self):
        facts = self._device.memory()
        return facts.total - facts.free

    def load(self, artifact, constants):
        try:
            program = json.loads(artifact.code)
            buffers = {int(number): buffer for number, buffer in program["buffers"].items()}
            accelerator = Accelerator(program["instructions"], buffers)
            return Loaded(launching=AcmeKernel(self._device, accelerator, buffers, list(constants.values())))
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise Unsupported(f"the code of {artifact.symbol} must be a program of Acme, found {error!r}") from error


class AcmeKernel:
    """A loaded program. It changes only its arguments, so that several threads may launch it."""

    def __init__(self, device, accelerator, buffers, constants):
        self._device, self._accelerator = device, accelerator
        self._buffers = {
            number: (each["storage"], each["place"], tuple(each["shape"]), np.dtype(each["dtype"]))
            for number, each in buffers.items()
        }
        self._constants = [self._uploaded(array) for array in constants]

    def _uploaded(self, array):
        """Return a copy of a constant on the device, which is freed with the kernel."""
        device = self._device
        tensor = DeviceTensor(device.allocate(max(array.nbytes, 1)), 0, array.shape, array.dtype)
        weakref.finalize(self, device.free, tensor.buffer)
        queue = device.queue()
        device.upload(array, tensor, queue)
        device.synchronize(device.event(queue))
        device.release(queue)
        return tensor

    def launch(self, inputs, outputs, workspace, dims, queue):
        banks = {"input": inputs, "output": outputs, "constant": self._constants}
        tensors = {number: self._tensor(*buffer, banks, workspace) for number, buffer in self._buffers.items()}
        view = self._device.view
        self._device.enqueue(queue, lambda: self._accelerator.run({number: view(each) for number, each in tensors.items()}))

    @staticmethod
    def _tensor(storage, position, shape, dtype, banks, workspace):
        """Return the tensor of a buffer: one of the caller, a constant, or a part of the workspace."""
        if storage != "arena":
            return banks[storage][position]
        return DeviceTensor(workspace.buffer, workspace.offset + position, shape, dtype)
