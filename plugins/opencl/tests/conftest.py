"""Each process that runs tests has a cache of its own: that of PoCL 3.0 has races. Strategies of the core's tests are used here."""

import gc
import os
import sys
import tempfile
from pathlib import Path

import pytest

os.environ["POCL_CACHE_DIR"] = tempfile.mkdtemp(prefix="pocl-")
sys.path.append(str(Path(__file__).parents[3]))


@pytest.fixture
def device():
    """Device 0. Skips the test where there is none."""
    from inlaid_opencl.platforms import find_devices
    from inlaid_runtime.errors import TargetError

    try:
        find_devices()
    except TargetError as error:
        pytest.skip(f"{error.message}: pip install pocl-binary-distribution")
    from inlaid_opencl.device import open_device

    return open_device(0)


@pytest.fixture
def tidy(device):
    """Holds a test to leaving nothing on the device."""
    gc.collect()
    before = device.live
    yield
    gc.collect()
    assert device.live == before


@pytest.fixture
def queue(device):
    """A queue of the device."""
    handle = device.queue()
    yield handle
    device.release(handle)
