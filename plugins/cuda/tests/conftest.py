"""Fixtures, and access to the strategies of the core's tests."""

import gc
import sys
from pathlib import Path

import pytest

sys.path.append(str(Path(__file__).parents[3]))


@pytest.fixture
def host_compiler():
    """The host's C++ compiler. Skips the test if there is none."""
    from inlaid_cuda.emulation.build import INSTALL, find_compiler

    return find_compiler() or pytest.skip(f"there is no C++ compiler: {INSTALL}")


@pytest.fixture
def device(host_compiler, monkeypatch):
    """A device with a delaying driver, which is the device of `arch=host` during the test."""
    from inlaid_cuda import device as module
    from inlaid_cuda.device import Devices

    from .late import LateDriver

    devices = Devices(LateDriver(memory=1 << 28))
    monkeypatch.setattr(module, "open_devices", lambda options: devices)
    handle = devices.open(0)
    yield handle
    gc.collect()


@pytest.fixture
def tidy(device):
    """Check that a test leaves nothing on the device but what is reused."""
    from .late import leftovers

    before = leftovers(device)
    yield
    assert leftovers(device) == before and not device.live


@pytest.fixture
def queue(device):
    """A queue of the device."""
    handle = device.queue()
    yield handle
    device.release(handle)


@pytest.fixture
def loaded(device):
    """Loads an artifact."""
    from inlaid_cuda.device import open_devices
    from inlaid_cuda.options import HOST, CudaOptions
    from inlaid_cuda.runtime import CudaRuntime

    runtime = CudaRuntime(open_devices(CudaOptions(HOST)), 0)
    return lambda artifact: runtime.load(artifact, artifact.constants)


@pytest.fixture
def nvrtc():
    """NVRTC. Skips the test if it is not installed."""
    from inlaid_cuda.nvrtc import nvrtc
    from inlaid_runtime.errors import TargetError

    try:
        return nvrtc("sm_80")
    except TargetError as error:
        pytest.skip(str(error))
