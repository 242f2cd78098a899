"""Recurrent layers end with their longest sequence."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from inlaid import ops
from inlaid.graph import ir
from inlaid.graph.interp import evaluate
from inlaid.graph.scope_conditions import with_constraints
from inlaid.graph.verify import verify
from inlaid.passes.shorten_sequences import shorten_sequences
from inlaid.plugins import CostConstants
from inlaid_runtime.arith import SizeVar
from inlaid_runtime.types import TensorType

T, B = SizeVar("t"), SizeVar("b")
STATES = {"lstm": 2, "gru": 1, "rnn": 1}
GATES = {"lstm": 4, "gru": 3, "rnn": 1}
ANY_LAYER = CostConstants(shortened_products=0)
FUNCTIONS = {"lstm": ("Sigmoid", "Tanh", "Tanh"), "gru": ("Sigmoid", "Tanh"), "rnn": ("Tanh",)}


def layer(kind: str, direction: str, steps, batch, masked: bool = True, inputs: int = 2, hidden: int = 3) -> ir.Function:
    sides = 2 if direction == "bidirectional" else 1
    rng = np.random.default_rng(0)

    def weights(*shape: int) -> ir.Expr:
        return ir.constant(rng.uniform(-1, 1, shape).astype(np.float32))

    x = ir.var("x", TensorType((steps, batch, inputs), "float32"))
    start = ir.var("start", TensorType((sides, batch, hidden), "float32"))
    lengths = ir.var("lengths", TensorType((batch,), "int32"))
    width, names = GATES[kind] * hidden, FUNCTIONS[kind] * sides
    args = (x, weights(sides, width, inputs), weights(sides, width, hidden), weights(sides, 2 * width))
    args = (*args, *(start,) * STATES[kind], *((lengths,) if masked else ()))
    numbers = (0.0,) * len(names)
    result = getattr(ops, kind)(*args, direction=direction, activations=names, alphas=numbers, betas=numbers, masked=masked)
    return ir.function([x, start, lengths], result)


@settings(deadline=None, max_examples=60)
@given(
    st.sampled_from(sorted(STATES)),
    st.sampled_from(["forward", "reverse", "bidirectional"]),
    st.booleans(),
    st.integers(1, 6),
    st.lists(st.integers(-1, 8), max_size=3),
)
def test_values(kind, direction, symbolic, steps, lengths):
    if not symbolic:
        lengths = lengths or [0]
    before = layer(kind, direction, T if symbolic else steps, B if symbolic else len(lengths))
    after = shorten_sequences(before, lambda call: True, ANY_LAYER)
    assert after is not before
    verify(ir.Module({"main": after}))
    rng = np.random.default_rng(1)
    inputs = {
        "x": rng.uniform(-1, 1, (steps, len(lengths), 2)).astype(np.float32),
        "start": rng.uniform(-1, 1, (2 if direction == "bidirectional" else 1, len(lengths), 3)).astype(np.float32),
        "lengths": np.array(lengths, np.int32),
    }
    stated = with_constraints(ir.Module({"main": after}))
    for a, b in zip(evaluate(before, inputs), evaluate(stated, inputs), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-6, atol=1e-6)


def test_a_layer_without_lengths_or_on_a_target_without_computed_sizes_stays():
    whole = layer("lstm", "forward", 4, 2, masked=False)
    assert shorten_sequences(whole, lambda call: True, ANY_LAYER) is whole
    masked = layer("lstm", "forward", 4, 2)
    assert shorten_sequences(masked, lambda call: False, ANY_LAYER) is masked


def test_small_layers_stay():
    small = layer("gru", "forward", 4, 2)
    assert shorten_sequences(small, lambda call: True, CostConstants()) is small
    large = layer("gru", "forward", T, B, inputs=128, hidden=128)
    assert shorten_sequences(large, lambda call: True, CostConstants()) is not large
