"""Target options and artifact format, shared by compiler and runtime."""

from __future__ import annotations

from dataclasses import dataclass

from inlaid_runtime.errors import TargetError

FORMAT, FORMAT_VERSION = "opencl-c", 3
"""Artifact format: a launch plan and OpenCL C source (`inlaid_runtime.execution.launch_code`)."""

SHUFFLE = "cl_khr_subgroup_shuffle"
"""The extension for subgroup shuffles."""

NATIVE = "native"
KINDS = ("cpu", "gpu", "embedded")
SUBGROUPS = (0, 2, 4, 8, 16, 32, 64, 128)
"""Values of option subgroup."""
SHARED = "shared"
"""The memory scope of local memory."""


@dataclass(frozen=True)
class OpenCLOptions:
    """Options of target opencl.

    kind: `cpu`; `gpu`; `embedded`, a GPU whose local memory is in global memory; or `native`, which means the kind and limits of
    device 0 of this machine, or `gpu` without a device. subgroup: for `gpu`, the number of work-items that exchange values by
    subgroup shuffles, 0 for no shuffles. `native` uses the shuffles of device 0, if any. float64: False for devices that lack it,
    such as many GPUs; operators on float64 then go to the next target. Kind `embedded` never has it.

    Raises `TargetError` for any other kind or subgroup, and for a subgroup with another kind than `gpu`."""

    kind: str = NATIVE
    subgroup: int = 0
    float64: bool = True

    def __post_init__(self) -> None:
        if self.kind not in (NATIVE, *KINDS):
            raise TargetError(
                f"option kind of target opencl must be {NATIVE}, {', '.join(KINDS[:-1])} or {KINDS[-1]}, got {self.kind!r}"
            )
        if self.subgroup not in SUBGROUPS:
            expected = f"{', '.join(map(str, SUBGROUPS[:-1]))} or {SUBGROUPS[-1]}"
            raise TargetError(f"option subgroup of target opencl must be {expected}, got {self.subgroup}")
        if self.subgroup and self.kind != "gpu":
            raise TargetError(
                f"option subgroup of target opencl needs kind gpu, got {self.kind}",
                remedy=f"opencl:kind=gpu,subgroup={self.subgroup}",
            )
