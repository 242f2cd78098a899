"""Recurrent layers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from inlay.arith import Dim
from inlay.frontends.onnx.node import Converter, Node
from inlay.graph.ir import Expr, tuple_item
from inlay.graph.operator import Operator
from inlay.ops.compose import scalar
from inlay.ops.recurrent import ACTIVATIONS, gru, lstm, rnn
from inlay.ops.shape import full, transpose

_PARAMETERS: Mapping[str, tuple[float, float]] = {
    "Affine": (1.0, 0.0),
    "Elu": (1.0, 0.0),
    "HardSigmoid": (0.2, 0.5),
    "LeakyRelu": (0.01, 0.0),
    "ScaledTanh": (1.0, 1.0),
    "ThresholdedRelu": (1.0, 0.0),
}
"""Default alpha and beta of the activations that have them."""

_NAMES = {name.lower(): name for name in ACTIVATIONS}
_NO_BETA = ("Elu", "LeakyRelu", "ThresholdedRelu")


def _activations(node: Node, defaults: tuple[str, ...]) -> dict[str, Any]:
    """The activations by name with their parameters; alphas and betas are given only for those that have them, in order."""
    given = node.attrs.get("activations") or defaults
    names = [_NAMES.get(str(name).lower(), "") for name in given]
    if "" in names:
        raise node.error(f"activation {given[names.index('')]!r} is unknown; known are {', '.join(ACTIVATIONS)}")
    alphas = iter(node.attrs.get("activation_alpha") or ())
    betas = iter(node.attrs.get("activation_beta") or ())
    found = []
    for name in names:
        alpha, beta = _PARAMETERS.get(name, (0.0, 0.0))
        if name in _PARAMETERS:
            alpha = next(alphas, alpha)
            beta = beta if name in _NO_BETA else next(betas, beta)
        found.append((alpha, beta))
    return {
        "activations": tuple(names),
        "alphas": tuple(alpha for alpha, _ in found),
        "betas": tuple(beta for _, beta in found),
    }


def _swapped(x: Expr, *perm: int) -> Expr:
    return transpose(x, perm=perm)


def _convert(node: Node, operator: Operator, gates: int, states: int, defaults: tuple[str, ...], **more: Any) -> tuple[Expr, ...]:
    """X, W, R, B, sequence_lens, initial states (and, for LSTM, P). With layout 1 the batch comes first."""
    batch_first = bool(node.attrs.get("layout", 0))
    direction = node.attrs.get("direction", "forward")
    directions = 2 if direction == "bidirectional" else 1
    x = _swapped(node.input(0), 1, 0, 2) if batch_first else node.input(0)
    if node.rank(0) != 3 or node.rank(1) != 3 or node.rank(2) != 3:
        raise node.error("X, W and R have three dimensions")
    batch, hidden = node.tensor(0).shape[0 if batch_first else 1], node.tensor(2).shape[2]
    of = node.dtype(0)

    def zeros(*shape: Dim) -> Expr:
        return full(scalar(0, of), shape=shape)

    args = [x, node.input(1), node.input(2), node.optional(3) or zeros(directions, 2 * gates * hidden)]
    for index in range(states):
        state = node.optional(5 + index)
        if state is None:
            args.append(zeros(directions, batch, hidden))
        else:
            args.append(_swapped(state, 1, 0, 2) if batch_first else state)
    if more.get("peephole"):
        args.append(node.input(7))
    lengths = node.optional(4)
    if lengths is not None:
        args.append(lengths)
    result = operator(
        *args,
        direction=direction,
        clip=node.attrs.get("clip", 0.0),
        masked=lengths is not None,
        **_activations(node, defaults * directions),
        **more,
    )
    parts = [tuple_item(result, index) for index in range(1 + states)]
    if batch_first:
        parts = [_swapped(parts[0], 2, 0, 1, 3), *(_swapped(part, 1, 0, 2) for part in parts[1:])]
    return tuple(parts)


def _lstm(node: Node) -> tuple[Expr, ...]:
    more = {"coupled": bool(node.attrs.get("input_forget", 0)), "peephole": node.optional(7) is not None}
    return _convert(node, lstm, 4, 2, ("Sigmoid", "Tanh", "Tanh"), **more)


def _gru(node: Node) -> tuple[Expr, ...]:
    return _convert(node, gru, 3, 1, ("Sigmoid", "Tanh"), linear_before_reset=bool(node.attrs.get("linear_before_reset", 0)))


def _rnn(node: Node) -> tuple[Expr, ...]:
    return _convert(node, rnn, 1, 1, ("Tanh",))


CONVERTERS: Mapping[str, Converter] = {"GRU": _gru, "LSTM": _lstm, "RNN": _rnn}
