"""The core names no processor: what is true of one is a capability of its target, or stands in its plugin."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import inlaid

CORE = Path(inlaid.__file__).parent
NAMES = re.compile(
    r"""(?ix) (?<![a-z])(?:
        amx[\w-]* | avx[\w-]* | sse\d? | \w*vnni | neon | sve\d? | smlad | rvv                    # instruction sets
        | zen(?:\ ?\d)? | sky\s?lake | (?:ice|cascade|sapphire|golden|cooper)\s?(?:lake|rapids|cove) | haswell | broadwell
        | xeon | ryzen | epyc | cortex(?:-?[amrx]\d+)? | neoverse | apple\ m\d | hexagon | ampere | hopper | volta | turing
        | intel | amd | nvidia | qualcomm                                                     # vendors
    )(?![a-z])"""
)


def named(text: str) -> Iterator[tuple[int, str]]:
    """The names of processors in a text, by line."""
    for number, line in enumerate(text.splitlines(), 1):
        for name_match in NAMES.finditer(line):
            yield number, name_match[0]


def test_the_core_names_no_processor() -> None:
    mentions = [
        f"{path.relative_to(CORE)}:{line}: {name}"
        for path in sorted(CORE.rglob("*.py"))
        for line, name in named(path.read_text(encoding="utf-8"))
    ]
    assert not mentions, "what is true of one processor is a field of Capabilities, or stands in its target's plugin"


def test_names_are_found() -> None:
    text = "on AMD Zen 4\nhalf of AVX-512's\nneeds avx512f\nSkylake to Golden Cove\ncortex-m4\nan armed zenith, ascend"
    assert [line for line, _ in named(text)] == [1, 1, 2, 3, 4, 4, 5]
