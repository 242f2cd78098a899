"""Random programs of every kind of statement, with inputs: loops, threads that share memory, what schedules make, and vectorised
loops with gathers, masks, checked indices and buffers of each lane's own."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence

import numpy as np
from hypothesis import assume
from hypothesis import strategies as st
from tests.kernels.regions import SCOPES
from tests.unit.schedule.test_random_schedules import PROGRAMS, one_step
from tests.unit.tensor import fork_join
from tests.unit.tensor.strategies import NARROW, NATIVE, _Programs, array, inputs_of, programs

from inlaid import arith
from inlaid.arith import SizeVar
from inlaid.errors import ScheduleError
from inlaid.lowering.finish import finish
from inlaid.plugins import Capabilities, MemoryScope, Threads
from inlaid.tensor import ir, te
from inlaid.tensor.analysis.memory_scopes import places
from inlaid.tensor.schedule import Schedule
from inlaid.tensor.transform.barriers import to_spmd
from inlaid.tensor.transform.launches import split_launches
from inlaid.types import dtype

OTHER = MemoryScope("vta.inp", "thread", 1 << 10)
ABLE = (
    Capabilities((), SCOPES, threads=Threads(), stack_bytes=0, device_memory=True),
    Capabilities((), SCOPES, threads=Threads(1, 1), vector_bits=256, stack_bytes=0, device_memory=True),
)
ROWS = 2
Case = tuple[Sequence[ir.LoopProgram], Sequence[Sequence[np.ndarray]]]
"""Programs, and the inputs of each."""


@st.composite
def phases(draw: st.DrawFn) -> Case:
    """Phases of threads that share memory."""
    safe = []
    for program in draw(st.lists(fork_join.programs(), min_size=8, max_size=8)):
        offsets = places(program, fork_join.SHARED)
        if not fork_join.races(to_spmd(program, SCOPES, offsets), offsets):
            safe.append(program)
    assume(safe)
    return safe, [[np.arange(8, dtype=np.int32) * 7]] * len(safe)


@st.composite
def statements(draw: st.DrawFn) -> Case:
    """Loops over statements of every kind, in every element type, with buffers in `SCOPES` and `OTHER`."""
    kept, arrays = [], []
    for program in draw(st.lists(programs(NATIVE + NARROW), min_size=10, max_size=10)):
        with contextlib.suppress(ScheduleError):
            kept.append(finish(program))
            arrays.append(draw(st.composite(inputs_of)(program)))
    return kept, arrays


@st.composite
def schedules(draw: st.DrawFn) -> Case:
    """Random schedules."""
    kept, arrays = [], []
    size = draw(st.integers(1, 9))
    for _ in range(12):
        make, of = (
            draw(st.sampled_from(PROGRAMS)),
            draw(st.sampled_from(["int32", "float32", "int8", "int16", "float64"])),
        )
        schedule = Schedule(make(size, of))
        for _ in range(draw(st.integers(1, 8))):
            with contextlib.suppress(ScheduleError):
                one_step(schedule, draw)
        for lanes in draw(st.lists(st.sampled_from([2, 4, 5, 8, 16]), max_size=2)):
            with contextlib.suppress(ScheduleError, IndexError):
                _, inner = schedule.split(schedule.loops(draw(st.sampled_from(schedule.blocks)))[-1], (None, lanes))
                schedule.vectorize(inner)
        with contextlib.suppress(ScheduleError):
            program = finish(schedule.program, able=draw(st.sampled_from(ABLE)))
            if any(isinstance(stmt, ir.Intrinsic) for stmt in ir.walk_stmts(program.body)):
                continue
            split_launches(program, SCOPES)
            kept.append(program)
            rng = np.random.default_rng(0)
            shapes = [
                tuple(arith.evaluate(arith.wrap(dim), {SizeVar("n", 1): size}) for dim in item.shape) for item in program.inputs
            ]
            arrays.append(
                [rng.integers(-4, 5, shape).astype(item.dtype.numpy) for shape, item in zip(shapes, program.inputs, strict=True)]
            )
    assume(kept)
    return kept, arrays


@st.composite
def vectorised(draw: st.DrawFn, count: int = 10, dtypes: tuple[str, ...] = NATIVE) -> Case:
    """Vectorised loops."""
    pairs = [_vectorised(draw, number, dtypes) for number in range(count)]
    return [program for program, _ in pairs], [arrays for _, arrays in pairs]


def _vectorised(draw: st.DrawFn, number: int, dtypes: tuple[str, ...]) -> tuple[ir.LoopProgram, list[np.ndarray]]:
    """A program of vectorised loops, each of one or two stores, and its inputs."""
    made = _Programs(draw, dtypes)
    made.buffers = [made.buffer() for _ in range(3)]
    inputs = (*made.buffers, ir.Buffer("sized", (made.size,), dtype("int32")))
    outputs, nests = [], []
    for place in range(draw(st.integers(1, 2))):
        lanes = draw(st.sampled_from([2, 3, 4, 7, 8, 16, 19]))
        row, lane = arith.Var("row"), arith.Var("lane")
        out = ir.Buffer(f"out{place}", (ROWS, lanes), dtype(draw(st.sampled_from(dtypes))))
        made.scope = [(row, ROWS), (lane, lanes), (arith.floormod(lane, 3), min(lanes, 3))]
        nests.append(
            ir.For(row, arith.Const(ROWS), ir.For(lane, arith.Const(lanes), _body(made, out, (row, lane)), ir.ForKind.VECTORIZED))
        )
        outputs.append(out)
    program = ir.LoopProgram(f"lanes{number}", inputs, tuple(outputs), ir.Seq(tuple(nests)))
    return program, [*(array(draw, item.shape, item.dtype.name) for item in made.buffers), np.zeros(2, np.int32)]


def _body(made: _Programs, out: ir.Buffer, places: tuple[arith.Expr, ...]) -> ir.Stmt:
    """Store every element, in some way."""
    draw, of = made.draw, out.dtype.name
    match draw(st.sampled_from(["plain", "if", "let", "own", "loop"])):
        case "if":
            first = ir.Store(out, places, made.value(of, 2))
            otherwise = ir.Store(out, places, made.value(of, 1)) if draw(st.booleans()) else None
            second = ir.If(made.value("bool", 2), ir.Store(out, places, made.value(of, 2)), otherwise)
            return ir.Seq((first, second))
        case "let":
            var = arith.Var("at")
            value = ir.minimum(ir.maximum(made.value("int32", 2), te.const(0, "int32")), te.const(2, "int32"))
            made.scope.append((var, 3))
            return ir.Let(
                var, value, ir.Store(out, places, made.value(of, 3)), draw(st.sampled_from([None, (arith.ZERO, arith.Const(2))]))
            )
        case "own":
            own = ir.Buffer("own", (3,), out.dtype)
            fill = [ir.Store(own, (arith.Const(place),), made.value(of, 2)) for place in range(3)]
            value = ir.binary("max", own[made.index(3)], made.value(of, 1)) if of != "bool" else own[made.index(3)]
            return ir.Alloc(own, ir.Seq((*fill, ir.Store(out, places, value))))
        case "loop":
            var = arith.Var("k")
            first = ir.Store(out, places, made.value(of, 1))
            made.scope.append((var, 3))
            again = ir.select(made.value("bool", 1), ir.load(out, places), made.value(of, 2))
            return ir.Seq((first, ir.For(var, arith.Const(3), ir.Store(out, places, again))))
    return ir.Store(out, places, made.value(of, 4))
