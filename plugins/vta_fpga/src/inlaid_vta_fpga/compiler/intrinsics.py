"""Tensor intrinsics of the GEMM core and the memory scopes of its buffers."""

from __future__ import annotations

from functools import cache

from inlaid.plugins import MemoryScope
from inlaid.tensor.parse import parse
from inlaid.tensor.primitives import TensorIntrin
from inlaid_vta_fpga.isa.config import Config, Memory

INP, WGT, ACC = "vta.inp", "vta.wgt", "vta.acc"
GEMM, RESET = "vta.gemm", "vta.reset"
_GEMM = """
program gemm(x: int8[{block}], w: int8[{block}, {block}]) -> (c: int32[{block}]):
  for o in {block}:
    for k in {block}:
      c[o] = (c[o] + (cast(int32, x[k]) * cast(int32, w[o, k])))
"""
_RESET = """
program reset() -> (c: int32[{block}]):
  for o in {block}:
    c[o] = int32(0)
"""


def scopes(config: Config) -> tuple[MemoryScope, ...]:
    """Return INP, WGT and ACC as memory scopes. The capacity is in bytes; the alignment is one element."""
    memories = ((INP, Memory.INP), (WGT, Memory.WGT), (ACC, Memory.ACC))
    return tuple(
        MemoryScope(name, "device", config.depth(memory) * config.element_bytes(memory), config.element_bytes(memory))
        for name, memory in memories
    )


@cache
def intrinsics(block: int) -> tuple[TensorIntrin, ...]:
    """Return `vta.gemm` (acc += inp @ wgt.T) and `vta.reset` (acc = 0), each on one element of `block` channels."""
    return (
        TensorIntrin(GEMM, parse(_GEMM.format(block=block))),
        TensorIntrin(RESET, parse(_RESET.format(block=block))),
    )
