"""What an x86-64 processor can do, for cost models and schedules."""

from __future__ import annotations

from inlaid.plugins import Capabilities, Core, MemoryScope
from inlaid.types import DTYPES
from inlaid_x86.cpu import TILE, features, vector_bits
from inlaid_x86.options import X86Options

TILES = MemoryScope("amx.tile", "thread", capacity=1024, count=8, row_bytes=64)
"""The matrix tiles of processors that have AMX."""

CORES_ASSUMED = 4
"""Cores that cost estimates assume where `threads` is 0: the machine that runs the package may be another."""

CORE = Core(
    latency=4, units=2, entry=30, near_bytes=32 << 10, ways=12, alias=2048, crowding=0.1, far_bytes=1 << 20, far_load=2,
    shared_load=0.2, farther_load=2.75, last_bytes=8 << 20, last_rate=12,
)  # fmt: skip
"""Multiply-adds take 4 cycles from Skylake to Golden Cove and from Zen 3 to Zen 5 (uops.info), whose first-level cache has 12 ways
(1024 to 2048 rows: tiles of 14 are 5 % slower than of 12). 1 MiB is the second-level cache of Zen 4 and 5, and half of Sapphire
Rapids'; it gives 32 bytes a cycle. Measured: vectors from behind it (3072 rows of 96 columns); what its vectors take from additions
(tiles of 24 and 25 sums, 12 x 2 to 4 x 6, 768 rows); crowding (12 rows of 512 to 3072 columns are 2 to 4 % slower than 6); bytes a
cycle from the third-level cache (Zen 5). Nothing is detected: code for a processor is the same wherever it is compiled."""
RECENT, OLDER = (4e9, 3e10), (3e9, 1.2e10)
"""Hertz, and bytes a second that one core reads from memory, of cores with bfloat16 (2021 on: Zen 4 and 5, Sapphire Rapids) and of
those before. Zen 5 measures 4.4e9 and 4.1e10."""


def capabilities(options: X86Options) -> Capabilities:
    """What an x86-64 CPU can do under these options. Peak: two FMA units; bandwidth: what one core reads."""
    width = vector_bits(options)
    clock, read = RECENT if "avx512bf16" in features(options) else OLDER
    cores = options.threads or CORES_ASSUMED
    return Capabilities(
        dtypes=tuple(name for name in DTYPES if name != "string"),
        scopes=(TILES,) if TILE in features(options) else (),
        vector_bits=width,
        vector_registers=32 if width == 512 else 16,
        core=CORE,
        masks=width > 128,
        cores=options.threads,
        peak=cores * clock * 4 * width / 32,
        bandwidth=cores * read,
        control_flow=True,
        branches=True,
        in_place=True,
        prefetch=True,
    )
