"""Instructions that kernels use as tensor intrinsics."""

from __future__ import annotations

import functools

from inlaid_x86 import amx, dot
from inlaid_x86.llvm.intrinsics import Instruction


@functools.cache
def tensor_instructions(features: tuple[str, ...]) -> tuple[Instruction, ...]:
    """Return the instructions that a processor with `features` has, fastest first. Cached, since each region calls it twice."""
    return *amx.instructions(features), *dot.instructions(features)
