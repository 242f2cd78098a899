"""C source as code: compiled where it is loaded."""

from __future__ import annotations

import ctypes
import gc
from pathlib import Path

import numpy as np
import pytest

from inlaid.codegen.c import c_type, pointer, region_source
from inlaid.tensor.region import RegionBuffer
from inlaid_runtime.artifact import Artifact, Signature, TensorSpec
from inlaid_runtime.errors import CompileError, KernelFault, Unsupported
from inlaid_runtime.execution.c_source import CSourceRuntime, find_compiler, link_shared
from inlaid_runtime.types import dtype

needs_compiler = pytest.mark.skipif(find_compiler() is None, reason="there is no C compiler: apt-get install gcc")
F32 = dtype("float32")
BUFFERS = [RegionBuffer(storage, storage, (3,), F32, 0, 64) for storage in ("input", "constant", "arena", "output")]
SIGNATURE = Signature((TensorSpec("x", (3,), F32),), (TensorSpec("y", (3,), F32),))
NO_DIMS = np.zeros(0, np.int64)


def artifact(body: str, format: str = "c-test") -> Artifact:
    return Artifact("region", format, 1, region_source("region", body), SIGNATURE, {"w": np.arange(3, dtype=np.float32)})


def loaded(body: str, user: int | None = None):
    artifact_ = artifact(body)
    runtime = CSourceRuntime("c-test", 1, user)
    assert runtime.check(artifact_) is None
    return runtime.load(artifact_, artifact_.constants).kernel


@needs_compiler
def test_every_storage_has_its_pointer():
    x, w, scratch, y = map(pointer, BUFFERS)
    kernel = loaded(f"for (int i = 0; i < 3; i++) {{ {scratch}[i] = {x}[i] + {w}[i]; {y}[i] = 2 * {scratch}[i]; }}")
    result, workspace = np.zeros(3, np.float32), np.zeros(128, np.uint8)
    kernel.invoke([np.ones(3, np.float32)], [result], workspace, NO_DIMS)
    assert result.tolist() == [2, 4, 6]
    assert workspace.view(np.float32)[16:19].tolist() == [1, 2, 3]


@needs_compiler
def test_a_function_of_the_plugins():
    twice = ctypes.CFUNCTYPE(ctypes.c_float, ctypes.c_float)(lambda x: 2 * x)
    x, _, _, y = map(pointer, BUFFERS)
    body = f"for (int i = 0; i < 3; i++) {y}[i] = ((float (*)(float))context->user)({x}[i]);"
    kernel = loaded(body, ctypes.cast(twice, ctypes.c_void_p).value)
    result = np.zeros(3, np.float32)
    kernel.invoke([np.array([1, 2, 3], np.float32)], [result], np.zeros(0, np.uint8), NO_DIMS)
    assert result.tolist() == [2, 4, 6]


@needs_compiler
def test_a_region_is_closed_with_its_kernel():
    def mapped() -> int:
        return Path("/proc/self/maps").read_text().count("/region.so")

    gc.collect()
    before = mapped()
    kernel = loaded("return 0;")
    gc.collect()
    assert mapped() > before
    kernel.invoke([np.ones(3, np.float32)], [np.zeros(3, np.float32)], np.zeros(0, np.uint8), NO_DIMS)
    del kernel
    gc.collect()
    assert mapped() == before


@needs_compiler
def test_errors_of_regions():
    kernel = loaded("context->message[0] = 78; context->message[1] = 111; return 1;")
    with pytest.raises(KernelFault, match="region: No"):
        kernel.invoke([np.ones(3, np.float32)], [np.zeros(3, np.float32)], np.zeros(0, np.uint8), NO_DIMS)


@needs_compiler
@pytest.mark.parametrize(("code", "words"), [(b"int32_t region(", "failed"), (b"int other;", "undefined symbol: region")])
def test_source_that_cannot_be_loaded(code, words):
    faulty_artifact = Artifact("region", "c-test", 1, code, SIGNATURE)
    with pytest.raises(Unsupported, match=f"cannot compile and load region region.*{words}"):
        CSourceRuntime("c-test", 1).load(faulty_artifact, {})


def test_without_a_compiler(monkeypatch, tmp_path):
    monkeypatch.setenv("PATH", str(tmp_path))
    assert "no C compiler found: install one of cc" in CSourceRuntime("c-test", 1).check(artifact(""))
    with pytest.raises(CompileError, match="no C compiler found; install one of cc"):
        link_shared(["a.c"], tmp_path / "a.so", tmp_path)


def test_other_formats():
    assert "expected code in format c-test" in CSourceRuntime("c-test", 1).check(artifact("", "elf"))


def test_types_that_c_lacks():
    assert c_type(dtype("uint16")) == "uint16_t"
    with pytest.raises(Unsupported, match="C has no type for bfloat16"):
        c_type(dtype("bfloat16"))
