"""Each process that runs tests has a cache of its own: that of PoCL 3.0 has races."""

import gc
import os
import tempfile

import pytest

os.environ["POCL_CACHE_DIR"] = tempfile.mkdtemp(prefix="pocl-")


@pytest.fixture
def device():
    """Device 0, on which nothing is left behind. Skips the test where there is none."""
    from inlaid.errors import TargetError
    from inlaid_opencl.platforms import find_devices

    try:
        find_devices()
    except TargetError as error:
        pytest.skip(f"{error.message}: pip install pocl-binary-distribution")
    from inlaid_opencl.device import open_device

    found = open_device(0)
    gc.collect()
    before = found.live
    yield found
    gc.collect()
    assert found.live == before


@pytest.fixture
def queue(device):
    """A queue of the device."""
    found = device.queue()
    yield found
    device.release(found)
