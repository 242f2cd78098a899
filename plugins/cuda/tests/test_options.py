"""Options and capabilities: architectures, device 0, machines without a driver or bindings."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace

import pytest

from inlaid.errors import TargetError
from inlaid.plugins.registry import default_registry
from inlaid_cuda import capabilities as module
from inlaid_cuda.bindings import SystemDriver
from inlaid_cuda.capabilities import FACTS, architecture, capabilities, facts, surroundings
from inlaid_cuda.driver import DeviceFacts
from inlaid_cuda.options import ARCHITECTURES, DEFAULT, CudaOptions, compute_capability


def device(number):
    return DeviceFacts(0, "a GPU", number, 1 << 33, 1024, (1024,) * 3, (1 << 16,) * 3, 48 << 10, 99 << 10, 13000)


@pytest.fixture
def machine(monkeypatch):
    """Simulate a device of a compute capability; None for no driver."""

    def with_device(number):
        def devices(self):
            if number is None:
                raise TargetError("no CUDA driver is installed")
            return (device(number),)

        monkeypatch.setattr(SystemDriver, "devices", devices)
        module._native.cache_clear()

    yield with_device
    module._native.cache_clear()


def test_architectures():
    with pytest.raises(TargetError, match=r"option arch of target cuda: expected native, host or one of sm_70, .*, got 'sm_12'"):
        CudaOptions("sm_12")
    assert [compute_capability(arch) for arch in ("sm_75", "sm_90a", "sm_100", "host")] == [(7, 5), (9, 0), (10, 0), None]
    for arch in (*ARCHITECTURES, "host"):
        able, found = capabilities(CudaOptions(arch)), facts(CudaOptions(arch))
        assert able.device_memory and able.threads.resident == found.processors * found.threads
        assert [scope.capacity for scope in able.scopes if scope.owner == "block"] == [found.shared]
        assert 48 << 10 < found.shared <= 227 << 10 and "string" not in able.dtypes
    able, plain = capabilities(CudaOptions("sm_90a")), capabilities(CudaOptions("sm_90"))
    assert able.scopes[0].alignment == 1024 and replace(able, scopes=plain.scopes) == plain


@pytest.mark.parametrize(
    ("number", "arch"),
    [(None, DEFAULT), (75, "sm_75"), (80, "sm_80"), (89, "sm_89"), (90, "sm_90a"), (103, "sm_100"), (121, "sm_120"), (61, DEFAULT)],
)
def test_native_is_what_device_0_runs(machine, number, arch):
    machine(number)
    assert architecture(CudaOptions()) == arch and surroundings(CudaOptions()).split(" ")[0] == arch
    assert capabilities(CudaOptions()) == capabilities(CudaOptions(arch))


def test_surroundings(monkeypatch):
    def missing(arch):
        raise TargetError("compiling for target cuda needs NVRTC")

    assert surroundings(CudaOptions("host")) == "host"
    monkeypatch.setattr(module, "nvrtc", missing)
    assert surroundings(CudaOptions("sm_80")) == "sm_80"


def test_no_driver_is_said_in_one_line(machine):
    machine(None)
    registry = default_registry()
    status = registry.probe(registry.target("cuda"))
    assert not status.available and status.detail == "no CUDA driver is installed"
    assert registry.probe(registry.target("cuda:arch=host")).available


NO_BINDINGS = """
import sys
from dataclasses import replace
sys.modules["cuda"] = None
from inlaid.plugins.registry import default_registry
registry = default_registry()
print(registry.probe(registry.target("cuda")).detail)
for arch in ("native", "host", "sm_90a"):
    registry.capabilities(registry.target(f"cuda:arch={arch}"))
    registry.codegen(registry.target(f"cuda:arch={arch}"))
"""


def test_compiling_needs_no_bindings():
    found = subprocess.run([sys.executable, "-c", NO_BINDINGS], capture_output=True, text=True, check=True).stdout.splitlines()
    assert len(found) == 1 and "cuda-bindings cannot be imported" in found[0] and found[0].endswith("pip install cuda-bindings")


def test_the_table_is_in_order():
    """`native` chooses the last architecture that device 0 runs."""
    assert list(FACTS) == sorted(FACTS, key=lambda arch: int(arch[3:]))
