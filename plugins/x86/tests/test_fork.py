"""Which parallel loops are left to one thread."""

from __future__ import annotations

from inlaid.tensor import ir
from inlaid.tensor.build import Builder
from inlaid_runtime import arith
from inlaid_runtime.arith import Const, SizeVar, Var
from inlaid_runtime.types import dtype
from inlaid_x86.fork import serialize_short_loops

FLOAT = dtype("float32")


def copy(*extents: arith.Expr, lanes: int = 1, heavy: int = 0) -> ir.LoopProgram:
    """Copies an element, or a vector, in a nest of loops of which the first is parallel; `heavy` operations on each."""
    x, y = ir.Buffer("x", (1 << 20,), FLOAT), ir.Buffer("y", (1 << 20,), FLOAT)
    loops = [Var(f"i{number}") for number in range(len(extents))]
    lane = Var("lane")
    value: ir.Expr = ir.load(x, (lane,))
    for number in range(heavy):
        value = ir.Binary(FLOAT, "mul", value, ir.const(float(number), FLOAT))
    body: ir.Stmt = ir.For(lane, Const(lanes), ir.Store(y, (lane,), value), ir.ForKind.VECTORIZED)
    for number, (loop, extent) in enumerate(reversed(list(zip(loops, extents, strict=True)))):
        body = ir.For(loop, extent, body, ir.ForKind.SERIAL if number + 1 < len(extents) else ir.ForKind.PARALLEL)
    return ir.LoopProgram("copy", (x,), (y,), body)


def is_parallel(program: ir.LoopProgram, width: int = 512) -> bool:
    result = serialize_short_loops(program, width)
    return any(isinstance(stmt, ir.For) and stmt.kind is ir.ForKind.PARALLEL for stmt in ir.walk_stmts(result.body))


def test_short_loops_are_serial() -> None:
    assert not is_parallel(copy(Const(10)))
    assert not is_parallel(copy(Const(10), Const(100)))
    assert is_parallel(copy(Const(10), Const(1000)))
    assert is_parallel(copy(Const(10), Const(100), heavy=20))


def test_vectors_count_by_registers() -> None:
    assert not is_parallel(copy(Const(2000), lanes=16))
    assert is_parallel(copy(Const(2000), lanes=16), width=128)
    assert is_parallel(copy(Const(2000), lanes=64))


def test_loops_of_unknown_length_stay_parallel() -> None:
    assert is_parallel(copy(arith.wrap(SizeVar("n"))))
    assert is_parallel(copy(Const(2), arith.wrap(SizeVar("n"))))


def test_each_loop_is_decided_by_itself() -> None:
    short, long = copy(Const(10)), copy(Const(10), Const(5000))
    both = ir.LoopProgram("both", short.inputs, short.outputs, ir.Seq((short.body, long.body)))
    result = serialize_short_loops(both, 512)
    assert isinstance(result.body, ir.Seq)
    assert [stmt.kind for stmt in result.body.stmts if isinstance(stmt, ir.For)] == [ir.ForKind.SERIAL, ir.ForKind.PARALLEL]


def test_intrinsics_stay_parallel() -> None:
    b = Builder()
    loop = ir.For(Var("i"), Const(4), ir.Seq((ir.Intrinsic("dot", ()), b.finish())), ir.ForKind.PARALLEL)
    assert is_parallel(ir.LoopProgram("dot", (), (), loop))
