"""Recurrent layers. Their memory is the model's: it goes in and out with each run.

Weights that are stored in eight bits beside data of floats are taken for the real numbers they stand for: LiteRT rounds the data to
eight bits too.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from inlaid import ops
from inlaid.frontends.tflite.convert import integer_lstm
from inlaid.frontends.tflite.node import ACTIVATIONS, Converter, Node, Updated, tensor_type, typed
from inlaid.graph.ir import Expr, constant
from inlaid.ops.compose import cast_to, expand_dims, join, scalar, slice_axis
from inlaid.ops.fixed_point import scaled
from inlaid.ops.steps import States, run_steps

SMALL = 1e-8
"""What LiteRT adds to a variance before it takes the root."""
GATES = 4
"""Input, forget, cell and output, in the order of the inputs."""
INPUT, FORGET, CELL, OUTPUT = range(GATES)


def _real(node: Node, index: int) -> Expr:
    """An input of floats, or one that is stored, as the real numbers it stands for."""
    if node.tensor(index).dtype.is_float:
        return node.input(index)
    scale, zero_point = node.pair(node.tensor(index))
    return constant((node.array(index).astype(np.float32) - np.float32(zero_point)) * scale)


def _optional(node: Node, index: int) -> Expr | None:
    return _real(node, index) if node.has(index) else None


def _times(x: Expr, weights: Expr) -> Expr:
    """Rows of x times weights (outputs, inputs)."""
    return ops.matmul(x, ops.transpose(weights, perm=(1, 0)))


def _activated(node: Node, value: Expr) -> Expr:
    """A value after the activation of the options."""
    number = node.option("FusedActivationFunction")
    name = ACTIVATIONS[number] if 0 <= number < len(ACTIVATIONS) else str(number)
    if name not in ("NONE", "RELU", "RELU6", "TANH"):
        raise node.error(f"the activation {name} is not supported: LiteRT runs NONE, RELU, RELU6 and TANH here")
    return ops.tanh(value) if name == "TANH" else node.bounded(value)


def _time_first(value: Expr, time_major: bool) -> Expr:
    """(batch, time, ...) as (time, batch, ...) and back, unless it is so."""
    return value if time_major else ops.transpose(value, perm=(1, 0, 2))


# --- simple layers ----------------------------------------------------------------------------------------------------


def _rnn_steps(node: Node, x: Expr, first: int, aux: tuple[Expr, Expr] | None = None, reverse: bool = False) -> tuple[Expr, Expr]:
    """(outputs of all steps, the last state) of x (time, batch, inputs). Weights, recurrent weights, bias and state are the inputs
    from `first` on; `aux` is further data with its weights."""
    weights, recurrent, bias = (_real(node, first + offset) for offset in range(3))
    given = ops.add(_times(x, weights), bias)
    if aux is not None:
        given = ops.add(given, _times(*aux))

    def step(position: Expr, slices: States, states: States) -> tuple[Expr, States]:
        new = _activated(node, ops.add(slices[0], _times(states[0], recurrent)))
        return new, (new,)

    outputs, (state,) = run_steps(step, [given], (node.input(first + 3),), reverse)
    return outputs, state


def _rnn(node: Node) -> Updated:
    outputs, state = _rnn_steps(node, expand_dims(node.input(0), 0), 1)
    return Updated((ops.reshape(outputs, shape=tensor_type(state).shape),), {4: state})


def _sequence_rnn(node: Node) -> Updated:
    time_major = bool(node.option("TimeMajor", False))
    outputs, state = _rnn_steps(node, _time_first(node.input(0), time_major), 1)
    return Updated((_time_first(outputs, time_major),), {4: state})


def _bidirectional_rnn(node: Node) -> Updated:
    """Inputs 1 to 4 are of the way forward, 5 to 8 of the way back; 9 is further data, 10 and 11 its weights."""
    time_major = bool(node.option("TimeMajor", False))
    sides, behind, further = _sides(node, time_major, 9, (10, 11))
    found = [_rnn_steps(node, sides[0], 1, further[0]), _rnn_steps(node, sides[1], 5, further[1], reverse=True)]
    outputs = [_time_first(outputs, time_major) for outputs, _ in found]
    states = {4: found[0][1], 8: found[1][1]}
    return Updated((join(outputs, 2),) if behind else tuple(outputs), states)


def _sides(
    node: Node, time_major: bool, aux: int, weights: tuple[int, int]
) -> tuple[tuple[Expr, Expr], bool, tuple[tuple[Expr, Expr] | None, tuple[Expr, Expr] | None]]:
    """Of a layer in two directions: the data of either, whether their outputs come side by side, and further data with its weights.
    Further data without weights is that of the way back."""
    x = _time_first(node.input(0), time_major)
    more = _time_first(node.input(aux), time_major) if node.has(aux) else None
    behind = bool(node.option("MergeOutputs", False))
    if more is None:
        return (x, x), behind, (None, None)
    if not node.has(weights[0]):
        return (x, more), behind, (None, None)
    return (x, x), behind, ((more, _real(node, weights[0])), (more, _real(node, weights[1])))


# --- LSTM -------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Lstm:
    """Where an LSTM layer has its inputs: the first of its weights, its states, the first of its layer norms, the first of the
    weights of further data (-1: there are none)."""

    first: int
    output: int
    cell: int
    norm: int = -1
    aux: int = -1

    def weights(self, gate: int) -> int:
        return self.first + gate

    def recurrent(self, gate: int) -> int:
        return self.first + GATES + gate

    def peephole(self, gate: int) -> int:
        """Of the cell there are none."""
        return self.first + 2 * GATES + (gate if gate < CELL else gate - 1)

    def bias(self, gate: int) -> int:
        return self.first + 11 + gate

    @property
    def projection(self) -> int:
        return self.first + 15


def _lstm_steps(node: Node, x: Expr, at: _Lstm, more: Expr | None = None, reverse: bool = False) -> tuple[Expr, States]:
    """(outputs of all steps, the last output and cell) of x (time, batch, inputs). `more` is further data."""
    coupled = not node.has(at.weights(INPUT))
    gates = [gate for gate in range(GATES) if not (coupled and gate == INPUT)]
    norms = {gate: _optional(node, at.norm + gate) if at.norm >= 0 else None for gate in gates}
    biases = {gate: _real(node, at.bias(gate)) for gate in gates}
    peepholes = {gate: _optional(node, at.peephole(gate)) for gate in gates if gate != CELL}
    hidden = node.shape(at.bias(OUTPUT))[0]
    given = _times(x, join([_real(node, at.weights(gate)) for gate in gates], 0))
    if more is not None:
        given = ops.add(given, _times(more, join([_real(node, at.aux + gate) for gate in gates], 0)))
    recurrent = join([_real(node, at.recurrent(gate)) for gate in gates], 0)
    cell_clip, output_clip = float(node.option("CellClip", 0.0)), float(node.option("ProjClip", 0.0))
    projection, projected = _optional(node, at.projection), _optional(node, at.projection + 1)

    def step(position: Expr, slices: States, states: States) -> tuple[Expr, States]:
        output, cell = states
        total = ops.add(slices[0], _times(output, recurrent))

        def gate(number: int, cell: Expr) -> Expr:
            place = gates.index(number)
            value = slice_axis(total, 1, hidden * place, hidden * (place + 1))
            peephole, norm = peepholes.get(number), norms[number]
            if peephole is not None:
                value = ops.add(value, ops.mul(peephole, cell))
            if norm is not None:
                value = ops.layer_norm(value, norm, biases[number], axis=1, epsilon=SMALL)
            else:
                value = ops.add(value, biases[number])
            return _activated(node, value) if number == CELL else ops.sigmoid(value)

        forget = gate(FORGET, cell)
        taken = ops.sub(scalar(1, "float32"), forget) if coupled else gate(INPUT, cell)
        new: Expr = ops.add(ops.mul(forget, cell), ops.mul(taken, gate(CELL, cell)))
        if cell_clip > 0:
            new = ops.clip(new, minimum=-cell_clip, maximum=cell_clip)
        result: Expr = ops.mul(gate(OUTPUT, new), _activated(node, new))
        if projection is not None:
            result = _times(result, projection)
            result = result if projected is None else ops.add(result, projected)
            if output_clip > 0:
                result = ops.clip(result, minimum=-output_clip, maximum=output_clip)
        return result, (result, new)

    return run_steps(step, [given], (node.input(at.output), node.input(at.cell)), reverse)


ALONE = _Lstm(1, 18, 19, 20)
"""Where a layer in one direction has its inputs."""
FORWARD, BACKWARD = _Lstm(1, 35, 36, aux=40), _Lstm(18, 37, 38, aux=44)
"""Where a layer in two directions has those of either; 39 is further data."""


def _alone(node: Node, x: Expr) -> tuple[Expr, States]:
    """The steps of a layer in one direction."""
    if node.tensor(0).dtype.is_float:
        return _lstm_steps(node, x, ALONE)
    return integer_lstm.steps(node, x, ALONE.first, ALONE.output, ALONE.cell)


def _lstm(node: Node) -> Updated | tuple[Expr, ...]:
    if node.option("KernelType"):
        return _basic_lstm(node)
    outputs, (output, cell) = _alone(node, expand_dims(node.input(0), 0))
    return Updated((ops.reshape(outputs, shape=tensor_type(output).shape),), {18: output, 19: cell})


def _basic_lstm(node: Node) -> tuple[Expr, ...]:
    """Data, the output before, weights (gates, inputs and outputs side by side), bias and the cell before: output, cell, data
    beside output, and the gates (input, cell, forget, output) before their activations."""
    both = join([node.input(0), node.input(1)], 1)
    gates = ops.add(_times(both, _real(node, 2)), node.input(3))
    depth = node.shape(4)[1]
    take, new, forget, show = (slice_axis(gates, 1, depth * number, depth * (number + 1)) for number in range(GATES))
    cell = ops.add(ops.mul(ops.sigmoid(take), ops.tanh(new)), ops.mul(ops.sigmoid(forget), node.input(4)))
    return ops.mul(ops.sigmoid(show), ops.tanh(cell)), cell, both, gates


def _sequence_lstm(node: Node) -> Updated:
    if node.option("DiagonalRecurrentTensors", False):
        raise node.error("recurrent weights that are diagonals are not supported: write them as matrices")
    time_major = bool(node.option("TimeMajor", False))
    outputs, (output, cell) = _alone(node, _time_first(node.input(0), time_major))
    return Updated((_time_first(outputs, time_major),), {18: output, 19: cell})


def _bidirectional_lstm(node: Node) -> Updated:
    time_major = bool(node.option("TimeMajor", True))
    sides, behind, further = _sides(node, time_major, 39, (FORWARD.aux + OUTPUT, BACKWARD.aux + OUTPUT))
    more = [None if each is None else each[0] for each in further]
    forward, ahead = _lstm_steps(node, sides[0], FORWARD, more[0])
    backward, back = _lstm_steps(node, sides[1], BACKWARD, more[1], reverse=True)
    outputs = [_time_first(each, time_major) for each in (forward, backward)]
    states = dict(zip((35, 36, 37, 38), (*ahead, *back), strict=True))
    return Updated((join(outputs, 2),) if behind else tuple(outputs), states)


# --- SVDF -------------------------------------------------------------------------------------------------------------


def _svdf(node: Node) -> Updated:
    """Filters of rank one, in time and in features (Nakkiran et al., "Compressing deep neural networks using a rank-constrained
    topology", 2015). The state (batch, filters, times) has the newest features last."""
    filters, times = node.tensor(2).shape
    batch, rank = node.shape(0)[0], node.option("Rank")
    if rank < 1 or filters % rank:
        raise node.error(f"a rank of {rank} for {filters} filters")
    old = ops.reshape(node.input(4), shape=(batch, filters, times))
    stored = not node.is_float()
    feature = _stored_features(node) if stored else _times(node.input(0), _real(node, 1))
    state = join([slice_axis(old, 2, 1, times), expand_dims(feature, 2)], 2)
    weights = cast_to(node.input(2), "int32") if stored else _real(node, 2)
    summed = ops.reduce_sum(ops.mul(cast_to(state, "int32") if stored else state, weights), axes=(2,), keepdims=False)
    total: Expr = ops.reduce_sum(ops.reshape(summed, shape=(batch, filters // rank, rank)), axes=(2,), keepdims=False)
    if node.has(3):
        total = ops.add(total, node.input(3))
    if stored:
        # LiteRT passes over the activation of integers.
        (at, _), (weight, _), (to, moved) = (node.pair(each) for each in (node.tensor(4), node.tensor(2), node.result))
        placed = ops.add(scaled(total, [float(at) * float(weight) / float(to)]), scalar(moved, "int32"))
        result: Expr = ops.cast(ops.clip(placed, minimum=-128.0, maximum=127.0), dtype="int8")
    else:
        result = _activated(node, total)
    return Updated((result,), {4: ops.reshape(state, shape=node.shape(4))})


def _stored_features(node: Node) -> Expr:
    """Products of data and features as int16 with the scale of the state."""
    node.require("int8")
    if node.tensor(4).dtype.name != "int16":
        raise node.error(f"a state of {node.tensor(4).dtype} is not supported: int16 it is")
    (scale, zero_point), (feature, _), (state, _) = (node.pair(node.tensor(index)) for index in (0, 1, 4))
    total = _times(node.input(0), node.input(1))
    if zero_point:
        total = ops.sub(total, constant(zero_point * node.array(1).astype(np.int32).sum(1, dtype=np.int32)))
    limited = ops.clip(scaled(total, [float(scale) * float(feature) / float(state)]), minimum=-32768.0, maximum=32767.0)
    return ops.cast(limited, dtype="int16")


CONVERTERS: Mapping[str, Converter] = {
    "BIDIRECTIONAL_SEQUENCE_LSTM": typed(_bidirectional_lstm, "float32"),
    "BIDIRECTIONAL_SEQUENCE_RNN": typed(_bidirectional_rnn, "float32"),
    "LSTM": typed(_lstm, "float32 int8"),
    "RNN": typed(_rnn, "float32"),
    "SVDF": typed(_svdf, "float32 int8"),
    "UNIDIRECTIONAL_SEQUENCE_LSTM": typed(_sequence_lstm, "float32 int8"),
    "UNIDIRECTIONAL_SEQUENCE_RNN": typed(_sequence_rnn, "float32"),
}
