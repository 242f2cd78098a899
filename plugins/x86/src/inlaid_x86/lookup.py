"""Look-ups in tables of 256 bytes by PSHUFB, which looks up 16 bytes in each 128-bit lane.

Sixteen parts of the table are looked up. An index outside of a part gets its highest bit set, for which PSHUFB gives 0.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial

from inlaid_x86.llvm.expressions import table_name
from inlaid_x86.llvm.function import FunctionPrinter
from inlaid_x86.llvm.intrinsics import MathEmitter
from inlaid_x86.llvm.values import Value, splat

PART = 16
"""Bytes of a part of the table."""
SHUFFLES = (("ssse3", 16, "ssse3.pshuf.b.128"), ("avx2", 32, "avx2.pshuf.b"), ("avx512bw", 64, "avx512.pshuf.b.512"))
"""Features, bytes of a vector, and intrinsics."""


def table_emitters(present: Sequence[str]) -> Mapping[str, MathEmitter]:
    """Return the emitters of look-ups by a vector of bytes, keyed by `table_name` of the number of bytes."""
    return {table_name(lanes): partial(_looked_up, f"llvm.x86.{name}") for feature, lanes, name in SHUFFLES if feature in present}


def _looked_up(shuffle: str, p: FunctionPrinter, operands: tuple[Value, ...]) -> Value:
    """Print a look-up by an intrinsic. Operands: the address of the table, and a vector of indices."""
    table, index = operands
    lanes = index.lanes
    wide = f"<{lanes} x i8>"
    add = f"llvm.uadd.sat.v{lanes}i8"
    for name in (add, shuffle):
        p.declarations[name] = f"declare {wide} @{name}({wide}, {wide})"
    mask = ", ".join(f"i32 {lane % PART}" for lane in range(lanes))
    result: Value | None = None
    for start in range(0, 256, PART):
        address = p.op(f"getelementptr inbounds i8, {table}, i64 {start}", "ptr")
        part = p.op(f"load <{PART} x i8>, ptr {address.ref}, align 1", "i8", PART)
        repeated_part = p.op(f"shufflevector {part}, {part}, <{lanes} x i32> <{mask}>", "i8", lanes)
        offset = p.op(f"xor {index}, {splat(str(start), 'i8', lanes)}", "i8", lanes)
        part_indices = p.op(f"call {wide} @{add}({offset}, {wide} {splat(str(128 - PART), 'i8', lanes)})", "i8", lanes)
        part_bytes = p.op(f"call {wide} @{shuffle}({repeated_part}, {part_indices})", "i8", lanes)
        result = part_bytes if result is None else p.op(f"or {result}, {part_bytes.ref}", "i8", lanes)
    assert result is not None
    return result
