"""The text form of loop programs."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from inlaid.tensor import ir, te
from inlaid.tensor.analysis.keys import structural_key, structurally_equal
from inlaid.tensor.analysis.verify import verify
from inlaid.tensor.build import Builder
from inlaid.tensor.interp import run
from inlaid.tensor.lower import lower
from inlaid.tensor.parse import parse
from inlaid.tensor.text import show, show_expr, show_stmt
from inlaid_runtime import arith
from inlaid_runtime.errors import ParseError, VerifyError
from inlaid_runtime.types import dtype


def matmul() -> ir.LoopProgram:
    n = arith.SizeVar("n", 1, 64)
    a, b = te.placeholder((n, 4), "float32", "a"), te.placeholder((4, 8), "float32", "b")
    k = te.reduce_axis(4, "k")
    return lower([te.compute((n, 8), lambda i, j: te.sum_(a[i, k] * b[k, j], k), "c")], [a, b], "matmul")


TEXT = """\
program matmul(a: float32[n, 4], b: float32[4, 8]) -> (c: float32[n, 8]):
  size n: 1..64
  for i0 in n:
    for i1 in 8:
      for k in 4:
        block c:
          iter i0_1 = i0 in n
          iter i1_1 = i1 in 8
          iter k_1 = k in 4, reduction
          reads a[i0_1 +: 1, k_1 +: 1], b[k_1 +: 1, i1_1 +: 1]
          writes c[i0_1 +: 1, i1_1 +: 1]
          init:
            c[i0_1, i1_1] = float32(0.0)
          c[i0_1, i1_1] = (c[i0_1, i1_1] + (a[i0_1, k_1] * b[k_1, i1_1]))"""


def test_what_it_looks_like() -> None:
    assert show(matmul()) == TEXT


def test_parsing_what_it_looks_like() -> None:
    parsed = parse(TEXT)
    assert structurally_equal(parsed, matmul())
    size = parsed.inputs[0].shape[0]
    assert isinstance(size, arith.SizeVar)
    assert (size.lower, size.upper) == (1, 64)


def test_marks_show_a_place() -> None:
    program = matmul()
    block = next(stmt for stmt in ir.walk_stmts(program.body) if isinstance(stmt, ir.Block))
    lines = show(program, mark=block).splitlines()
    at = next(number for number, line in enumerate(lines) if line.strip() == "block c:")
    assert lines[at + 1].strip() == "#^^^^^^^"
    assert structurally_equal(parse("\n".join(lines)), program)


def test_every_part_can_be_marked() -> None:
    program = matmul()
    for stmt in ir.walk_stmts(program.body):
        assert "^" in show(program, mark=stmt)


EXAMPLES = [
    """\
program kinds(x: float32[8]) -> (y: float32[8]):
  note "pipeline" = 2
  note "packed" = (x, "text", 1.5, true, none, (), )
  for i in 2, parallel:
    for j in 2, thread, "threadIdx.x":
      for k in 2, vectorized, "prefetch" = 3:
        y[(((i * 4) + (j * 2)) + k)] = x[(((i * 4) + (j * 2)) + k)]""",
    """\
program memory(x: bfloat16[]) -> (y: int4[]):
  alloc t: bfloat16[2] in "register":
    t[0] = x[]
    t[1] = bfloat16(-0.0)
  alloc u: bool[]
  u[] = bool(true)
  while u[]:
    u[] = and(u[], isnan(x[]))
    intrinsic "near" on hint u[]
  if not(u[]):
    let at = int64(1) in 0..1
    intrinsic "load.tile" over "warp", "threadIdx.x" on read u[], update y[] with (x[] + 1.0)
  else:
    pass
  y[] = int4(-3)""",
    """\
program dynamic(x: int64[n, `odd name`]) -> (y: float32[?count, n], size: int64[]):
  size n: 0..
  size `odd name`: 2..
  size extra: 0.., argument
  size ?count: 0..(n * `odd name`) = size
  size[] = index(int64, extra)
  y[checked(x[0, 1], 0, (n + -1)), select((n < 3), 0, min(n, 2))] = float32(nan)""",
    """\
program values(x: float32[]) -> (y: float32[]):
  %0 = exp(x[])
  %1 = cast(int32, (%0 * -1.5e-07))
  y[] = select((%1 < 3), fma(%0, %0, float32(inf)), call(float32, "acme.f", div(%0, 2.0), bitcast(float32, shl(%1, 2))))""",
]


@pytest.mark.parametrize("text", EXAMPLES)
def test_text_survives_a_round_trip(text: str) -> None:
    assert show(parse(text)) == text


def test_names_are_made_unique_and_plain() -> None:
    a, b = ir.Buffer("x", (2,), dtype("float32")), ir.Buffer("x", (2,), dtype("float32"))
    c = ir.Buffer("model/layer.1", (2,), dtype("float32"))
    builder = Builder()
    for buffer in (b, c):
        with builder.loop(2, "x") as i:
            builder.store(buffer, i, a[i])
    program = ir.LoopProgram("a program", (a,), (b, c), builder.finish())
    text = show(program)
    assert "x: float32[2]" in text
    assert "model_layer_1" in text
    assert structurally_equal(parse(text), program)


def test_deep_and_shared_values_print_in_linear_space() -> None:
    x, y = ir.Buffer("x", (), dtype("float32")), ir.Buffer("y", (), dtype("float32"))
    value: ir.Expr = x[()]
    for step in range(2000):
        value = value + value if step % 2 else ir.unary("neg", value)
    program = ir.LoopProgram("f", (x,), (y,), ir.Store(y, (), value))
    text = show(program)
    assert len(text) < 200_000
    assert structurally_equal(parse(text), program)


def test_the_key_ignores_names_sharing_and_nesting_of_sequences() -> None:
    def make_program(name: str, shared: bool, nested: bool) -> ir.LoopProgram:
        x, y = ir.Buffer(name, (3,), dtype("float32")), ir.Buffer(f"{name}2", (3,), dtype("float32"))
        i = arith.Var(name)
        one = x[i] * 2.0
        store = ir.Store(y, (i,), one + (one if shared else x[i] * 2.0))
        body: ir.Stmt = ir.Seq((ir.Seq((store,)), ir.Seq(()))) if nested else store
        return ir.LoopProgram(name, (x,), (y,), ir.For(i, arith.Const(3), body))

    keys = {
        structural_key(make_program(name, shared, nested)) for name in "ab" for shared in (True, False) for nested in (True, False)
    }
    assert len(keys) == 1


def test_the_key_sees_what_matters() -> None:
    program = matmul()
    loop = program.body
    assert isinstance(loop, ir.For)
    variants = [
        replace(program, body=replace(loop, kind=ir.ForKind.PARALLEL)),
        replace(program, body=replace(loop, annotations=(("pipeline", 2),))),
        replace(program, annotations=(("align", (program.inputs[0], 4)),)),
        replace(program, inputs=program.inputs[::-1]),
        parse(TEXT.replace("0.0", "-0.0")),
        parse(TEXT.replace("1..64", "1..65")),
        parse(TEXT.replace("reduction", "opaque")),
        parse(TEXT.replace("b[k_1, i1_1]))", "b[k_1, 0]))")),
    ]
    assert len({structural_key(item) for item in [program, *variants]}) == len(variants) + 1


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("", "one line"),
        ("program f() -> ():\n  x[] = float32(1.0)", "line 2: unknown buffer x"),
        ("program f() -> (x: float33[]):\n  pass", "float33"),
        ("program f() -> (x: float32[]):\n  x[] = 1.0", "write it with a dtype"),
        ("program f() -> (x: float32[]):\n  x[] = int32(1)", "needs a float32, got int32"),
        ("program f() -> (x: float32[]):\n  x[0] = float32(1.0)", "needs 0 indices"),
        ("program f() -> (x: float32[n]):\n  pass", "unknown variable n"),
        ("program f() -> (x: float32[]):\n    x[] = float32(1.0)\n  x[] = float32(1.0)", "indentation"),
        ("program f() -> (x: float32[]):\n  x[] = frobnicate(x[])", "frobnicate"),
        ("program f() -> (x: float32[]):\n  for i in 3, sideways:\n    pass", "sideways"),
        ("program f() -> (x: float32[]):\n  size n: 0..n\n  pass", "must not depend on itself"),
        ("program f() -> (x: float32[]):\n  x[] = %7", "%7"),
        ("program f() -> (x: float32[]):\n  x[] = (x[] + int32(1))", "cast one of them"),
        ("program f() -> (x: float32[]):\n  x[] = x[] x[]", "end of the line"),
        ("program f() -> (x: float32[]):\n  x[] = (x[] & x[])", "unexpected character"),
    ],
)
def test_errors_name_the_line_and_what_is_wrong(text: str, problem: str) -> None:
    with pytest.raises(ParseError, match=problem):
        parse(text)


def test_statements_and_values_print_alone() -> None:
    program = matmul()
    assert show_stmt(program.body).splitlines()[-1].strip() == "c[i0_1, i1_1] = (c[i0_1, i1_1] + (a[i0_1, k_1] * b[k_1, i1_1]))"
    x = ir.Buffer("x", (), dtype("float32"))
    assert show_expr(x[()] + 1.0) == "(x[] + 1.0)"


def test_what_lies_over_an_input() -> None:
    """A program in place says so, runs so, and is another than the one with a copy."""
    specs = (("x", (4,), "float32"), ("at", (1,), "int64"), ("row", (), "float32"))
    x, at, row = (ir.Buffer(name, shape, dtype(dtype_name)) for name, shape, dtype_name in specs)
    out = ir.Buffer("out", (4,), dtype("float32"))
    body = ir.Store(out, (arith.Const(2),), ir.load(row, ()))
    program = ir.LoopProgram("update", (x, at, row), (out,), body, updates=((0, 0),))
    text = show(program)
    assert text.splitlines()[0] == "program update(x: float32[4], at: int64[1], row: float32[]) -> (out: float32[4] over x):"
    assert structurally_equal(parse(text), program) and show(parse(text)) == text
    assert not structurally_equal(replace(program, updates=()), program)
    input_array = np.arange(4, dtype=np.float32)
    (actual,) = run(program, [input_array, np.zeros(1, np.int64), np.array(9, np.float32)])
    np.testing.assert_array_equal(actual, [0, 1, 9, 3])
    np.testing.assert_array_equal(input_array, [0, 1, 2, 3])
    with pytest.raises(VerifyError, match="out updates at"):
        verify(replace(program, updates=((0, 1),)))
