"""The RTL core: SystemVerilog of the default configuration, and its simulation."""

from inlaid_vta_fpga.simulators.rtl.device import Rtl

__all__ = ["Rtl"]
