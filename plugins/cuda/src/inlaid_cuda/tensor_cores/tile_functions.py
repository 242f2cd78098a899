"""Emitters of tile loads by tensor maps. They print calls of functions.

The host emulation uses a different encoding of tensor maps. It performs a load when a thread waits for it (`emulation.h`).

Sources: PTX ISA 8.0 and later, "cp.async.bulk.tensor", "mbarrier", "Async Proxy"; CUDA C++ Programming Guide, "Using TMA to
transfer multi-dimensional arrays", for the order of initialization, fence and barrier.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from inlaid.codegen.c_statements import Emitter, RegionPointer
from inlaid_cuda.tensor_cores.tile_loads import AWAIT, BARRIERS, END, LOAD
from inlaid_cuda.tensor_cores.waits import MAX_STAGES


class Emitters(Mapping[str, Emitter]):
    """Mapping from intrinsic names to emitters. The name of a load includes the size of its box, so the emitters of loads are
    created on demand."""

    def __init__(self, emitters: Mapping[str, Emitter]) -> None:
        self._emitters = emitters

    def __getitem__(self, name: str) -> Emitter:
        if name.startswith(f"{LOAD}."):
            _, _, order, box, boxes, axis = name.split(".")
            inner, outer = map(int, box.split("_"))
            return _Load(order.count("_") + 1, int(boxes), int(axis), inner, outer)
        return self._emitters[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._emitters)

    def __len__(self) -> int:
        return len(self._emitters)


class _Load:
    """Prints loads of `boxes` boxes of `inner` by `outer` elements. The boxes are adjacent along `axis` (0: inner, 1: outer)."""

    def __init__(self, rank: int, boxes: int, axis: int, inner: int, outer: int) -> None:
        self.rank, self.boxes, self.axis, self.inner, self.outer = rank, boxes, axis, inner, outer

    def __call__(self, places: Sequence[RegionPointer], args: Sequence[str]) -> Sequence[str]:
        *coordinates, descriptor = args
        source, tile, barrier = places
        size = self.inner * self.outer * source.region.buffer.dtype.bytes
        step = (self.inner, self.outer)[self.axis]
        function = f"inlaid_load_tile<{self.rank}, {self.boxes}, {self.axis}, {step}, {size}>"
        return [f"{function}(&{descriptor}, {tile.pointer}, {barrier.pointer}, {{{{{', '.join(coordinates)}}}}});"]


def emitters() -> Mapping[str, Emitter]:
    """Return the emitters of the initialization, wait and invalidation of mbarriers, keyed by intrinsic name."""

    def await_tile(places: Sequence[RegionPointer], args: Sequence[str]) -> Sequence[str]:
        return [f"inlaid_await_tile({places[0].pointer}, {args[0]});"]

    def barriers_emitter(function: str, stages: int) -> Emitter:
        return lambda places, args: [f"{function}<{stages}>({places[0].pointer});"]

    numbers = range(1, MAX_STAGES + 1)
    starts = {f"{BARRIERS}.{stages}": barriers_emitter("inlaid_tile_barriers", stages) for stages in numbers}
    ends = {f"{END}.{stages}": barriers_emitter("inlaid_end_tile_barriers", stages) for stages in numbers}
    return {AWAIT: await_tile, **starts, **ends}
