"""Resources read from handmade, real and damaged cubins."""

from __future__ import annotations

import contextlib
import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from inlaid_cuda.cubin import Resources, resources
from inlaid_runtime.errors import CompileError

REGISTERS, FRAME, OTHER = 0x2F, 0x11, 0x12


def cubin(kernels: dict[str, Resources]) -> bytes:
    """Build an ELF file with the sections that `resources` reads."""
    names, symbols, info = b"\0", bytes(24), b""
    for number, (name, usage) in enumerate(kernels.items(), 1):
        symbols += struct.pack("<I", len(names)) + bytes(20)
        names += name.encode() + b"\0"
        info += struct.pack("<BBH", 3, OTHER, 1)  # a form whose value is in the size
        for attribute, value in ((REGISTERS, usage.registers), (FRAME, usage.local), (OTHER, 7)):
            info += struct.pack("<BBHII", 4, attribute, 8, number, value)
    sections = [(".symtab", 2, symbols, 0), (".strtab", 3, names, 0), (".nv.info", 0x70000000, info, 0)]
    for name, usage in kernels.items():
        sections.append((f".text.{name}", 1, b"code", 0))
        if usage.shared:
            sections.append((f".nv.shared.{name}", 8, b"", usage.shared))
    titles = b"\0" + b"\0".join(name.encode() for name, *_ in sections) + b"\0.shstrtab\0"
    sections.append((".shstrtab", 3, titles, 0))
    body, heads = b"", bytes(64)
    for name, kind, data, size in sections:
        title = titles.index(b"\0" + name.encode() + b"\0") + 1
        heads += struct.pack("<II16xQQ24x", title, kind, 64 + len(body), size or len(data))
        body += data
    head = b"\x7fELF\x02\x01" + bytes(34) + struct.pack("<Q10xHHH", 64 + len(body), 64, len(sections) + 1, len(sections))
    return head + body + heads


KERNELS = {"one": Resources(32, 0, 0), "two": Resources(255, 640, 1024), "other": Resources(8, 16, 0)}


def test_attributes_of_each_kernel():
    assert resources(cubin(KERNELS)) == KERNELS


def test_a_real_cubin(nvrtc):
    source = """
extern "C" __global__ void plain(float *x) { x[threadIdx.x] *= 2.0f; }
extern "C" __global__ void local(float *x, const int *at) {
    float own[64];
    for (int i = 0; i < 64; i++) own[i] = x[i];
    for (int i = 0; i < 64; i++) x[at[i]] = own[at[i]];
}
extern "C" __global__ void shared(float *x) {
    __shared__ float all[100];
    all[threadIdx.x] = x[threadIdx.x];
    __syncthreads();
    x[threadIdx.x] = all[99 - threadIdx.x];
}
"""
    usages = resources(nvrtc.compile(source, "region", "sm_80").cubin)
    assert list(usages) == ["local", "plain", "shared"]
    assert usages["plain"].local == usages["shared"].local == 0 and usages["local"].local == 256
    assert usages["shared"].shared - usages["plain"].shared == 400
    newer = resources(nvrtc.compile(source, "region", "sm_90a").cubin)
    assert newer["local"].local == 256 and newer["shared"].shared >= 400  # 1 KiB more, reserved by the system


@given(st.data())
def test_damaged_cubins(data):
    """Truncated, or with a byte changed: `CompileError` or a result."""
    content = cubin(KERNELS)
    offset = data.draw(st.integers(0, len(content) - 1))
    changed = data.draw(
        st.sampled_from([content[:offset], content[:offset] + bytes([data.draw(st.integers(0, 255))]) + content[offset + 1 :]])
    )
    with contextlib.suppress(CompileError):
        resources(changed)


def test_sections_beyond_any_address():
    """The offset of the section headers is read as it is: beyond what a file can have."""
    content = bytearray(cubin(KERNELS))
    content[47] = 0x80
    with pytest.raises(CompileError, match="expected a cubin"):
        resources(bytes(content))
