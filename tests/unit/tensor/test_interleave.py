"""Kernels that run as one compute what they compute one after the other, and keep windows of what they pass on."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from math import prod
from typing import Any

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from inlaid import ops
from inlaid.graph.ir import Expr, constant, var
from inlaid.lowering.kernels.finish import finish
from inlaid.lowering.kernels.kernel import KernelSource, build
from inlaid.tensor import interp, ir
from inlaid.tensor.schedule import Schedule
from inlaid.tensor.transform.interleave import Interleaved, Member, interleave
from inlaid_runtime import arith
from inlaid_runtime.types import TensorType, dtype

Array = np.ndarray[Any, Any]


def kernel(shapes: list[tuple[int, ...]], body: Callable[..., Expr]) -> ir.LoopProgram:
    """A kernel over images of one channel, as one nest: rows outside, sums in a local buffer."""
    params = tuple(var(f"p{number}", TensorType(shape, "int8")) for number, shape in enumerate(shapes))
    s = Schedule(build(KernelSource("kernel", params, body(*params))))
    for name in s.blocks[:-1]:
        if name != "conv":
            s.compute_inline(name)
    if "conv" in s.blocks:
        s.compute_at("conv", s.loops(s.blocks[-1])[-1])
    return finish(s.program)


def window(shape: tuple[int, ...], taps: int, stride: int, pads: tuple[int, ...], dilation: int) -> ir.LoopProgram:
    def body(x: Expr, w: Expr) -> Expr:
        sums = ops.conv(x, w, strides=(stride,) * 2, pads=pads, dilations=(dilation,) * 2, out_dtype="int32")
        return ops.cast(ops.add(sums, constant(np.int32(1))), dtype="int8")

    return kernel([shape, (1, 1, taps, taps)], body)


def total(shape: tuple[int, ...]) -> ir.LoopProgram:
    return kernel([shape, shape], lambda a, b: ops.add(ops.maximum(a, constant(np.int8(-9))), b))


@dataclass
class Chain:
    """Kernels in order, the first over buffer 0; constants have numbers of their own."""

    shape: tuple[int, ...]
    members: list[Member] = field(default_factory=list)
    arrays: dict[int, Array] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.arrays[0] = np.random.default_rng(0).integers(-128, 128, self.shape).astype(np.int8)
        self.last, self.count = 0, 1

    def add(self, program: ir.LoopProgram, *side_operands: int) -> None:
        operands = [self.last, *side_operands]
        for buffer in program.inputs[len(operands) :]:
            weights = np.random.default_rng(self.count).integers(-9, 9, [int(dim) for dim in buffer.shape])  # type: ignore[arg-type]
            self.arrays[self.count] = weights.astype(np.int8)
            operands.append(self.count)
            self.count += 1
        self.members.append(Member(program, (*operands, self.count)))
        self.last, self.shape = self.count, tuple(int(dim) for dim in program.outputs[0].shape)  # type: ignore[arg-type]
        self.count += 1

    def apart(self) -> Array:
        arrays = dict(self.arrays)
        for member in self.members:
            count = len(member.program.inputs)
            outputs = interp.run(member.program, [arrays[number] for number in member.operands[:count]])
            arrays.update(zip(member.operands[count:], outputs, strict=True))
        return arrays[self.last]

    def merged(self) -> Interleaved | None:
        return interleave("merged", self.members, [member.operands[-1] for member in self.members[:-1]])

    def check(self) -> Interleaved | None:
        """The merged kernel, whose result is that of the kernels one after the other."""
        merged_kernel = self.merged()
        if merged_kernel is not None:
            results = interp.run(merged_kernel.program, [self.arrays[number] for number in merged_kernel.inputs])
            np.testing.assert_array_equal(results[merged_kernel.outputs.index(self.last)], self.apart())
        return merged_kernel


def window_sizes(merged_kernel: Interleaved) -> dict[int, int]:
    """The elements of each window."""
    sizes = (prod(buffer.shape) for buffer in merged_kernel.program.outputs)  # type: ignore[type-var]
    return dict(zip(merged_kernel.outputs, sizes, strict=True))  # type: ignore[arg-type]


PADS = (1, 1, 1, 1)


def test_of_an_image_between_two_windows_a_few_rows_are_kept() -> None:
    chain = Chain((1, 1, 9, 5))
    chain.add(window(chain.shape, 3, 1, PADS, 1))
    middle = chain.last
    chain.add(window(chain.shape, 3, 1, PADS, 1))
    merged_kernel = chain.check()
    assert merged_kernel is not None
    # Windows count as if they read beyond both ends of a row, where they read padding: hence an element and a row more.
    assert window_sizes(merged_kernel)[middle] == 4 * 5 + 1


def test_what_is_read_once_in_order_keeps_a_row() -> None:
    chain = Chain((1, 1, 9, 5))
    chain.add(window(chain.shape, 3, 1, PADS, 1))
    middle = chain.last
    chain.add(window(chain.shape, 1, 1, (0,) * 4, 1))
    merged_kernel = chain.check()
    assert merged_kernel is not None
    assert window_sizes(merged_kernel)[middle] == 5


def test_a_sum_with_what_came_before_two_windows_keeps_five_rows_of_it() -> None:
    chain = Chain((1, 1, 12, 4))
    chain.add(window(chain.shape, 1, 1, (0,) * 4, 1))
    before = chain.last
    chain.add(window(chain.shape, 3, 1, PADS, 1))
    chain.add(window(chain.shape, 3, 1, PADS, 1))
    chain.add(total(chain.shape), before)
    merged_kernel = chain.check()
    assert merged_kernel is not None
    assert window_sizes(merged_kernel)[before] <= 5 * 4


def test_one_kernel_called_twice_has_two_sets_of_buffers() -> None:
    chain = Chain((1, 1, 8, 4))
    program = window(chain.shape, 3, 1, PADS, 1)
    for _ in range(3):
        chain.add(program)
    merged_kernel = chain.check()
    assert merged_kernel is not None
    assert (
        len(set(merged_kernel.program.params))
        == len(merged_kernel.program.params)
        == len(merged_kernel.inputs) + len(merged_kernel.outputs)
    )


def test_what_needs_all_of_an_image_is_left_alone() -> None:
    """The rows of the second kernel begin with the last of the first."""
    chain = Chain((1, 1, 6, 4))
    chain.add(window(chain.shape, 3, 1, PADS, 1))
    source, target = (ir.Buffer(name, (1, 1, 6, 4), dtype("int8")) for name in ("source", "target"))
    y, x = arith.Var("y"), arith.Var("x")
    value = ir.load(source, (arith.ZERO, arith.ZERO, 5 - y, x))
    row = ir.For(x, arith.wrap(4), ir.Store(target, (arith.ZERO, arith.ZERO, y, x), value))
    chain.add(ir.LoopProgram("flip", (source,), (target,), ir.For(y, arith.wrap(6), row)))
    assert chain.merged() is None


def test_data_that_chooses_where_to_read_is_left_alone() -> None:
    x, at = var("x", TensorType((1, 1, 6, 4), "int8")), var("at", TensorType((6,), "int32"))
    kernel = finish(build(KernelSource("take", (x, at), ops.take(x, at, axis=2))))
    chain = Chain((1, 1, 6, 4))
    chain.add(window(chain.shape, 3, 1, PADS, 1))
    chain.add(kernel)
    assert chain.merged() is None


@settings(max_examples=40, deadline=None)
@given(st.data())
def test_random_chains(drawn: st.DataObject) -> None:
    chain = Chain((1, 1, drawn.draw(st.integers(1, 17)), drawn.draw(st.integers(1, 7))))
    shapes = {0: chain.shape}
    for _ in range(drawn.draw(st.integers(2, 4))):
        alike = [number for number, shape in shapes.items() if shape == chain.shape]
        if len(chain.members) > 1 and drawn.draw(st.integers(0, 2)) == 0:
            chain.add(total(chain.shape), drawn.draw(st.sampled_from(alike)))
        else:
            taps, stride, dilation = (drawn.draw(st.sampled_from(items)) for items in ((1, 2, 3), (1, 2), (1, 2)))
            reach = (taps - 1) * dilation
            pads = tuple(drawn.draw(st.integers(0, min(reach, 2))) for _ in range(4))
            if any(size + pads[axis] + pads[axis + 2] <= reach for axis, size in enumerate(chain.shape[2:])):
                pads = (reach, reach, reach, reach)
            chain.add(window(chain.shape, taps, stride, pads, dilation))
        shapes[chain.last] = chain.shape
    chain.check()
