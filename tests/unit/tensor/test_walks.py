"""Walks over value expressions."""

from __future__ import annotations

from inlaid.tensor import ir, te


def test_a_walk_finds_the_checked_indices_of_every_load() -> None:
    table, indices = te.placeholder((8,), "float32", "table"), te.placeholder((4,), "int64", "indices")
    index = indices[0]
    read = table[ir.checked(index, 0, 7)]
    plain = ir.load(ir.Buffer("plain", (8,), read.dtype), (ir.checked(index, 0, 7),))
    assert list(ir.walk_exprs(read)) == [read, index]
    assert list(ir.walk_exprs(plain)) == [plain, index]
    assert list(ir.walk_exprs(read + plain))[1:] == [read, index, plain]
