"""What code needs of a device."""

import pyopencl as cl
import pytest

from inlaid_opencl.capabilities import device_facts
from inlaid_opencl.needs import code_requirements, missing
from inlaid_opencl.options import SHUFFLE
from inlaid_opencl.subgroups import VENDOR_SIZES, shuffle_standard, shuffled_lanes, subgroup_size


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
    assert code_requirements([], source) == needs


def test_what_a_device_lacks(device):
    driver, name = device.device, device.device.name.strip()
    group, local = driver.max_work_group_size, driver.local_mem_size
    assert missing((), driver) is None
    assert missing((f"work-items={group}", f"local-bytes={local}"), driver) is None
    for requires, reason in (
        (
            ("cl_khr_byte_addressable_store", f"work-items={group + 1}"),
            f"{group + 1} work-items in a work-group, {name} has {group}",
        ),
        ((f"local-bytes={local + 1}",), f"{local + 1} bytes of local memory, {name} has {local}"),
        (("work-items",), f"'work-items', {name} lacks it"),
        (("work-items=-1",), f"'work-items=-1', {name} lacks it"),
        (("other",), f"'other', {name} lacks it"),
    ):
        assert missing(requires, driver) == f"the code needs {reason}"
    lacks_float64 = None if driver.double_fp_config else f"the code needs 'cl_khr_fp64', {name} lacks it"
    assert missing(("cl_khr_fp64",), driver) == lacks_float64


def test_shuffles_need_subgroups(device):
    """The extension alone does not tell which work-items are of one subgroup."""
    driver, name = device.device, device.device.name.strip()
    lanes = shuffled_lanes(driver)
    assert bool(lanes) == (shuffle_standard(driver) != "" and subgroup_size(driver) > 1)
    if lanes == 0:
        assert missing((SHUFFLE, "shuffled-lanes=2"), driver) is not None
    else:
        assert missing((SHUFFLE, f"shuffled-lanes={lanes}"), driver) is None
    reason = f"the code needs {2 * lanes + 2} lanes per shuffle, {name} has {lanes}"
    assert missing((f"shuffled-lanes={2 * lanes + 2}",), driver) == reason


@pytest.mark.parametrize("attribute", VENDOR_SIZES.values())
def test_the_binding_has_the_attributes_of_vendors(attribute):
    """No driver of these vendors has been tried."""
    assert isinstance(getattr(cl.Device, attribute), property)


def test_facts_of_a_device(device):
    """As a GPU, within what its driver reports."""
    driver = device.device
    threads = device_facts(driver, "gpu").threads
    assert threads.block.bit_count() == 1 and threads.block <= min(driver.max_work_group_size, *driver.max_work_item_sizes)
    assert threads.shuffles == (shuffled_lanes(driver) > 1) and threads.subgroup <= threads.block
    assert device_facts(driver, "gpu").shared <= driver.local_mem_size
    assert device_facts(driver, "cpu").fp64 == bool(driver.double_fp_config)
