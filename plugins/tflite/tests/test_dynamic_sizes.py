"""Dynamic sizes give what LiteRT gives for the same static sizes, 0 included."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from plugins.tflite.tests.build import Graph, Op, Options, Tensor, drawn, file, litert, single

from inlaid.driver import compile_module
from inlaid.graph.interp import evaluate
from inlaid_runtime.errors import ModelImportError
from inlaid_tflite import load

Array = np.ndarray[Any, Any]


def ints(*values: int) -> Tensor:
    return Tensor((len(values),), "int32", np.array(values))


class Dynamic:
    """An operator whose inputs without data have dynamic sizes; `rank` is that of the result."""

    def __init__(self, name: str, inputs: Sequence[Tensor], rank: int, options: Options | None = None) -> None:
        self.name, self.inputs, self.options = name, inputs, options
        self.result = Tensor((1,) * rank, inputs[0].dtype, open=tuple(range(rank)))
        named = [
            replace(each, name=f"x{index}", open=() if each.data is not None else tuple(range(len(each.shape))))
            for index, each in enumerate(inputs)
        ]
        sizes = {f"{each.name}_{axis}": (0, None) for each in named for axis in each.open}
        self.executable = compile_module(load(single(name, named, self.result, options), sizes), ["reference"])

    def check(self, shapes: Sequence[tuple[int, ...]], values: Sequence[Array | None] = ()) -> None:
        """Run at these sizes of the dynamic inputs, and compare with LiteRT at static ones."""
        generator, rest = np.random.default_rng(0), iter(shapes)
        inputs = [each if each.data is not None else replace(each, shape=next(rest)) for each in self.inputs]
        read = {f"x{index}": each for index, each in enumerate(inputs) if each.data is None}
        chosen = [*values, *[None] * (len(read) - len(values))]
        feeds = {
            name: drawn(each.dtype, each.shape, generator) if value is None else value
            for (name, each), value in zip(read.items(), chosen, strict=True)
        }
        (expected,) = litert(single(self.name, inputs, self.result, self.options), list(feeds.values()))
        (actual,) = self.executable.run(feeds).values()
        np.testing.assert_array_equal(actual, expected, strict=True)


@pytest.mark.parametrize("shape", [(0, -1), (-1, 0), (0, 2, -1), (-1, 4), (2, -1), (0, 4), (0, 0, -1)])
def test_a_new_shape_with_0(shape: tuple[int, ...]) -> None:
    model = Dynamic("RESHAPE", [Tensor((1, 1)), ints(*shape)], len(shape))
    for rows, columns in ((0, 4), (2, 0), (0, 0), (2, 4), (3, 4)):
        is_valid = rows * columns == 0 if 0 in shape else -1 not in shape or rows * columns % -int(np.prod(shape)) == 0
        if is_valid and (0 in shape or rows * columns):
            model.check([(rows, columns)])


@pytest.mark.parametrize("step", [1, 2, -1, -2])
def test_ranges_that_begin_or_end_outside_of_the_axis(step: int) -> None:
    for begin in (-9, -4, -3, -1, 0, 2, 3, 9):
        for end in (-9, -4, -2, 0, 1, 3, 9):
            model = Dynamic("STRIDED_SLICE", [Tensor((1,)), ints(begin), ints(end), ints(step)], 1, ("StridedSliceOptions", {}))
            for size in (0, 1, 3, 4):
                model.check([(size,)])


def range_model(parts: Sequence[int | None], size: int = 0) -> bytes:
    """A RANGE of int64 whose parts that are None are the size of the input, which is dynamic if `size` is 0."""
    names = {"start": 3, "limit": 4, "delta": 5}
    numbers = tuple(2 if part is None else number for part, number in zip(parts, names.values(), strict=True))
    constants = [Tensor((), "int64", np.array(0 if part is None else part)) for part in parts]
    result = Tensor((1 if size == 0 else len(range(*(size if part is None else part for part in parts))),), "int64", open=(0,))
    tensors = (
        Tensor((max(size, 1),), name="x", open=() if size else (0,)),
        Tensor((1,), "int64"),
        Tensor((), "int64"),
        *constants,
        Tensor((), "int32", np.array(0)),
        result,
    )
    ops = (
        Op("SHAPE", (0,), (1,), ("ShapeOptions", {"outType": 4})),
        Op("GATHER", (1, 6), (2,), ("GatherOptions", {"axis": 0})),
        Op("RANGE", numbers, (7,)),
    )
    return file(Graph(tensors, (0,), (7,), ops))


END, MAX_RANGE_END = 2**63 - 1, 2**61
"""The greatest int64, and the greatest end of a range beside a dynamic size."""


@pytest.mark.parametrize("step", [2, -2, 2**61, -(2**61), 2**62, -(2**62), END, -END - 1])
@pytest.mark.parametrize("other", [0, 1, 9, MAX_RANGE_END, -MAX_RANGE_END])
def test_ranges_between_a_size_and_the_ends_of_int64(other: int, step: int) -> None:
    for parts in ((None, other, step), (other, None, step)):
        for size in (1, 2, 5):
            numbers = range(*(size if part is None else part for part in parts))
            if len(numbers) > 9:
                continue
            module = load(range_model(parts), {"x_0": (0, None)})
            executable = compile_module(module, ["reference"])
            (actual,) = executable.run({"x": np.zeros(size, np.float32)}).values()
            assert actual.tolist() == list(numbers)


@pytest.mark.parametrize("other", [MAX_RANGE_END + 1, -MAX_RANGE_END - 1, END, -END - 1])
def test_a_range_between_a_size_and_a_far_end_is_refused(other: int) -> None:
    for parts in ((None, other, END), (other, None, END), (None, other, -1), (other, None, -1)):
        with pytest.raises(ModelImportError, match=r"the start and the limit must be >= -2\^61 and <= 2\^61, as one of them is"):
            load(range_model(parts), {"x_0": (0, None)})


def test_ranges_of_sizes_agree_with_litert() -> None:
    for parts in ((None, 9, 3), (9, None, -2), (0, None, 2**61)):
        module = load(range_model(parts), {"x_0": (0, None)})
        (expected,) = litert(range_model(parts, 4), [np.zeros(4, np.float32)])
        np.testing.assert_array_equal(evaluate(module, [np.zeros(4, np.float32)]), expected, strict=True)


def test_an_update_that_may_be_empty() -> None:
    model = Dynamic("DYNAMIC_UPDATE_SLICE", [Tensor((1, 1)), Tensor((1, 1)), Tensor((2,), "int32")], 2)
    for update in ((0, 2), (2, 0), (0, 0), (0, 3), (4, 0), (1, 1), (4, 3), (2, 2)):
        for start in ((0, 0), (1, 2), (-1, 9)):
            model.check([(4, 3), update, (2,)], [None, None, np.array(start, np.int32)])
