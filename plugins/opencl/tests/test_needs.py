"""What code needs of a device."""

import pytest

from inlaid_opencl.capabilities import shuffled_lanes
from inlaid_opencl.needs import missing, needs_of


class Device:
    name = "a GPU "
    extensions = "cl_khr_fp16 cl_khr_subgroups"
    double_fp_config = 0
    max_work_group_size = 256
    local_mem_size = 32 << 10


@pytest.mark.parametrize(
    ("source", "needs"),
    [
        ("__kernel void k() {}", ()),
        ("double x;", ("cl_khr_fp64",)),
        ("double4 x;", ("cl_khr_fp64",)),
        ("int redouble, double_x;", ()),
        ("x = inlaid_shuffle(y, i + 4, 8);\nz = inlaid_shuffle(y, 0, 32);", ("shuffled-lanes=32",)),
        ("  # pragma OPENCL EXTENSION cl_khr_fp16 : enable\nhalf x;", ("cl_khr_fp16",)),
    ],
)
def test_the_source_tells_extensions(source, needs):
    assert needs_of([], source) == needs


@pytest.mark.parametrize(
    ("requires", "reason"),
    [
        ((), None),
        (("cl_khr_fp16", "work-items=256", "local-bytes=32768"), None),
        (("cl_khr_fp64",), "the code needs 'cl_khr_fp64', a GPU lacks it"),
        (("work-items=512",), "the code needs 512 work-items in a work-group, a GPU has 256"),
        (("local-bytes=65536",), "the code needs 65536 bytes of local memory, a GPU has 32768"),
        (("work-items",), "the code needs 'work-items', a GPU lacks it"),
        (("work-items=-1",), "the code needs 'work-items=-1', a GPU lacks it"),
        (("other",), "the code needs 'other', a GPU lacks it"),
    ],
)
def test_what_a_device_lacks(requires, reason):
    assert missing(requires, Device) == reason


def test_a_device_with_float64():
    class Able(Device):
        double_fp_config = 63

    assert missing(("cl_khr_fp64",), Able) is None


@pytest.mark.parametrize(
    ("more", "lanes"),
    [
        ({"warp_size_nv": 32}, 32),
        ({"wavefront_width_amd": 64}, 64),
        ({"sub_group_sizes_intel": [8, 16, 32]}, 8),
        ({"warp_size_nv": 32, "opencl_c_version": "OpenCL C 1.2 "}, 0),
        ({"warp_size_nv": 12}, 0),
        ({}, 0),
    ],
)
def test_shuffles_need_a_known_subgroup(more, lanes):
    """The extension alone does not tell which threads are of one."""
    names = {"warp_size_nv": "cl_nv_device_attribute_query", "wavefront_width_amd": "cl_amd_device_attribute_query"}
    names["sub_group_sizes_intel"] = "cl_intel_required_subgroup_size"

    class Able(Device):
        extensions = " ".join(["cl_khr_subgroup_shuffle", *(name for key, name in names.items() if key in more)])
        opencl_c_version = more.get("opencl_c_version", "OpenCL C 3.0 ")

    for key in names.keys() & more.keys():
        setattr(Able, key, more[key])
    assert shuffled_lanes(Able) == lanes
    reason = missing(("cl_khr_subgroup_shuffle", "shuffled-lanes=8"), Able)
    wanted = f"the code needs 8 lanes per shuffle, a GPU has {lanes}"
    assert reason == (None if lanes else wanted)
    Able.extensions = Able.extensions.replace("cl_khr_subgroup_shuffle", "")
    assert shuffled_lanes(Able) == 0
