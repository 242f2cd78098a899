"""Kernels that LLVM need not vectorize, and rewrites that leave other kernels alone."""

from __future__ import annotations

from inlaid.tensor import ir
from inlaid_runtime.arith import Const, SizeVar, Var
from inlaid_runtime.types import dtype
from inlaid_x86.conversions import expand_conversions
from inlaid_x86.llvm.kernel import is_deep, is_explicit

FLOAT = dtype("float32")
A, B = ir.Buffer("a", (64,), FLOAT), ir.Buffer("b", (64,), FLOAT)


def program(body: ir.Stmt) -> ir.LoopProgram:
    return ir.LoopProgram("kernel", (A,), (B,), body)


def loop(body: ir.Stmt, kind: ir.ForKind = ir.ForKind.SERIAL) -> ir.Stmt:
    return ir.For(Var("i"), Const(16), body, kind)


STORE = ir.Store(B, (Const(0),), ir.load(A, (0,)))
DOT = ir.Intrinsic("dot", (ir.BufferRegion(B, ((Const(0), Const(16)),)),), (ir.AccessMode.UPDATE,))
WIDE = loop(STORE, ir.ForKind.VECTORIZED)


def test_loops_of_vectors_are_explicit() -> None:
    assert is_explicit(program(loop(WIDE)))
    assert not is_explicit(program(loop(STORE)))
    assert not is_explicit(program(ir.Seq((loop(WIDE), loop(STORE)))))


def test_short_remainders_are_explicit() -> None:
    size = SizeVar("n")
    assert is_explicit(program(ir.Seq((loop(WIDE), ir.For(Var("i"), size % 4, STORE)))))
    assert not is_explicit(program(ir.Seq((loop(WIDE), ir.For(Var("i"), size % 16, STORE)))))
    assert not is_explicit(program(ir.For(Var("i"), Const(3), STORE)))


def test_short_loops_that_are_no_remainders_are_not_explicit() -> None:
    short = ir.For(Var("j"), SizeVar("batch", 1, 4), STORE)
    assert not is_explicit(program(ir.For(Var("i"), Const(16), short)))


def test_loops_of_intrinsics_are_explicit_if_asked() -> None:
    assert is_explicit(program(loop(DOT)), tensor=True)
    assert not is_explicit(program(loop(DOT)))
    assert not is_explicit(program(loop(ir.Seq((DOT, STORE)))), tensor=True)
    assert not is_explicit(program(ir.Seq((loop(DOT), loop(STORE)))), tensor=True)


def test_loops_of_a_register_file_are_not_explicit() -> None:
    tile = ir.Buffer("tile", (16,), FLOAT, "amx.tile")
    assert not is_explicit(program(ir.Alloc(tile, loop(DOT))), tensor=True)


def test_kernels_without_conversions_to_int64_stay_the_same() -> None:
    kernel = program(loop(WIDE))
    assert expand_conversions(kernel, ("avx2",)) is kernel
    wide = ir.Buffer("wide", (64,), dtype("int64"))
    converted = program(ir.Store(wide, (Const(0),), ir.cast(ir.load(A, (0,)), "int64")))
    assert expand_conversions(converted, ("avx2",)) is not converted
    assert expand_conversions(converted, ("avx2", "avx512dq")) is converted


def test_deep_nests():
    """A transposition of 24 symbolic dimensions takes LLVM's usual passes 1.6 s, and the few passes 0.05 s."""
    nest = STORE
    for count in range(1, 25):
        nest = loop(nest)
        assert is_deep(ir.Seq((loop(STORE), nest))) == (count > 12)
