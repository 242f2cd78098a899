"""Requirements of code, encoded as strings in `Artifact.requires`: an architecture and the version of NVRTC.

A device runs cubins of its major compute capability, and of a minor one that is not higher. It runs cubins with a suffix (sm_90a),
and a Tegra device any cubin, only if the compute capability is equal (CUDA C++ Programming Guide, "Binary Compatibility"). The
driver compiles PTX without a suffix for every later compute capability. It loads cubins of its major version of CUDA and of earlier
ones, and PTX of its version and of earlier ones (CUDA Compatibility, "Minor Version Compatibility").
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import NamedTuple

from inlaid_cuda.driver import DeviceFacts
from inlaid_cuda.faults import RECOMPILE
from inlaid_cuda.nvrtc import Version, install, version_text
from inlaid_cuda.options import ARCHITECTURES, HOST, compute_capability

_NVRTC = re.compile(r"nvrtc=(\d{1,4})\.(\d{1,4})")
_TEGRA = (72, 87, 88, 101, 110)
"""Compute capabilities of Tegra devices (Jetson, DRIVE), times 10."""
_OLDEST = int(ARCHITECTURES[0].removeprefix("sm_"))
OTHER_DEVICE = "choose another device by devices="
NATIVELY = "compile on the device's machine (option arch=native)"


class Choice(NamedTuple):
    """The image to load. `ptx`: PTX instead of the cubin. `reason`: None, or why the device can load neither, with a remedy."""

    ptx: bool
    reason: str | None = None


def code_requirements(arch: str, version: Version) -> tuple[str, ...]:
    """Return the requirements of code that a version of NVRTC compiled for an architecture."""
    return arch, f"nvrtc={version_text(version)}"


def missing(requires: Sequence[str], facts: DeviceFacts) -> str | None:
    """Explain why a device cannot run code, and how to fix it; None if it can."""
    return choose(requires, facts).reason


def choose(requires: Sequence[str], facts: DeviceFacts) -> Choice:
    """Choose the image of a region that a device loads: the cubin if it runs it, else PTX."""
    device_arch = HOST if not facts.architecture else f"sm_{facts.architecture}"
    if 0 < facts.architecture < _OLDEST:
        return Choice(
            False, f"{facts.name} is {device_arch}, expected {ARCHITECTURES[0]} or later; {OTHER_DEVICE}, or another target"
        )
    ptx, version = False, None
    for need in requires:
        nvrtc_match = _NVRTC.fullmatch(need)
        if nvrtc_match:
            version = int(nvrtc_match[1]), int(nvrtc_match[2])
        elif need != device_arch and not runs(need, facts.architecture):
            ptx = True
            if not _compiles(need, facts.architecture):
                return Choice(ptx, f"the code is for {need[:20]}, {facts.name} is {device_arch}; {RECOMPILE}, or {OTHER_DEVICE}")
    if ptx and version is None:
        return Choice(ptx, f"the code has no PTX of a known version, {facts.name} is {device_arch}; {RECOMPILE}, or {OTHER_DEVICE}")
    if version is None:
        return Choice(ptx)
    driver = facts.driver_version
    newest: Version = driver if ptx else driver[:1]
    if version[: len(newest)] <= newest:
        return Choice(ptx)
    image, least = ("PTX", version) if ptx else ("a cubin", (version[0], 0))
    remedy = "update NVIDIA's driver" if newest < (12,) else f"{install(newest)} and {NATIVELY}, or update NVIDIA's driver"
    return Choice(
        ptx,
        f"{image} of NVRTC {version_text(version)} needs a driver of CUDA {version_text(least)} or later, that of {facts.name} has "
        f"{version_text(driver)}; {remedy}",
    )


def runs(arch: str, number: int) -> bool:
    """Test whether a device of a compute capability, such as 90 for 9.0, runs the cubin of an architecture."""
    capability, device_capability = compute_capability(arch), divmod(number, 10)
    if capability is None or not number:
        return False
    if arch.endswith("a") or number in _TEGRA or 10 * capability[0] + capability[1] in _TEGRA:
        return capability == device_capability
    return capability[0] == device_capability[0] and capability[1] <= device_capability[1]


def _compiles(need: str, architecture: int) -> bool:
    """Test whether the driver compiles the PTX of an architecture for a device."""
    capability = compute_capability(need)
    return capability is not None and not need.endswith("a") and capability <= divmod(architecture, 10)
