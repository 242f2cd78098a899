"""Tile loads by tensor maps: their functions in CUDA C++, and how kernels call them.

Each function has two bodies: inline PTX, and C++ for the host. There a tensor map has an encoding of its own, and a load is made
when a thread waits for it (`emulation.h`).

Sources: PTX ISA 8.0 and later, "cp.async.bulk.tensor", "mbarrier", "Async Proxy"; CUDA C++ Programming Guide, "Using TMA to
transfer multi-dimensional arrays", for the order of initialisation, fence and barrier.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from inlaid.codegen.c_statements import Emitter, Place
from inlaid_cuda.driver import MOST_RANK
from inlaid_cuda.tensor_cores.tile_loads import AWAIT, BARRIERS, END, LOAD
from inlaid_cuda.tensor_cores.waits import MOST_STAGES

OPERANDS = 2
"""Arrivals of a phase: each operand's load announces its bytes."""


class Emitters(Mapping[str, Emitter]):
    """Emitters by name; loads, whose names have their boxes, share one."""

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
    """Prints loads: `boxes` boxes of `inner` by `outer` elements, neighbours along an axis."""

    def __init__(self, rank: int, boxes: int, axis: int, inner: int, outer: int) -> None:
        self.rank, self.boxes, self.axis, self.inner, self.outer = rank, boxes, axis, inner, outer

    def __call__(self, places: Sequence[Place], args: Sequence[str]) -> Sequence[str]:
        *coordinates, descriptor = args
        source, tile, barrier = places
        size = self.inner * self.outer * source.region.buffer.dtype.bytes
        step = (self.inner, self.outer)[self.axis]
        function = f"inlaid_load_tile<{self.rank}, {self.boxes}, {self.axis}, {step}, {size}>"
        return [f"{function}(&{descriptor}, {tile.pointer}, {barrier.pointer}, {{{{{', '.join(coordinates)}}}}});"]


def emitters() -> Mapping[str, Emitter]:
    """Emitters of initialisation, waits and invalidation, by name."""

    def await_tile(places: Sequence[Place], args: Sequence[str]) -> Sequence[str]:
        return [f"inlaid_await_tile({places[0].pointer}, {args[0]});"]

    def on_all(function: str, stages: int) -> Emitter:
        return lambda places, args: [f"{function}<{stages}>({places[0].pointer});"]

    numbers = range(1, MOST_STAGES + 1)
    starts = {f"{BARRIERS}.{stages}": on_all("inlaid_tile_barriers", stages) for stages in numbers}
    ends = {f"{END}.{stages}": on_all("inlaid_end_tile_barriers", stages) for stages in numbers}
    return {AWAIT: await_tile, **starts, **ends}


def _load(rank: int) -> str:
    coordinates = ", ".join(f"%{2 + axis}" for axis in range(rank))
    ins = "".join(f', "r"(at.at[{axis}])' for axis in range(rank))
    return f"""\
    {"else " if rank > 1 else ""}if constexpr (rank == {rank})
        asm volatile("cp.async.bulk.tensor.{rank}d.shared::cluster.global.mbarrier::complete_tx::bytes"
            " [%0], [%1, {{{coordinates}}}], [%{2 + rank}];"
            :: "r"(inlaid_shared_address(to)), "l"(map){ins}, "r"(inlaid_shared_address(barrier)) : "memory");
"""


FUNCTIONS = {
    "inlaid_tensor_map": """\
struct alignas(64) inlaid_tensor_map { uint64_t words[16]; };
""",
    "inlaid_tile_barriers": """\
template <int stages> inline void inlaid_tile_barriers(uint64_t *barriers) {
    for (int stage = 0; stage < stages; stage++) {
#ifndef INLAID_HOST
        asm volatile("mbarrier.init.shared::cta.b64 [%0], {arrivals};" :: "r"(inlaid_shared_address(barriers + stage)) : "memory");
#else
        emulation::start_barrier(barriers + stage, {arrivals});
#endif
    }
#ifndef INLAID_HOST
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
#endif
}
""".replace("{arrivals}", str(OPERANDS)),
    "inlaid_end_tile_barriers": """\
template <int stages> inline void inlaid_end_tile_barriers(uint64_t *barriers) {
    for (int stage = 0; stage < stages; stage++) {
#ifndef INLAID_HOST
        asm volatile("mbarrier.inval.shared::cta.b64 [%0];" :: "r"(inlaid_shared_address(barriers + stage)) : "memory");
#else
        barriers[stage] = 0;
#endif
    }
}
""",
    "inlaid_load_box": f"""\
template <int rank> struct inlaid_coordinates {{ int32_t at[rank]; }};
template <int rank>
inline void inlaid_load_box(const void *map, void *to, uint64_t *barrier, const inlaid_coordinates<rank> &at) {{
#ifndef INLAID_HOST
{"".join(_load(rank) for rank in range(1, MOST_RANK + 1))}#else
    emulation::transfer(map, to, barrier, at.at);
#endif
}}
""",
    "inlaid_load_tile": """\
// Announce the bytes of a tile, and load its boxes, neighbours along an axis.
template <int rank, int boxes, int axis, int step, int bytes>
inline void inlaid_load_tile(const void *map, void *to, uint64_t *barrier, inlaid_coordinates<rank> at) {
#ifndef INLAID_HOST
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;"
        :: "r"(inlaid_shared_address(barrier)), "r"(boxes * bytes) : "memory");
#else
    emulation::arrive(barrier, boxes * bytes);
#endif
    for (int box = 0; box < boxes; box++) {
        inlaid_load_box<rank>(map, (char *)to + box * bytes, barrier, at);
        at.at[axis] += step;
    }
}
""",
    "inlaid_await_tile": """\
// Wait until the phase of a parity is complete.
inline void inlaid_await_tile(uint64_t *barrier, int parity) {
#ifndef INLAID_HOST
    uint32_t complete;
    do {
        asm volatile("{ .reg .pred p; mbarrier.try_wait.parity.shared::cta.b64 p, [%1], %2; selp.u32 %0, 1, 0, p; }"
            : "=r"(complete) : "r"(inlaid_shared_address(barrier)), "r"(parity) : "memory");
    } while (!complete);
#else
    emulation::await_transfers(barrier, parity, __LINE__);
#endif
}
""",
}
