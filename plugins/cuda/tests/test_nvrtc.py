"""Compilation to cubins: architectures, errors, the cache, printed kernels of every kind."""

from __future__ import annotations

import subprocess
import sys

import pytest
from tests.threads import arithmetic
from tests.threads.lanes import check_lanes
from tests.threads.printed import SCOPES, Printed, region_of
from tests.threads.random_programs import check_phases, check_schedules, check_statements
from tests.unit.tensor.strategies import NARROW, NATIVE

from inlaid.cache import MemoryStore
from inlaid.codegen.threads.kernel import thread_source
from inlaid.errors import CompileError, TargetError
from inlaid_cuda import nvrtc as module
from inlaid_cuda.cubin import resources
from inlaid_cuda.dialect import DIALECT
from inlaid_cuda.nvrtc import compile_cached
from inlaid_cuda.options import ARCHITECTURES

KERNEL = 'extern "C" __global__ void __launch_bounds__(32) k(float *x) { x[threadIdx.x] += 1.0f; }\n'


class Compiles:
    """Compiles programs for an architecture without running them."""

    def __init__(self, nvrtc, arch="sm_80"):
        self.nvrtc, self.arch = nvrtc, arch

    def __call__(self, programs, arrays, scopes=SCOPES):
        texts = Printed(region_of(programs), DIALECT, scopes).texts
        found = resources(self.nvrtc.compile(thread_source(texts, DIALECT), "region", self.arch))
        assert len(found) == len(texts)


@pytest.mark.parametrize("arch", ARCHITECTURES)
def test_architectures(nvrtc, arch):
    if arch.rstrip("a") not in nvrtc.architectures():
        with pytest.raises(CompileError, match=f"NVRTC {nvrtc.version} supports architectures sm_.*, got {arch}"):
            nvrtc.compile(KERNEL, "region", arch)
        return
    found = resources(nvrtc.compile(KERNEL, "region", arch))
    assert list(found) == ["k"] and found["k"].registers >= 4 and found["k"].local == 0


def test_errors_have_the_first_lines_of_the_log(nvrtc):
    with pytest.raises(CompileError) as caught:
        nvrtc.compile("void f() {" + "".join(f"wrong{place}++;\n" for place in range(40)) + "}", "region7", "sm_80")
    text = str(caught.value)
    assert "cannot compile the kernels of region region7" in text and "region7.cu(" in text and "more lines" in text
    assert text.count("\n") < 20


def test_the_cache(nvrtc, monkeypatch):
    store = MemoryStore()
    monkeypatch.setattr(module, "nvrtc", lambda arch: nvrtc)
    first = compile_cached(KERNEL, "region", "sm_80", store)
    with monkeypatch.context() as patch:
        patch.setattr(module.Nvrtc, "compile", None)
        assert compile_cached(KERNEL, "region", "sm_80", store) == first
    assert compile_cached(KERNEL, "region", "sm_90", store) != first
    monkeypatch.setattr(nvrtc, "version", "0.0")
    with monkeypatch.context() as patch:
        patch.setattr(module.Nvrtc, "compile", lambda *_: b"of another version")
        assert compile_cached(KERNEL, "region", "sm_80", store) == b"of another version"


def test_not_installed(monkeypatch):
    monkeypatch.setattr(module, "_files", list)
    monkeypatch.setattr(module, "find_library", lambda name: None)
    with pytest.raises(TargetError, match=r"NVRTC, which is not installed.*pip install nvidia-cuda-nvrtc"):
        module.nvrtc.__wrapped__("sm_80")
    with pytest.raises(TargetError, match=r"NVRTC cannot be loaded: .*pip install nvidia-cuda-nvrtc"):
        module.Nvrtc("/nowhere/libnvrtc.so")


def test_the_newest_version_that_knows_an_architecture(monkeypatch):
    class Version:
        def __init__(self, file):
            self.file = file

        def compiles_for(self, arch):
            return arch in self.file

    monkeypatch.setattr(module, "_files", lambda: ["sm_80 sm_100", "sm_70 sm_80"])
    monkeypatch.setattr(module, "find_library", lambda name: None)
    monkeypatch.setattr(module, "_loaded", Version)
    for arch, file in (("sm_70", "sm_70 sm_80"), ("sm_80", "sm_80 sm_100"), ("sm_90", "sm_80 sm_100")):
        assert module.nvrtc.__wrapped__(arch).file == file


NO_DRIVER = """
import sys
from inlaid_cuda.nvrtc import nvrtc
nvrtc("sm_80").compile('extern "C" __global__ void k() {}', "region", "sm_80")
print([name for name in sys.modules if name.split(".")[0] == "cuda"])
"""


def test_no_bindings_are_imported(nvrtc):
    assert subprocess.run([sys.executable, "-c", NO_DRIVER], capture_output=True, text=True, check=True).stdout == "[]\n"


@pytest.mark.parametrize("lanes", arithmetic.LANES)
def test_every_operation(nvrtc, lanes, monkeypatch):
    """One element per lane: NVRTC unrolls loops of one thread, and needs half a minute for 64 elements."""
    monkeypatch.setattr(arithmetic, "COUNT", lanes)
    arithmetic.check_arithmetic(Compiles(nvrtc), lanes)


def test_narrow_types_before_sm_80(nvrtc):
    """These architectures have no conversion instruction to bfloat16."""
    arithmetic.check_narrow_types(Compiles(nvrtc, "sm_75"), 8)


def test_random_programs(nvrtc):
    for check in (check_phases, check_statements, check_schedules):
        check(Compiles(nvrtc))


def test_lanes(nvrtc):
    check_lanes(Compiles(nvrtc), (*NATIVE, *NARROW), examples=2, count=8)
