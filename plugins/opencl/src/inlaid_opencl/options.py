"""The options of the opencl target."""

from __future__ import annotations

from dataclasses import dataclass

FORMAT, FORMAT_VERSION = "opencl-c", 1


@dataclass(frozen=True)
class OpenCLOptions:
    """kind: the kind of device to compile for: cpu, gpu, or embedded, a GPU whose shared memory is main memory; native: that of the
    first device of this machine, gpu where there is none."""

    kind: str = "native"
