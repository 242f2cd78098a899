"""Capabilities of x86-64 processors, for cost models and schedules."""

from __future__ import annotations

from collections.abc import Collection

from inlaid.plugins import Capabilities, Core, MemoryScope
from inlaid_runtime.types import DTYPES
from inlaid_x86_runtime.cpu import TILE, features, vector_bits
from inlaid_x86_runtime.options import X86Options

TILES = MemoryScope("amx.tile", "thread", capacity=1024, count=8, row_bytes=64)
"""The memory scope of AMX tiles."""

CORES_ASSUMED = 4
"""Number of cores that cost estimates assume if `threads` is 0. The package may run on a machine other than the compiling one."""

CORE = Core(
    latency=4, units=2, loop_entry=30, l1_bytes=32 << 10, l1_ways=12, alias_bytes=2048, alias_cycles=0.1, l2_bytes=1 << 20,
    l2_load=2, load_stall=0.2, l3_load=2.75, llc_bytes=8 << 20, llc_rate=12,
)  # fmt: skip
"""Core model of the cost estimates. FMA latency: 4 cycles from Skylake to Golden Cove and from Zen 3 to Zen 5 (uops.info). The L1
cache of Zen 5 has 12 ways (for 1024 to 2048 rows, tiles of 14 are 5 % slower than of 12). L2: 1 MiB on Zen 4 and 5 (2 MiB on
Sapphire Rapids), 32 bytes per cycle. Measured: loads from beyond L2 (3072 rows of 96 columns); slowdown of additions by L2 loads
(tiles of 24 and 25 sums, 12 x 2 to 4 x 6, 768 rows); alias_cycles (12 rows of 512 to 3072 columns are 2 to 4 % slower than 6); L3
bandwidth (Zen 5). No value is detected on the compiling machine, so code for a given processor is the same from every machine."""
RECENT, OLDER = (4e9, 3e10), (3e9, 1.2e10)
"""Clock in Hz and memory bandwidth per core in bytes/s. RECENT: cores with bfloat16 (since 2021: Zen 4, Zen 5, Sapphire Rapids).
OLDER: all other cores. Measured on Zen 5: 4.4e9 Hz and 4.1e10 bytes/s."""


def _cycles_per_instruction(present: Collection[str], width: int) -> int:
    """Return the cycles per instruction on vectors of `width` bits: of the processors with bfloat16, those without AVX-VNNI (Zen 4)
    execute 512 bits in two steps. `CORE` keeps two units: with one, tiles are smaller and wait for loads (ADR 93)."""
    return 2 if width == 512 and "avx512bf16" in present and "avxvnni" not in present else 1


def capabilities(options: X86Options) -> Capabilities:
    """Return the capabilities of an x86-64 CPU for target options. Peak assumes two FMA units per core; bandwidth is per core."""
    width, present = vector_bits(options), features(options)
    clock, core_bandwidth = RECENT if "avx512bf16" in present else OLDER
    cores = options.threads or CORES_ASSUMED
    return Capabilities(
        dtypes=tuple(name for name in DTYPES if name != "string"),
        scopes=(TILES,) if TILE in present else (),
        vector_bits=width,
        vector_registers=32 if width == 512 else 16,
        core=CORE,
        masks=width > 128,
        cores=options.threads,
        peak=cores * clock * 4 * width / 32 / _cycles_per_instruction(present, width),
        bandwidth=cores * core_bandwidth,
        control_flow=True,
        branches=True,
        in_place=True,
        prefetch=True,
        unrolls=True,
    )
