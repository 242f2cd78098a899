"""Test whether a device runs code that is compiled for an architecture."""

from __future__ import annotations

from collections.abc import Sequence

from inlaid_cuda.driver import DeviceFacts
from inlaid_cuda.faults import RECOMPILE
from inlaid_cuda.options import HOST, compute_capability


def missing(requires: Sequence[str], facts: DeviceFacts) -> str | None:
    """Explain why a device cannot run code for an architecture, and how to fix it; None if it can.

    A device runs cubins of its major compute capability, and of a minor one that is not higher. It runs cubins with a suffix
    (sm_90a) only if the compute capability is equal.
    """
    own = HOST if not facts.architecture else f"sm_{facts.architecture}"
    for need in requires:
        if need != own and not _runs(need, facts.architecture):
            return f"the code is for {need[:20]}, {facts.name} is {own}; {RECOMPILE}, or choose another device by devices="
    return None


def _runs(need: str, architecture: int) -> bool:
    wanted, own = compute_capability(need), divmod(architecture, 10)
    if wanted is None or not architecture:
        return False
    return wanted == own if need.endswith("a") else wanted[0] == own[0] and wanted[1] <= own[1]
