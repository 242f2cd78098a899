"""Instruction set features: their names, how a processor reports them, and the levels that they form.

The table is the only list of features. Code is compiled only for listed features, so a package requires no feature that its
instructions do not use. The module imports neither LLVM nor the compiler, since packages are checked against the table before they
are loaded.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

CPUINFO = Path("/proc/cpuinfo")
EAX, EBX, ECX, EDX = range(4)
_VECTORS, _WIDE, _TILES = 0x6, 0xE6, 0x60000


@dataclass(frozen=True)
class Feature:
    """One feature of x86-64 processors.

    name
        LLVM's name, which artifacts record in `requires`.
    flag
        Linux's name in /proc/cpuinfo, present if processor and operating system support the feature.
    leaf, subleaf, register, bit
        Position in CPUID (Intel SDM, volume 2, CPUID; AMD APM, volume 3, appendix E). `register`: 0 to 3 for EAX, EBX, ECX, EDX.
    state
        Bits of XCR0 that are set if the operating system saves the feature's registers.
    implies
        All features that LLVM and processors always enable together with this feature, directly or indirectly.
    """

    name: str
    flag: str
    leaf: int
    subleaf: int
    register: int
    bit: int
    state: int = 0
    implies: tuple[str, ...] = ()


FEATURES = (
    Feature("cx16", "cx16", 1, 0, ECX, 13),
    Feature("popcnt", "popcnt", 1, 0, ECX, 23),
    Feature("sse3", "pni", 1, 0, ECX, 0),
    Feature("ssse3", "ssse3", 1, 0, ECX, 9, 0, ("sse3",)),
    Feature("sse4.1", "sse4_1", 1, 0, ECX, 19, 0, ("ssse3",)),
    Feature("sse4.2", "sse4_2", 1, 0, ECX, 20, 0, ("sse4.1",)),
    Feature("avx", "avx", 1, 0, ECX, 28, _VECTORS, ("sse4.2",)),
    Feature("avx2", "avx2", 7, 0, EBX, 5, _VECTORS, ("avx",)),
    Feature("bmi", "bmi1", 7, 0, EBX, 3),
    Feature("bmi2", "bmi2", 7, 0, EBX, 8),
    Feature("f16c", "f16c", 1, 0, ECX, 29, _VECTORS, ("avx",)),
    Feature("fma", "fma", 1, 0, ECX, 12, _VECTORS, ("avx",)),
    Feature("lzcnt", "abm", 0x80000001, 0, ECX, 5),
    Feature("movbe", "movbe", 1, 0, ECX, 22),
    Feature("avx512f", "avx512f", 7, 0, EBX, 16, _WIDE, ("avx2", "f16c", "fma")),
    Feature("avx512bw", "avx512bw", 7, 0, EBX, 30, _WIDE, ("avx512f",)),
    Feature("avx512cd", "avx512cd", 7, 0, EBX, 28, _WIDE, ("avx512f",)),
    Feature("avx512dq", "avx512dq", 7, 0, EBX, 17, _WIDE, ("avx512f",)),
    Feature("avx512vl", "avx512vl", 7, 0, EBX, 31, _WIDE, ("avx512f",)),
    Feature("avx512vnni", "avx512_vnni", 7, 0, ECX, 11, _WIDE, ("avx512f",)),
    Feature("avx512bf16", "avx512_bf16", 7, 1, EAX, 5, _WIDE, ("avx512bw",)),
    Feature("avxvnni", "avx_vnni", 7, 1, EAX, 4, _VECTORS, ("avx2",)),
    Feature("amx-tile", "amx_tile", 7, 0, EDX, 24, _TILES),
    Feature("amx-int8", "amx_int8", 7, 0, EDX, 25, _TILES, ("amx-tile",)),
    Feature("amx-bf16", "amx_bf16", 7, 0, EDX, 22, _TILES, ("amx-tile",)),
)
"""All features. Each feature follows the features that it implies."""

_V2 = ("cx16", "popcnt", "sse3", "sse4.1", "sse4.2", "ssse3")
_V3 = (*_V2, "avx", "avx2", "bmi", "bmi2", "f16c", "fma", "lzcnt", "movbe")
_V4 = (*_V3, "avx512f", "avx512bw", "avx512cd", "avx512dq", "avx512vl")
LEVELS = {
    "x86-64-v2": _V2,
    "x86-64-v3": _V3,
    "x86-64-v4": _V4,
    "alderlake": (*_V3, "avxvnni"),
    "cascadelake": (*_V4, "avx512vnni"),
    "sapphirerapids": (*_V4, "amx-bf16", "amx-int8", "amx-tile", "avx512bf16", "avx512vnni", "avxvnni"),
}
"""Features of the microarchitecture levels (x86-64 psABI, table 3.1), and of Intel's Core processors of 2021 and Xeons of 2019 and
2023."""


def extensions(names: Iterable[str]) -> tuple[str, ...]:
    """Select the features that belong to no level. They are enabled only for kernels that use them."""
    return tuple(name for name in names if name not in _V4)


def reported(path: Path = CPUINFO) -> frozenset[str]:
    """Return the features, by LLVM's names, that processor and operating system support. If /proc is not mounted, the result is
    empty, which means the x86-64 baseline."""
    try:
        with path.open() as lines:
            flags = next((line.partition(":")[2].split() for line in lines if line.startswith("flags")), [])
    except OSError:
        return frozenset()
    present = set(flags)
    return frozenset(usable(feature.name for feature in FEATURES if feature.flag in present))


def usable(names: Iterable[str]) -> Iterator[str]:
    """Select the features that code can be compiled for. LLVM also enables implied features, so a feature is dropped if a
    hypervisor hides one that it implies. AVX-512 features are kept only if the whole level x86-64-v4 is present."""
    features = set(names)
    if not features >= set(_V4):
        features = {name for name in features if not name.startswith("avx512")}
    supported: set[str] = set()
    for feature in FEATURES:
        if feature.name in features and supported.issuperset(feature.implies):
            supported.add(feature.name)
            yield feature.name
