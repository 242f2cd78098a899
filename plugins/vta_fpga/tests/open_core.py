"""The RTL core under test."""

import pytest

from inlaid_runtime.errors import TargetError
from inlaid_vta_fpga.simulators.rtl.build import find_tools
from inlaid_vta_fpga.simulators.rtl.device import RtlDevice


def open_core(limit: int = 2_000_000) -> RtlDevice:
    """The verilated core, built at the first call of the test run. Skips the test if a tool is missing."""
    try:
        find_tools()
    except TargetError as error:
        pytest.skip(str(error))
    return RtlDevice(limit=limit)
