"""What the verifier of loop programs refuses."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from inlaid.tensor import ir
from inlaid.tensor.analysis.verify import verify
from inlaid.tensor.parse import parse
from inlaid_runtime import arith
from inlaid_runtime.errors import VerifyError
from inlaid_runtime.types import dtype

X, Y = ir.Buffer("x", (4,), dtype("float32")), ir.Buffer("y", (4,), dtype("float32"))
P, J = arith.Var("i"), arith.Var("j")
F32, I32, BOOL = dtype("float32"), dtype("int32"), dtype("bool")
Z = ir.Buffer("z", (4,), F32)
N = arith.SizeVar("n")
VECTOR = ir.ForKind.VECTORIZED


def loop(value: ir.Expr, buffer: ir.Buffer = Y, index: arith.Expr = P) -> ir.Stmt:
    return ir.For(P, arith.Const(4), ir.Store(buffer, (index,), value))


def _for(stmt: ir.Stmt) -> ir.For:
    assert isinstance(stmt, ir.For)
    return stmt


def one(dtype_name: str = "float32") -> ir.Expr:
    return ir.const(1, dtype_name)


GOOD: list[Callable[[], ir.Stmt]] = [
    lambda: loop(X[P]),
    lambda: loop(ir.select(ir.as_expr(arith.compare("<", P, 2), BOOL), X[P], 0.0)),
    lambda: ir.For(J, arith.Const(2), loop(X[0], index=arith.ZERO), ir.ForKind.UNROLLED),
    lambda: ir.For(J, arith.Const(4), ir.Store(Y, (J,), X[J]), ir.ForKind.VECTORIZED),
]
BAD: list[tuple[str, Callable[[], ir.Stmt]]] = [
    ("must be written", lambda: ir.Seq(())),
    ("must be bound before use", lambda: ir.Store(Y, (P,), one())),
    ("must be bound before use", lambda: loop(X[J])),
    ("must be bound before use", lambda: loop(ir.Index(dtype("int64"), J).astype("float32"))),
    ("must be bound before use", lambda: ir.For(J, arith.SizeVar("m"), loop(X[0]))),
    ("must be bound once", lambda: ir.For(P, arith.Const(1), loop(X[P]))),
    ("must be declared before use", lambda: loop(ir.Buffer("z", (4,), F32)[P])),
    ("must be declared before use", lambda: ir.Seq((ir.Alloc(Z, ir.Store(Z, (arith.ZERO,), one())), loop(Z[P])))),
    ("needs 1 indices, got 2", lambda: ir.Store(Y, (arith.ZERO, arith.ZERO), one())),
    ("needs 1 indices, got 0", lambda: loop(ir.Load(F32, X, ()))),
    ("input x must not be written", lambda: loop(one(), X)),
    ("stored into y must be float32", lambda: loop(one("int32"))),
    (
        "extent of vectorized loop i must be constant",
        lambda: ir.Alloc(Z, ir.For(P, arith.add(N, 1), ir.Store(Y, (P,), one()), ir.ForKind.VECTORIZED)),
    ),
    ("inside vectorized loop", lambda: ir.For(J, arith.Const(4), replace(_for(loop(X[P])), kind=VECTOR), VECTOR)),
    ("inside vectorized loop", lambda: ir.For(J, arith.Const(4), replace(_for(loop(X[P])), extent=J), VECTOR)),
    ("thread axis", lambda: ir.For(P, arith.Const(4), ir.Store(Y, (P,), one()), ir.ForKind.THREAD)),
    ("thread axis", lambda: ir.For(P, arith.Const(4), ir.Store(Y, (P,), one()), thread="threadIdx.x")),
    ("a condition must be a bool", lambda: ir.If(one(), loop(X[P]))),
    ("a condition must be a bool", lambda: loop(ir.Select(F32, one("int32"), one(), one()))),
    ("select needs float32 operands", lambda: loop(ir.Select(F32, ir.const(True, BOOL), one(), one("int32")))),
    ("add does not accept float32 and int32", lambda: loop(ir.Binary(F32, "add", one(), one("int32")))),
    ("add does not accept bool", lambda: loop(ir.cast(ir.Binary(BOOL, "add", ir.const(True, BOOL), ir.const(True, BOOL)), F32))),
    ("and does not accept float32", lambda: loop(ir.Binary(F32, "and", one(), one()))),
    ("lt does not accept", lambda: loop(ir.Binary(F32, "lt", one(), one()))),
    ("unknown binary operation", lambda: loop(ir.Binary(F32, "plus", one(), one()))),
    ("floor does not accept int32", lambda: loop(ir.cast(ir.Unary(I32, "floor", one("int32")), F32))),
    ("popcount does not accept float32", lambda: loop(ir.Unary(F32, "popcount", one()))),
    ("not does not accept float32", lambda: loop(ir.Unary(F32, "not", one()))),
    ("fma needs one numeric dtype", lambda: loop(ir.Fma(F32, one(), one(), one("int32")))),
    ("unknown mathematical function", lambda: loop(ir.CallMath(F32, "expo", (one(),)))),
    ("exp needs float32 operands, got int32", lambda: loop(ir.CallMath(F32, "exp", (one("int32"),)))),
    ("dtypes of one width", lambda: loop(ir.Bitcast(F32, one("int64")))),
    ("a load from x must be float32", lambda: loop(ir.Load(I32, X, (P,)))),
    ("a float32 constant", lambda: loop(ir.Const(F32, 1))),
    ("a bool constant", lambda: loop(ir.Cast(F32, ir.Const(BOOL, 1)))),
    ("an? int32 constant", lambda: loop(ir.Cast(F32, ir.Const(I32, 1 << 31)))),
    ("index must be an integer or bool", lambda: loop(ir.Index(F32, P))),
    ("checked index must be an integer", lambda: loop(one(), index=arith.Opaque(one(), 0, 3))),
    ("value of index j must be an integer", lambda: ir.Let(J, one(), loop(X[P]))),
]


def program(stmt: ir.Stmt) -> ir.LoopProgram:
    return ir.LoopProgram("f", (X,), (Y,), stmt, sizes=(N,))


@pytest.mark.parametrize("make_stmt", GOOD)
def test_good_programs(make_stmt: Callable[[], ir.Stmt]) -> None:
    verify(program(make_stmt()))


@pytest.mark.parametrize(("problem", "make_stmt"), BAD)
def test_bad_programs(problem: str, make_stmt: Callable[[], ir.Stmt]) -> None:
    with pytest.raises(VerifyError, match=problem):
        verify(program(make_stmt()))


def test_the_error_shows_the_place() -> None:
    with pytest.raises(VerifyError, match=r"y\[i\] = int32\(1\)\n +#\^+"):
        verify(program(loop(one("int32"))))


def test_blocks() -> None:
    block = "  block {}:\n    iter j = 0 in 2\n    where (j < 2)\n    y[] = float32(1.0)\n"
    head = "program f() -> (y: float32[]):\n"
    verify(parse(head + block.format("a")))
    with pytest.raises(VerifyError, match="block names must be unique"):
        verify(parse(head + block.format("a") + block.format("a").replace("j", "k")))
    good = parse(head + block.format("a"))
    assert isinstance(good.body, ir.Block)
    with pytest.raises(VerifyError, match="needs 1 bindings, one per variable, got 0"):
        verify(replace(good, body=replace(good.body, bindings=())))
    with pytest.raises(VerifyError, match="variable j must be bound before use"):
        verify(replace(good, body=replace(good.body, iters=(), bindings=())))


def test_sizes_are_defined_by_outputs() -> None:
    size = arith.SizeVar("?n", upper=4)
    count = ir.Buffer("count", (1,), dtype("int64"))
    wrong = ir.LoopProgram("f", (), (count,), ir.Store(count, (arith.ZERO,), ir.const(1, "int64")), ((size, count),))
    with pytest.raises(VerifyError, match="defines a size"):
        verify(wrong)


def test_parameters_are_distinct() -> None:
    with pytest.raises(VerifyError, match="twice"):
        verify(ir.LoopProgram("f", (X, X), (Y,), loop(X[P])))
