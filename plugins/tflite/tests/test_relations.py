"""Relations between sizes that converters of TensorFlow Lite state, of models with symbolic sizes: sizes that break one are refused
by its message, before and during the run, sizes that keep it give what LiteRT gives. A statement that no case breaks fails."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
import pytest
from plugins.tflite.tests.build import Graph, Op, Options, Tensor, drawn, file, litert
from tests.broken_sizes import Array, Break, check, unreached

import inlaid_tflite
from inlaid.graph.ir import Module
from inlaid_tflite import load


@dataclass(frozen=True, eq=False)
class Case:
    """An operator at sizes that keep its relations, and sizes that break them.

    inputs
        The tensors; those with data are constants. All sizes of the others are dynamic, except `fixed` dimensions (input, axis).
    shaped
        Inputs whose shapes are given to the operator in their place.
    chosen
        Values of inputs that must not be random.
    peer
        Whether LiteRT takes these inputs.
    """

    op: str
    inputs: tuple[Tensor | None, ...]
    results: tuple[Tensor, ...]
    breaks: tuple[Break, ...]
    options: Options | None = None
    fixed: tuple[tuple[int, int], ...] = ()
    shaped: tuple[int, ...] = ()
    chosen: Mapping[int, Array] = field(default_factory=dict)
    peer: bool = True

    def __str__(self) -> str:
        return f"{self.op}-{self.breaks[0].message.partition(' must')[0]}"

    @property
    def title(self) -> str:
        return self.op

    def values(self) -> dict[int, Array]:
        generator = np.random.default_rng(0)
        read = {index: item for index, item in enumerate(self.inputs) if item is not None and item.data is None}
        return {index: drawn(item.dtype, item.shape, generator) for index, item in read.items()} | {**self.chosen}

    def data(self, values: Mapping[int, Array], symbolic: bool = False) -> bytes:
        """Build the model; dimension 1 of input 0 is called `x0_1` if it is symbolic."""
        tensors: list[Tensor] = []
        places = [-1] * len(self.inputs)
        for index, item in enumerate(self.inputs):
            if item is not None:
                places[index] = len(tensors)
                shape = values[index].shape if index in values else item.shape
                fixed = [axis for position, axis in self.fixed if position == index]
                dynamic = tuple(axis for axis in range(len(shape)) if symbolic and item.data is None and axis not in fixed)
                tensors.append(replace(item, shape=shape, name=f"x{index}", open=dynamic))
        input_numbers = tuple(places[index] for index in values)
        steps = []
        for index in self.shaped:
            steps.append(Op("SHAPE", (places[index],), (len(tensors),), ("ShapeOptions", {"outType": 2})))
            places[index] = len(tensors)
            tensors.append(Tensor((len(values[index].shape),), "int32"))
        results = tuple(range(len(tensors), len(tensors) + len(self.results)))
        dynamic_results = [replace(item, open=tuple(range(len(item.shape)))) for item in self.results]
        step = Op(self.op, tuple(places), results, self.options)
        return file(Graph((*tensors, *dynamic_results), input_numbers, results, (*steps, step)))

    def load(self, values: Mapping[int, Array], symbolic: bool) -> Module:
        fixed = set(self.fixed)
        sizes = [(index, axis) for index, value in values.items() for axis in range(value.ndim) if (index, axis) not in fixed]
        return load(self.data(values, symbolic), {f"x{index}_{axis}": (0, None) for index, axis in sizes} if symbolic else None)

    def feeds(self, values: Mapping[int, Array]) -> dict[str, Array]:
        return {f"x{index}": value for index, value in values.items()}

    def peers(self, values: Mapping[int, Array]) -> Sequence[Array] | None:
        return litert(self.data(values), list(values.values())) if self.peer else None


def floats(*shape: int) -> Tensor:
    return Tensor(shape)


def int32(*values: int) -> Tensor:
    return Tensor((len(values),), "int32", np.array(values))


STEPS, BATCH, INPUTS, UNITS, OUTPUTS = 4, 2, 3, 5, 6
CONV = ("TransposeConvOptions", {"padding": 1, "strideH": 1, "strideW": 1})
RNN = ("RNNOptions", {"fusedActivationFunction": 4})
LAYER = (floats(UNITS, INPUTS), floats(UNITS, UNITS), floats(UNITS), floats(BATCH, UNITS))
BOTH = ("BidirectionalSequenceRNNOptions", {"fusedActivationFunction": 4, "timeMajor": True})
TWO = (floats(STEPS, BATCH, INPUTS), *LAYER, *LAYER, floats(STEPS, BATCH, 2), floats(UNITS, 2), floats(UNITS, 2))
GATES = (*[floats(UNITS, INPUTS)] * 4, *[floats(UNITS, OUTPUTS)] * 4, None, None, None, *[floats(UNITS)] * 4)
LSTM = (floats(BATCH, INPUTS), *GATES, floats(OUTPUTS, UNITS), floats(OUTPUTS), floats(BATCH, OUTPUTS), floats(BATCH, UNITS))
FULL = ("LSTMOptions", {"fusedActivationFunction": 4})
SIDE = (*[floats(UNITS, INPUTS)] * 4, *[floats(UNITS, UNITS)] * 4, None, None, None, *[floats(UNITS)] * 4, None, None)
STATES = (floats(BATCH, UNITS),) * 4
SIDES = (floats(STEPS, BATCH, INPUTS), *SIDE, *SIDE, *STATES, floats(STEPS, BATCH, 2), *[floats(UNITS, 2)] * 8)
DIRECTIONS = ("BidirectionalSequenceLSTMOptions", {"fusedActivationFunction": 4, "timeMajor": True})
BASIC = (floats(BATCH, INPUTS), floats(BATCH, UNITS), floats(4 * UNITS, INPUTS + UNITS), floats(4 * UNITS), floats(BATCH, UNITS))
KERNEL = ("LSTMOptions", {"fusedActivationFunction": 4, "kernelType": 1})

CASES = (
    Case(
        "TRANSPOSE_CONV",
        (int32(2, 5, 5, 3), floats(3, 3, 3, 2), floats(2, 3, 3, 2)),
        (floats(2, 5, 5, 3),),
        (
            Break(2, 0, 3, "the batch in the shape of the result must be x2_0, got 2"),
            Break(1, 0, 4, "the number of channels in the shape of the result must be x1_0, got 3"),
        ),
        CONV,
        fixed=((1, 1), (1, 2), (1, 3), (2, 1), (2, 2), (2, 3)),
    ),
    Case(
        "DEQUANTIZE",
        (Tensor((2, 3), "int8", scale=(0.5, 1.0, 2.0), zero_point=(0, 0, 0), axis=1),),
        (floats(2, 3),),
        (Break(0, 1, 4, "the number of scales of dimension 1 must be x0_1, got 3"),),
    ),
    Case(
        "PRELU",
        (floats(2, 3), floats(3)),
        (floats(2, 3),),
        (
            Break(1, 0, 2, "dimension 0 of the slope must be 1 or x0_1 to broadcast, got 2"),
            Break(0, 1, 1, "dimension 0 of the slope must be 1 or x0_1 to broadcast, got 3"),
        ),
        peer=False,
    ),
    Case("ADD_N", (floats(2, 3), floats(2, 3)), (floats(2, 3),), (Break(1, 1, 1, "dimension 1 of input 1 must be x0_1, got 1"),)),
    Case("ATAN2", (floats(2, 3), floats(2, 3)), (floats(2, 3),), (Break(1, 0, 1, "dimension 0 of input 1 must be x0_0, got 1"),)),
    Case(
        "SQUEEZE",
        (floats(2, 1, 3),),
        (floats(2, 3),),
        (Break(0, 1, 2, "dimension 1, which is squeezed, must be 1, got 2"),),
        ("SqueezeOptions", {"squeezeDims": [1]}),
    ),
    Case(
        "SQUEEZE",
        (floats(2, 3),),
        (floats(2, 3),),
        (Break(0, 0, 1, "dimension x0_0 of (x0_0, x0_1), which is squeezed if it is 1, must be other than 1", static=False),),
    ),
    Case(
        "BROADCAST_ARGS",
        (floats(2, 1), floats(2, 3)),
        (Tensor((2,), "int32"),),
        (Break(0, 0, 3, "an operand's dimension must be 1 or x1_0 to broadcast, got 3"),),
        shaped=(0, 1),
    ),
    Case(
        "SPLIT",
        (int32(1), floats(2, 4)),
        (floats(2, 2), floats(2, 2)),
        (Break(1, 1, 5, "dimension 1, which is split into equal parts, must be a multiple of 2, got 5"),),
        ("SplitOptions", {"numSplits": 2}),
    ),
    Case(
        "SPLIT_V",
        (floats(5, 2), int32(2, 3), int32(0)),
        (floats(2, 2), floats(3, 2)),
        (
            Break(0, 0, 4, "the sum of the parts (2, 3) of dimension 0 must be x0_0, got 5"),
            Break(0, 0, 6, "the sum of the parts (2, 3) of dimension 0 must be x0_0, got 5"),
        ),
        ("SplitVOptions", {"numSplits": 2}),
    ),
    Case(
        "UNPACK",
        (floats(2, 3),),
        (floats(3), floats(3)),
        (Break(0, 0, 3, "the sum of the parts (1, 1) of dimension 0 must be x0_0, got 2"),),
        ("UnpackOptions", {"num": 2}),
    ),
    Case(
        "RNN",
        (floats(BATCH, INPUTS), *LAYER),
        (floats(BATCH, UNITS),),
        (
            Break(2, 0, 4, "dimension 0 of the recurrent weights must be x1_0, got 4"),
            Break(3, 0, 1, "dimension 0 of the bias must be x1_0, got 1"),
            Break(4, 0, 1, "dimension 0 of the state must be x0_0, got 1"),
        ),
        RNN,
        peer=False,
    ),
    Case(
        "BIDIRECTIONAL_SEQUENCE_RNN",
        TWO,
        (floats(STEPS, BATCH, UNITS),) * 2,
        (
            Break(9, 0, 3, "dimension 0 of the auxiliary data, without its last dimension, must be x0_0, got 3"),
            Break(10, 0, 1, "the number of rows of the auxiliary weights must be x1_0, got 1"),
        ),
        BOTH,
        peer=False,
    ),
    Case(
        "LSTM",
        LSTM,
        (floats(BATCH, OUTPUTS),),
        (
            Break(12, 0, 1, "dimension 0 of the bias at input 12 must be x15_0, got 1"),
            Break(5, 0, 6, "the number of rows of the recurrent weights at input 5 must be x15_0, got 6"),
            Break(17, 0, 1, "dimension 0 of the bias of the projection must be x16_0, got 1"),
            Break(18, 0, 1, "dimension 0 of the output state must be x0_0, got 1"),
            Break(19, 1, 6, "dimension 1 of the cell state must be x15_0, got 6"),
        ),
        FULL,
        peer=False,
    ),
    Case(
        "BIDIRECTIONAL_SEQUENCE_LSTM",
        SIDES,
        (floats(STEPS, BATCH, UNITS),) * 2,
        (
            Break(39, 0, 3, "dimension 0 of the auxiliary data, without its last dimension, must be x0_0, got 3"),
            Break(41, 0, 1, "the number of rows of the auxiliary weights at input 41 must be x15_0, got 1"),
        ),
        DIRECTIONS,
        peer=False,
    ),
    Case(
        "LSTM",
        BASIC,
        (floats(BATCH, UNITS), floats(BATCH, UNITS), floats(BATCH, INPUTS + UNITS), floats(BATCH, 4 * UNITS)),
        (
            Break(1, 0, 3, "dimension 0 of the previous output must be x0_0, got 3"),
            Break(4, 0, 1, "dimension 0 of the previous cell must be x0_0, got 1"),
            Break(3, 0, 1, "dimension 0 of the bias must be (x4_1 * 4), got 1"),
            Break(2, 0, 21, "the number of rows of the weights must be (x4_1 * 4), got 21"),
        ),
        KERNEL,
        peer=False,
    ),
    Case(
        "SELECT",
        (Tensor((2,), "bool"), floats(2, 3), floats(2, 3)),
        (floats(2, 3),),
        (
            Break(2, 1, 1, "dimension 1 of input 2 must be x1_1, got 1"),
            Break(0, 0, 1, "dimension 0 of the condition must be x1_0, got 1"),
        ),
    ),
    Case(
        "MATRIX_SET_DIAG",
        (floats(2, 3, 4), floats(2, 3)),
        (floats(2, 3, 4),),
        (Break(1, 1, 4, "dimension 1 of the diagonal must be min(x0_1, x0_2), got 4"),),
    ),
    Case(
        "SLICE",
        (floats(3, 4), Tensor((2,), "int32"), int32(2, 1)),
        (floats(2, 1),),
        (Break(1, 0, 3, "dimension 0 of input 1 must be 2, got 3"),),
        chosen={1: np.array([1, 3], np.int32)},
    ),
    Case(
        "DYNAMIC_UPDATE_SLICE",
        (floats(4, 3), floats(2, 2), Tensor((2,), "int32")),
        (floats(4, 3),),
        (
            Break(2, 0, 3, "dimension 0 of the start indices must be 2, got 3"),
            Break(1, 0, 5, "dimension 0 of the update must be <= x0_0, got 5"),
        ),
    ),
    Case(
        "MIRROR_PAD",
        (floats(3, 3), Tensor((2, 2), "int32", np.array([[2, 0], [0, 1]]))),
        (floats(5, 4),),
        (
            Break(0, 0, 2, "the pad before dimension 0 must be <= (x0_0 + -1), got 2"),
            Break(0, 1, 1, "the pad after dimension 1 must be <= (x0_1 + -1), got 1"),
        ),
        ("MirrorPadOptions", {"mode": 0}),
    ),
    Case(
        "SPACE_TO_DEPTH",
        (floats(1, 4, 2, 3),),
        (floats(1, 2, 1, 12),),
        (Break(0, 1, 3, "dimension 1, which is divided into blocks, must be a multiple of 2, got 3"),),
        ("SpaceToDepthOptions", {"blockSize": 2}),
    ),
    Case(
        "DEPTH_TO_SPACE",
        (floats(1, 2, 1, 4),),
        (floats(1, 4, 2, 1),),
        (Break(0, 3, 6, "dimension 3, which is divided into blocks, must be a multiple of 4, got 6"),),
        ("DepthToSpaceOptions", {"blockSize": 2}),
    ),
)


@pytest.mark.parametrize("case", CASES, ids=str)
def test_sizes_are_refused_or_results_are_right(case: Case) -> None:
    check(case)


def test_every_statement_refuses_sizes() -> None:
    assert unreached(CASES, inlaid_tflite) == []
