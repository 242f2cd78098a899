"""Recurrent layers. Their states are inputs and outputs of the model.

8-bit weights with float data are dequantized. LiteRT quantizes the data to 8 bits instead, so results differ.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from inlaid import ops
from inlaid.graph.conditions import require_equal, require_shape
from inlaid.graph.ir import Expr, constant
from inlaid.ops.compose import cast_to, expand_dims, join, scalar, slice_axis
from inlaid.ops.fixed_point import scaled
from inlaid.ops.steps import States, run_steps
from inlaid_runtime import arith
from inlaid_runtime.records import dataclass
from inlaid_tflite.convert import integer_lstm
from inlaid_tflite.node import ACTIVATIONS, Converter, Node, Updated, tensor_type, typed

SMALL = 1e-8
"""Epsilon that LiteRT adds to a variance."""
GATES = 4
"""Number of gates: input, forget, cell and output, in this order."""
INPUT, FORGET, CELL, OUTPUT = range(GATES)


def _real(node: Node, index: int) -> Expr:
    """Return an input as floats. A quantized input is dequantized."""
    if node.tensor(index).dtype.is_float:
        return node.input(index)
    scale, zero_point = node.pair(node.tensor(index))
    return constant((node.array(index).astype(np.float32) - np.float32(zero_point)) * scale)


def _optional(node: Node, index: int) -> Expr | None:
    return _real(node, index) if node.has(index) else None


def _times(x: Expr, weights: Expr) -> Expr:
    """Multiply x (rows, inputs) by weights (outputs, inputs): (rows, outputs)."""
    return ops.matmul(x, ops.transpose(weights, perm=(1, 0)))


def _activated(node: Node, value: Expr) -> Expr:
    """Apply the activation in the options."""
    number = node.option("FusedActivationFunction")
    name = ACTIVATIONS[number] if 0 <= number < len(ACTIVATIONS) else str(number)
    if name not in ("NONE", "RELU", "RELU6", "TANH"):
        raise node.error(f"the activation must be NONE, RELU, RELU6 or TANH, got {name}")
    return ops.tanh(value) if name == "TANH" else node.bounded(value)


def _time_first(value: Expr, time_major: bool) -> Expr:
    """Transpose (batch, time, ...) to (time, batch, ...) or back, unless it is time-major."""
    return value if time_major else ops.transpose(value, perm=(1, 0, 2))


# --- simple layers ----------------------------------------------------------------------------------------------------


def _rnn_steps(node: Node, x: Expr, first: int, aux: tuple[Expr, Expr] | None = None, reverse: bool = False) -> tuple[Expr, Expr]:
    """Run a simple layer on x (time, batch, inputs). Returns (outputs of all steps, last state). Weights, recurrent weights, bias
    and state are the inputs from `first` on; `aux` is auxiliary data with its weights."""
    with node.relations():
        (outputs, _), (_, batch, _) = node.shape(first), tensor_type(x).shape
        require_shape(node.shape(first + 1), (outputs, outputs), "the recurrent weights")
        require_shape(node.shape(first + 2), (outputs,), "the bias")
        require_shape(node.shape(first + 3), (batch, outputs), "the state")
        if aux is not None:
            _require_steps(x, aux[0])
            require_equal(tensor_type(aux[1]).shape[0], outputs, "the number of rows of the auxiliary weights")
    weights, recurrent, bias = (_real(node, first + offset) for offset in range(3))
    projected = ops.add(_times(x, weights), bias)
    if aux is not None:
        projected = ops.add(projected, _times(*aux))

    def step(position: Expr, slices: States, states: States) -> tuple[Expr, States]:
        new = _activated(node, ops.add(slices[0], _times(states[0], recurrent)))
        return new, (new,)

    steps, (state,) = run_steps(step, [projected], (node.input(first + 3),), reverse)
    return steps, state


def _require_steps(x: Expr, aux_data: Expr) -> None:
    """Require auxiliary data (time, batch, inputs) to have the steps and the batch of `x`. Raises ValueError."""
    require_shape(tensor_type(aux_data).shape[:2], tensor_type(x).shape[:2], "the auxiliary data, without its last dimension,")


def _rnn(node: Node) -> Updated:
    outputs, state = _rnn_steps(node, expand_dims(node.input(0), 0), 1)
    return Updated((ops.reshape(outputs, shape=tensor_type(state).shape),), {4: state})


def _sequence_rnn(node: Node) -> Updated:
    time_major = bool(node.option("TimeMajor", False))
    outputs, state = _rnn_steps(node, _time_first(node.input(0), time_major), 1)
    return Updated((_time_first(outputs, time_major),), {4: state})


def _bidirectional_rnn(node: Node) -> Updated:
    """Convert BIDIRECTIONAL_SEQUENCE_RNN. Inputs 1 to 4 belong to the forward direction, 5 to 8 to the backward direction, 9 to 11
    are auxiliary data and weights."""
    time_major = bool(node.option("TimeMajor", False))
    sides, merged, aux_inputs = _sides(node, time_major, 9, (10, 11))
    directions = [_rnn_steps(node, sides[0], 1, aux_inputs[0]), _rnn_steps(node, sides[1], 5, aux_inputs[1], reverse=True)]
    outputs = [_time_first(outputs, time_major) for outputs, _ in directions]
    states = {4: directions[0][1], 8: directions[1][1]}
    return Updated((join(outputs, 2),) if merged else tuple(outputs), states)


def _sides(
    node: Node, time_major: bool, aux: int, weights: tuple[int, int]
) -> tuple[tuple[Expr, Expr], bool, tuple[tuple[Expr, Expr] | None, tuple[Expr, Expr] | None]]:
    """Return, for a bidirectional layer: the data of each direction, whether the outputs are merged, and the auxiliary data and
    weights of each direction. Auxiliary data without weights becomes the data of the backward direction."""
    x = _time_first(node.input(0), time_major)
    aux_data = _time_first(node.input(aux), time_major) if node.has(aux) else None
    merged = bool(node.option("MergeOutputs", False))
    if aux_data is None:
        return (x, x), merged, (None, None)
    if not node.has(weights[0]):
        return (x, aux_data), merged, (None, None)
    return (x, x), merged, ((aux_data, _real(node, weights[0])), (aux_data, _real(node, weights[1])))


# --- LSTM -------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Lstm:
    """Input indices of an LSTM layer. first: the first weights. output, cell: the states. norm: the first layer norm, aux: the
    first weights of auxiliary data, each -1 for a layer without."""

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
        """Return the input index of the peephole weights of a gate. The cell gate has no peephole weights."""
        return self.first + 2 * GATES + (gate if gate < CELL else gate - 1)

    def bias(self, gate: int) -> int:
        return self.first + 11 + gate

    @property
    def projection(self) -> int:
        return self.first + 15


def _gates(node: Node, indices: _Lstm) -> list[int]:
    """Return the gates that have weights. An input gate without weights is coupled to the forget gate."""
    return [gate for gate in range(GATES) if gate != INPUT or node.has(indices.weights(INPUT))]


def _require_shapes(node: Node, x: Expr, indices: _Lstm, aux_data: Expr | None = None) -> None:
    """State the relations between the sizes of x (time, batch, inputs), the weights and the states of an LSTM."""
    (units,), batch = node.shape(indices.bias(OUTPUT)), tensor_type(x).shape[1]
    outputs = node.shape(indices.projection)[0] if node.has(indices.projection) else units
    vectors: dict[int, str] = {}
    matrices: dict[int, str] = {}
    for gate in _gates(node, indices):
        vectors |= (
            {indices.bias(gate): "bias", indices.norm + gate: "layer norm"} if indices.norm >= 0 else {indices.bias(gate): "bias"}
        )
        vectors |= {indices.peephole(gate): "peephole weights"} if gate != CELL else {}
        matrices |= {indices.weights(gate): "weights", indices.recurrent(gate): "recurrent weights"}
        matrices |= {indices.aux + gate: "auxiliary weights"} if aux_data is not None else {}
    with node.relations():
        for index, name in vectors.items():
            if node.has(index):
                require_shape(node.shape(index), (units,), f"the {name} at input {index}")
        for index, name in matrices.items():
            require_equal(node.shape(index)[0], units, f"the number of rows of the {name} at input {index}")
        if node.has(indices.projection + 1):
            require_shape(node.shape(indices.projection + 1), (outputs,), "the bias of the projection")
        require_shape(node.shape(indices.output), (batch, outputs), "the output state")
        require_shape(node.shape(indices.cell), (batch, units), "the cell state")
        if aux_data is not None:
            _require_steps(x, aux_data)


def _lstm_steps(node: Node, x: Expr, indices: _Lstm, aux_data: Expr | None = None, reverse: bool = False) -> tuple[Expr, States]:
    """Run an LSTM on x (time, batch, inputs). Returns (outputs of all steps, (last output, last cell)). `aux_data` is auxiliary
    data (time, batch, inputs)."""
    gates = _gates(node, indices)
    coupled = INPUT not in gates
    _require_shapes(node, x, indices, aux_data)
    norms = {gate: _optional(node, indices.norm + gate) if indices.norm >= 0 else None for gate in gates}
    biases = {gate: _real(node, indices.bias(gate)) for gate in gates}
    peepholes = {gate: _optional(node, indices.peephole(gate)) for gate in gates if gate != CELL}
    hidden = node.shape(indices.bias(OUTPUT))[0]
    inputs = _times(x, join([_real(node, indices.weights(gate)) for gate in gates], 0))
    if aux_data is not None:
        inputs = ops.add(inputs, _times(aux_data, join([_real(node, indices.aux + gate) for gate in gates], 0)))
    recurrent = join([_real(node, indices.recurrent(gate)) for gate in gates], 0)
    cell_clip, output_clip = float(node.option("CellClip", 0.0)), float(node.option("ProjClip", 0.0))
    projection, projection_bias = _optional(node, indices.projection), _optional(node, indices.projection + 1)

    def step(position: Expr, slices: States, states: States) -> tuple[Expr, States]:
        output, cell = states
        total = ops.add(slices[0], _times(output, recurrent))

        def gate(number: int, cell: Expr) -> Expr:
            index = gates.index(number)
            value = slice_axis(total, 1, hidden * index, hidden * (index + 1))
            peephole, norm = peepholes.get(number), norms[number]
            if peephole is not None:
                value = ops.add(value, ops.mul(peephole, cell))
            if norm is not None:
                value = ops.layer_norm(value, norm, biases[number], axis=1, epsilon=SMALL)
            else:
                value = ops.add(value, biases[number])
            return _activated(node, value) if number == CELL else ops.sigmoid(value)

        forget = gate(FORGET, cell)
        input_gate = ops.sub(scalar(1, "float32"), forget) if coupled else gate(INPUT, cell)
        new: Expr = ops.add(ops.mul(forget, cell), ops.mul(input_gate, gate(CELL, cell)))
        if cell_clip > 0:
            new = ops.clip(new, minimum=-cell_clip, maximum=cell_clip)
        result: Expr = ops.mul(gate(OUTPUT, new), _activated(node, new))
        if projection is not None:
            result = _times(result, projection)
            result = result if projection_bias is None else ops.add(result, projection_bias)
            if output_clip > 0:
                result = ops.clip(result, minimum=-output_clip, maximum=output_clip)
        return result, (result, new)

    return run_steps(step, [inputs], (node.input(indices.output), node.input(indices.cell)), reverse)


ALONE = _Lstm(1, 18, 19, 20)
"""Input indices of a unidirectional layer."""
FORWARD, BACKWARD = _Lstm(1, 35, 36, aux=40), _Lstm(18, 37, 38, aux=44)
"""Input indices of the two directions of a bidirectional layer; input 39 is auxiliary data."""


def _unidirectional_lstm(node: Node, x: Expr) -> tuple[Expr, States]:
    """Run a unidirectional layer."""
    if node.tensor(0).dtype.is_float:
        return _lstm_steps(node, x, ALONE)
    _require_shapes(node, x, ALONE)
    return integer_lstm.steps(node, x, ALONE.first, ALONE.output, ALONE.cell)


def _lstm(node: Node) -> Updated | tuple[Expr, ...]:
    if node.option("KernelType"):
        return _basic_lstm(node)
    outputs, (output, cell) = _unidirectional_lstm(node, expand_dims(node.input(0), 0))
    return Updated((ops.reshape(outputs, shape=tensor_type(output).shape),), {18: output, 19: cell})


def _basic_lstm(node: Node) -> tuple[Expr, ...]:
    """Convert a basic LSTM step. Inputs: data, previous output, weights (gates, inputs + outputs), bias, previous cell. Results:
    output, cell, concatenated data and output, and the gates (input, cell, forget, output) before their activations."""
    depth, batch = node.shape(4)[1], node.shape(0)[0]
    with node.relations():
        require_shape(node.shape(1), (batch, depth), "the previous output")
        require_shape(node.shape(4), (batch, depth), "the previous cell")
        require_shape(node.shape(3), (arith.mul(depth, GATES),), "the bias")
        require_equal(node.shape(2)[0], arith.mul(depth, GATES), "the number of rows of the weights")
    data_and_output = join([node.input(0), node.input(1)], 1)
    gates = ops.add(_times(data_and_output, _real(node, 2)), node.input(3))
    input_gate, cell_gate, forget_gate, output_gate = (
        slice_axis(gates, 1, depth * number, depth * (number + 1)) for number in range(GATES)
    )
    cell = ops.add(ops.mul(ops.sigmoid(input_gate), ops.tanh(cell_gate)), ops.mul(ops.sigmoid(forget_gate), node.input(4)))
    return ops.mul(ops.sigmoid(output_gate), ops.tanh(cell)), cell, data_and_output, gates


def _sequence_lstm(node: Node) -> Updated:
    if node.option("DiagonalRecurrentTensors", False):
        raise node.error("diagonal recurrent weights are not supported: expand them to matrices")
    time_major = bool(node.option("TimeMajor", False))
    outputs, (output, cell) = _unidirectional_lstm(node, _time_first(node.input(0), time_major))
    return Updated((_time_first(outputs, time_major),), {18: output, 19: cell})


def _bidirectional_lstm(node: Node) -> Updated:
    time_major = bool(node.option("TimeMajor", True))
    sides, merged, aux_inputs = _sides(node, time_major, 39, (FORWARD.aux + OUTPUT, BACKWARD.aux + OUTPUT))
    aux_data = [None if each is None else each[0] for each in aux_inputs]
    forward_outputs, forward_states = _lstm_steps(node, sides[0], FORWARD, aux_data[0])
    backward_outputs, backward_states = _lstm_steps(node, sides[1], BACKWARD, aux_data[1], reverse=True)
    outputs = [_time_first(each, time_major) for each in (forward_outputs, backward_outputs)]
    states = dict(zip((35, 36, 37, 38), (*forward_states, *backward_states), strict=True))
    return Updated((join(outputs, 2),) if merged else tuple(outputs), states)


# --- SVDF -------------------------------------------------------------------------------------------------------------


def _svdf(node: Node) -> Updated:
    """Convert SVDF: rank-1 filters in time and features (Nakkiran et al., "Compressing deep neural networks using a
    rank-constrained topology", 2015). The state is (batch, filters, times), newest last."""
    filters, times = node.tensor(2).shape
    batch, rank = node.shape(0)[0], node.option("Rank")
    if rank < 1 or filters % rank:
        raise node.error(f"rank must be >= 1 and divide the {filters} filters, got {rank}")
    old = ops.reshape(node.input(4), shape=(batch, filters, times))
    stored = not node.is_float()
    feature = _stored_features(node) if stored else _times(node.input(0), _real(node, 1))
    state = join([slice_axis(old, 2, 1, times), expand_dims(feature, 2)], 2)
    weights = cast_to(node.input(2), "int32") if stored else _real(node, 2)
    summed = ops.reduce_sum(ops.mul(cast_to(state, "int32") if stored else state, weights), axes=(2,), keepdims=False)
    total: Expr = ops.reduce_sum(ops.reshape(summed, shape=(batch, filters // rank, rank)), axes=(2,), keepdims=False)
    if node.has(3):
        total = ops.add(total, ops.reshape(node.input(3), shape=(filters // rank,)))
    if stored:
        # LiteRT ignores the activation for integers.
        (state_scale, _), (weight_scale, _), (result_scale, zero_point) = (
            node.pair(each) for each in (node.tensor(4), node.tensor(2), node.result)
        )
        placed = ops.add(
            scaled(total, [float(state_scale) * float(weight_scale) / float(result_scale)]), scalar(zero_point, "int32")
        )
        result: Expr = ops.cast(ops.clip(placed, minimum=-128.0, maximum=127.0), dtype="int8")
    else:
        result = _activated(node, total)
    return Updated((result,), {4: ops.reshape(state, shape=node.shape(4))})


def _stored_features(node: Node) -> Expr:
    """Multiply data by the feature filters, and requantize the product to int16 with the scale of the state."""
    node.require("int8")
    if node.tensor(4).dtype.name != "int16":
        raise node.error(f"the state must be int16, got {node.tensor(4).dtype}")
    (scale, zero_point), (feature_scale, _), (state_scale, _) = (node.pair(node.tensor(index)) for index in (0, 1, 4))
    total = _times(node.input(0), node.input(1))
    if zero_point:
        total = ops.sub(total, constant(zero_point * node.array(1).astype(np.int32).sum(1, dtype=np.int32)))
    limited = ops.clip(scaled(total, [float(scale) * float(feature_scale) / float(state_scale)]), minimum=-32768.0, maximum=32767.0)
    return ops.cast(limited, dtype="int16")


CONVERTERS: Mapping[str, Converter] = {
    "BIDIRECTIONAL_SEQUENCE_LSTM": typed(_bidirectional_lstm, "float32"),
    "BIDIRECTIONAL_SEQUENCE_RNN": typed(_bidirectional_rnn, "float32"),
    "LSTM": typed(_lstm, "float32 int8 int16"),
    "RNN": typed(_rnn, "float32"),
    "SVDF": typed(_svdf, "float32 int8"),
    "UNIDIRECTIONAL_SEQUENCE_LSTM": typed(_sequence_lstm, "float32 int8 int16"),
    "UNIDIRECTIONAL_SEQUENCE_RNN": typed(_sequence_rnn, "float32"),
}
