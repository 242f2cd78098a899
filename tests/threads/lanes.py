"""Check a kernel printer on vectorized loops: gathers, masks, checked indices, private buffers."""

from __future__ import annotations

import numpy as np
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.unit.tensor.strategies import _Programs, array

from inlaid.tensor import ir, te
from inlaid_runtime import arith
from inlaid_runtime.types import dtype

from .printed import Check

ROWS = 2


def vectorized(draw: st.DrawFn, number: int, dtypes: tuple[str, ...]) -> tuple[ir.LoopProgram, list[np.ndarray]]:
    """Draw a program of vectorized loops with one or two stores each, and its inputs."""
    programs = _Programs(draw, dtypes)
    programs.buffers = [programs.buffer() for _ in range(3)]
    inputs = (*programs.buffers, ir.Buffer("sized", (programs.size,), dtype("int32")))
    outputs, nests = [], []
    for index in range(draw(st.integers(1, 2))):
        lanes = draw(st.sampled_from([2, 3, 4, 7, 8, 16, 19]))
        row, lane = arith.Var("row"), arith.Var("lane")
        out = ir.Buffer(f"out{index}", (ROWS, lanes), dtype(draw(st.sampled_from(dtypes))))
        programs.scope = [(row, ROWS), (lane, lanes), (arith.floormod(lane, 3), min(lanes, 3))]
        nests.append(
            ir.For(
                row, arith.Const(ROWS), ir.For(lane, arith.Const(lanes), body(programs, out, (row, lane)), ir.ForKind.VECTORIZED)
            )
        )
        outputs.append(out)
    program = ir.LoopProgram(f"lanes{number}", inputs, tuple(outputs), ir.Seq(tuple(nests)))
    return program, [*(array(draw, item.shape, item.dtype.name) for item in programs.buffers), np.zeros(2, np.int32)]


def body(programs: _Programs, out: ir.Buffer, places: tuple[arith.Expr, ...]) -> ir.Stmt:
    """Draw statements that store every element."""
    draw, dtype_name = programs.draw, out.dtype.name
    match draw(st.sampled_from(["plain", "if", "let", "own", "loop"])):
        case "if":
            first = ir.Store(out, places, programs.value(dtype_name, 2))
            otherwise = ir.Store(out, places, programs.value(dtype_name, 1)) if draw(st.booleans()) else None
            second = ir.If(programs.value("bool", 2), ir.Store(out, places, programs.value(dtype_name, 2)), otherwise)
            return ir.Seq((first, second))
        case "let":
            var = arith.Var("at")
            value = ir.minimum(ir.maximum(programs.value("int32", 2), te.const(0, "int32")), te.const(2, "int32"))
            programs.scope.append((var, 3))
            return ir.Let(
                var,
                value,
                ir.Store(out, places, programs.value(dtype_name, 3)),
                draw(st.sampled_from([None, (arith.ZERO, arith.Const(2))])),
            )
        case "own":
            scratch = ir.Buffer("own", (3,), out.dtype)
            fill = [ir.Store(scratch, (arith.Const(index),), programs.value(dtype_name, 2)) for index in range(3)]
            value = (
                ir.binary("max", scratch[programs.index(3)], programs.value(dtype_name, 1))
                if dtype_name != "bool"
                else scratch[programs.index(3)]
            )
            return ir.Alloc(scratch, ir.Seq((*fill, ir.Store(out, places, value))))
        case "loop":
            var = arith.Var("k")
            first = ir.Store(out, places, programs.value(dtype_name, 1))
            programs.scope.append((var, 3))
            again = ir.select(programs.value("bool", 1), ir.load(out, places), programs.value(dtype_name, 2))
            return ir.Seq((first, ir.For(var, arith.Const(3), ir.Store(out, places, again))))
    return ir.Store(out, places, programs.value(dtype_name, 4))


def check_lanes(check: Check, dtypes: tuple[str, ...], examples: int, count: int) -> None:
    """Check `examples` times `count` programs on some element types."""

    @settings(deadline=None, max_examples=examples, suppress_health_check=list(HealthCheck))
    @given(st.data())
    def run(data):
        pairs = [vectorized(data.draw, number, dtypes) for number in range(count)]
        check([program for program, _ in pairs], [arrays for _, arrays in pairs])

    run()
