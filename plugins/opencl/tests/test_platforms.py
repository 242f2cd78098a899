"""Devices and their numbers, drivers that are missing, and targets without any."""

import subprocess
import sys
from dataclasses import replace

import pyopencl as cl
import pytest

import inlaid
from inlaid import ops
from inlaid.graph import ir
from inlaid.plugins.registry import default_registry
from inlaid_opencl import capabilities as facts
from inlaid_opencl import platforms
from inlaid_opencl.capabilities import ASSUMED, capabilities, surroundings
from inlaid_opencl.options import KINDS, OpenCLOptions
from inlaid_runtime.errors import TargetError
from inlaid_runtime.types import TensorType

from .failing import failing

KIND, LOCAL = cl.device_type, cl.device_local_mem_type


class Device:
    """A device as a driver describes it."""

    driver_version = "1.0"

    def __init__(self, platform, name, kind, local=LOCAL.LOCAL, **more):
        self.platform, self.name, self.type, self.local_mem_type = platform, name, kind, local
        self.__dict__.update(more)


class Platform:
    def __init__(self, name, *devices):
        self.name = name
        self.devices = [Device(self, *device) for device in devices]

    def get_devices(self):
        return self.devices or failing(cl.status_code.DEVICE_NOT_FOUND)()


@pytest.fixture
def machine(monkeypatch):
    """A machine with GPUs and accelerators, for which no driver can be installed here."""
    fake_platforms = [
        Platform("PoCL", ("cpu", KIND.CPU)),
        Platform("Simulator", ("all", KIND.CPU | KIND.GPU | KIND.ACCELERATOR)),
        Platform("Empty"),
        Platform("Vendor", ("accelerator", KIND.ACCELERATOR), ("first", KIND.GPU), ("second", KIND.GPU, LOCAL.GLOBAL)),
    ]
    monkeypatch.setattr(cl, "get_platforms", lambda: fake_platforms)


@pytest.fixture
def registry():
    return default_registry()


def probe(registry):
    return registry.probe(registry.target("opencl"))


def test_devices_are_numbered_over_all_platforms(machine, registry):
    devices = platforms.find_devices()
    assert [(item.number, item.device.name, item.kind) for item in devices] == [
        (0, "first", "gpu"),
        (1, "second", "embedded"),
        (2, "accelerator", "gpu"),
        (3, "cpu", "cpu"),
        (4, "all", "cpu"),
    ]
    status = probe(registry)
    assert status.available
    assert "device 0: first (gpu, Vendor, driver 1.0); device 1: second (embedded, Vendor, driver 1.0)" in status.detail
    with pytest.raises(TargetError, match="opencl device number must be 0 to 4, got 5; choose from device 0: first"):
        platforms.find_device(5)


def test_a_number_that_no_device_has(device, registry):
    count = len(platforms.find_devices())
    with pytest.raises(TargetError, match=f"must be 0 to {count - 1}, got {count} .*; choose from device 0: "):
        registry.runtime(registry.target("opencl"), count)


@pytest.mark.parametrize(
    "get_platforms", [failing(-1001), list, lambda: [Platform("Empty")]], ids=["no loader", "no platform", "no device"]
)
def test_no_driver(monkeypatch, registry, get_platforms):
    monkeypatch.setattr(cl, "get_platforms", get_platforms)
    facts._measured.cache_clear()
    status = probe(registry)
    assert not status.available and "\n" not in status.detail
    assert "pip install pocl-binary-distribution, or Debian's pocl-opencl-icd" in status.detail
    with pytest.raises(TargetError, match="pocl-opencl-icd"):
        registry.runtime(registry.target("opencl"))
    assert capabilities(OpenCLOptions()) == capabilities(OpenCLOptions("gpu"))
    facts._measured.cache_clear()


def test_pocl_without_a_linker(monkeypatch, registry):
    """It would end the process."""
    monkeypatch.setattr(cl, "get_platforms", lambda: [Platform(platforms.POCL, ("cpu", KIND.CPU))])
    monkeypatch.setenv("PATH", "")
    assert probe(registry).detail == "PoCL needs the linker ld, found none in PATH; install Debian's binutils"


NO_PYOPENCL = """
import sys
sys.modules["pyopencl"] = None
from inlaid.plugins.registry import default_registry
registry = default_registry()
print(registry.probe(registry.target("opencl")).detail)
for kind in ("native", "cpu", "gpu", "embedded"):
    registry.capabilities(registry.target(f"opencl:kind={kind}"))
    registry.codegen(registry.target(f"opencl:kind={kind}"))
try:
    registry.runtime(registry.target("opencl"))
except Exception as error:
    print(type(error).__name__, error)
"""


def test_no_pyopencl():
    """Compiling, for a given kind or the one that is assumed, works without pyopencl."""
    lines = subprocess.run([sys.executable, "-c", NO_PYOPENCL], capture_output=True, text=True, check=True).stdout.splitlines()
    assert len(lines) == 2
    assert all("pyopencl cannot be imported" in line and line.endswith("pip install pyopencl") for line in lines)
    assert lines[1].startswith("TargetError")


NO_COMPILER = """
import sys
for name in ("tensor", "graph", "lowering", "schedules", "codegen"):
    sys.modules[f"inlaid.{name}"] = None
import inlaid_opencl.runtime
"""


def test_running_needs_no_compiler():
    subprocess.run([sys.executable, "-c", NO_COMPILER], check=True)


def test_kinds():
    with pytest.raises(TargetError, match="must be native, cpu, gpu or embedded, got 'tpu'"):
        OpenCLOptions("tpu")
    for kind in KINDS:
        target_capabilities = capabilities(OpenCLOptions(kind))
        assert (
            target_capabilities.device_memory
            and target_capabilities.threads == ASSUMED[kind].threads
            and not surroundings(OpenCLOptions(kind))
        )
        assert ("float64" in target_capabilities.dtypes) == (kind != "embedded") and "string" not in target_capabilities.dtypes
        assert bool(target_capabilities.vector_bits) == (target_capabilities.threads.block == 1) == (kind == "cpu")
        assert [scope.owner for scope in target_capabilities.scopes] == ["block"] * (kind == "gpu")


@pytest.mark.parametrize("kind", ["native", "cpu", "gpu", "embedded"])
def test_devices_without_float64(kind):
    able = capabilities(OpenCLOptions(kind, float64=False))
    assert "float64" not in able.dtypes and "float32" in able.dtypes and not able.full_rate_float64
    target = f"opencl:kind={kind},float64=false"
    x = ir.var("x", TensorType((4,), "float64"))
    report = inlaid.estimate(ir.Module({"main": ir.function([x], ops.cast(ops.exp(x), dtype="float32"))}), [target, "x86"])
    assert [item.target.partition(":")[0] for item in report.operators] == ["x86", "x86"]


def test_the_size_of_subgroups():
    able = capabilities(OpenCLOptions("gpu", 16)).threads
    assert (able.subgroup, able.shuffles) == (16, True) and not capabilities(OpenCLOptions("gpu")).threads.shuffles
    with pytest.raises(TargetError, match=r"option subgroup of target opencl must be 0, 2, .* or 128, got 12"):
        OpenCLOptions("gpu", 12)
    for kind in ("native", "cpu", "embedded"):
        with pytest.raises(TargetError, match=f"needs kind gpu, got {kind}; opencl:kind=gpu,subgroup=8"):
            OpenCLOptions(kind, 8)


class SmallGPU:
    """A GPU with little of everything, such as old embedded ones, of which no driver can be installed here."""

    extensions, opencl_c_version, double_fp_config, host_unified_memory = "cl_khr_fp16", "OpenCL C 1.2 ", 0, False
    max_clock_frequency, max_compute_units, max_work_item_sizes = 1000, 10, (100, 100, 64)
    max_work_group_size, local_mem_size = 100, 4 << 10


def test_facts_are_within_the_limits_of_a_device():
    able = facts.device_facts(SmallGPU, "gpu")
    assert (able.threads.block, able.threads.subgroup, able.threads.shuffles) == (64, 32, False)
    assert able.shared == 4 << 10 and not able.fp64 and able.peak == 10 * 1e9 * 128

    class Narrow(SmallGPU):
        max_work_item_sizes = (16, 16, 16)

    assert facts.device_facts(Narrow, "gpu").threads == replace(able.threads, block=16, subgroup=16)
