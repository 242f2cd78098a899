"""Target options and artifact format, shared by compiler and runtime."""

from __future__ import annotations

from dataclasses import dataclass

from inlaid.errors import TargetError

FORMAT, FORMAT_VERSION = "opencl-c", 3
"""Artifact format: a launch plan and OpenCL C source (`inlaid.runtime.launch_code`)."""

SHUFFLE, SHUFFLE_STANDARD = "cl_khr_subgroup_shuffle", "3.0"
"""SHUFFLE: the extension for subgroup shuffles. SHUFFLE_STANDARD: the version of OpenCL C that has subgroups."""

NATIVE = "native"
KINDS = ("cpu", "gpu", "embedded")


@dataclass(frozen=True)
class OpenCLOptions:
    """Options of target opencl. kind: `cpu`; `gpu`; `embedded`, a GPU whose local memory is in global memory; or `native`, which
    means the kind and limits of device 0 of this machine, or `gpu` without a device. Raises `TargetError` for any other kind."""

    kind: str = NATIVE

    def __post_init__(self) -> None:
        if self.kind not in (NATIVE, *KINDS):
            raise TargetError(
                f"option kind of target opencl must be {NATIVE}, {', '.join(KINDS[:-1])} or {KINDS[-1]}, got {self.kind!r}"
            )
