"""Recurrent layers."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from inlaid import ops
from inlaid.graph.ir import Loop, post_order
from inlaid.graph.operator import Operator
from inlaid.ops.recurrent import ACTIVATIONS
from inlaid.ops.steps import UNROLLED
from inlaid_runtime.arith import SizeVar

from .harness import Array, call, check_decomposition, normal, raises_for, tolerance

SETTINGS = settings(deadline=None, max_examples=25)

# (operator, gates, states, default activations)
LAYERS: dict[str, tuple[Operator, int, int, tuple[str, ...]]] = {
    "lstm": (ops.lstm, 4, 2, ("Sigmoid", "Tanh", "Tanh")),
    "gru": (ops.gru, 3, 1, ("Sigmoid", "Tanh")),
    "rnn": (ops.rnn, 1, 1, ("Tanh",)),
}
BATCH, INPUTS, HIDDEN = 2, 3, 2


def layer(
    name: str, steps: int, dtype: str = "float32", direction: str = "forward", **more: Any
) -> tuple[Operator, list[Array], dict[str, Any]]:
    """(operator, arguments, attributes) of a layer."""
    operator, gates, states, activations = LAYERS[name]
    directions = 2 if direction == "bidirectional" else 1
    shapes = [
        (steps, BATCH, INPUTS),
        (directions, gates * HIDDEN, INPUTS),
        (directions, gates * HIDDEN, HIDDEN),
        (directions, 2 * gates * HIDDEN),
        *[(directions, BATCH, HIDDEN)] * states,
    ]
    if more.get("peephole"):
        shapes.append((directions, 3 * HIDDEN))
    args = [normal(shape, dtype, seed) for seed, shape in enumerate(shapes)]
    if more.get("masked"):
        args.append(np.array([steps - 1, max(steps - 2, 0)], np.int32))
    chosen = more.pop("activations", activations) * directions
    return operator, args, {
        "direction": direction, "activations": chosen, "alphas": (0.3,) * len(chosen), "betas": (0.2,) * len(chosen), **more,
    }  # fmt: skip


@SETTINGS
@given(
    st.sampled_from(sorted(LAYERS)),
    st.integers(1, 4),
    st.sampled_from(("forward", "reverse", "bidirectional")),
    st.sampled_from(("float64", "float32", "float16")),
    st.booleans(),
    st.booleans(),
)
def test_layers(name: str, steps: int, direction: str, dtype: str, masked: bool, option: bool) -> None:
    more: dict[str, Any] = {"masked": masked, "clip": 0.7 if option else 0.0}
    if name == "lstm":
        more |= {"peephole": option, "coupled": not option}
    if name == "gru":
        more["linear_before_reset"] = option
    operator, args, attrs = layer(name, steps, dtype, direction, **more)
    check_decomposition(operator, *args, **attrs, **tolerance(dtype))


@pytest.mark.parametrize("activation", ACTIVATIONS)
def test_activations(activation: str) -> None:
    operator, args, attrs = layer("rnn", 2, activations=(activation,))
    check_decomposition(operator, *args, **attrs, **tolerance("float32"))


@pytest.mark.parametrize("name", sorted(LAYERS))
@pytest.mark.parametrize("steps", [0, UNROLLED + 3])
@pytest.mark.parametrize("direction", ["forward", "bidirectional"])
def test_long_and_empty_sequences_are_loops(name: str, steps: int, direction: str) -> None:
    operator, args, attrs = layer(name, steps, direction=direction, masked=steps > 0)
    check_decomposition(operator, *args, **attrs, rtol=1e-4, atol=1e-4)
    operator_call = call(operator, *args, **attrs)
    assert operator.decompose is not None
    assert any(isinstance(expr, Loop) for expr in post_order(operator.decompose(operator_call.attrs, operator_call.args)))


def test_symbolic_lengths() -> None:
    operator, args, attrs = layer("lstm", 5, direction="bidirectional")
    n, b = SizeVar("n"), SizeVar("b")
    shapes = ((n, b, INPUTS), *(array.shape for array in args[1:4]), *((2, b, HIDDEN),) * 2)
    check_decomposition(operator, *args, shapes=shapes, **attrs, **tolerance("float32"))


@pytest.mark.parametrize("name", sorted(LAYERS))
def test_states_take_the_batch_size_of_the_input(name: str) -> None:
    operator, args, attrs = layer(name, 5, masked=True)
    sizes = [SizeVar(each) for each in "bhcl"]
    initial = [(1, size, HIDDEN) for size in sizes[1 : len(args) - 4]]
    shapes = ((5, sizes[0], INPUTS), *(array.shape for array in args[1:4]), *initial, (sizes[3],))
    check_decomposition(operator, *args, shapes=shapes, **attrs, **tolerance("float32"))


def test_a_sequence_that_is_over_keeps_its_state() -> None:
    operator, args, attrs = layer("gru", 3, masked=True)
    args[-1] = np.array([1, 3], np.int32)
    outputs, last = check_decomposition(operator, *args, **attrs, **tolerance("float32"))
    assert (outputs[1:, 0, 0] == 0).all()
    np.testing.assert_array_equal(last[0, 0], outputs[0, 0, 0])
    np.testing.assert_array_equal(last[0, 1], outputs[2, 0, 1])


def test_layers_refuse() -> None:
    operator, args, attrs = layer("lstm", 2)
    raises_for(operator, "dimension 1 of w must be 8, got 2", args[0], args[1][:, :2], *args[2:], **attrs)
    raises_for(
        operator, "expected 3 activations, alphas and betas and clip >= 0, got", *args, **{**attrs, "activations": ("Tanh",)}
    )
    raises_for(
        operator,
        "activation must be one of Affine, Elu, HardSigmoid, LeakyRelu, Relu,",
        *args,
        **{**attrs, "activations": ("Sin", "Tanh", "Tanh")},
    )
    raises_for(operator, "direction", *args, **{**attrs, "direction": "sideways"})
    raises_for(operator, "the attributes require 7 operands, got 6", *args, **{**attrs, "masked": True})
