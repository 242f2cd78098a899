"""Target options and artifact format, shared by compiler and runtime."""

from __future__ import annotations

from dataclasses import dataclass

from inlaid_runtime.errors import TargetError
from inlaid_vta_fpga.isa.config import Config

FORMAT, FORMAT_VERSION = "vta-stream", 1
"""Artifact format: a DRAM map, an instruction stream and its micro-ops (`image.Image`)."""

FUNCTIONAL, TIMING, RTL, PYNQ = SIMULATORS = ("functional", "timing", "rtl", "pynq")
CLOCK_HZ = 100e6
"""Clock of the Pynq bitstream in Hz. Other boards of VTA run at 100 to 333 MHz."""


@dataclass(frozen=True)
class VtaOptions:
    """Options of target vta_fpga. Raises `TargetError` for an illegal value or configuration.

    simulator: device that runs a stream: `functional` (no clock), `timing` (counts cycles), `rtl` (the Verilated core) or `pynq` (a
    board). log_batch, log_block: log2 of a block's rows and channels. log_uop_buff, log_inp_buff, log_wgt_buff, log_acc_buff: log2
    of the buffers' bytes. The other options are for measurements. threads: virtual threads, 1 or 2. slots: SRAM slots through which
    the tiles of a buffer rotate, 1 or 2; with 1 thread and 1 slot, loads do not run ahead. serial: no two modules run at the same
    time.
    """

    simulator: str = FUNCTIONAL
    log_batch: int = 0
    log_block: int = 4
    log_uop_buff: int = 15
    log_inp_buff: int = 15
    log_wgt_buff: int = 18
    log_acc_buff: int = 17
    threads: int = 1
    slots: int = 2
    serial: bool = False

    def __post_init__(self) -> None:
        if self.simulator not in SIMULATORS:
            raise TargetError(f"option simulator of target vta_fpga must be one of {', '.join(SIMULATORS)}, got {self.simulator!r}")
        for name in ("threads", "slots"):
            if getattr(self, name) not in (1, 2):
                raise TargetError(f"option {name} of target vta_fpga must be 1 or 2, got {getattr(self, name)}")
        if self.log_batch != 0:
            raise TargetError(f"option log_batch of target vta_fpga must be 0 (one row per block), got {self.log_batch}")
        self.config  # noqa: B018 (raises for an illegal configuration)

    @property
    def config(self) -> Config:
        """The configuration of the core."""
        return Config(
            log_batch=self.log_batch,
            log_block=self.log_block,
            log_uop_buff=self.log_uop_buff,
            log_inp_buff=self.log_inp_buff,
            log_wgt_buff=self.log_wgt_buff,
            log_acc_buff=self.log_acc_buff,
        )
