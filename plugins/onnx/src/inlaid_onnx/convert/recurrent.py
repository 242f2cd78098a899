"""Recurrent layers."""

from __future__ import annotations

from collections.abc import Mapping

from inlaid.graph.ir import Expr, call, tuple_item
from inlaid.graph.operator import Operator
from inlaid.ops.compose import scalar
from inlaid.ops.recurrent import ACTIVATIONS, GruAttrs, LstmAttrs, RecurrentAttrs, gru, lstm, rnn
from inlaid.ops.shape import full, transpose
from inlaid_onnx.node import Converter, Node, as_float32
from inlaid_runtime.arith import Dim

_PARAMETERS: Mapping[str, tuple[float, float]] = {
    "Affine": (1.0, 0.0),
    "Elu": (1.0, 0.0),
    "HardSigmoid": (0.2, 0.5),
    "LeakyRelu": (0.01, 0.0),
    "ScaledTanh": (1.0, 1.0),
    "ThresholdedRelu": (1.0, 0.0),
}
"""Default (alpha, beta) of each activation that has these parameters."""

_NAMES = {name.lower(): name for name in ACTIVATIONS}
_NO_BETA = ("Elu", "LeakyRelu", "ThresholdedRelu")


_Common = tuple[str, tuple[str, ...], tuple[float, ...], tuple[float, ...], float, bool]
"""The fields of `RecurrentAttrs`, in order."""


def _common(node: Node, defaults: tuple[str, ...]) -> _Common:
    """Return the attributes common to all layers. The node lists alphas and betas only for the activations that use them."""
    direction = node.attrs.get("direction", "forward")
    activations = node.attrs.get("activations") or defaults * (2 if direction == "bidirectional" else 1)
    names = [_NAMES.get(str(name).lower(), "") for name in activations]
    if "" in names:
        raise node.error(f"activation must be one of {', '.join(ACTIVATIONS)}, got {activations[names.index('')]!r}")
    alphas = iter(node.attrs.get("activation_alpha") or ())
    betas = iter(node.attrs.get("activation_beta") or ())
    parameters = []
    for name in names:
        alpha, beta = map(as_float32, _PARAMETERS.get(name, (0.0, 0.0)))
        if name in _PARAMETERS:
            alpha = next(alphas, alpha)
            beta = beta if name in _NO_BETA else next(betas, beta)
        parameters.append((alpha, beta))
    return (
        direction,
        tuple(names),
        tuple(alpha for alpha, _ in parameters),
        tuple(beta for _, beta in parameters),
        node.attrs.get("clip", 0.0),
        node.optional(4) is not None,
    )


def _swapped(x: Expr) -> Expr:
    """Transpose (B, D, H) to (D, B, H) or back."""
    return transpose(x, perm=(1, 0, 2))


def _layer(
    node: Node, operator: Operator, attrs: RecurrentAttrs, gates: int, states: int, peephole: Expr | None
) -> tuple[Expr, ...]:
    """Build a layer from X, W, R, B, sequence_lens and initial states. Layout 1 puts the batch axis first."""
    if node.rank(0) != 3 or node.rank(1) != 3 or node.rank(2) != 3:
        raise node.error("X, W and R must have rank 3")
    batch_first = bool(node.attrs.get("layout", 0))
    directions = len(attrs.reverses)
    batch, hidden = node.tensor(0).shape[0 if batch_first else 1], node.tensor(2).shape[2]

    def zeros(*shape: Dim) -> Expr:
        return full(scalar(0, node.dtype(0)), shape=shape)

    def batch_second(x: Expr) -> Expr:
        return _swapped(x) if batch_first else x

    bias = zeros(directions, 2 * gates * hidden) if node.optional(3) is None else node.input(3)
    args = [batch_second(node.input(0)), node.input(1), node.input(2), bias]
    for index in range(states):
        state = node.optional(5 + index)
        args.append(zeros(directions, batch, hidden) if state is None else batch_second(state))
    args += [item for item in (peephole, node.optional(4)) if item is not None]
    result = call(operator, args, attrs)
    outputs, *last = (tuple_item(result, index) for index in range(1 + states))
    return transpose(outputs, perm=(2, 0, 1, 3)) if batch_first else outputs, *map(batch_second, last)


def _lstm(node: Node) -> tuple[Expr, ...]:
    peephole = node.optional(7)
    common = _common(node, ("Sigmoid", "Tanh", "Tanh"))
    attrs = LstmAttrs(*common, coupled=bool(node.attrs.get("input_forget", 0)), peephole=peephole is not None)
    return _layer(node, lstm, attrs, 4, 2, peephole)


def _gru(node: Node) -> tuple[Expr, ...]:
    attrs = GruAttrs(*_common(node, ("Sigmoid", "Tanh")), linear_before_reset=bool(node.attrs.get("linear_before_reset", 0)))
    return _layer(node, gru, attrs, 3, 1, None)


def _rnn(node: Node) -> tuple[Expr, ...]:
    return _layer(node, rnn, RecurrentAttrs(*_common(node, ("Tanh",))), 1, 1, None)


CONVERTERS: Mapping[str, Converter] = {"GRU": _gru, "LSTM": _lstm, "RNN": _rnn}
