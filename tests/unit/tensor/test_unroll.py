"""Unrolling: every copy has the indices that substitution gives, whatever their form."""

from hypothesis import given, settings
from hypothesis import strategies as st

from inlaid.tensor import ir
from inlaid.tensor.transform.lower_blocks import simplify_program, truth
from inlaid.tensor.transform.unroll import unroll_loops
from inlaid_runtime import arith
from inlaid_runtime.types import dtype

ROW, COLUMN, OUTER = arith.Var("row"), arith.Var("column"), arith.Var("outer")
FLOAT = dtype("float32")


def indices() -> st.SearchStrategy[arith.Expr]:
    """Sums, products, divisions, remainders and comparisons of the loops' variables."""
    leaves = st.sampled_from([ROW, COLUMN, OUTER]) | st.integers(-3, 9).map(arith.wrap)

    def larger(inner: st.SearchStrategy[arith.Expr]) -> st.SearchStrategy[arith.Expr]:
        two = st.tuples(inner, inner)
        return st.one_of(
            two.map(lambda pair: pair[0] + pair[1]),
            two.map(lambda pair: pair[0] * pair[1]),
            st.tuples(inner, st.integers(1, 7)).map(lambda pair: pair[0] // pair[1]),
            st.tuples(inner, st.integers(1, 7)).map(lambda pair: pair[0] % pair[1]),
            two.map(lambda pair: arith.compare("<", *pair)),
        )

    return st.recursive(leaves, larger, max_leaves=8)


@settings(deadline=None)
@given(indices(), indices())
def test_copies_have_the_values_of_their_iterations(store_index: arith.Expr, other: arith.Expr) -> None:
    """One store is inside two unrolled loops, and again inside a serial and an unrolled loop over the same variables."""
    target, source = ir.Buffer("target", (1000,), FLOAT), ir.Buffer("source", (1000,), FLOAT)
    value = ir.load(source, (other,))
    store = ir.Store(target, (store_index,), value * value)
    rows = ir.For(ROW, arith.Const(3), ir.For(COLUMN, arith.Const(2), store, ir.ForKind.UNROLLED), ir.ForKind.UNROLLED)
    serial = ir.For(ROW, arith.Const(3), ir.For(COLUMN, arith.Const(2), store, ir.ForKind.UNROLLED))
    program = ir.LoopProgram("p", (source,), (target,), ir.For(OUTER, arith.Const(4), ir.Seq((rows, serial))))
    partly_unrolled = unroll_loops(simplify_program(unroll_loops(program, keep=True)))
    for unrolled_program in (unroll_loops(program), simplify_program(unroll_loops(program)), partly_unrolled):
        assert isinstance(unrolled_program.body, ir.For)
        stores = [stmt for stmt in ir.walk_stmts(unrolled_program.body) if isinstance(stmt, ir.Store)]
        assert len(stores) == 6 + 2
        for number, copy in enumerate(stores):
            (read,) = {node.indices[0] for node in ir.walk_exprs(copy.value) if isinstance(node, ir.Load)}
            for outer in range(4):
                for row in (number // 2,) if number < 6 else range(3):
                    values: dict[arith.Expr, int] = {OUTER: outer, ROW: row, COLUMN: number % 2}
                    unrolled = {ROW, COLUMN} if number < 6 else {COLUMN}
                    inner = {var: count for var, count in values.items() if var not in unrolled}
                    for actual, expected in ((copy.indices[0], store_index), (read, other)):
                        assert arith.evaluate(actual, inner) == arith.evaluate(expected, values)


def test_kept_loops() -> None:
    """Loops stay whose variables occur only in indices, as terms of sums, and that are beside no guard in the same scope."""
    target, source = ir.Buffer("target", (1000,), FLOAT), ir.Buffer("source", (1000,), FLOAT)

    def stays(index: arith.Expr, value: ir.Expr, guard: bool = False) -> bool:
        loop = ir.For(ROW, arith.Const(3), ir.Store(target, (index,), value), ir.ForKind.UNROLLED)
        other = ir.If(truth(arith.compare("<", OUTER, 2)), ir.Store(target, (OUTER,), value))
        body = ir.For(OUTER, arith.Const(4), ir.Seq((loop, other)) if guard else loop)
        program = ir.LoopProgram("p", (source,), (target,), body)
        return any(isinstance(stmt, ir.For) and stmt.var is ROW for stmt in ir.walk_stmts(unroll_loops(program, keep=True).body))

    loaded = ir.load(source, (OUTER,))
    assert stays(OUTER * 5 + ROW * 2 + 1, ir.load(source, (OUTER // 2 + ROW,)))
    assert not stays(OUTER + ROW, loaded, guard=True)
    assert not stays((OUTER + ROW) // 2, loaded)
    assert not stays(ROW, ir.load(source, (OUTER * ROW,)))
    assert not stays(ROW, ir.as_expr(ROW, FLOAT))
    bound = ir.Let(
        arith.Var("end"),
        ir.as_expr(OUTER),
        ir.For(ROW, arith.Const(3), ir.Store(target, (ROW,), loaded), ir.ForKind.UNROLLED),
    )
    program = ir.LoopProgram("p", (), (target,), ir.If(truth(arith.compare("<", OUTER, 2)), bound))
    assert any(isinstance(stmt, ir.For) for stmt in ir.walk_stmts(unroll_loops(program, keep=True).body))
    assert not stays(ir.checked(ir.cast(ir.load(source, (ROW,)), "int64"), 0, 9), loaded)
