"""Artifacts: opaque code with a structured description. Code generators produce artifacts, and runtime modules load them.

Sizes are expressions over the region's symbolic dimensions; memory sizes are in bytes.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from inlaid_runtime.arith import Constraint, Dim
from inlaid_runtime.records import dataclass, field
from inlaid_runtime.types import DType

ALIGNMENT = 64
"""Alignment in bytes of every input and output buffer of a region, and of every tensor in a package."""


@dataclass(frozen=True)
class TensorSpec:
    """A row-major input or output of a region. Sub-byte elements take one byte each. `dtype` None means a host object (a sequence
    or an optional), which only regions on the host support."""

    name: str
    shape: tuple[Dim, ...]
    dtype: DType | None


@dataclass(frozen=True)
class DimSource:
    """Source of a region's symbolic dimension: axis `axis` of input `input`. If `input` is None, the region computes and writes the
    dimension (an existential dimension, at most `upper`). If `upper` is None too, its value is that of the plan's dimension of the
    same name."""

    name: str
    input: int | None = None
    axis: int = 0
    upper: Dim | None = None


@dataclass(frozen=True)
class Signature:
    """Signature of a region. `dims` defines the order of the C ABI's `dims` array, which the region reads, and to which it writes
    computed dimensions."""

    inputs: tuple[TensorSpec, ...]
    outputs: tuple[TensorSpec, ...]
    dims: tuple[DimSource, ...] = ()


@dataclass(frozen=True)
class KernelInfo:
    """A kernel of a region, for profiles: its name, source nodes, arithmetic `operations` (a multiply-add counts as two) and the
    `bytes` of its operands and results, over the region's dimensions; 0 if unknown."""

    name: str
    nodes: tuple[str, ...]
    operations: Dim = 0
    bytes: Dim = 0


PORTABLE_C = "-c99"
"""Suffix of formats whose code is C99 source, which firmware can include. The source defines the region's function under the
artifact's symbol (see `inlaid_runtime.execution.host`) and needs no runtime module."""


@dataclass(frozen=True)
class Artifact:
    """Compiled code of one region.

    symbol
        Entry point; unique in a package.
    format, format_version
        Format of `code`, such as "elf-x86_64"; the runtime module checks both.
    constants
        Arrays packed by the plugin at compile time, in the order that the region expects; stored once next to the code.
    workspace
        Scratch memory in bytes per memory scope ("" is main memory), provided by the caller.
    aliases
        Pairs (output, input) that share a buffer: the caller provides the output's buffer with the elements of the input, and the
        region updates it in place.
    constraints
        Conditions on the dimensions of the signature, checked once per set of sizes before anything runs. Conditions on computed
        dimensions are checked after the region has run, before its outputs are used.
    requires
        Required machine features by name, such as CPU features; compared by `RuntimeModule.check`.
    kernels
        The kernels that the code calls, in order of the calls; empty if the code does not time them.
    variants
        Versions of the region for more capable machines, best first, with equal symbol and signature but separate code, constants,
        workspace and constraints. The first variant that `RuntimeModule.check` accepts is loaded, otherwise this artifact.
    """

    symbol: str
    format: str
    format_version: int
    code: bytes
    signature: Signature
    constants: Mapping[str, np.ndarray[Any, Any]] = field(default_factory=dict)
    workspace: Mapping[str, Dim] = field(default_factory=dict)
    aliases: tuple[tuple[int, int], ...] = ()
    constraints: tuple[Constraint, ...] = ()
    requires: tuple[str, ...] = ()
    kernels: tuple[KernelInfo, ...] = ()
    variants: tuple[Artifact, ...] = ()
