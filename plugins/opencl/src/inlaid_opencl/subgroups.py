"""Subgroups of devices: whether kernels can shuffle, and over how many work-items."""

from __future__ import annotations

import ctypes
import math
from typing import TYPE_CHECKING

from inlaid_opencl.options import SHUFFLE

if TYPE_CHECKING:
    from collections.abc import Sequence

    import pyopencl as cl

_FEATURE = "__opencl_c_subgroups"
"""Feature of OpenCL C 3.0, in which subgroups are optional."""
_EXTENSION = "cl_khr_subgroups"
"""Extension of OpenCL C 2.0 that defines subgroups."""
VENDOR_SIZES = {"cl_nv_device_attribute_query": "warp_size_nv", "cl_amd_device_attribute_query": "wavefront_width_amd"}
"""Name of the device attribute with the subgroup size, keyed by the extension that defines it. Never tried on a device."""
_INTEL, _INTEL_SIZES = "cl_intel_required_subgroup_size", 0x4108
"""The extension by which a device lists the sizes that it may choose for a kernel, and its CL_DEVICE_SUB_GROUP_SIZES_INTEL, which
pyopencl does not define."""


def subgroup_size(device: cl.Device) -> int:
    """Return the greatest number of work-items that divides every subgroup size that the driver may choose; 0 if the driver does
    not report the sizes."""
    import pyopencl as cl

    extensions = device.extensions.split()
    for extension, attribute in VENDOR_SIZES.items():
        if extension in extensions:
            try:
                return int(getattr(device, attribute))
            except cl.Error:  # the driver lists the extension and refuses the query
                return 0
    return math.gcd(*_intel_sizes(device)) if _INTEL in extensions else 0


def shuffled_lanes(device: cl.Device) -> int:
    """Return the number of lanes that shuffles exchange. It is a power of two and divides every subgroup size that the driver may
    choose. It is 0 if the subgroup size is unknown or the device has no shuffles."""
    lanes = subgroup_size(device) if shuffle_standard(device) else 0
    return lanes if lanes > 1 and lanes.bit_count() == 1 else 0


def shuffle_standard(device: cl.Device) -> str:
    """Return the version of OpenCL C with which sources with shuffles are built: "3.0" or "2.0"; "" if the device lacks shuffles.

    A driver for OpenCL 3.0 lists its versions of OpenCL C, and which optional features they have; its `opencl_c_version` may be
    1.2. Older drivers have only the latter."""
    import pyopencl as cl

    extensions = device.extensions.split()
    if SHUFFLE not in extensions:
        return ""
    try:
        versions = {(item.version >> 22, item.version >> 12 & 0x3FF) for item in device.opencl_c_all_versions}
        features = {item.name for item in device.opencl_c_features}
    except cl.Error:  # a driver for OpenCL 1.x or 2.x
        versions, features = set(), set()
    if (3, 0) in versions and _FEATURE in features:
        return "3.0"
    has_two = (2, 0) in versions or device.opencl_c_version.startswith("OpenCL C 2.")
    return "2.0" if has_two and _EXTENSION in extensions else ""


def _intel_sizes(device: cl.Device) -> Sequence[int]:
    """Return the subgroup sizes that a driver with the extension `_INTEL` may choose; empty if it refuses to list them."""
    from pyopencl import _cl

    # The loader that pyopencl is linked with, whichever that is: symbols are searched in the dependencies of a library, too.
    try:
        query = ctypes.CDLL(_cl.__file__).clGetDeviceInfo
    except (OSError, AttributeError):
        return ()
    query.argtypes = [ctypes.c_void_p, ctypes.c_uint, ctypes.c_size_t, ctypes.c_void_p, ctypes.POINTER(ctypes.c_size_t)]
    length = ctypes.c_size_t()
    if query(device.int_ptr, _INTEL_SIZES, 0, None, ctypes.byref(length)):
        return ()
    sizes = (ctypes.c_size_t * (length.value // ctypes.sizeof(ctypes.c_size_t)))()
    return () if query(device.int_ptr, _INTEL_SIZES, ctypes.sizeof(sizes), sizes, None) else tuple(sizes)
