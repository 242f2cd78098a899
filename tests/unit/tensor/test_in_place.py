"""An output that begins so far before an input overwrites nothing that is still to be read: against a trace of all accesses."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from inlaid import ops
from inlaid.graph.ir import Expr, constant, var
from inlaid.lowering.kernels.finish import finish
from inlaid.lowering.kernels.kernel import KernelSource, build
from inlaid.tensor import ir
from inlaid.tensor.analysis.footprint import statement_values
from inlaid.tensor.analysis.in_place import head_start
from inlaid.tensor.schedule import Schedule
from inlaid_runtime import arith
from inlaid_runtime.types import TensorType, dtype

HEIGHT, WIDTH, CHANNELS = 5, 4, 3


def accesses(stmt: ir.Stmt, values: dict[arith.Expr, int]) -> Iterator[tuple[str, ir.Buffer, int]]:
    """What a program reads and writes, one element after the other, by number; conditions are taken to hold."""

    def flat(buffer: ir.Buffer, indices: tuple[arith.Expr, ...]) -> int:
        at = [arith.evaluate(index, values) for index in indices]
        return int(sum(axis_index * int(np.prod(buffer.shape[axis + 1 :])) for axis, axis_index in enumerate(at)))

    for node in ir.walk_exprs(*statement_values(stmt)):
        if isinstance(node, ir.Load):
            yield "read", node.buffer, flat(node.buffer, node.indices)
    if isinstance(stmt, ir.Store):
        yield "write", stmt.buffer, flat(stmt.buffer, stmt.indices)
    times = arith.evaluate(stmt.extent, values) if isinstance(stmt, ir.For) else 1
    for turn in range(times):
        inner = {**values, stmt.var: turn} if isinstance(stmt, ir.For) else values
        for part in ir.substatements(stmt):
            yield from accesses(part, inner)


def traced(program: ir.LoopProgram, operand: int = 0) -> int:
    """The distance that a trace says is needed: every element is read before anything lies where it was."""
    output, read = program.outputs[0], program.inputs[operand]
    end, distance = None, -(1 << 40)
    for kind, buffer, element in accesses(program.body, {}):
        if kind == "write" and buffer is output:
            end = max(end or 0, (element + 1) * output.dtype.bytes)
        elif kind == "read" and buffer is read and end is not None:
            distance = max(distance, end - element * read.dtype.bytes)
    return max(distance, -int(np.prod(read.shape)) * read.dtype.bytes)


def data(height: int = HEIGHT, channels: int = CHANNELS, dtype_name: str = "int8") -> Expr:
    return var("x", TensorType((1, channels, height, WIDTH), dtype_name))


def kernel(x: Expr, body: Expr, *params: Expr) -> ir.LoopProgram:
    return build(KernelSource("kernel", (x, *params), body))  # type: ignore[arg-type]


def window(stride: int = 1, taps: int = 3, depthwise: bool = False, outputs: int = CHANNELS) -> ir.LoopProgram:
    """A convolution that pads as it goes, its sums stored as bytes, scheduled as one nest: n, channel, y, x, then the window."""
    x = data()
    shape = (outputs, 1 if depthwise else CHANNELS, taps, taps)
    w = var("w", TensorType(shape, "int8"))
    around = taps // 2
    total = ops.conv(x, w, strides=(stride,) * 2, pads=(around,) * 4, groups=CHANNELS if depthwise else 1, out_dtype="int32")
    return kernel(x, ops.cast(ops.add(total, constant(np.int32(5))), dtype="int8"), w)


def nested(program: ir.LoopProgram) -> Schedule:
    """One nest over the result, in which the sum is a local buffer."""
    s = Schedule(program)
    for name in s.blocks[:-1]:
        if name != "conv":
            s.compute_inline(name)
    s.compute_at("conv", s.loops(last(s))[-1])
    return s


def last(s: Schedule) -> str:
    return s.blocks[-1]


def channels_last(s: Schedule) -> None:
    _, c, y, x = s.loops(last(s))[:4]
    s.reorder(y, x, c)


@pytest.mark.parametrize("make", [lambda: window(), lambda: window(2), lambda: window(1, 1), lambda: window(depthwise=True)])
@pytest.mark.parametrize("order", [None, channels_last])
def test_windows(make: Callable[[], ir.LoopProgram], order: Callable[[Schedule], None] | None) -> None:
    s = nested(make())
    if order is not None:
        order(s)
    program = finish(s.program)
    assert head_start(program, 0, 0) == traced(program)


def test_element_by_element_needs_no_distance() -> None:
    x = data()
    program = finish(kernel(x, ops.add(x, constant(np.int8(1)))))
    assert head_start(program, 0, 0) == traced(program) == 0


def test_wider_results_run_ahead_and_narrower_ones_behind() -> None:
    x = data()
    wider = finish(kernel(x, ops.cast(x, dtype="int32")))
    size = HEIGHT * WIDTH * CHANNELS
    assert head_start(wider, 0, 0) == traced(wider) == 3 * (size - 1)
    y = data(dtype_name="int32")
    narrower = finish(kernel(y, ops.cast(y, dtype="int8")))
    assert head_start(narrower, 0, 0) == traced(narrower) <= 0


def test_each_operand_has_a_distance_of_its_own() -> None:
    x, y = data(), var("y", TensorType((CHANNELS, 1, 1), "int8"))
    program = finish(kernel(x, ops.add(x, y), y))
    assert head_start(program, 0, 0) == traced(program) == 0
    assert head_start(program, 0, 1) == traced(program, 1) > 0


def test_a_product_needs_all_of_its_data() -> None:
    x, w = var("x", TensorType((1, 8), "int8")), var("w", TensorType((8, 4), "int8"))
    program = finish(kernel(x, ops.matmul(x, w, out_dtype="int32"), w))
    assert head_start(program, 0, 0) >= traced(program) > 0  # type: ignore[operator]


def test_loops_that_may_run_in_any_order_share_nothing() -> None:
    conv = nested(window())
    channels_last(conv)
    conv.parallel(conv.loops(last(conv))[1])
    program = finish(conv.program)
    assert head_start(program, 0, 0) >= HEIGHT * WIDTH * CHANNELS - WIDTH * CHANNELS  # type: ignore[operator]


def test_data_that_chooses_where_to_read_gives_no_distance() -> None:
    x, at = data(), var("at", TensorType((2,), "int32"))
    program = finish(kernel(x, ops.take(x, at, axis=2), at))
    assert head_start(program, 0, 0) is None


def test_an_intrinsic_reads_and_writes_in_an_order_of_its_own() -> None:
    """Rows of four elements copied one after the other: each could be written before it is read."""
    source, target = (ir.Buffer(name, (5, 4), dtype("int8")) for name in ("source", "target"))
    row = arith.Var("row")
    box = ((arith.wrap(row), arith.ONE), (arith.ZERO, arith.wrap(4)))
    copy = ir.Intrinsic(
        "copy", (ir.BufferRegion(source, box), ir.BufferRegion(target, box)), (ir.AccessMode.READ, ir.AccessMode.WRITE)
    )
    program = ir.LoopProgram("rows", (source,), (target,), ir.For(row, arith.wrap(5), copy))
    assert head_start(program, 0, 0) == 4


@settings(max_examples=40, deadline=None)
@given(st.data())
def test_random_orders_of_loops(drawn: st.DataObject) -> None:
    stride, taps = drawn.draw(st.sampled_from([1, 2])), drawn.draw(st.sampled_from([1, 3]))
    s = nested(window(stride, taps, drawn.draw(st.booleans())))
    loops = list(s.loops(last(s)))[:4]
    split = drawn.draw(st.integers(0, 3))
    if split:
        outer, inner = s.split(loops[split], (None, drawn.draw(st.integers(2, 3))))
        loops[split : split + 1] = [outer, inner]
    s.reorder(*drawn.draw(st.permutations(loops)))
    program = finish(s.program)
    distance = head_start(program, 0, 0)
    assert distance is not None
    assert distance >= traced(program)
