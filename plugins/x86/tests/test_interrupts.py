"""Signals while native code runs: long regions notice them, stop, and can be run again; short regions never ask."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from inlaid import ops
from inlaid.driver.compile import compile_module
from inlaid.graph import ir as graph
from inlaid.lowering.kernels.finish import finish
from inlaid.lowering.kernels.kernel import KernelSource, build
from inlaid.tensor import ir
from inlaid_runtime import arith
from inlaid_runtime.arith import SizeVar
from inlaid_runtime.execution.executable import Executable
from inlaid_runtime.execution.host import Interruption
from inlaid_runtime.types import TensorType, dtype
from inlaid_x86 import interrupts
from inlaid_x86.compilers import Compilers
from inlaid_x86.interrupts import checkpoints, polled_loops

from .native import check

pytestmark = pytest.mark.usefixtures("host")

SIZE = 2048
SMALL = np.arange(16, dtype=np.float32)


class Stop(Exception):
    """What the handler of a test raises."""


def product(size: int | SizeVar, threads: int) -> Executable:
    """One kernel, of a second or less."""
    x, w = (graph.var(name, TensorType((size, size), "float32")) for name in "xw")
    return compile_module(graph.Module({"main": graph.function([x, w], ops.matmul(x, w))}), [f"x86:threads={threads}"])


@pytest.fixture
def alarm() -> Iterator[Callable[[Any], None]]:
    """`alarm(handler)` has a signal come soon, by the time that this process computes: when its native code runs."""
    before = signal.getsignal(signal.SIGVTALRM)

    def ring(handler: Any) -> None:
        signal.signal(signal.SIGVTALRM, handler)
        signal.setitimer(signal.ITIMER_VIRTUAL, 0.01)

    yield ring
    signal.setitimer(signal.ITIMER_VIRTUAL, 0)
    signal.signal(signal.SIGVTALRM, before)


def stop(number: int, frame: object) -> None:
    raise Stop


@pytest.mark.parametrize("threads", [1, 2])
def test_a_kernel_stops_before_its_end(alarm: Callable[[Any], None], threads: int) -> None:
    (region,) = product(SIZE, threads)._executor.plans["main"].regions.values()
    x, y = np.ones((SIZE, SIZE), np.float32), np.full((SIZE, SIZE), np.nan, np.float32)
    scratch = region.artifact.workspace[""]
    kernel = region.loaded.kernel
    assert kernel is not None and isinstance(scratch, int)
    arguments = [x, x], [y], np.empty(scratch, np.uint8), np.zeros(0, np.int64)
    alarm(stop)
    with pytest.raises(Interruption) as interrupted:
        kernel.invoke(*arguments)
    assert isinstance(interrupted.value.error, Stop) and np.isnan(y).any()
    kernel.invoke(*arguments)
    assert (y == SIZE).all()


@pytest.mark.parametrize("size", [SIZE, SizeVar("n")])
def test_what_handlers_raise_comes_out_of_run(alarm: Callable[[Any], None], size: int | SizeVar) -> None:
    executable = product(size, 1)
    feeds = dict.fromkeys("xw", np.ones((SIZE, SIZE), np.float32))
    for handler, expected in ((stop, Stop), (signal.default_int_handler, KeyboardInterrupt)):
        alarm(handler)
        with pytest.raises(expected) as raised:
            executable.run(feeds)
        assert type(raised.value) is expected


def test_a_handler_may_run_the_model_that_it_interrupts(alarm: Callable[[Any], None]) -> None:
    executable = product(SIZE, 1)
    feeds = dict.fromkeys("xw", np.ones((SIZE, SIZE), np.float32))
    twice = {"x": feeds["x"] * 2, "w": feeds["w"]}
    nested_outputs: list[Any] = []
    alarm(lambda number, frame: nested_outputs.append(executable.run(twice)))
    (result,) = executable.run(feeds).values()
    assert (result == SIZE).all()
    ((inner,),) = (each.values() for each in nested_outputs)
    assert (inner == 2 * SIZE).all()


ENDLESS = """
import os, signal, threading
import numpy as np
import inlaid
from inlaid import ops
from inlaid.graph import ir as graph
from inlaid_runtime.types import TensorType

count = graph.var("count", TensorType((), "int64"))
start, old = (graph.var(name, TensorType((3,), "float32")) for name in ("start", "old"))
step = graph.var("step", TensorType((), "int64"))
body = graph.function([step, old], graph.tuple_([graph.constant(np.array(True)), ops.mul(old, graph.constant(np.float32(0.5)))]))
loop = graph.tuple_item(graph.loop(body, trip_count=count, state=[start]), 0)
executable = inlaid.compile(graph.function([count, start], loop), targets=["x86:threads=1"])
feeds = {"count": np.array(1 << 60), "start": np.float32([1, 2, 4])}
threading.Timer(0.2, os.kill, (os.getpid(), signal.SIGINT)).start()
try:
    executable.run(feeds)
except KeyboardInterrupt:
    (again,) = executable.run({**feeds, "count": np.array(2)}).values()
    print("interrupted", again.tolist())
"""


def test_an_endless_loop_is_interrupted() -> None:
    """In a process of its own, which a failure would leave running for ever."""
    process = subprocess.run([sys.executable, "-c", ENDLESS], capture_output=True, text=True, timeout=60)
    assert (process.stdout, process.stderr) == ("interrupted [0.25, 0.5, 1.0]\n", "")


# --- where code asks --------------------------------------------------------------------------------------------------


def printed(monkeypatch: pytest.MonkeyPatch, module: graph.Module) -> str:
    """All LLVM text of a module."""
    texts: list[str] = []
    add = Compilers._add
    monkeypatch.setattr(Compilers, "_add", lambda self, job, key: texts.append(job.text) or add(self, job, key))
    compile_module(module, ["x86:threads=2"])
    return "\n".join(texts)


def test_short_regions_do_not_ask(monkeypatch: pytest.MonkeyPatch) -> None:
    x = graph.var("x", TensorType((16,), "float32"))
    assert "inlaid_poll" not in printed(monkeypatch, graph.Module({"main": graph.function([x], ops.relu(x))}))
    x = graph.var("x", TensorType((1, 64, 28, 28), "float32"))
    w = graph.constant(np.ones((64, 64, 3, 3), np.float32))
    conv = ops.conv(x, w, strides=(1, 1), pads=(1, 1, 1, 1), dilations=(1, 1))
    assert "inlaid_poll" not in printed(monkeypatch, graph.Module({"main": graph.function([x], conv)}))


def test_regions_of_many_kernels_ask_between_them() -> None:
    assert checkpoints([]) is None and checkpoints([interrupts.STEP] * 10) is None
    half = interrupts.STEP / 2
    assert checkpoints([half, half, half, interrupts.CHUNK, half]) == {1, 3}


def test_short_iterations_of_symbolic_loops_add_up_to_a_poll() -> None:
    """A row of 64 columns takes no poll of its own, since it may be one of 4096 columns."""
    rows, columns = SizeVar("rows"), SizeVar("columns")
    x = graph.var("x", TensorType((rows, columns), "float32"))
    program = finish(build(KernelSource("kernel", (x,), ops.exp(x))))
    ((loop, polls),) = polled_loops(program, 512).items()
    assert loop is program.body and polls.operations is not None
    assert 0 < 100 * arith.evaluate(polls.operations, {columns: 64}) < polls.step
    assert arith.evaluate(polls.operations, {columns: 1 << 20}) > polls.step


def test_loops_of_known_limit_poll_outside() -> None:
    """A group of at most four rows is no loop of 4096 iterations."""
    rows, group, row = SizeVar("rows"), arith.Var("group"), arith.Var("row")
    x, y = (ir.Buffer(name, (rows, 16), dtype("float32")) for name in "xy")
    lane = arith.Var("lane")
    index = (group * 4 + row, lane)
    body: ir.Stmt = ir.For(lane, arith.Const(16), ir.Store(y, index, ir.load(x, index)), ir.ForKind.VECTORIZED)
    body = ir.For(row, arith.minimum(rows - group * 4, 4), body)
    for _ in range(2):
        body = ir.For(arith.Var("again"), arith.Const(100), body)
    program = ir.LoopProgram("kernel", (x,), (y,), ir.For(group, arith.ceildiv(rows, 4), body))
    (loop,) = polled_loops(program, 512)
    assert loop is program.body


@settings(max_examples=50, deadline=None)
@given(st.data())
def test_kernels_that_ask_compute_the_same(data: st.DataObject) -> None:
    """With limits so low that tiny kernels ask, in every loop that may, one iteration at a time or several."""
    extents = [data.draw(st.integers(1, 9)) for _ in range(3)]
    rows, inner, columns = extents
    if data.draw(st.booleans()):
        extents = [SizeVar(name) for name in ("rows", "inner", "columns")]
    x, w = (graph.var(name, TensorType(tuple(extents[start : start + 2]), "int64")) for start, name in enumerate("xw"))
    expr = data.draw(st.sampled_from([ops.matmul(x, w), ops.reduce_sum(ops.matmul(x, w), axes=(0,)), ops.matmul(x, ops.neg(w))]))
    programs = [build(KernelSource("kernel", (x, w), expr))]
    generator = np.random.default_rng(data.draw(st.integers(0, 99)))
    feeds = [generator.integers(-9, 9, shape) for shape in ((rows, inner), (inner, columns))]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(interrupts, "CHUNK", data.draw(st.sampled_from([10.0, 50.0, 200.0])))
        patch.setattr(interrupts, "STEP", data.draw(st.sampled_from([1.0, 10.0, 40.0])))
        check(programs, feeds)
