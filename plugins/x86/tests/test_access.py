"""Kernels that check every access: an error in place of an access outside of a buffer, and the same results otherwise."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
from hypothesis import given, settings

from inlaid.tensor import ir, te
from inlaid.tensor.build import Builder
from inlaid.tensor.region import RegionProgram
from inlaid_runtime.arith import SizeVar
from inlaid_runtime.errors import KernelFault
from inlaid_runtime.types import dtype
from inlaid_x86_runtime.options import X86Options
from inlaid_x86_runtime.runtime import X86Runtime

from .native import Array, Native, check, compile_region, make_region
from .test_statements import random_programs

CHECKED = X86Options(threads=1, cpu="x86-64-v2", check=True)
SIZE, LANES = 16, 4
M = SizeVar("m")
ACCESSES = {
    "scalar load": ("x", 1), "scalar store": ("y", 1), "vector load": ("x", 1), "vector store": ("y", 1), "masked load": ("x", 1),
    "masked store": ("y", 1), "gather": ("x", 2), "scatter": ("y", 2), "parallel store": ("y", 1),
}  # fmt: skip
"""The buffer that an access goes to, and how far apart its elements lie."""


def kernel(name: str) -> ir.LoopProgram:
    """A kernel that accesses LANES elements of a buffer of SIZE in some manner, the first of which is m - 1."""
    x, y = (ir.Buffer(label, (SIZE,), dtype("float32")) for label in "xy")
    step, one = ACCESSES[name][1], te.const(1, "float32")
    kinds = {"scalar": ir.ForKind.SERIAL, "parallel": ir.ForKind.PARALLEL}
    b = Builder()
    with b.loop(SIZE, "i") as i:
        b.store(y, i, te.const(0, "float32"))
    with b.loop(LANES, "lane", kinds.get(name.split()[0], ir.ForKind.VECTORIZED)) as lane:
        at = lane * step + M - 1
        match name:
            case "masked load":
                b.store(y, lane, te.select(x[lane] < one, x[at], te.const(0, "float32")))
            case "masked store":
                with b.if_(x[lane] < one):
                    b.store(y, at, x[lane])
            case "scalar load" | "vector load" | "gather":
                b.store(y, lane, x[at])
            case _:
                b.store(y, at, x[lane])
    return ir.LoopProgram("kernel", (x,), (y,), b.finish(), sizes=(M,))


@pytest.mark.parametrize("name", ACCESSES)
def test_an_access_outside(name: str) -> None:
    native = Native([kernel(name)], CHECKED)
    x = np.zeros(SIZE, np.float32)
    buffer, step = ACCESSES[name]
    last = SIZE - (LANES - 1) * step
    for m in (1, 2, last):
        native.run([x], {"m": m})
    for m in (0, last + 1, 1 << 40, -(1 << 40)):
        words = rf"kernel kernel at node0 accesses buffer {buffer} of shape \({SIZE},\) out of bounds"
        with pytest.raises(KernelFault, match=words):
            native.run([x], {"m": m})


@pytest.mark.parametrize("name", ["masked load", "masked store"])
def test_lanes_that_a_mask_leaves_out_are_not_accessed(name: str) -> None:
    native = Native([kernel(name)], CHECKED)
    x = np.zeros(SIZE, np.float32)
    x[0] = x[3] = 2
    for m in (0, 1, SIZE - LANES + 2):
        native.run([x], {"m": m})
    for m in (-1, SIZE - LANES + 3):
        with pytest.raises(KernelFault, match="out of bounds"):
            native.run([x], {"m": m})


@settings(max_examples=10, deadline=None)
@given(random_programs())
def test_results_are_the_same(case: tuple[list[ir.LoopProgram], list[Array]]) -> None:
    check(*case, options=CHECKED)


@pytest.mark.parametrize("what", ["a buffer that is too small", "a buffer beyond the arena"])
def test_buffers_are_held_to_their_memory(what: str) -> None:
    """A region whose arena, or a buffer of it, is smaller than its kernel takes it for."""
    n = SizeVar("n")
    x, tmp, y = (ir.Buffer(name, (n,), dtype("float32")) for name in ("x", "tmp", "y"))
    b = Builder()
    with b.loop(n, "i") as i:
        b.store(tmp, i, x[i])
        b.store(y, i, tmp[i])
    region = make_region([ir.LoopProgram("kernel", (x,), (y, tmp), b.finish())])
    input_, output, scratch = region.buffers

    def run(workspace: object, shape: object, size: int) -> None:
        buffers = (input_, output, dataclasses.replace(scratch, storage="arena", index=0, offset=64, shape=(shape,)))
        signature = dataclasses.replace(region.signature, outputs=region.signature.outputs[:1])
        changed: RegionProgram = dataclasses.replace(region, buffers=buffers, workspace=workspace, signature=signature)
        loaded = X86Runtime(CHECKED).load(compile_region(changed, CHECKED), {}).kernel
        source = np.arange(size, dtype=np.float32)
        result = np.zeros(size, np.float32)
        loaded.invoke([source], [result], np.empty(64 + size * 4, np.uint8), np.array([size], np.int64))
        np.testing.assert_array_equal(result, source)

    run(n * 4 + 64, n, 40)
    with pytest.raises(KernelFault, match="a buffer of kernel kernel at node0 is larger than its memory"):
        run(*((n * 4 + 64, 32) if what.startswith("a buffer that") else (n * 4 + 60, n)), 40)
