"""The target's options and the format of its artifacts: what the compile side and the run side share."""

from __future__ import annotations

import re
from dataclasses import dataclass

from inlaid.errors import TargetError

FORMAT, FORMAT_VERSION = "cuda-cubin", 1
"""Of artifacts: a launch plan and a cubin (`inlaid.runtime.launch_code`)."""

NATIVE, HOST = "native", "host"
DEFAULT = "sm_80"
"""The architecture of `native` on a machine without a device."""
ARCHITECTURES = ("sm_70", "sm_75", "sm_80", "sm_86", "sm_87", "sm_88", "sm_89", "sm_90", "sm_90a", "sm_100", "sm_100a", "sm_120")
_ARCHITECTURE = re.compile(r"sm_(\d+)a?")


@dataclass(frozen=True)
class CudaOptions:
    """Options of target cuda.

    arch: the architecture to compile for, such as `sm_80` or `sm_90a`; `native`, that of device 0 of this machine, `sm_80` on a
    machine without a device; `host`, the processor of this machine, which runs the same kernels for tests and debugging. tf32:
    whether products and convolutions of float32 may round their operands to tf32 for tensor cores.

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
    """Major and minor compute capability of an architecture, (9, 0) of `sm_90a`; None of what is none."""
    found = _ARCHITECTURE.fullmatch(arch)
    return divmod(int(found[1]), 10) if found else None
