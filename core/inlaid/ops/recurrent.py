"""Recurrent layers: LSTM, GRU and the simple (Elman) layer.

Operands are x (T, B, I), weights w (D, G H, I) and r (D, G H, H), biases b (D, 2 G H: biases of w, then of r) and initial states
(D, B, H), for T steps, batch size B, I inputs, H hidden units, G gates and D directions. Results are the hidden states of all steps
(T, D, B, H) and the last states (D, B, H). Gates and equations are those of the ONNX operators.

Each layer decomposes into one matrix product for the inputs of all steps, and one or two products per step for the states. A short
sequence is unrolled, a longer one is a `Loop`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

import numpy as np

from inlaid.graph.conditions import require_shape
from inlaid.graph.ir import Expr, tuple_
from inlaid.graph.operator import Attrs, Operator
from inlaid.ops import activation
from inlaid.ops.compose import (
    cast_to,
    elu,
    expand_dims,
    expr_type,
    join,
    scalar,
    slice_axis,
    softplus,
    widened,
)
from inlaid.ops.define import FLOAT, INTEGER, Array, as_array, common_dtype, make_family, quiet, tensor_type, widen_array
from inlaid.ops.elementwise import abs, add, clip, div, less, mul, sub, tanh, where
from inlaid.ops.linear import matmul
from inlaid.ops.shape import reshape, transpose
from inlaid.ops.steps import States, StepFunction, item, run_steps
from inlaid_runtime.arith import Dim
from inlaid_runtime.records import dataclass
from inlaid_runtime.types import TensorType, TupleType, Type, from_numpy

ACTIVATIONS = (
    "Affine", "Elu", "HardSigmoid", "LeakyRelu", "Relu", "ScaledTanh", "Sigmoid", "Softplus", "Softsign", "Tanh", "ThresholdedRelu",
)  # fmt: skip


@dataclass(frozen=True)
class RecurrentAttrs(Attrs):
    """Attributes that all three layers have.

    direction
        "forward", "reverse" or "bidirectional", whose directions are forward, then reverse.
    activations, alphas, betas
        The names of the activation functions, as in ONNX, and their parameters, direction by direction.
    clip
        Bound of the absolute value of the arguments of activations; 0 is unbounded.
    masked
        Whether the last operand is the length of each sequence (B,). After its end, outputs are 0 and states do not change.
    """

    direction: str = "forward"
    activations: tuple[str, ...] = ()
    alphas: tuple[float, ...] = ()
    betas: tuple[float, ...] = ()
    clip: float = 0.0
    masked: bool = False

    @property
    def reverses(self) -> tuple[bool, ...]:
        """Whether each direction runs from the last step to the first."""
        return {"forward": (False,), "reverse": (True,)}.get(self.direction, (False, True))


@dataclass(frozen=True)
class LstmAttrs(RecurrentAttrs):
    """`coupled`: whether the forget gate is 1 - the input gate. `peephole`: whether an operand after the initial states holds the
    peephole weights (D, 3 H). The other attributes are those of `rnn`."""

    coupled: bool = False
    peephole: bool = False


@dataclass(frozen=True)
class GruAttrs(RecurrentAttrs):
    """`linear_before_reset`: whether the reset gate scales the product of state and weights instead of the state. The other
    attributes are those of `rnn`."""

    linear_before_reset: bool = False


@dataclass(frozen=True)
class _Cell:
    """The definition of a layer.

    gates, states, functions
        The numbers of gates, states and activation functions.
    step(attrs, direction, projection, states) -> states
        Build the graph of a step. `projection` is the product of the step's inputs and weights, plus biases. The first of the new
        states is the output.
    arrays(attrs, activate, x, states, w, r, b, peephole) -> states
        Compute a step on arrays, with transposed weights.
    adds_bias
        Whether the step adds the recurrent bias; if not, `projection` includes it.
    """

    gates: int
    states: int
    functions: int
    step: Callable[..., tuple[Expr, ...]]
    arrays: Callable[..., tuple[Array, ...]]
    adds_bias: bool = False


# --- types ------------------------------------------------------------------------------------------------------------


def _infer(cell: _Cell, attrs: RecurrentAttrs, *args: Type) -> Type:
    gates, states, functions = cell.gates, cell.states, cell.functions
    names = ("x", "w", "r", "b", "h", "c")
    peephole = getattr(attrs, "peephole", False)
    if len(args) != 4 + states + peephole + attrs.masked:
        raise ValueError(f"the attributes require {4 + states + peephole + attrs.masked} operands, got {len(args)}")
    tensors = [tensor_type(type_, FLOAT, name) for type_, name in zip(args[: 4 + states], names, strict=False)]
    dtype = common_dtype(*tensors)
    if attrs.direction not in ("forward", "reverse", "bidirectional"):
        raise ValueError(f"direction must be forward, reverse or bidirectional, got {attrs.direction!r}")
    directions = len(attrs.reverses)
    activation_count = directions * functions
    if not len(attrs.activations) == len(attrs.alphas) == len(attrs.betas) == activation_count or attrs.clip < 0:
        raise ValueError(
            f"expected {activation_count} activations, alphas and betas and clip >= 0, got {attrs.activations}, {attrs.clip}"
        )
    for name in attrs.activations:
        if name not in ACTIVATIONS:
            raise ValueError(f"activation must be one of {', '.join(ACTIVATIONS)}, got {name!r}")
    if tensors[0].rank != 3 or tensors[2].rank != 3:
        raise ValueError(f"x and r must have rank 3, got {tensors[0].rank} and {tensors[2].rank}")
    steps, batch, inputs = tensors[0].shape
    hidden = tensors[2].shape[2]
    shapes: list[tuple[TensorType, tuple[Dim, ...], str]] = [
        (tensors[1], (directions, gates * hidden, inputs), "w"),
        (tensors[2], (directions, gates * hidden, hidden), "r"),
        (tensors[3], (directions, 2 * gates * hidden), "b"),
        *((tensor, (directions, batch, hidden), "an initial state") for tensor in tensors[4:]),
    ]
    rest = list(args[4 + states :])
    if peephole:
        shapes.append((tensor_type(rest.pop(0), FLOAT), (directions, 3 * hidden), "the peephole weights"))
    if attrs.masked:
        shapes.append((tensor_type(rest.pop(0), INTEGER), (batch,), "the lengths"))
    for operand, shape, name in shapes:
        require_shape(operand.shape, shape, name)
    last = TensorType((directions, batch, hidden), dtype)
    return TupleType((TensorType((steps, directions, batch, hidden), dtype), *(last,) * states))


# --- activations ------------------------------------------------------------------------------------------------------


def _activate_array(name: str, alpha: float, beta: float, x: Array) -> Array:
    result: Array
    match name:
        case "Affine":
            result = alpha * x + beta
        case "Elu":
            result = np.where(x < 0, alpha * np.expm1(np.minimum(x, 0)), x)
        case "HardSigmoid":
            result = np.clip(alpha * x + beta, 0, 1)
        case "LeakyRelu":
            result = np.where(x >= 0, x, alpha * x)
        case "Relu":
            result = np.where(x < 0, 0, x)
        case "ScaledTanh":
            result = alpha * np.tanh(beta * x)
        case "Sigmoid":
            result = 1 / (1 + np.exp(-x))
        case "Softplus":
            result = np.maximum(x, 0) + np.log1p(np.exp(-np.abs(x)))
        case "Softsign":
            result = x / (1 + np.abs(x))
        case "ThresholdedRelu":
            result = np.where(x >= alpha, x, 0)
        case _:
            result = np.tanh(x)
    return result.astype(x.dtype, copy=False)


def _activate(attrs: RecurrentAttrs, index: int, x: Expr) -> Expr:
    """Apply activation number `index` to a clipped argument."""
    dtype = expr_type(x).dtype
    if attrs.clip:
        x = clip(x, minimum=-attrs.clip, maximum=attrs.clip)
    zero, one = scalar(0, dtype), scalar(1, dtype)
    alpha, beta = scalar(attrs.alphas[index], dtype), scalar(attrs.betas[index], dtype)
    match attrs.activations[index]:
        case "Affine":
            return add(mul(alpha, x), beta)
        case "Elu":
            return elu(x, attrs.alphas[index])
        case "HardSigmoid":
            return clip(add(mul(alpha, x), beta), minimum=0.0, maximum=1.0)
        case "LeakyRelu":
            return where(less(x, zero), mul(alpha, x), x)
        case "Relu":
            return activation.relu(x)
        case "ScaledTanh":
            return mul(alpha, tanh(mul(beta, x)))
        case "Sigmoid":
            return activation.sigmoid(x)
        case "Softplus":
            return softplus(x)
        case "Softsign":
            return div(x, add(one, abs(x)))
        case "ThresholdedRelu":
            return where(less(x, alpha), zero, x)
    return tanh(x)


# --- decomposition ----------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Direction:
    """One direction: the index of its first activation, recurrent weights (H, G H) and biases (G H,), number of hidden units,
    peephole weights."""

    first: int
    weights: Expr
    bias: Expr
    hidden: Dim
    peephole: Expr | None


def _gate(x: Expr, number: int, hidden: Dim, gates: int = 1) -> Expr:
    """Slice gates [number, number + gates) of the last axis."""
    return slice_axis(x, expr_type(x).rank - 1, number * hidden, (number + gates) * hidden)


def _lstm_step(attrs: LstmAttrs, direction: _Direction, projection: Expr, states: tuple[Expr, ...]) -> tuple[Expr, ...]:
    """Build a step of an LSTM. The gates are input, output, forget, cell."""
    h, c = states
    gates = add(projection, matmul(h, direction.weights))

    def gate(number: int, activation_number: int, cell: Expr | None) -> Expr:
        value = _gate(gates, number, direction.hidden)
        if cell is not None and direction.peephole is not None:
            value = add(value, mul(_gate(direction.peephole, number, direction.hidden), cell))
        return _activate(attrs, direction.first + activation_number, value)

    i = gate(0, 0, c)
    f = sub(scalar(1, expr_type(i).dtype), i) if attrs.coupled else gate(2, 0, c)
    new_c = add(mul(f, c), mul(i, gate(3, 1, None)))
    return mul(gate(1, 0, new_c), _activate(attrs, direction.first + 2, new_c)), new_c


def _gru_step(attrs: GruAttrs, direction: _Direction, projection: Expr, states: tuple[Expr, ...]) -> tuple[Expr, ...]:
    """Build a step of a GRU. The gates are update, reset, hidden."""
    (h,) = states

    def product(value: Expr, number: int, gates: int) -> Expr:
        weights, bias = (_gate(item, number, direction.hidden, gates) for item in (direction.weights, direction.bias))
        return add(matmul(value, weights), bias)

    gates = _activate(attrs, direction.first, add(_gate(projection, 0, direction.hidden, 2), product(h, 0, 2)))
    z, r = _gate(gates, 0, direction.hidden), _gate(gates, 1, direction.hidden)
    hidden = mul(r, product(h, 2, 1)) if attrs.linear_before_reset else product(mul(r, h), 2, 1)
    new = _activate(attrs, direction.first + 1, add(_gate(projection, 2, direction.hidden), hidden))
    return (add(mul(sub(scalar(1, expr_type(z).dtype), z), new), mul(z, h)),)


def _rnn_step(attrs: RecurrentAttrs, direction: _Direction, projection: Expr, states: tuple[Expr, ...]) -> tuple[Expr, ...]:
    (h,) = states
    return (_activate(attrs, direction.first, add(projection, matmul(h, direction.weights))),)


def _guarded(step: Callable[[Expr, States], States], lengths: Expr | None) -> StepFunction:
    """Wrap a step so that it keeps the states of sequences that have ended, and outputs 0 for them. The wrapped step also adds the
    axis of directions to its output: adding it to the outputs of all steps would take an operator after the loop."""

    def guarded(position: Expr, slices: States, old: States) -> tuple[Expr, States]:
        new = step(slices[0], old)
        if lengths is None:
            return expand_dims(new[0], 0), new
        is_running = expand_dims(less(position, lengths), 1)
        output = where(is_running, new[0], scalar(0, expr_type(new[0]).dtype))
        return expand_dims(output, 0), tuple(where(is_running, a, b) for a, b in zip(new, old, strict=True))

    return guarded


def _shaped(x: Expr, *shape: Dim) -> Expr:
    """Reshape a tensor to the shape that the type relation requires of it. Otherwise two different symbolic sizes, which the run
    checks to be equal, would broadcast, and the expression of the size of the states would grow with each step."""
    return x if expr_type(x).shape == shape else reshape(x, shape=shape)


def _decompose(cell: _Cell, attrs: RecurrentAttrs, args: tuple[Expr, ...]) -> Expr:
    dtype = expr_type(args[0]).dtype
    x, w, r, b, *initial = (widened(arg) for arg in args[: 4 + cell.states])
    rest = list(args[4 + cell.states :])
    peephole = widened(rest.pop(0)) if getattr(attrs, "peephole", False) else None
    steps, batch, inputs = expr_type(x).shape
    hidden = expr_type(r).shape[2]
    lengths = _shaped(cast_to(rest.pop(0), "int64"), batch) if attrs.masked else None
    width = cell.gates * hidden
    rows = reshape(x, shape=(steps * batch, inputs))
    results = []
    for number, reverse in enumerate(attrs.reverses):
        biases = item(b, number)
        bias, recurrent = slice_axis(biases, 0, 0, width), slice_axis(biases, 0, width, 2 * width)
        direction = _Direction(
            number * cell.functions,
            transpose(item(r, number), perm=(1, 0)),
            recurrent,
            hidden,
            None if peephole is None else item(peephole, number),
        )
        product = matmul(rows, transpose(item(w, number), perm=(1, 0)))
        projection = add(product, bias if cell.adds_bias else add(bias, recurrent))
        results.append(
            run_steps(
                _guarded(partial(cell.step, attrs, direction), lengths),
                [reshape(projection, shape=(steps, batch, width))],
                tuple(_shaped(item(state, number), batch, hidden) for state in initial),
                reverse,
            )
        )
    outputs = join([output for output, _ in results], 1)
    last = [join([expand_dims(final[index], 0) for _, final in results], 0) for index in range(cell.states)]
    return tuple_([cast_to(value, dtype) for value in (outputs, *last)])


# --- references -------------------------------------------------------------------------------------------------------


@quiet
def _reference(cell: _Cell, attrs: RecurrentAttrs, *args: Array) -> tuple[Array, ...]:
    dtype = from_numpy(args[0].dtype)
    x, w, r, b, *initial = map(widen_array, args[: 4 + cell.states])
    rest = list(args[4 + cell.states :])
    peephole = widen_array(rest.pop(0)) if getattr(attrs, "peephole", False) else None
    lengths = rest.pop(0) if attrs.masked else None
    outputs = np.zeros((len(x), len(w), x.shape[1], r.shape[2]), x.dtype)
    finals: list[list[Array]] = [[] for _ in range(cell.states)]
    for number, reverse in enumerate(attrs.reverses):

        def activate(index: int, value: Array, first: int = number * cell.functions) -> Array:
            if attrs.clip:
                value = np.clip(value, -attrs.clip, attrs.clip)
            activation_index = first + index
            return _activate_array(
                attrs.activations[activation_index], attrs.alphas[activation_index], attrs.betas[activation_index], value
            )

        state = tuple(value[number] for value in initial)
        weights = (w[number].T, r[number].T, b[number], None if peephole is None else peephole[number])
        for position in reversed(range(len(x))) if reverse else range(len(x)):
            new = cell.arrays(attrs, activate, x[position], state, *weights)
            is_running = np.full((x.shape[1], 1), True) if lengths is None else (position < lengths)[:, None]
            outputs[position, number] = np.where(is_running, new[0], 0)
            state = tuple(np.where(is_running, a, b) for a, b in zip(new, state, strict=True))
        for final, value in zip(finals, state, strict=True):
            final.append(value)
    return as_array(outputs, dtype), *(as_array(np.stack(final), dtype) for final in finals)


_Activate = Callable[[int, Array], Array]


def _lstm_arrays(
    attrs: LstmAttrs, activate: _Activate, x: Array, states: Sequence[Array], w: Array, r: Array, b: Array, p: Array | None
) -> tuple[Array, ...]:
    h, c = states
    i, o, f, g = np.split(x @ w + h @ r + sum(np.split(b, 2)), 4, axis=-1)
    peep_i, peep_o, peep_f = np.zeros((3, 1), x.dtype) if p is None else np.split(p, 3)
    i = activate(0, i + peep_i * c)
    f = 1 - i if attrs.coupled else activate(0, f + peep_f * c)
    c = f * c + i * activate(1, g)
    return activate(0, o + peep_o * c) * activate(2, c), c


def _gru_arrays(
    attrs: GruAttrs, activate: _Activate, x: Array, states: Sequence[Array], w: Array, r: Array, b: Array, p: Array | None
) -> tuple[Array, ...]:
    (h,) = states
    w_z, w_r, w_h = np.split(w, 3, axis=1)
    r_z, r_r, r_h = np.split(r, 3, axis=1)
    wb_z, wb_r, wb_h, rb_z, rb_r, rb_h = np.split(b, 6)
    update = activate(0, x @ w_z + h @ r_z + wb_z + rb_z)
    reset = activate(0, x @ w_r + h @ r_r + wb_r + rb_r)
    recurrent = reset * (h @ r_h + rb_h) if attrs.linear_before_reset else (reset * h) @ r_h + rb_h
    return ((1 - update) * activate(1, x @ w_h + wb_h + recurrent) + update * h,)


def _rnn_arrays(
    attrs: RecurrentAttrs, activate: _Activate, x: Array, states: Sequence[Array], w: Array, r: Array, b: Array, p: Array | None
) -> tuple[Array, ...]:
    (h,) = states
    return (activate(0, x @ w + h @ r + sum(np.split(b, 2))),)


_BIASES = "b (D, 2 G H) (biases of w, then of r)"
_LSTM = _Cell(4, 2, 3, _lstm_step, _lstm_arrays)
_GRU = _Cell(3, 1, 2, _gru_step, _gru_arrays, adds_bias=True)
_RNN = _Cell(1, 1, 1, _rnn_step, _rnn_arrays)


def _layer(name: str, cell: _Cell, attrs: type[RecurrentAttrs], optional_count: int, inputs: tuple[str, ...], doc: str) -> Operator:
    least = 4 + cell.states
    return Operator(
        name,
        partial(_infer, cell),
        attrs,
        reference=partial(_reference, cell),
        decompose=partial(_decompose, cell),
        arity=(least, least + optional_count),
        inputs=inputs,
        doc=doc,
    )


lstm = _layer(
    "lstm",
    _LSTM,
    LstmAttrs,
    2,
    ("x", "w", "r", "b", "h", "c", "peephole", "lengths"),
    doc=f"""Long short-term memory layer (Hochreiter and Schmidhuber, 1997), with the equations of ONNX LSTM.
Operands, of one float dtype, G = 4 gates (input, output, forget, cell) and D directions: x (T, B, I), w (D, G H, I), r (D, G H, H),
{_BIASES}, initial states h and c (D, B, H); with attribute `peephole`, peephole weights
(D, 3 H); with `masked`, lengths (B,), integer.
Results: hidden states (T, D, B, H), last hidden state (D, B, H), last cell state (D, B, H).""",
)

gru = _layer(
    "gru",
    _GRU,
    GruAttrs,
    1,
    ("x", "w", "r", "b", "h", "lengths"),
    doc=f"""Gated recurrent unit layer (Cho et al., 2014), with the equations of ONNX GRU.
Operands, of one float dtype, G = 3 gates (update, reset, hidden) and D directions: x (T, B, I), w (D, G H, I), r (D, G H, H),
{_BIASES}, initial state h (D, B, H); with `masked`, lengths (B,), integer.
Results: hidden states (T, D, B, H), last hidden state (D, B, H).""",
)

rnn = _layer(
    "rnn",
    _RNN,
    RecurrentAttrs,
    1,
    ("x", "w", "r", "b", "h", "lengths"),
    doc=f"""Simple recurrent layer (Elman, 1990), with the equations of ONNX RNN.
Operands, of one float dtype, G = 1 and D directions: x (T, B, I), w (D, H, I), r (D, H, H), {_BIASES},
initial state h (D, B, H); with `masked`, lengths (B,), integer.
Results: hidden states (T, D, B, H), last hidden state (D, B, H).""",
)

OPERATORS = make_family(lstm, gru, rnn)
