"""Declarations of a block's shared memory."""

from __future__ import annotations

import itertools
from collections.abc import Mapping

from inlaid.codegen.c import c_type
from inlaid.codegen.threads.dialect import ThreadDialect
from inlaid.tensor import ir
from inlaid_runtime import arith
from inlaid_runtime.errors import Unsupported

_WORD = 8
"""Alignment of the arena: bytes of the largest element."""


def shared_by_threads(program: ir.LoopProgram, offsets: Mapping[ir.Buffer, int]) -> dict[ir.Buffer, int]:
    """Map the buffers that are allocated outside the thread loops to their byte offsets."""
    offsets_by_buffer = {}
    for stmt in ir.walk_stmts(program.body):
        if isinstance(stmt, ir.Alloc) and any(isinstance(node, ir.For) and node.over_threads for node in ir.walk_stmts(stmt.body)):
            offsets_by_buffer[stmt.buffer] = offsets.get(stmt.buffer, 0)
    return offsets_by_buffer


def declarations(
    shared: Mapping[ir.Buffer, int], names: Mapping[ir.Buffer, str], arena: str, dialect: ThreadDialect
) -> tuple[list[str], int]:
    """Declare shared buffers at the head of a kernel: as arrays, or as pointers into one array if their bytes overlap.

    Returns the lines, and the bytes of dynamic shared memory: 0 if the buffers fit in the shared memory that a kernel may declare.
    """
    spans = sorted((offset, offset + _bytes(buffer)) for buffer, offset in shared.items())
    total = max((end for _, end in spans), default=0)
    if total <= dialect.static_shared and all(one[1] <= two[0] for one, two in itertools.pairwise(spans)):
        return [
            dialect.shared_array(c_type(buffer.dtype), names[buffer], _bytes(buffer) // buffer.dtype.bytes) for buffer in shared
        ], 0
    dynamic_bytes = total if total > dialect.static_shared else 0
    lines = [dialect.shared_array("int64_t", arena, 0 if dynamic_bytes else -(-total // _WORD))]
    space = f"{dialect.shared} ".lstrip()
    for buffer, offset in shared.items():
        kind = f"{space}{c_type(buffer.dtype)} *"
        lines.append(f"{kind}{names[buffer]} = ({kind})(({space}uint8_t *){arena} + {offset});")
    return lines, dynamic_bytes


def _bytes(buffer: ir.Buffer) -> int:
    size = arith.product(buffer.shape)
    if not isinstance(size, int):
        raise Unsupported(f"shared buffer {buffer.name} must have a constant size, got shape {buffer.shape}")
    return max(size, 1) * buffer.dtype.bytes
