"""What code needs of a device."""

import pytest

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
        (("cl_khr_fp64",), "the code needs 'cl_khr_fp64', which a GPU has not"),
        (("work-items=512",), "the code needs 512 work-items in a group, a GPU has 256"),
        (("local-bytes=65536",), "the code needs 65536 bytes of local memory, a GPU has 32768"),
        (("work-items",), "the code needs 'work-items', which a GPU has not"),
        (("work-items=-1",), "the code needs 'work-items=-1', which a GPU has not"),
        (("other",), "the code needs 'other', which a GPU has not"),
    ],
)
def test_what_a_device_lacks(requires, reason):
    assert missing(requires, Device) == reason


def test_a_device_with_float64():
    class Able(Device):
        double_fp_config = 63

    assert missing(("cl_khr_fp64",), Able) is None
