"""Build of programs from source, with a cache of the binaries that drivers return."""

from __future__ import annotations

from typing import Any

import pyopencl as cl
from pyopencl import _cl

from inlaid_opencl.device import OpenCLDevice
from inlaid_opencl.options import SHUFFLE
from inlaid_opencl.subgroups import shuffle_standard
from inlaid_runtime.cache import DiskCache, caches, digest
from inlaid_runtime.errors import CompileError

_STANDARD = "1.2"
"""Version of OpenCL C of sources without shuffles."""
_EXACT = "-cl-fp32-correctly-rounded-divide-sqrt"
"""Build option for exact division. It is used if the device supports it; else division is accurate only to 2.5 ulp."""
_LINES = 12
"""Maximum lines of a build log in an error."""
CACHING_DRIVERS = frozenset({"Portable Computing Language", "NVIDIA CUDA", "rusticl"})
"""Names of platforms whose drivers cache builds. Their binaries are not cached here: PoCL recompiles each kernel to return a
binary, which takes 0.4 s instead of 0.04 s for a build, and rusticl 22.3 aborts the process if a binary is damaged."""


def build(source: str, symbol: str, device: OpenCLDevice, store: DiskCache | None = None) -> _cl._Program:
    """Build a program from the cached binary if the driver accepts the binary, else from source. `store` defaults to
    `caches().objects`.

    Raises `CompileError` with the first lines of the log if the driver rejects the source."""
    # pyopencl's `Program` would cache builds a second time, and warn if the log is not empty.
    cl_device, options = device.device, _options(device, source)
    if cl_device.platform.name in CACHING_DRIVERS:
        return _from_source(source, symbol, device)
    store = caches().objects if store is None else store
    key = digest(
        "opencl binary", source, options, cl_device.platform.name, cl_device.name, cl_device.version, cl_device.driver_version
    )
    binary = store.get(key)
    if binary is not None:
        try:
            program = _cl._Program(device.context, [cl_device], [binary])
            program._build(options.encode(), [cl_device])
            return program
        except cl.Error:
            pass  # stale or damaged: rebuild from source
    program = _from_source(source, symbol, device)
    try:
        binaries: Any = program.get_info(cl.program_info.BINARIES)
    except cl.Error:
        return program
    store.put(key, bytes(binaries[0]))
    return program


def _options(device: OpenCLDevice, source: str) -> str:
    standard = shuffle_standard(device.device) if SHUFFLE in source else ""
    options = f"-cl-std=CL{standard or _STANDARD} -w"
    exact = device.device.single_fp_config & cl.device_fp_config.CORRECTLY_ROUNDED_DIVIDE_SQRT
    return f"{options} {_EXACT}" if exact else options


def _from_source(source: str, symbol: str, device: OpenCLDevice) -> _cl._Program:
    program = _cl._Program(device.context, source)
    try:
        program._build(_options(device, source).encode(), [device.device])
    except cl.Error as error:
        log = ""
        if error.code == cl.status_code.BUILD_PROGRAM_FAILURE:
            log = str(program.get_build_info(device.device, cl.program_build_info.LOG))
        else:
            failure = device.failure(error, f"building region {symbol}")
            if failure is not error:
                raise failure from error
        lines = [line.rstrip() for line in log.splitlines() if line.strip()]
        more = f"\n... and {len(lines) - _LINES} more lines" if len(lines) > _LINES else ""
        text = "\n".join(lines[:_LINES]) + more or str(error)
        raise CompileError(
            f"{device.name} cannot build the kernels of region {symbol}:\n{text}",
            plugin="opencl",
            remedy="compile for another kind of device (option kind), or update the driver",
        ) from error
    return program
