"""What a code generator hands over and a runtime module loads: opaque code with a structured description.

Sizes are expressions over the region's symbolic dimensions, in bytes where they count memory.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from inlaid.arith import Constraint, Dim
from inlaid.types import DType

ALIGNMENT = 64
"""Alignment in bytes of every buffer that crosses a border, and of every tensor in a package."""


@dataclass(frozen=True)
class TensorSpec:
    """A tensor that crosses a region's border: row-major. Sub-byte elements take a byte each. `dtype` None: a host object (a
    sequence or an optional), which only a region on the host takes."""

    name: str
    shape: tuple[Dim, ...]
    dtype: DType | None


@dataclass(frozen=True)
class DimSource:
    """Where a region's symbolic dimension comes from: axis `axis` of input number `input`, or, when `input` is None, the region
    itself works it out and writes it (an existential dimension, at most `upper`); when `upper` is None too, the plan gives it. The
    plan knows a dimension that no input gives by the same name."""

    name: str
    input: int | None = None
    axis: int = 0
    upper: Dim | None = None


@dataclass(frozen=True)
class Signature:
    """A region's border. `dims` fixes the order of the `dims` array of the C ABI, which is read and, for dimensions that the
    region works out, written."""

    inputs: tuple[TensorSpec, ...]
    outputs: tuple[TensorSpec, ...]
    dims: tuple[DimSource, ...] = ()


@dataclass(frozen=True)
class KernelInfo:
    """One kernel of a region, as profiles describe it: its name, the source nodes that it computes, its arithmetic `operations` (a
    multiply-add counts as two) and the `bytes` of its operands and results, over the region's dimensions; 0 where not known."""

    name: str
    nodes: tuple[str, ...]
    operations: Dim = 0
    bytes: Dim = 0


PORTABLE_C = "-c99"
"""What the format of an artifact ends with whose code is C99 that defines the region's function, under the artifact's symbol (see
`inlaid.runtime.host`), and needs nothing of a runtime module: firmware may take it in."""


@dataclass(frozen=True)
class Artifact:
    """Compiled code of one region.

    symbol
        Entry point; unique in a package.
    format, format_version
        What `code` is, such as "elf-x86_64"; the runtime module that loads it checks both.
    constants
        Arrays packed by the plugin at compile time, in the order in which the region expects them; stored once beside the code.
    workspace
        Bytes of scratch memory per memory scope ("" is main memory) that the caller provides.
    aliases
        Pairs (output, input) of one buffer: the caller provides the output's, which holds the elements of the input, and the
        region updates it.
    constraints
        Conditions on the dimensions of the signature. They are checked once for each set of sizes, before anything runs; those on
        dimensions that the region itself works out when it has run, before its outputs are used.
    requires
        What the machine needs, such as features of its processor by name; `RuntimeModule.check` compares.
    kernels
        The kernels that the code calls, in the order of the calls; empty where the code does not time them.
    variants
        Versions of the region for machines that have more, best first, each with this artifact's symbol and signature, and its own
        code, constants, workspace and constraints. The first that `RuntimeModule.check` accepts is loaded, else this artifact.
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
