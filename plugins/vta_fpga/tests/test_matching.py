"""Statements as instructions: copies with padding, operations on accumulators, and errors for what VTA cannot do."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from inlaid.tensor import interp, ir
from inlaid.tensor.parse import parse
from inlaid_runtime.errors import ScheduleError
from inlaid_vta_fpga.checker import check
from inlaid_vta_fpga.compiler.stream import Stream
from inlaid_vta_fpga.isa.instructions import Alu, AluOp, Load, Store

from .scheduled import GEMM, Array, Region, static_shape

IDENTITY = np.eye(16, dtype=np.int8)


def lowered(program: ir.LoopProgram, **options: object) -> tuple[Region, Stream]:
    region = Region([(program, range(len(program.params)))])
    return region, region.lower(**options)


def checked(program: ir.LoopProgram, seed: int = 0) -> Stream:
    """The stream of a program, whose results equal the interpreter's. The last input is the identity."""
    region, stream = lowered(program)
    assert check(stream.instructions, region.image(stream, {})[0], region.config) == []
    random = np.random.default_rng(seed)
    arrays: list[Array] = [random.integers(-128, 128, static_shape(buffer)).astype(np.int8) for buffer in program.inputs[:-1]]
    arrays.append(IDENTITY)
    expected = interp.run(program, arrays, intrinsics={"vta.gemm": GEMM.semantics})
    actual = region.run(stream, dict(enumerate(arrays)))
    for n, value in enumerate(expected, len(arrays)):
        np.testing.assert_array_equal(actual[n], value)
    return stream


def moved(source: str, shape: str, rows: int, columns: int, copy: str) -> ir.LoopProgram:
    """A program that copies rows x columns elements of x into INP, and from there to y."""
    return parse(f"""
program moved(x: int8[{shape}, 16], i: int8[16, 16]) -> (y: int8[{rows}, {columns}, 16]):
  alloc t: int8[{rows}, {columns}, 16] in "vta.inp"
  alloc w: int8[16, 16] in "vta.wgt"
  alloc a: int32[{rows}, {columns}, 16] in "vta.acc":
    for o in 16:
      for k in 16:
        w[o, k] = i[o, k]
    for r in {rows}:
      for c in {columns}:
        for l in 16:
          t[r, c, l] = {copy}
    for r1 in {rows}:
      for c1 in {columns}:
        for l1 in 16:
          a[r1, c1, l1] = int32(0)
    for r2 in {rows}:
      for c2 in {columns}:
        intrinsic "vta.gemm" on read t[r2 +: 1, c2 +: 1, 0 +: 16], read w[0 +: 16, 0 +: 16], update a[r2 +: 1, c2 +: 1, 0 +: 16]
    for r3 in {rows}:
      for c3 in {columns}:
        for l3 in 16:
          y[r3, c3, l3] = cast(int8, a[r3, c3, l3])
""")


@settings(deadline=None, max_examples=60)
@given(st.data())
def test_windows_of_images_are_one_load(data: st.DataObject) -> None:
    """Any window that reaches beyond an image, columns or rows skipped."""
    height, width = data.draw(st.integers(2, 6)), data.draw(st.integers(2, 6))
    rows, columns = data.draw(st.integers(1, 8)), data.draw(st.integers(1, 8))
    top, left = data.draw(st.integers(-3, height - 1)), data.draw(st.integers(-3, width - 1))
    step = data.draw(st.integers(1, 2))
    row, column = f"((r * {step}) + {top})", f"(c + {left})"
    inside = f"((0 <= {row}) and ({row} < {height})) and ((0 <= {column}) and ({column} < {width}))"
    hit_rows = [r for r in range(rows) if 0 <= r * step + top < height]
    hit_columns = [c for c in range(columns) if 0 <= c + left < width]
    program = moved("x", f"{height}, {width}", rows, columns, f"select(index(bool, ({inside})), x[{row}, {column}, l], int8(0))")
    if not hit_rows or not hit_columns:
        with pytest.raises(ScheduleError, match="padding alone"):
            lowered(program)
        return
    stream = checked(program)
    loads = [item for item in stream.instructions if isinstance(item, Load) and item.memory.name == "INP"]
    assert len(loads) == 1


def test_rows_that_are_adjacent_are_one_row() -> None:
    stream = checked(moved("x", "4, 6", 4, 6, "x[r, c, l]"))
    assert [(item.y_size, item.x_size) for item in stream.instructions if isinstance(item, Load) and item.memory.name == "INP"] == [
        (1, 24)
    ]


def test_a_transposed_copy_takes_a_load_for_each_column() -> None:
    stream = checked(moved("x", "3, 5", 5, 3, "x[c, r, l]"))
    loads = [item for item in stream.instructions if isinstance(item, Load) and item.memory.name == "INP"]
    assert [(item.y_size, item.x_size, item.x_stride) for item in loads] == [(3, 1, 5)] * 5


def operated(value: str, target: str = "a", more: str = "") -> ir.LoopProgram:
    """A program that stores a value of accumulators a and b, which hold x and z, to `target` and from there to y."""
    load = """
    for e{0} in 6:
      for l{0} in 16:
        t[e{0}, l{0}] = {0}[e{0}, l{0}]
    for r{0} in 6:
      for m{0} in 16:
        {1}[r{0}, m{0}] = int32(0)
    for g{0} in 6:
      intrinsic "vta.gemm" on read t[g{0} +: 1, 0 +: 16], read w[0 +: 16, 0 +: 16], update {1}[g{0} +: 1, 0 +: 16]"""
    return parse(f"""
program operated(x: int8[6, 16], z: int8[6, 16], i: int8[16, 16]) -> (y: int8[6, 16]):
  alloc t: int8[6, 16] in "vta.inp"
  alloc w: int8[16, 16] in "vta.wgt"
  alloc a: int32[6, 16] in "vta.acc"
  alloc b: int32[6, 16] in "vta.acc"
  alloc c: int32[6, 16] in "vta.acc":
    for o in 16:
      for k in 16:
        w[o, k] = i[o, k]{load.format("x", "a")}{load.format("z", "b")}
    for e in 6:
      for l in 16:
        {target}[e, l] = {value}{more}
    for s in 6:
      for n in 16:
        y[s, n] = cast(int8, {target}[s, n])
""")


@pytest.mark.parametrize(
    ("value", "operations"),
    [
        ("min(max(shr((a[e, l] + 4), 3), -5), 7)", "ADD SHR MAX MIN"),
        ("max(a[e, l], b[e, l])", "MAX"),
        ("max(0, (b[e, l] + a[e, l]))", "ADD MAX"),
        ("shl(a[e, l], 2)", "SHR"),
        ("(a[e, l] * 8)", "SHR"),
        ("(a[e, l] - 3)", "ADD"),
        ("(a[e, l] + 70000)", "ADD ADD ADD"),
        ("shr(shl(a[e, l], 20), 18)", "SHR SHR SHR SHR"),
        ("int32(5)", "ADD"),
        ("(b[e, l] + 2)", "ADD ADD"),
        ("min(a[e, l], 2147483647)", ""),
    ],
)
def test_operations(value: str, operations: str) -> None:
    stream = checked(operated(value))
    alu_instructions = [item for item in stream.instructions if isinstance(item, Alu)]
    last = next(n for n, item in enumerate(stream.instructions) if isinstance(item, Store))
    assert " ".join(dict.fromkeys(item.op.name for item in alu_instructions)) == " ".join(dict.fromkeys(operations.split()))
    assert len([item for item in stream.instructions[:last] if isinstance(item, Alu)]) == len(operations.split())
    assert all(item.op is not AluOp.SHR or item.imm is None or -16 <= item.imm <= 15 for item in alu_instructions)


def test_operations_on_another_buffer_begin_with_its_sum() -> None:
    more = """
    for e4 in 6:
      for l4 in 16:
        c[e4, l4] = (c[e4, l4] + a[e4, l4])"""
    checked(operated("(a[e, l] + 1)", "c", more))


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ("(a[e, l] * b[e, l])", "mul with Load"),
        ("min(a[e, l], 100000)", "min with 100000"),
        ("div(a[e, l], 3)", "div with 3"),
        ("(a[e, l] + (b[e, l] + 1))", "add with Binary"),
    ],
)
def test_operations_that_the_alu_does_not_have(value: str, message: str) -> None:
    with pytest.raises(ScheduleError, match=f"expected add, sub.*{message}"):
        lowered(operated(value))


def test_tiles_that_do_not_fit_are_refused() -> None:
    with pytest.raises(ScheduleError, match="at most 2048 elements of INP in use at once, found 2500: t of 2500"):
        lowered(moved("x", "50, 50", 50, 50, "x[r, c, l]"))


def test_far_padding_is_refused() -> None:
    copy = "select(index(bool, ((16 <= r) and (r < 18))), x[(r + -16), c, l], int8(0))"
    with pytest.raises(ScheduleError, match="padding of at most 15 a side"):
        lowered(moved("x", "2, 3", 18, 3, copy))


def test_loads_do_not_overflow_token_queues() -> None:
    """600 loads could run ahead of 600 products, each with a token: counters hold 255."""
    program = parse("""
program rows(x: int8[600, 16], i: int8[16, 16]) -> (y: int8[600, 16]):
  alloc t: int8[600, 16] in "vta.inp"
  alloc w: int8[16, 16] in "vta.wgt"
  alloc a: int32[600, 16] in "vta.acc":
    for o in 16:
      for k in 16:
        w[o, k] = i[o, k]
    for r in 600:
      for l in 16:
        a[r, l] = int32(0)
    for q in 600:
      for m in 16:
        t[q, m] = x[q, m]
      intrinsic "vta.gemm" on read t[q +: 1, 0 +: 16], read w[0 +: 16, 0 +: 16], update a[q +: 1, 0 +: 16]
    for s in 600:
      for n in 16:
        y[s, n] = cast(int8, a[s, n])
""")
    checked(program)
