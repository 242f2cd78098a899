"""Options and capabilities: architectures, device 0, machines without a driver or bindings."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace

import pytest

from inlaid.plugins.registry import default_registry
from inlaid_cuda import capabilities as module
from inlaid_cuda import nvrtc as nvrtc_module
from inlaid_cuda.bindings import SystemDriver
from inlaid_cuda.capabilities import FACTS, architecture, capabilities, compiler, facts, surroundings
from inlaid_cuda.driver import DeviceFacts
from inlaid_cuda.needs import choose, code_requirements
from inlaid_cuda.options import ARCHITECTURES, DEFAULT, CudaOptions, compute_capability
from inlaid_cuda.tensor_cores.instructions import has_wgmma
from inlaid_runtime.errors import TargetError


def device(number, driver=13000):
    return DeviceFacts(0, "a GPU", number, 1 << 33, 1024, (1024,) * 3, (1 << 16,) * 3, 48 << 10, 99 << 10, driver)


@pytest.fixture
def machine(monkeypatch):
    """Simulate a device of a compute capability; None for no driver."""

    def with_device(number, driver=13000):
        def devices(self):
            if number is None:
                raise TargetError("no CUDA driver is installed")
            return (device(number, driver),)

        monkeypatch.setattr(SystemDriver, "devices", devices)
        module._native.cache_clear()

    yield with_device
    module._native.cache_clear()


def test_architectures():
    with pytest.raises(TargetError, match=r"option arch of target cuda: expected native, host or one of sm_70, .*, got 'sm_12'"):
        CudaOptions("sm_12")
    assert [compute_capability(arch) for arch in ("sm_75", "sm_90a", "sm_100", "host")] == [(7, 5), (9, 0), (10, 0), None]
    for arch in (*ARCHITECTURES, "host"):
        able, figures = capabilities(CudaOptions(arch)), facts(CudaOptions(arch))
        assert able.device_memory and able.threads.resident == figures.processors * figures.threads
        assert [scope.capacity for scope in able.scopes if scope.owner == "block"] == [figures.shared]
        assert 48 << 10 < figures.shared <= 227 << 10 and "string" not in able.dtypes
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


class Library:
    """An NVRTC of a version that knows some architectures."""

    def __init__(self, *cuda, archs=tuple(FACTS)):
        self.cuda, self.archs, self.version = cuda, archs, ".".join(map(str, cuda))

    def compiles_for(self, arch):
        return arch.rstrip("a") in self.archs


@pytest.fixture
def libraries(monkeypatch):
    """Simulate the installed NVRTCs, newest first."""

    def installed(*nvrtcs):
        monkeypatch.setattr(nvrtc_module, "_files", lambda: list(nvrtcs))
        monkeypatch.setattr(nvrtc_module, "find_library", lambda name: None)
        monkeypatch.setattr(nvrtc_module, "_loaded", lambda library: library)
        nvrtc_module.nvrtc.cache_clear()

    yield installed
    nvrtc_module.nvrtc.cache_clear()


OLD = Library(12, 4, archs=("sm_70", "sm_75", "sm_80", "sm_86", "sm_87", "sm_89", "sm_90"))


@pytest.mark.parametrize(
    ("number", "driver", "nvrtcs", "arch", "version", "ptx"),
    [
        (86, 13000, (Library(13, 5), OLD), "sm_86", "13.5", False),  # a driver loads cubins of its major version
        (86, 12040, (Library(13, 5), OLD), "sm_86", "12.4", False),
        (90, 12040, (Library(13, 5), OLD), "sm_90a", "12.4", False),
        (
            88,
            12090,
            (Library(13, 5), OLD),
            "sm_87",
            "12.4",
            True,
        ),  # which knows no sm_88, and a Tegra device runs no cubin of sm_87
        (110, 13050, (Library(13, 5), OLD), "sm_100", "13.5", True),  # by PTX of the newest architecture
        (130, 13050, (Library(13, 5), OLD), "sm_120", "13.5", True),
        (130, 13000, (Library(13, 5), OLD), "sm_90", "12.4", True),  # which loads no PTX of a newer version
        (100, 12040, (OLD,), "sm_90", "12.4", True),
    ],
)
def test_native_is_what_the_driver_loads(machine, libraries, number, driver, nvrtcs, arch, version, ptx):
    libraries(*nvrtcs)
    machine(number, driver)
    assert architecture(CudaOptions()) == arch and compiler(CudaOptions()).version == version
    assert surroundings(CudaOptions()) == f"{arch} NVRTC {version}"
    choice = choose(code_requirements(arch, compiler(CudaOptions()).cuda), device(number, driver))
    assert choice.reason is None and choice.ptx == ptx
    assert compiler(CudaOptions("sm_86")) is nvrtcs[0]  # of another machine


@pytest.mark.parametrize(
    ("number", "driver", "remedy"),
    [
        (86, 12040, r'pip install "nvidia-cuda-nvrtc-cu12==12\.9\.\*", or update NVIDIA\'s driver$'),
        (130, 13000, r'pip install "nvidia-cuda-nvrtc==13\.0\.\*", or update NVIDIA\'s driver$'),
        (130, 12040, r'pip install "nvidia-cuda-nvrtc-cu12==12\.4\.\*", or update NVIDIA\'s driver$'),
        (80, 11080, r"update NVIDIA's driver$"),
    ],
)
def test_an_older_driver_names_the_compiler_to_install(machine, libraries, number, driver, remedy):
    libraries(Library(13, 5))
    machine(number, driver)
    with pytest.raises(TargetError, match=rf"this machine's driver needs code of NVRTC .* or earlier, found NVRTC 13\.5; {remedy}"):
        compiler(CudaOptions())
    assert surroundings(CudaOptions()) == architecture(CudaOptions())


def test_only_sm_90a_has_wgmma(machine):
    for arch in ARCHITECTURES:
        assert has_wgmma(CudaOptions(arch)) == (arch == "sm_90a")
    for number in (89, 90, 100, 120):
        machine(number)
        assert has_wgmma(CudaOptions()) == (number == 90)


def test_surroundings(monkeypatch):
    def missing(*_):
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
    lines = subprocess.run([sys.executable, "-c", NO_BINDINGS], capture_output=True, text=True, check=True).stdout.splitlines()
    assert len(lines) == 1 and "cuda-bindings cannot be imported" in lines[0] and lines[0].endswith("pip install cuda-bindings")


def test_the_table_is_in_order():
    """`native` chooses the last architecture that device 0 runs."""
    assert list(FACTS) == sorted(FACTS, key=lambda arch: int(arch[3:]))
