"""What the compile side and the run side share: the target's options and the format of its artifacts."""

from __future__ import annotations

from dataclasses import dataclass

from inlaid.errors import TargetError

FORMAT, FORMAT_VERSION = "opencl-c", 2
"""Of artifacts: a launch plan and OpenCL C source (`inlaid.runtime.launch_code`)."""

SHUFFLE, SHUFFLE_STANDARD = "cl_khr_subgroup_shuffle", "3.0"
"""The extension by which code reads registers of a subgroup, and the version of OpenCL C that has subgroups."""

NATIVE = "native"
KINDS = ("cpu", "gpu", "embedded")


@dataclass(frozen=True)
class OpenCLOptions:
    """kind: the kind of device to compile for: `cpu`; `gpu`; `embedded`, a GPU whose local memory is main memory; or `native`, the
    kind and the limits of device 0 of this machine, `gpu` where it has none. Raises `TargetError` for another kind."""

    kind: str = NATIVE

    def __post_init__(self) -> None:
        if self.kind not in (NATIVE, *KINDS):
            raise TargetError(
                f"option kind of target opencl must be {NATIVE}, {', '.join(KINDS[:-1])} or {KINDS[-1]}, got {self.kind!r}"
            )
