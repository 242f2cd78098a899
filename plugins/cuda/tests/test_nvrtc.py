"""Compilation to cubins: architectures, errors, the cache, printed kernels of every kind."""

from __future__ import annotations

import subprocess
import sys

import pytest
from tests.threads import arithmetic
from tests.threads.lanes import check_lanes
from tests.threads.printed import SCOPES, Printed, make_region
from tests.threads.random_programs import check_phases, check_schedules, check_statements
from tests.unit.tensor.strategies import NARROW, NATIVE

from inlaid.codegen.threads.kernel import thread_source
from inlaid_cuda import nvrtc as module
from inlaid_cuda.cubin import resources
from inlaid_cuda.dialect import DIALECT
from inlaid_cuda.images import Images
from inlaid_cuda.nvrtc import compile_cached
from inlaid_cuda.options import ARCHITECTURES
from inlaid_runtime.cache import MemoryCache
from inlaid_runtime.errors import CompileError, TargetError

KERNEL = 'extern "C" __global__ void __launch_bounds__(32) k(float *x) { x[threadIdx.x] += 1.0f; }\n'


class Compiles:
    """Compiles programs for an architecture without running them."""

    def __init__(self, nvrtc, arch="sm_80"):
        self.nvrtc, self.arch = nvrtc, arch

    def __call__(self, programs, arrays, scopes=SCOPES):
        texts = Printed(make_region(programs), DIALECT, scopes).texts
        usages = resources(self.nvrtc.compile(thread_source(texts, DIALECT), "region", self.arch).cubin)
        assert len(usages) == len(texts)


@pytest.mark.parametrize("arch", ARCHITECTURES)
def test_architectures(nvrtc, arch):
    if arch.rstrip("a") not in nvrtc.architectures():
        with pytest.raises(CompileError, match=f"NVRTC {nvrtc.version} supports architectures sm_.*, got {arch}"):
            nvrtc.compile(KERNEL, "region", arch)
        return
    images = nvrtc.compile(KERNEL, "region", arch)
    usages = resources(images.cubin)
    assert list(usages) == ["k"] and usages["k"].registers >= 4 and usages["k"].local == 0
    if arch.endswith("a"):
        assert not images.ptx  # no other architecture compiles it
    else:
        assert f".target {arch}\n".encode() in images.ptx and images.ptx.endswith(b"\0")
    assert Images.decode(images.encode()) == images


@pytest.mark.parametrize("program", [b"", b"\1" + b"\0" * 7, b"\2" + b"\0" * 7 + b"ab" + b"ptx"])
def test_damaged_images(program):
    with pytest.raises(ValueError, match="expected"):
        Images.decode(program)


def test_errors_have_the_first_lines_of_the_log(nvrtc):
    with pytest.raises(CompileError) as caught:
        nvrtc.compile("void f() {" + "".join(f"wrong{number}++;\n" for number in range(40)) + "}", "region7", "sm_80")
    text = str(caught.value)
    assert "cannot compile the kernels of region region7" in text and "region7.cu(" in text and "more lines" in text
    assert text.count("\n") < 20


def test_the_cache(nvrtc, monkeypatch):
    store = MemoryCache()
    first = compile_cached(nvrtc, KERNEL, "region", "sm_80", store)
    with monkeypatch.context() as patch:
        patch.setattr(module.Nvrtc, "compile", None)
        assert compile_cached(nvrtc, KERNEL, "region", "sm_80", store) == first
    assert compile_cached(nvrtc, KERNEL, "region", "sm_90", store) != first
    monkeypatch.setattr(nvrtc, "version", "0.0")
    with monkeypatch.context() as patch:
        patch.setattr(module.Nvrtc, "compile", lambda *_: Images(b"of another version"))
        assert Images.decode(compile_cached(nvrtc, KERNEL, "region", "sm_80", store)).cubin == b"of another version"


def test_not_installed(monkeypatch):
    monkeypatch.setattr(module, "_files", list)
    monkeypatch.setattr(module, "find_library", lambda name: None)
    with pytest.raises(TargetError, match=r"NVRTC, which is not installed.*pip install nvidia-cuda-nvrtc"):
        module.nvrtc.__wrapped__("sm_80")
    with pytest.raises(TargetError, match=r"NVRTC cannot be loaded: .*pip install nvidia-cuda-nvrtc"):
        module.Nvrtc("/nowhere/libnvrtc.so")


def test_the_newest_version_that_knows_an_architecture(monkeypatch):
    class Library:
        def __init__(self, file):
            self.file, self.version = file, file.split()[0]
            self.cuda = tuple(map(int, self.version.split(".")))

        def compiles_for(self, arch):
            return arch in self.file

    older, newer = "12.9 sm_70 sm_80", "13.1 sm_80 sm_100"
    monkeypatch.setattr(module, "_files", lambda: [newer, older])
    monkeypatch.setattr(module, "find_library", lambda name: None)
    monkeypatch.setattr(module, "_loaded", Library)
    for arch, newest, file in (
        ("sm_70", None, older),
        ("sm_80", None, newer),
        ("sm_90", None, newer),
        ("sm_80", (12,), older),
        ("sm_100", (12,), older),  # whose error says what it compiles for
        ("sm_80", (13,), newer),
        ("sm_80", (13, 0), older),
        ("sm_80", (13, 1), newer),
    ):
        assert module.nvrtc.__wrapped__(arch, newest).file == file
    with pytest.raises(TargetError, match=r"code of NVRTC 12\.4 or earlier, found NVRTC 13\.1, 12\.9; pip install .*-cu12==12\.4"):
        module.nvrtc.__wrapped__("sm_80", (12, 4))
    with pytest.raises(TargetError, match=r"NVRTC 11 or earlier, found NVRTC 13\.1, 12\.9; update NVIDIA's driver$"):
        module.nvrtc.__wrapped__("sm_80", (11,))


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
