"""Target options and artifact format, shared by compiler and runtime."""

from __future__ import annotations

import re
from dataclasses import dataclass

from inlaid_runtime.errors import TargetError

FORMAT, FORMAT_VERSION = "cuda-cubin", 3
"""Artifact format: a launch plan and images, or source for `host` (`inlaid_runtime.execution.launch_code`,
`inlaid_cuda.images`)."""

NATIVE, HOST = "native", "host"
DEFAULT = "sm_80"
"""Architecture of `native` on a machine without a device."""
ARCHITECTURES = ("sm_70", "sm_75", "sm_80", "sm_86", "sm_87", "sm_88", "sm_89", "sm_90", "sm_90a", "sm_100", "sm_100a", "sm_120")
_ARCHITECTURE = re.compile(r"sm_(\d{2,3})a?")


@dataclass(frozen=True)
class CudaOptions:
    """Options of target cuda.

    arch: the architecture to compile for, such as `sm_80` or `sm_90a`; `native`: the architecture of device 0 of this machine, or
    `sm_80` without a device; `host`: the processor of this machine, which emulates a device for tests and debugging. tf32: float32
    products and convolutions may round their operands to tf32 for tensor cores.

    Raises `TargetError` for an unknown architecture.
    """

    arch: str = NATIVE
    tf32: bool = False

    def __post_init__(self) -> None:
        if self.arch not in (NATIVE, HOST, *ARCHITECTURES):
            raise TargetError(
                f"option arch of target cuda: expected {NATIVE}, {HOST} or one of {', '.join(ARCHITECTURES)}, got {self.arch!r}"
            )


def compute_capability(arch: str) -> tuple[int, int] | None:
    """Return the major and minor compute capability, such as (9, 0) for `sm_90a`; None if `arch` is not an architecture."""
    match = _ARCHITECTURE.fullmatch(arch)
    return divmod(int(match[1]), 10) if match else None
